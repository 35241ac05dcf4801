//! The true row given the noisy one.

use ndarray::{Array1, Array2, ArrayView1};

use super::reference::Measurement;
use crate::{Cholesky, CovarianceType, Mixture, ModelError};

/// Conditions a mixture on measurements, one row after another.
///
/// ```
/// use gmm_model::deconvolution::{MeasurementErrors, TrueRows};
/// use gmm_model::{Covariances, Dataset, Mixture};
/// use ndarray::array;
///
/// // A variance of 3, and an error of variance 1: three quarters of the distance from the mean are true.
/// let mixture = Mixture::new(array![1.0], array![[2.0]], Covariances::Spherical(array![3.0]))?;
/// let data = Dataset::new(array![[6.0]])?.with_measurement_errors(MeasurementErrors::from_deviations(array![[1.0]])?)?;
/// let (mean, covariance) = TrueRows::new(&mixture).of(&data, 0, array![1.0].view())?;
/// assert!((mean[0] - 5.0).abs() < 1e-15 && (covariance[[0, 0]] - 0.75).abs() < 1e-15);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TrueRows<'a> {
    mixture: &'a Mixture,
    /// `Σ_c`, `(d, d)` each.
    covariances: Vec<Array2<f64>>,
}

impl<'a> TrueRows<'a> {
    /// Conditions `mixture`.
    pub fn new(mixture: &'a Mixture) -> Self {
        let (k, d) = mixture.means().dim();
        let n = if mixture.covariance_type() == CovarianceType::Tied { 1 } else { k };
        let covariances = (0..n).map(|c| mixture.covariances().matrix(c, d).into_owned()).collect();
        Self { mixture, covariances }
    }

    /// Mean, `(d,)`, and covariance, `(d, d)`, of the true row behind a row of `data`, whose responsibilities, `(k,)`, are
    /// given. Components of responsibility 0 are left out.
    ///
    /// Cost: `k (m³/3 + m² d + 2 m d²)` flops for `m` measured values.
    ///
    /// # Errors
    /// [`ModelError::NotPositiveDefinite`] if the covariance of the measurement is so in a component.
    pub fn of(
        &self,
        data: &crate::Dataset,
        row: usize,
        responsibilities: ArrayView1<'_, f64>,
    ) -> Result<(Array1<f64>, Array2<f64>), ModelError> {
        let x = Measurement::of(data, row);
        let d = self.mixture.n_features();
        let parts = (0..responsibilities.len()).filter(|&c| responsibilities[c] > 0.0);
        let parts =
            parts.map(|c| Ok((responsibilities[c], self.component(c, &x)?))).collect::<Result<Vec<_>, ModelError>>()?;
        let mut mean = Array1::zeros(d);
        parts.iter().for_each(|(r, (b, _))| mean.scaled_add(*r, b));
        let mut covariance = Array2::zeros((d, d));
        for (r, (b, rest)) in &parts {
            let z = b - &mean;
            covariance.scaled_add(*r, rest);
            for i in 0..d {
                (0..d).for_each(|j| covariance[[i, j]] += r * z[i] * z[j]);
            }
        }
        Ok((mean, covariance))
    }

    /// `b_c` and `B_c`, from the factor `T = L Lᵀ` and `Y = L⁻¹ R Σ`: `b = μ + Yᵀ L⁻¹ z` and `B = Σ − Yᵀ Y`.
    fn component(&self, c: usize, x: &Measurement) -> Result<(Array1<f64>, Array2<f64>), ModelError> {
        let sigma = &self.covariances[if self.covariances.len() == 1 { 0 } else { c }];
        let (m, d) = x.projection.dim();
        let seen = x.projection.dot(sigma);
        let t = seen.dot(&x.projection.t()) + &x.covariance;
        let factor = Cholesky::new(t.view()).map_err(|e| ModelError::NotPositiveDefinite {
            component: c,
            column: e.column,
            pivot: e.pivot,
            kind: self.mixture.covariance_type(),
        })?;
        // Columns of Y, (d, m).
        let mut y = seen.t().as_standard_layout().into_owned();
        y.outer_iter_mut().for_each(|mut column| factor.solve_lower(column.as_slice_mut().expect("row-major")));
        let mut z = (&x.measured - &x.projection.dot(&self.mixture.means().row(c))).to_vec();
        factor.solve_lower(&mut z);
        debug_assert_eq!((z.len(), y.ncols()), (m, m));
        let mean = &self.mixture.means().row(c) + &y.dot(&Array1::from_vec(z));
        let mut rest = sigma - &y.dot(&y.t());
        // Rounding, where the row is exact.
        (0..d).for_each(|i| rest[[i, i]] = rest[[i, i]].max(0.0));
        Ok((mean, rest))
    }
}
