//! Statistics about other centres and of other total weight, for averages over many E-steps whose centres move.

use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

use crate::covariance::below_diagonal;
use crate::{CovarianceType, Covariances, Mixture, Statistics, StatisticsError, packed_index, packed_len};

impl Statistics {
    /// The statistics about other centres, `(k, d)`; the mixture is then not recorded.
    ///
    /// With `δ` the move of a centre and `z' = z − δ`: `Σ r z' = Σ r z − δ Σ r`, and
    /// `Σ r z' z'ᵀ = Σ r z zᵀ − δ (Σ r z')ᵀ − (Σ r z) δᵀ`. The algebra is exact, and the rounding error is a few eps of
    /// the moments about the more distant of the two centres. Nothing else cancels: for centres that move to the
    /// weighted mean, as in EM, `Σ r z'` is 0 up to rounding.
    ///
    /// Cost: `2*k*d²` flops (full and tied).
    ///
    /// # Errors
    /// [`StatisticsError::Shape`] if the centres have another shape.
    pub fn recentred(mut self, centres: Array2<f64>) -> Result<Self, StatisticsError> {
        let (k, d) = self.dim();
        if centres.dim() != (k, d) {
            let (other_k, other_d) = centres.dim();
            let (left, right) = (format!("k={k} d={d}"), format!("k={other_k} d={other_d}"));
            return Err(StatisticsError::Shape { left, right });
        }
        let moves = &centres - &self.centres;
        for (c, delta) in moves.outer_iter().enumerate() {
            if delta.iter().all(|&v| v == 0.0) {
                continue;
            }
            let before = self.first.row(c).to_owned();
            self.first.row_mut(c).scaled_add(-self.weight[c], &delta);
            let after = self.first.row(c);
            match self.kind {
                CovarianceType::Full => subtract(&mut self.second[c * packed_len(d)..], delta, before.view(), after),
                CovarianceType::Tied => subtract(&mut self.second, delta, before.view(), after),
                CovarianceType::Diag => {
                    let second = &mut self.second[c * d..][..d];
                    second.iter_mut().enumerate().for_each(|(j, v)| *v -= delta[j] * (after[j] + before[j]));
                }
                CovarianceType::Spherical => self.second[c] -= delta.dot(&(&after + &before)),
            }
        }
        self.centres = centres;
        self.mixture = 0;
        Ok(self)
    }

    /// All sums times `factor`: the statistics of rows with `factor` times their weights. The number of rows stays.
    #[must_use]
    pub fn scaled(mut self, factor: f64) -> Self {
        self.weight.iter_mut().for_each(|v| *v *= factor);
        self.first *= factor;
        self.second.iter_mut().for_each(|v| *v *= factor);
        self.log_likelihood *= factor;
        self.total_weight *= factor;
        self
    }

    /// The statistics, about its means, that a mixture expects of rows of its own of total weight 1. The M-step of
    /// them, with the same `reg_covar`, is the mixture. `n_rows` and the log-likelihood are 0.
    pub fn expected(mixture: &Mixture, reg_covar: f64) -> Self {
        let (k, d) = mixture.means().dim();
        let kind = mixture.covariance_type();
        let mut all = Self::zero(kind, mixture.means().to_owned());
        all.weight = mixture.weights().to_vec();
        all.total_weight = 1.0;
        for c in 0..k {
            let weight = all.weight[c];
            let own = |variance: f64| weight * (variance - reg_covar).max(0.0);
            match mixture.covariances() {
                Covariances::Full(a) => {
                    write_packed(&mut all.second[c * packed_len(d)..], weight, a.index_axis(Axis(0), c), reg_covar);
                }
                // Weights sum to 1.
                Covariances::Tied(a) if c == 0 => write_packed(&mut all.second, 1.0, a.view(), reg_covar),
                Covariances::Tied(_) => {}
                Covariances::Diag(a) => (0..d).for_each(|j| all.second[c * d + j] = own(a[[c, j]])),
                Covariances::Spherical(a) => all.second[c] = d as f64 * own(a[c]),
            }
        }
        all
    }
}

/// Writes `weight` times the lower triangle of a covariance less `reg_covar` on its diagonal.
fn write_packed(second: &mut [f64], weight: f64, covariance: ArrayView2<'_, f64>, reg_covar: f64) {
    below_diagonal(covariance.nrows(), |i, j| second[packed_index(i, j)] = weight * covariance[[i, j]]);
    for i in 0..covariance.nrows() {
        second[packed_index(i, i)] = weight * (covariance[[i, i]] - reg_covar).max(0.0);
    }
}

/// Subtracts `δ afterᵀ + before δᵀ` from packed second moments.
fn subtract(second: &mut [f64], delta: ArrayView1<'_, f64>, before: ArrayView1<'_, f64>, after: ArrayView1<'_, f64>) {
    for i in 0..delta.len() {
        let row = &mut second[packed_index(i, 0)..][..=i];
        row.iter_mut().enumerate().for_each(|(j, v)| *v -= delta[i] * after[j] + before[i] * delta[j]);
    }
}
