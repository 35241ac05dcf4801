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

    /// The posterior predictive density of one more row of a cluster; for no rows that of a new cluster.
    pub(super) fn predictive(&self, rows: &Moments) -> Predictive {
        let d = rows.mean.len();
        let n = d as f64;
        let beta = self.prior.mean_precision + rows.n;
        let nu = self.prior.degrees_of_freedom + rows.n;
        let share = rows.n / beta;
        let mean = rows.mean.iter().zip(&self.prior.mean).map(|(x, m)| m + share * (x - m)).collect();
        let scale = self.scale(rows);
        let apart = 0.5 * n * (PI.ln() + libm::log((beta + 1.0) / beta));
        let (factor, power, constant) = match self.kind {
            CovarianceType::Full | CovarianceType::Tied => {
                let of_counts = libm::lgamma(0.5 * (nu + 1.0)) - libm::lgamma(0.5 * (nu + 1.0 - n));
                match Cholesky::new(unpacked(&scale, d).view()) {
                    Ok(factor) => {
                        let half_ln_det = 0.5 * factor.ln_det();
                        (Factor::Full(factor), 0.5 * (nu + 1.0), of_counts - half_ln_det)
                    }
                    // As in `log_integral`.
                    Err(_) => (Factor::Diag(vec![1.0; d]), 0.5 * (nu + 1.0), f64::NEG_INFINITY),
                }
            }
            CovarianceType::Diag => {
                let of_counts = n * (libm::lgamma(0.5 * (nu + 1.0)) - libm::lgamma(0.5 * nu));
                let half_ln_det = 0.5 * scale.iter().map(|v| libm::log(*v)).sum::<f64>();
                let sd = scale.iter().map(|v| v.sqrt()).collect();
                (Factor::Diag(sd), 0.5 * (nu + 1.0), of_counts - half_ln_det)
            }
            CovarianceType::Spherical => {
                let of_counts = libm::lgamma(0.5 * n * (nu + 1.0)) - libm::lgamma(0.5 * n * nu);
                let sd = vec![scale[0].sqrt(); d];
                (Factor::Diag(sd), 0.5 * n * (nu + 1.0), of_counts - 0.5 * n * libm::log(scale[0]))
            }
        };
        let is_product = self.kind == CovarianceType::Diag;
        Predictive { mean, factor, is_product, shrink: beta / (beta + 1.0), power, constant: constant - apart }
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

/// A Student density of a row: of all columns together, or a product of one per column.
///
/// Source: Murphy 2007, sections 3.5 and 9.4.
#[derive(Clone, Debug)]
pub(super) struct Predictive {
    mean: Vec<f64>,
    factor: Factor,
    is_product: bool,
    shrink: f64,
    power: f64,
    constant: f64,
}

impl Predictive {
    /// Its logarithm at `x`, `(d,)`; `y` has room for `d` numbers. Cost: `O(d²)`, for diag and spherical `O(d)`.
    pub(super) fn log_density(&self, x: &[f64], y: &mut [f64]) -> f64 {
        match &self.factor {
            Factor::Full(factor) => {
                for i in 0..x.len() {
                    let known: f64 = (0..i).map(|j| factor.at(i, j) * y[j]).sum();
                    y[i] = (x[i] - self.mean[i] - known) / factor.at(i, i);
                }
            }
            Factor::Diag(sd) => {
                let columns = x.iter().zip(&self.mean).zip(sd);
                y.iter_mut().zip(columns).for_each(|(y, ((x, m), sd))| *y = (x - m) / sd);
            }
        }
        let squares = y.iter().map(|y| self.shrink * y * y);
        let logs = if self.is_product { squares.map(libm::log1p).sum() } else { libm::log1p(squares.sum()) };
        self.constant - self.power * logs
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

#[cfg(test)]
mod tests {
    use gmm_model::bayes::WeightPrior;
    use ndarray::array;

    use super::*;

    #[test]
    fn a_predictive_density_is_the_ratio_of_marginal_likelihoods_with_a_row_and_without() {
        let rows = [[1.0, 2.0], [0.5, -3.0], [7.0, 1.0], [2.5, 2.0], [-1.0, 4.0]];
        let scales = [
            (CovarianceType::Full, PriorScale::Matrix(array![[2.0, 0.3], [0.3, 0.5]])),
            (CovarianceType::Diag, PriorScale::Variances(array![2.0, 0.5])),
            (CovarianceType::Spherical, PriorScale::Variance(0.7)),
        ];
        for (kind, scale) in scales {
            let prior = BayesPrior {
                weights: WeightPrior::DirichletProcess { concentration: 1.0 },
                mean: array![0.5, -1.0],
                mean_precision: 0.3,
                degrees_of_freedom: 2.5,
                scale,
            };
            let prior = Conjugate::new(prior, kind, 2).unwrap();
            let mut before = Moments::empty(kind, 2);
            for x in &rows {
                let after = before.with(x);
                let wanted = prior.log_marginal(&after) - prior.log_marginal(&before);
                let found = prior.predictive(&before).log_density(x, &mut [0.0; 2]);
                assert!((found - wanted).abs() < 1e-12 * wanted.abs(), "{kind} {}: {found} {wanted}", before.n);
                before = after;
            }
        }
    }
}
