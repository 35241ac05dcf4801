//! The posterior: its expectations, its divergence from the prior, and the components that it uses.

use ndarray::Array1;

use super::digamma::{digamma, digamma_multivariate, ln_gamma_multivariate};
use super::weights::ln_sum;
use super::{BayesPrior, WeightPosterior};
use crate::error::expect_shape;
use crate::{Cholesky, CovarianceType, Factors, Mixture, ModelError, PriorScale};

/// The variational posterior of all parameters of a mixture; the table of [the module](super) has its distributions by
/// kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Posterior {
    pub(super) prior: BayesPrior,
    pub(super) weights: WeightPosterior,
    /// `β`, `(k,)`.
    pub(super) mean_precision: Array1<f64>,
    /// `ν`, `(k,)`; `(1,)` for tied.
    pub(super) degrees_of_freedom: Array1<f64>,
    pub(super) mixture: Mixture,
}

/// What a [`Posterior`] has beside its [prior](Posterior::prior) and its [mixture](Posterior::mixture).
#[derive(Clone, Debug, PartialEq)]
pub struct PosteriorNumbers {
    /// The posterior of the weights.
    pub weights: WeightPosterior,
    /// `β`, `(k,)`.
    pub mean_precision: Array1<f64>,
    /// `ν`, `(k,)`; `(1,)` for tied.
    pub degrees_of_freedom: Array1<f64>,
}

/// The E-step of a [`Posterior`], as that of a mixture.
#[derive(Clone, Debug, PartialEq)]
pub struct Expectation {
    /// Its responsibilities are those of the posterior.
    pub mixture: Mixture,
    /// To be added to each row's log density: `ln Σ_c exp(E ln π_c N(x | μ_c, Λ_c))` is the sum.
    pub log_scale: f64,
}

impl Posterior {
    /// A posterior from its parts, as read from a file.
    ///
    /// # Errors
    /// [`ModelError`] if shapes differ or a number is outside its range.
    pub fn new(prior: BayesPrior, numbers: PosteriorNumbers, mixture: Mixture) -> Result<Self, ModelError> {
        let PosteriorNumbers { weights, mean_precision, degrees_of_freedom } = numbers;
        let (k, d) = mixture.means().dim();
        let kind = mixture.covariance_type();
        prior.check(kind, d)?;
        weights.check(prior.weights, k)?;
        expect_shape("mean precision", mean_precision.shape(), &[k])?;
        let covariances = if kind == CovarianceType::Tied { 1 } else { k };
        expect_shape("degrees of freedom", degrees_of_freedom.shape(), &[covariances])?;
        let above = |what, all: &Array1<f64>, least: f64| match all.iter().find(|v| !(**v > least && v.is_finite())) {
            Some(v) => Err(ModelError::Range { what, value: v.to_string(), must: "finite and above that of no rows" }),
            None => Ok(()),
        };
        above("mean precision", &mean_precision, 0.0)?;
        above("degrees of freedom", &degrees_of_freedom, if prior.has_matrix() { d as f64 - 1.0 } else { 0.0 })?;
        Ok(Self { prior, weights, mean_precision, degrees_of_freedom, mixture })
    }

    /// The prior.
    pub const fn prior(&self) -> &BayesPrior {
        &self.prior
    }

    /// The posterior of the weights.
    pub const fn weights(&self) -> &WeightPosterior {
        &self.weights
    }

    /// `β`, `(k,)`: the number of rows, with those of the prior, from which each mean is known.
    pub const fn mean_precision(&self) -> &Array1<f64> {
        &self.mean_precision
    }

    /// `ν`, `(k,)`; `(1,)` for tied, where it counts the rows of all components.
    pub const fn degrees_of_freedom(&self) -> &Array1<f64> {
        &self.degrees_of_freedom
    }

    /// The mixture of the posterior means: weights, means, and as covariances the inverses of the expected precisions.
    pub const fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// `ν` of component `c`.
    pub(super) fn nu(&self, c: usize) -> f64 {
        self.degrees_of_freedom[if self.degrees_of_freedom.len() == 1 { 0 } else { c }]
    }

    /// The mixture of which the E-step is a pass. A component whose density is below 1e-308 of the largest at every row
    /// has the weight 0 there.
    ///
    /// # Errors
    /// None for finite posteriors.
    ///
    /// Cost: `O(k d)`.
    ///
    /// Source: Bishop 2006, eqs. 10.64 to 10.67.
    pub fn expectation(&self) -> Result<Expectation, ModelError> {
        let d = self.mixture.n_features() as f64;
        let mut logs = self.weights.expected_log();
        for (c, log) in logs.iter_mut().enumerate() {
            *log += 0.5 * (self.log_det_excess(self.nu(c)) - d / self.mean_precision[c]);
        }
        let log_scale = ln_sum(&logs.to_vec());
        let weights = logs.mapv(|v| (v - log_scale).exp());
        Ok(Expectation { mixture: self.mixture.with_weights(weights)?, log_scale })
    }

    /// `E ln |Λ| − ln |E Λ|`, which depends on `ν` only; negative.
    fn log_det_excess(&self, nu: f64) -> f64 {
        let d = self.mixture.n_features();
        let n = d as f64;
        match self.prior.scale {
            PriorScale::Matrix(_) => digamma_multivariate(d, 0.5 * nu) - n * (0.5 * nu).ln(),
            PriorScale::Variances(_) => n * (digamma(0.5 * nu) - (0.5 * nu).ln()),
            PriorScale::Variance(_) => n * (digamma(0.5 * n * nu) - (0.5 * n * nu).ln()),
        }
    }

    /// The Kullback-Leibler divergence of the posterior from the prior.
    ///
    /// Cost: `O(k d³)` for matrices.
    pub fn divergence(&self) -> f64 {
        let (k, d) = self.mixture.means().dim();
        let n = d as f64;
        let beta = self.prior.mean_precision;
        let mut sum = self.weights.divergence(self.prior.weights);
        for c in 0..k {
            // The normal distributions of a mean given its precision, averaged over the precision.
            let ratio = beta / self.mean_precision[c];
            let away = self.squared_distance(c, &self.prior.mean);
            sum += 0.5 * (n * (ratio - 1.0 - ratio.ln()) + beta * away);
        }
        let root = match &self.prior.scale {
            PriorScale::Matrix(scale) => {
                // The prior of the one matrix of tied counts once per component.
                let times = self.prior_nu() / self.prior.degrees_of_freedom;
                Some(Cholesky::new((scale * times).view()).expect("the prior was checked"))
            }
            _ => None,
        };
        let precisions = if self.mixture.covariance_type() == CovarianceType::Tied { 1 } else { k };
        sum + (0..precisions).map(|c| self.divergence_of_precision(c, root.as_ref())).sum::<f64>()
    }

    /// Of the Wishart or Gamma distribution of the precision of component `c`; `root` is the factor of a prior's matrix.
    fn divergence_of_precision(&self, c: usize, root: Option<&Cholesky>) -> f64 {
        let (d, nu) = (self.mixture.n_features(), self.nu(c));
        let n = d as f64;
        match (&self.prior.scale, self.mixture.factors(), root) {
            (PriorScale::Matrix(_), Factors::Full(all), Some(root)) => wishart((&all[c], nu), (root, self.prior_nu())),
            (PriorScale::Matrix(_), Factors::Tied(one), Some(root)) => wishart((one, nu), (root, self.prior_nu())),
            (PriorScale::Variances(scale), Factors::Diag(sd), _) => {
                let each = |(s, sd): (&f64, &f64)| gamma((nu, nu * sd * sd), (self.prior_nu(), *s));
                scale.iter().zip(sd.row(c)).map(each).sum()
            }
            (PriorScale::Variance(scale), Factors::Spherical(sd), _) => {
                gamma((n * nu, n * nu * sd[c] * sd[c]), (n * self.prior_nu(), n * scale))
            }
            _ => unreachable!("a prior of the mixture's kind"),
        }
    }

    /// `ν` of the prior of a precision; the shared one of tied counts once per component.
    fn prior_nu(&self) -> f64 {
        let tied = self.mixture.covariance_type() == CovarianceType::Tied;
        self.prior.degrees_of_freedom * if tied { self.mixture.n_components() as f64 } else { 1.0 }
    }

    /// The squared Mahalanobis distance of a point from the mean of component `c`, under the expected precision.
    fn squared_distance(&self, c: usize, point: &Array1<f64>) -> f64 {
        let mut z = (point - &self.mixture.means().row(c)).to_vec();
        self.mixture.factors().solve_lower(c, &mut z);
        z.iter().map(|v| v * v).sum()
    }

    /// The row weight `Σr` of each component in the last pass, `(k,)`.
    pub fn counts(&self) -> Array1<f64> {
        self.weights.counts(self.prior.weights)
    }

    /// `exp(−Σ π ln π)` of the expected weights: the number of components if all were equally heavy.
    pub fn effective_components(&self) -> f64 {
        self.mixture.weights().iter().filter(|w| **w > 0.0).map(|w| -w * w.ln()).sum::<f64>().exp()
    }

    /// The components whose count is at least `least`, in ascending order; at least the largest.
    pub fn used(&self, least: f64) -> Vec<usize> {
        let counts = self.counts();
        let used: Vec<usize> = (0..counts.len()).filter(|&c| counts[c] >= least).collect();
        if !used.is_empty() {
            return used;
        }
        (0..counts.len()).max_by(|&a, &b| counts[a].total_cmp(&counts[b]).then(b.cmp(&a))).into_iter().collect()
    }

    /// The mixture of the posterior means with only the components whose count is at least `least`; at least the
    /// largest. The weights are divided by their sum.
    ///
    /// # Errors
    /// None for finite posteriors.
    pub fn pruned(&self, least: f64) -> Result<Mixture, ModelError> {
        let used = self.used(least);
        let mut weights: Array1<f64> = used.iter().map(|&c| self.mixture.weights()[c]).collect();
        weights /= weights.sum();
        self.mixture.selected(&used, weights)
    }
}

/// The divergence of `W(ν, (νΣ)⁻¹)` from `W(ν₀, C₀⁻¹)`, given the factors of Σ and C₀.
fn wishart((factor, nu): (&Cholesky, f64), (root, prior_nu): (&Cholesky, f64)) -> f64 {
    let d = factor.dim();
    let n = d as f64;
    0.5 * prior_nu * (factor.ln_det() + n * nu.ln() - root.ln_det())
        + 0.5 * (factor.trace_of_ratio(root) - n * nu)
        + ln_gamma_multivariate(d, 0.5 * prior_nu)
        - ln_gamma_multivariate(d, 0.5 * nu)
        + 0.5 * (nu - prior_nu) * digamma_multivariate(d, 0.5 * nu)
}

/// The divergence of `Gamma(ν/2, s/2)` from another; each is `(ν, s)`.
fn gamma((nu, scale): (f64, f64), (prior_nu, prior_scale): (f64, f64)) -> f64 {
    let (a, prior) = (0.5 * nu, 0.5 * prior_nu);
    (a - prior) * digamma(a) - libm::lgamma(a)
        + libm::lgamma(prior)
        + prior * (scale / prior_scale).ln()
        + a * (prior_scale / scale - 1.0)
}
