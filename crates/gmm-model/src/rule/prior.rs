//! Conjugate priors: normal for a mean given its covariance, inverse-Wishart or inverse-gamma for a covariance.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use crate::bayes::ln_gamma_multivariate;
use crate::error::expect_shape;
use crate::m_step::counts_as_noise;
use crate::{Cholesky, CovarianceType, Factors, Mixture, ModelError};

/// The scale of the prior of a covariance, which has the shape of the covariance's kind.
#[derive(Clone, Debug, PartialEq)]
pub enum PriorScale {
    /// Λ, `(d, d)`, symmetric positive definite: inverse-Wishart, for full and tied.
    Matrix(Array2<f64>),
    /// ς² of each column, `(d,)`, positive: inverse-gamma, for diag.
    Variances(Array1<f64>),
    /// ς², positive: inverse-gamma, for spherical.
    Variance(f64),
}

/// A conjugate prior, the same for each component: `μ | Σ ~ N(μ_P, Σ/κ)` and `Σ ~ inverse-Wishart(ν, Λ)`, or
/// `σ² ~ inverse-gamma(ν/2, ς²/2)` for each variance of diag and spherical covariances. The weights have a symmetric
/// Dirichlet prior.
///
/// The prior keeps components from collapsing onto a few rows, where the likelihood is unbounded.
///
/// Source: Fraley and Raftery 2007, Bayesian regularization for normal mixture estimation and model-based clustering,
/// Journal of Classification 24, section 3.
#[derive(Clone, Debug, PartialEq)]
pub struct ConjugatePrior {
    /// μ_P, `(d,)`.
    pub mean: Array1<f64>,
    /// κ, the number of rows that the prior of a mean is worth; 0 for no prior on the means.
    pub shrinkage: f64,
    /// ν; above `d − 1` for full and tied, else positive.
    pub degrees_of_freedom: f64,
    /// Λ or ς².
    pub scale: PriorScale,
    /// α of the weights' Dirichlet prior, at least 1, which is flat.
    pub concentration: f64,
}

impl ConjugatePrior {
    /// The default of Fraley and Raftery (2007, section 4.2), as in mclust's `defaultPrior`: `μ_P` the mean of the data,
    /// κ = 0.01, ν = `d + 2`, and as scale the covariance of the data over `k^(2/d)`; for diag and spherical the mean of
    /// its diagonal over `k^(2/d)`.
    ///
    /// `mean` is `(d,)` and `covariance` is `(d, d)`; mclust divides by `n − 1`. If the covariance is not positive
    /// definite, as for at most `d` rows, its diagonal is taken, and a variance of 0 is replaced by the mean of all, or
    /// by 1 if all are 0.
    pub fn default_for(
        kind: CovarianceType,
        k: usize,
        mean: ArrayView1<'_, f64>,
        covariance: ArrayView2<'_, f64>,
    ) -> Self {
        let d = mean.len();
        let shrink = (k as f64).powf(-2.0 / d as f64);
        // Divided before the sum, which could leave the range of f64.
        let average = covariance.diag().iter().map(|v| v / d as f64).sum::<f64>();
        let average = if average >= f64::MIN_POSITIVE { average } else { 1.0 };
        let matrix = || match Cholesky::new(covariance) {
            // Not a pivot of rounding error, which may be negative after the product with `shrink`.
            Ok(factor) if (0..d).all(|j| !counts_as_noise(&factor, j, 4096.0 * f64::EPSILON, u64::MAX)) => {
                covariance.to_owned()
            }
            _ => Array2::from_diag(&covariance.diag().mapv(|v| if v >= f64::MIN_POSITIVE { v } else { average })),
        };
        let scale = match kind {
            CovarianceType::Full | CovarianceType::Tied => PriorScale::Matrix(matrix() * shrink),
            CovarianceType::Diag => PriorScale::Variances(Array1::from_elem(d, average * shrink)),
            CovarianceType::Spherical => PriorScale::Variance(average * shrink),
        };
        let degrees_of_freedom = d as f64 + 2.0;
        Self { mean: mean.to_owned(), shrinkage: 0.01, degrees_of_freedom, scale, concentration: 1.0 }
    }

    /// Checks shapes and ranges.
    pub(crate) fn check(&self, kind: CovarianceType, d: usize) -> Result<(), ModelError> {
        let range = |what, value: f64, must| Err(ModelError::Range { what, value: value.to_string(), must });
        expect_shape("mean of the prior", self.mean.shape(), &[d])?;
        if let Some(&v) = self.mean.iter().find(|v| !v.is_finite()) {
            return range("mean of the prior", v, "finite");
        }
        if !(self.shrinkage >= 0.0 && self.shrinkage.is_finite()) {
            return range("shrinkage of the prior", self.shrinkage, "finite and not negative");
        }
        if !(self.concentration >= 1.0 && self.concentration.is_finite()) {
            return range("concentration of the prior", self.concentration, "finite and at least 1");
        }
        let least = if matches!(self.scale, PriorScale::Matrix(_)) { d as f64 - 1.0 } else { 0.0 };
        if !(self.degrees_of_freedom > least && self.degrees_of_freedom.is_finite()) {
            return range("degrees of freedom of the prior", self.degrees_of_freedom, "finite, and above d - 1 or 0");
        }
        let positive = |values: &[f64]| match values.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
            Some(&v) => range("scale of the prior", v, "positive and finite"),
            None => Ok(()),
        };
        match (&self.scale, kind) {
            (PriorScale::Matrix(a), CovarianceType::Full | CovarianceType::Tied) => {
                expect_shape("scale of the prior", a.shape(), &[d, d])?;
                let pivot = |e: crate::NotPositiveDefinite| ModelError::Range {
                    what: "scale of the prior",
                    value: format!("a matrix with pivot {} in column {}", e.pivot, e.column),
                    must: "positive definite",
                };
                Cholesky::new(a.view()).map(|_| ()).map_err(pivot)
            }
            (PriorScale::Variances(v), CovarianceType::Diag) => {
                expect_shape("scale of the prior", v.shape(), &[d])?;
                positive(&v.to_vec())
            }
            (PriorScale::Variance(v), CovarianceType::Spherical) => positive(&[*v]),
            _ => Err(ModelError::Range {
                what: "scale of the prior",
                value: format!("not of the kind {kind}"),
                must: "a matrix for full and tied, variances for diag, one variance for spherical",
            }),
        }
    }

    /// What the prior adds to the divisor of a covariance of `group` components in `d` dimensions: see
    /// [`m_step_with`](crate::m_step_with).
    pub(super) fn divisor(&self, group: usize, d: usize) -> f64 {
        let means = if self.shrinkage > 0.0 { group as f64 } else { 0.0 };
        let d = d as f64;
        self.degrees_of_freedom
            + match self.scale {
                PriorScale::Matrix(_) => means + d + 1.0,
                PriorScale::Variances(_) => means + 2.0,
                PriorScale::Variance(_) => means * d + 2.0,
            }
    }

    /// The logarithm of the density at `mixture`, whose covariances are shared within `groups`.
    ///
    /// Cost: `O(d³)` per matrix.
    pub(super) fn log_density(&self, mixture: &Mixture, groups: &[Vec<usize>]) -> f64 {
        let (k, d) = mixture.means().dim();
        let covariances: f64 = groups.iter().map(|group| self.of_covariance(mixture, group[0])).sum();
        let mut means = 0.0;
        if self.shrinkage > 0.0 {
            for c in 0..k {
                // N(μ | μ_P, Σ/κ): the density at its own mean is that of Σ times κ^(d/2).
                let at_mean = mixture.log_normalizer(c) + 0.5 * d as f64 * self.shrinkage.ln();
                means += at_mean - 0.5 * self.shrinkage * squared_distance(mixture, c, &self.mean);
            }
        }
        let alpha = self.concentration;
        let mut weights = libm::lgamma(k as f64 * alpha) - k as f64 * libm::lgamma(alpha);
        if alpha > 1.0 {
            weights += (alpha - 1.0) * (0..k).map(|c| mixture.log_weight(c)).sum::<f64>();
        }
        covariances + means + weights
    }

    fn of_covariance(&self, mixture: &Mixture, c: usize) -> f64 {
        let d = mixture.n_features();
        let half_nu = 0.5 * self.degrees_of_freedom;
        let inverse_gamma = |scale: f64, sd: f64| {
            let (rate, ratio) = (0.5 * scale, scale.sqrt() / sd);
            half_nu * rate.ln()
                - libm::lgamma(half_nu)
                - (self.degrees_of_freedom + 2.0) * sd.ln()
                - 0.5 * ratio * ratio
        };
        match (&self.scale, mixture.factors()) {
            (PriorScale::Variance(scale), Factors::Spherical(sd)) => inverse_gamma(*scale, sd[c]),
            (PriorScale::Variances(scale), Factors::Diag(sd)) => {
                scale.iter().zip(sd.row(c)).map(|(&scale, &sd)| inverse_gamma(scale, sd)).sum()
            }
            (PriorScale::Matrix(scale), Factors::Full(all)) => inverse_wishart(scale, half_nu, &all[c]),
            (PriorScale::Matrix(scale), Factors::Tied(one)) => inverse_wishart(scale, half_nu, one),
            // `check` refuses scales of another kind.
            _ => unreachable!("a scale of the mixture's kind, of dimension {d}"),
        }
    }
}

/// `ln p(Σ)` of the inverse-Wishart distribution with 2 `half_nu` degrees of freedom; `factor` is that of Σ.
fn inverse_wishart(scale: &Array2<f64>, half_nu: f64, factor: &Cholesky) -> f64 {
    let d = factor.dim();
    let root = Cholesky::new(scale.view()).expect("the prior was checked");
    let n = d as f64;
    half_nu * root.ln_det()
        - half_nu * n * std::f64::consts::LN_2
        - ln_gamma_multivariate(d, half_nu)
        - (half_nu + 0.5 * (n + 1.0)) * factor.ln_det()
        - 0.5 * factor.trace_of_ratio(&root)
}

/// The squared Mahalanobis distance of a point from the mean of component `c`.
fn squared_distance(mixture: &Mixture, c: usize, point: &Array1<f64>) -> f64 {
    let mut z = (point - &mixture.means().row(c)).to_vec();
    mixture.factors().solve_lower(c, &mut z);
    z.iter().map(|v| v * v).sum()
}

#[cfg(test)]
mod tests {
    use ndarray::array;

    use super::*;
    use crate::Covariances;

    #[test]
    fn the_density_integrates_to_one() {
        // One component in one dimension: the integral over mean and variance by the trapezoidal rule.
        let prior = ConjugatePrior {
            mean: array![0.5],
            shrinkage: 2.0,
            degrees_of_freedom: 9.0,
            scale: PriorScale::Variance(4.0),
            concentration: 1.0,
        };
        let matrix = ConjugatePrior { scale: PriorScale::Matrix(array![[4.0]]), ..prior.clone() };
        for (prior, full) in [(&prior, false), (&matrix, true)] {
            let mut total = 0.0;
            // ln σ² from −6 to 6, and the mean within 12 of its deviations.
            for i in 0..600 {
                let variance = (-6.0 + 0.02 * i as f64).exp();
                for j in 0..240 {
                    let deviation = (variance / 2.0f64).sqrt();
                    let mean = 0.5 + deviation * (-12.0 + 0.1 * j as f64);
                    let covariances = if full {
                        Covariances::Full(ndarray::Array3::from_elem((1, 1, 1), variance))
                    } else {
                        Covariances::Spherical(array![variance])
                    };
                    let m = Mixture::new(array![1.0], array![[mean]], covariances).unwrap();
                    total += prior.log_density(&m, &[vec![0]]).exp() * variance * 0.02 * deviation * 0.1;
                }
            }
            assert!((total - 1.0).abs() < 1e-6, "{total}");
        }
    }

    #[test]
    fn the_default_is_that_of_mclust() {
        let covariance = array![[4.0, 1.0], [1.0, 2.0]];
        let of = |kind| ConjugatePrior::default_for(kind, 4, array![1.0, 2.0].view(), covariance.view());
        let full = of(CovarianceType::Full);
        assert_eq!((full.shrinkage, full.degrees_of_freedom, &full.mean), (0.01, 4.0, &array![1.0, 2.0]));
        assert_eq!(full.scale, PriorScale::Matrix(array![[1.0, 0.25], [0.25, 0.5]]));
        assert_eq!(of(CovarianceType::Diag).scale, PriorScale::Variances(array![0.75, 0.75]));
        assert_eq!(of(CovarianceType::Spherical).scale, PriorScale::Variance(0.75));
        // Not positive definite: the diagonal, as in mclust for n <= p.
        let flat = array![[3.0, 3.0, 0.0], [3.0, 3.0, 0.0], [0.0, 0.0, 0.0]];
        let found = ConjugatePrior::default_for(CovarianceType::Full, 1, array![0.0, 0.0, 0.0].view(), flat.view());
        assert_eq!(found.scale, PriorScale::Matrix(Array2::from_diag(&array![3.0, 3.0, 2.0])));
    }
}
