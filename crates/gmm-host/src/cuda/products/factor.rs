//! Distances with the inverse of a Cholesky factor, which is resident on the device.

use ndarray::{Array2, ArrayView2, Axis, s};

use super::matrix::{CudaMatrix, CudaMultiplier};
use super::question::Question;
use crate::Error;
use crate::products::Operand;

/// `W = L⁻¹`, `(d, d)`, on a device, for |W(x − mean)|².
pub(crate) struct CudaFactor {
    inverse: Array2<f64>,
    matrix: CudaMatrix<f64>,
}

impl CudaFactor {
    /// Inverts a Cholesky factor, zero above its diagonal, by forward substitution.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn new(multiplier: &CudaMultiplier, lower: ArrayView2<'_, f64>) -> Result<Self, Error> {
        crate::memory::check("the inverse of the Cholesky factor", 8 * lower.len() as u128)?;
        Ok(Self { inverse: inverse(lower), matrix: CudaMatrix::new(multiplier)? })
    }

    /// Computes |W(x − mean)|² of each row of `(n, d)`.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn distances(&self, x: &Operand<'_, f64>, mean: Option<&[f64]>, out: &mut [f64]) -> Result<(), Error> {
        if x.is_empty() {
            out.fill(0.0);
            return Ok(());
        }
        self.matrix.ask(&self.inverse.view().into(), x, &mut Question::Norms(out, mean), false)
    }
}

/// The inverse of a lower triangle: row `i` is (eᵢ − Σⱼ lᵢⱼ rowⱼ) / lᵢᵢ.
fn inverse(lower: ArrayView2<'_, f64>) -> Array2<f64> {
    let mut out = Array2::<f64>::zeros(lower.raw_dim());
    for i in 0..lower.nrows() {
        let (above, mut rest) = out.view_mut().split_at(Axis(0), i);
        let mut row = rest.row_mut(0);
        row[i] = 1.0;
        for (j, known) in above.rows().into_iter().enumerate() {
            // `known` is zero past its diagonal.
            row.slice_mut(s![..=j]).scaled_add(-lower[[i, j]], &known.slice(s![..=j]));
        }
        let pivot = lower[[i, i]];
        row.slice_mut(s![..=i]).mapv_inplace(|v| v / pivot);
    }
    out
}
