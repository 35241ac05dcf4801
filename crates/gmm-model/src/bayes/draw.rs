//! Draws of mixtures from a posterior.

use ndarray::{Array1, Array2, Array3};

use super::Posterior;
use crate::{CovarianceType, Covariances, Draws, Factors, Mixture, ModelError, bartlett_factor, packed_index};

impl Posterior {
    /// One mixture drawn from the posterior.
    ///
    /// # Errors
    /// [`ModelError`] if a drawn covariance is singular to rounding, which takes a posterior of hardly more than `d − 1`
    /// degrees of freedom.
    ///
    /// Cost: `O(k d³)` for matrices.
    pub fn draw(&self, draws: &mut Draws) -> Result<Mixture, ModelError> {
        let (k, d) = self.mixture.means().dim();
        let weights = self.weights.draw(draws);
        let covariances = self.draw_covariances(draws);
        // The means given the drawn covariances: normal, with those over β.
        let about = Mixture::new(Array1::from_elem(k, 1.0 / k as f64), self.mixture.means().to_owned(), covariances)?;
        let mut means = self.mixture.means().to_owned();
        for (c, mut mean) in means.outer_iter_mut().enumerate() {
            let spread = 1.0 / self.mean_precision[c].sqrt();
            let normals: Vec<f64> = (0..d).map(|_| spread * draws.normal()).collect();
            let lower = about.factors().dense(c, d);
            (0..d).for_each(|i| mean[i] += (0..=i).map(|j| lower[[i, j]] * normals[j]).sum::<f64>());
        }
        Mixture::new(weights, means, about.covariances().clone())
    }

    fn draw_covariances(&self, draws: &mut Draws) -> Covariances {
        let (k, d) = self.mixture.means().dim();
        match self.mixture.factors() {
            Factors::Full(all) => {
                let mut out = Array3::zeros((k, d, d));
                for (c, mut a) in out.outer_iter_mut().enumerate() {
                    a.assign(&inverse_wishart(draws, &all[c], self.nu(c)));
                }
                Covariances::Full(out)
            }
            Factors::Tied(one) => Covariances::Tied(inverse_wishart(draws, one, self.nu(0))),
            Factors::Diag(sd) => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| {
                let nu = self.nu(c);
                sd[[c, j]] * sd[[c, j]] * nu / draws.chi_square(nu)
            })),
            Factors::Spherical(sd) => Covariances::Spherical(Array1::from_shape_fn(k, |c| {
                let nu = d as f64 * self.nu(c);
                sd[c] * sd[c] * nu / draws.chi_square(nu)
            })),
        }
    }

    /// The covariance kind.
    pub const fn covariance_type(&self) -> CovarianceType {
        self.mixture.covariance_type()
    }
}

/// A draw of Λ⁻¹ with `Λ ~ W(ν, (νΣ)⁻¹)`: with the factor L of Σ and A of Bartlett (1933), `Λ = L⁻ᵀ A Aᵀ L⁻¹ / ν`, so
/// `Λ⁻¹ = ν (L A⁻ᵀ)(L A⁻ᵀ)ᵀ`.
fn inverse_wishart(draws: &mut Draws, factor: &crate::Cholesky, nu: f64) -> Array2<f64> {
    let d = factor.dim();
    let bartlett = bartlett_factor(draws, nu, d);
    // Row i of L A⁻ᵀ solves A y = Lᵢᵀ.
    let mut rows = Array2::<f64>::zeros((d, d));
    for i in 0..d {
        let mut row = vec![0.0; d];
        (0..=i).for_each(|j| row[j] = factor.at(i, j));
        for j in 0..d {
            let known: f64 = (0..j).map(|m| bartlett[packed_index(j, m)] * row[m]).sum();
            row[j] = (row[j] - known) / bartlett[packed_index(j, j)];
        }
        rows.row_mut(i).assign(&Array1::from_vec(row));
    }
    // Summed in a plain loop: the matrix product of a library may add in another order on another machine.
    Array2::from_shape_fn((d, d), |(i, j)| nu * (0..d).map(|m| rows[[i, m]] * rows[[j, m]]).sum::<f64>())
}
