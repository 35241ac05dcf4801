//! The conjugate prior of a cluster: marginal likelihoods, and posteriors of the parameters.

use std::f64::consts::{PI, TAU};

use gmm_model::bayes::BayesPrior;
use gmm_model::{Cholesky, CovarianceType, Draws, Mixture, ModelError, PriorScale, Statistics, packed_index};
use ndarray::{Array2, ArrayView1};

use super::moments::Moments;

/// A [`BayesPrior`] with the constants of its density.
#[derive(Clone, Debug)]
pub(super) struct Conjugate {
    prior: BayesPrior,
    kind: CovarianceType,
    /// The part of a log marginal likelihood that the prior's density contributes.
    constant: f64,
}

/// The normal distribution of posterior means of a cluster's parameters.
#[derive(Clone, Debug)]
pub(super) struct Normal {
    pub(super) mean: Vec<f64>,
    pub(super) factor: Factor,
    /// `−½ ln |2πΣ|`.
    pub(super) log_normalizer: f64,
}

/// The Cholesky factor of a covariance: a packed lower triangle, or standard deviations `(d,)`.
#[derive(Clone, Debug)]
pub(super) enum Factor {
    Full(Cholesky),
    Diag(Vec<f64>),
}

impl Conjugate {
    /// # Errors
    /// [`ModelError`] if the prior is invalid for the kind and `d`.
    pub(super) fn new(prior: BayesPrior, kind: CovarianceType, d: usize) -> Result<Self, ModelError> {
        prior.check(kind, d)?;
        let mut out = Self { prior, kind, constant: 0.0 };
        out.constant = -out.log_integral(&Moments::empty(kind, d));
        Ok(out)
    }

    pub(super) const fn kind(&self) -> CovarianceType {
        self.kind
    }

    /// `ln ∫ Π p(x | θ) p(θ) dθ` over the rows of a cluster.
    ///
    /// Source: Murphy 2007, Conjugate Bayesian analysis of the Gaussian distribution, sections 3 (a column) and 9
    /// (full).
    pub(super) fn log_marginal(&self, rows: &Moments) -> f64 {
        if rows.n == 0.0 {
            return 0.0;
        }
        self.constant + self.log_integral(rows) - 0.5 * rows.n * rows.mean.len() as f64 * PI.ln()
    }

    /// The logarithm of the integral of prior times likelihood, with the factors left out that `log_marginal` adds.
    fn log_integral(&self, rows: &Moments) -> f64 {
        let d = rows.mean.len();
        let n = d as f64;
        let (beta, nu) = (self.prior.mean_precision + rows.n, self.prior.degrees_of_freedom + rows.n);
        let scale = self.scale(rows);
        let of_precision = match self.kind {
            CovarianceType::Full | CovarianceType::Tied => {
                // Rounding cannot make it singular unless the prior is: the scatter is semidefinite.
                let ln_det = Cholesky::new(unpacked(&scale, d).view()).map_or(f64::INFINITY, |factor| factor.ln_det());
                ln_gamma_multivariate(d, 0.5 * nu) - 0.5 * nu * ln_det
            }
            CovarianceType::Diag => {
                n * libm::lgamma(0.5 * nu) - 0.5 * nu * scale.iter().map(|v| libm::log(*v)).sum::<f64>()
            }
            CovarianceType::Spherical => {
                // ν of the kind spherical counts rows, each of which has d squares.
                let nu = n * nu;
                libm::lgamma(0.5 * nu) - 0.5 * nu * libm::log(scale[0])
            }
        };
        of_precision - 0.5 * n * libm::log(beta)
    }

    /// `C` of the posterior, packed as the scatter; for spherical `dC`, the sum over the columns.
    fn scale(&self, rows: &Moments) -> Vec<f64> {
        let beta = self.prior.mean_precision;
        let share = beta * rows.n / (beta + rows.n);
        let away: Vec<f64> = rows.mean.iter().zip(&self.prior.mean).map(|(x, m)| x - m).collect();
        let mut scale = rows.scatter.clone();
        match &self.prior.scale {
            PriorScale::Matrix(prior) => {
                for i in 0..away.len() {
                    for j in 0..=i {
                        scale[packed_index(i, j)] += prior[[i, j]] + share * away[i] * away[j];
                    }
                }
            }
            PriorScale::Variances(prior) => {
                scale.iter_mut().zip(prior).zip(&away).for_each(|((s, c), v)| *s += c + share * v * v);
            }
            PriorScale::Variance(prior) => {
                scale[0] += prior * away.len() as f64 + share * away.iter().map(|v| v * v).sum::<f64>();
            }
        }
        scale
    }

    /// The posterior mean of the mean, and the inverse of the expected precision.
    ///
    /// # Errors
    /// [`ModelError`] if the covariance is singular to rounding.
    pub(super) fn expected(&self, rows: &Moments) -> Result<Normal, ModelError> {
        let d = rows.mean.len();
        let (beta, nu) = (self.prior.mean_precision, self.prior.degrees_of_freedom + rows.n);
        let share = rows.n / (beta + rows.n);
        let mean = rows.mean.iter().zip(&self.prior.mean).map(|(x, m)| m + share * (x - m)).collect();
        let scale = self.scale(rows);
        let factor = match self.kind {
            CovarianceType::Full | CovarianceType::Tied => {
                let factor = Cholesky::new((unpacked(&scale, d) / nu).view());
                Factor::Full(factor.map_err(|e| {
                    let value = format!("a matrix with pivot {} in column {}", e.pivot, e.column);
                    ModelError::Range { what: "covariance of a cluster", value, must: "positive definite" }
                })?)
            }
            CovarianceType::Diag => Factor::Diag(scale.iter().map(|v| (v / nu).sqrt()).collect()),
            CovarianceType::Spherical => Factor::Diag(vec![(scale[0] / (nu * d as f64)).sqrt(); d]),
        };
        let half_ln_det = match &factor {
            Factor::Full(factor) => 0.5 * factor.ln_det(),
            Factor::Diag(sd) => sd.iter().map(|v| libm::log(*v)).sum(),
        };
        Ok(Normal { mean, factor, log_normalizer: -half_ln_det - 0.5 * d as f64 * TAU.ln() })
    }

    /// A mixture with the given weights and the parameters of each cluster drawn from their posterior.
    ///
    /// # Errors
    /// As for [`Posterior::draw`](gmm_model::bayes::Posterior::draw).
    pub(super) fn draw<'a>(
        &self,
        clusters: impl ExactSizeIterator<Item = &'a Moments>,
        weights: Vec<f64>,
        draws: &mut Draws,
    ) -> Result<Mixture, ModelError> {
        let (k, d) = (clusters.len(), self.prior.mean.len());
        let mut statistics = Statistics::zero(self.kind, Array2::zeros((k, d)));
        let each = statistics.second.len() / k;
        for (c, rows) in clusters.enumerate() {
            statistics.centres.row_mut(c).assign(&ArrayView1::from(&rows.mean));
            statistics.weight[c] = rows.n;
            statistics.second[c * each..][..each].copy_from_slice(&rows.scatter);
        }
        statistics.total_weight = statistics.weight.iter().sum();
        statistics.n_rows = statistics.total_weight as u64;
        self.prior.update(&statistics, 0.0)?.draw(draws)?.with_weights(weights.into())
    }
}

/// A lower triangle as a `(d, d)` matrix; zeros above the diagonal.
fn unpacked(lower: &[f64], d: usize) -> Array2<f64> {
    Array2::from_shape_fn((d, d), |(i, j)| if j <= i { lower[packed_index(i, j)] } else { 0.0 })
}

/// `ln Γ_d(a)`.
fn ln_gamma_multivariate(d: usize, a: f64) -> f64 {
    let pairs = (d * (d - 1)) as f64 / 4.0;
    pairs * PI.ln() + (0..d).map(|i| libm::lgamma(a - 0.5 * i as f64)).sum::<f64>()
}
