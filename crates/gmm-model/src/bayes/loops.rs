//! What an engine needs that makes the updates itself, in a loop on a device.

use ndarray::{Array1, Array2};

use super::{BayesPrior, Posterior, WeightPrior};
use crate::error::expect_shape;
use crate::{Cholesky, CovarianceType, Covariances, Mixture, ModelError, PriorScale};

impl BayesPrior {
    /// The posterior that [`update`](Self::update) would give, from its `counts` Σr, `(k,)`, its means, `(k, d)`, and its
    /// covariances, the inverses of the expected precisions.
    ///
    /// # Errors
    /// [`ModelError`] if shapes differ or a number is outside its range.
    ///
    /// Cost: that of a [`Mixture`].
    pub fn posterior_of(
        &self,
        counts: &[f64],
        means: Array2<f64>,
        covariances: Covariances,
    ) -> Result<Posterior, ModelError> {
        let k = means.nrows();
        let kind = match &covariances {
            Covariances::Full(_) => CovarianceType::Full,
            Covariances::Tied(_) => CovarianceType::Tied,
            Covariances::Diag(_) => CovarianceType::Diag,
            Covariances::Spherical(_) => CovarianceType::Spherical,
        };
        expect_shape("counts", &[counts.len()], &[k])?;
        self.check(kind, means.ncols())?;
        if let Some(v) = counts.iter().find(|n| !(**n >= 0.0 && n.is_finite())) {
            return Err(ModelError::Range { what: "counts", value: v.to_string(), must: "finite and not negative" });
        }
        let counts = Array1::from_vec(counts.to_vec());
        let weights = self.weights.update(counts.as_slice().expect("a vector"));
        let mixture = Mixture::new(weights.mean(), means, covariances)?;
        let degrees_of_freedom = match kind {
            CovarianceType::Tied => Array1::from_elem(1, k as f64 * self.degrees_of_freedom + counts.sum()),
            _ => self.degrees_of_freedom + &counts,
        };
        let mean_precision = self.mean_precision + counts;
        Ok(Posterior { prior: self.clone(), weights, mean_precision, degrees_of_freedom, mixture })
    }

    /// The part of [`Posterior::divergence`] that depends only on the prior: logarithms of its gamma functions, without
    /// those of π, which occur twice and cancel, and of the determinant of its scale. Its weights are `k`.
    ///
    /// # Panics
    /// If a matrix is not positive definite: [`check`](Self::check) excludes that.
    pub fn divergence_constant(&self, kind: CovarianceType, k: usize) -> f64 {
        let (alpha, times, d) = (self.weights.concentration(), k as f64, self.mean.len());
        let n = d as f64;
        let of_weights = match self.weights {
            WeightPrior::Dirichlet { .. } => times * libm::lgamma(alpha) - libm::lgamma(times * alpha),
            WeightPrior::DirichletProcess { .. } => -times * libm::log(alpha),
        };
        let nu = self.degrees_of_freedom;
        let matrix =
            |nu: f64, ln_det: f64| (0..d).map(|i| libm::lgamma(0.5 * (nu - i as f64))).sum::<f64>() - 0.5 * nu * ln_det;
        let of_precisions = match &self.scale {
            PriorScale::Matrix(scale) => {
                let ln_det = Cholesky::new(scale.view()).expect("the prior was checked").ln_det();
                match kind {
                    CovarianceType::Tied => matrix(times * nu, ln_det + n * libm::log(times)),
                    _ => times * matrix(nu, ln_det),
                }
            }
            PriorScale::Variances(all) => {
                let ln_det: f64 = all.iter().map(|v| libm::log(*v)).sum();
                times * (n * libm::lgamma(0.5 * nu) - 0.5 * nu * ln_det)
            }
            PriorScale::Variance(v) => times * (libm::lgamma(0.5 * n * nu) - 0.5 * n * nu * libm::log(*v)),
        };
        of_weights + of_precisions
    }
}
