//! The prior of all parameters.

use ndarray::{Array1, ArrayView1, ArrayView2};

pub use super::weights::WeightPrior;
use crate::error::expect_shape;
use crate::{Cholesky, CovarianceType, ModelError, PriorScale};

/// The prior of a mixture's parameters, the same for each component; the table of [the module](super) has its
/// distributions by kind.
#[derive(Clone, Debug, PartialEq)]
pub struct BayesPrior {
    /// The prior of the weights.
    pub weights: WeightPrior,
    /// `m`, the mean of the means, `(d,)`.
    pub mean: Array1<f64>,
    /// `β`, positive: the number of rows that the prior of a mean is worth.
    pub mean_precision: f64,
    /// `ν`, above `d − 1` for full and tied, else positive: the number of rows that the prior of a covariance is worth.
    pub degrees_of_freedom: f64,
    /// `C`, in squared units of the data, of the kind's shape; `C/ν` is the inverse of the expected precision.
    pub scale: PriorScale,
}

impl BayesPrior {
    /// scikit-learn's defaults: `m` the mean of the data, `β = 1`, `ν = d`, and as `C` the covariance of the data, its
    /// diagonal, or the mean of that. `covariance` is `(d, d)` with divisor `n − 1`.
    pub fn default_for(
        kind: CovarianceType,
        weights: WeightPrior,
        mean: ArrayView1<'_, f64>,
        covariance: ArrayView2<'_, f64>,
    ) -> Self {
        let d = mean.len() as f64;
        let scale = match kind {
            CovarianceType::Full | CovarianceType::Tied => PriorScale::Matrix(covariance.to_owned()),
            CovarianceType::Diag => PriorScale::Variances(covariance.diag().to_owned()),
            CovarianceType::Spherical => PriorScale::Variance(covariance.diag().iter().map(|v| v / d).sum()),
        };
        Self { weights, mean: mean.to_owned(), mean_precision: 1.0, degrees_of_freedom: d, scale }
    }

    /// Checks shapes and ranges for a kind in `d` dimensions.
    ///
    /// # Errors
    /// [`ModelError`] with the first wrong number.
    pub fn check(&self, kind: CovarianceType, d: usize) -> Result<(), ModelError> {
        let range = |what, value: String, must| Err(ModelError::Range { what, value, must });
        self.weights.check()?;
        expect_shape("mean prior", self.mean.shape(), &[d])?;
        if let Some(v) = self.mean.iter().find(|v| !v.is_finite()) {
            return range("mean prior", v.to_string(), "finite");
        }
        if !(self.mean_precision > 0.0 && self.mean_precision.is_finite()) {
            return range("mean precision of the prior", self.mean_precision.to_string(), "positive and finite");
        }
        let nu = self.degrees_of_freedom;
        let least = if self.has_matrix() { d as f64 - 1.0 } else { 0.0 };
        if !(nu > least && nu.is_finite()) {
            let must = "finite, and above the number of columns minus 1 for full and tied, 0 for diag and spherical";
            return range("degrees of freedom of the prior", nu.to_string(), must);
        }
        let positive = |values: &[f64]| match values.iter().find(|v| !(**v > 0.0 && v.is_finite())) {
            Some(v) => range("covariance prior", v.to_string(), "positive and finite"),
            None => Ok(()),
        };
        match (&self.scale, kind) {
            (PriorScale::Matrix(a), CovarianceType::Full | CovarianceType::Tied) => {
                expect_shape("covariance prior", a.shape(), &[d, d])?;
                match Cholesky::new(a.view()) {
                    Ok(_) => Ok(()),
                    Err(e) => {
                        let value = format!("a matrix with pivot {} in column {}", e.pivot, e.column);
                        range("covariance prior", value, "positive definite")
                    }
                }
            }
            (PriorScale::Variances(v), CovarianceType::Diag) => {
                expect_shape("covariance prior", v.shape(), &[d])?;
                positive(&v.to_vec())
            }
            (PriorScale::Variance(v), CovarianceType::Spherical) => positive(&[*v]),
            _ => {
                let must = "a matrix for full and tied, variances for diag, one variance for spherical";
                range("covariance prior", format!("not of the kind {kind}"), must)
            }
        }
    }

    /// Whether the precisions are matrices.
    pub(super) const fn has_matrix(&self) -> bool {
        matches!(self.scale, PriorScale::Matrix(_))
    }
}
