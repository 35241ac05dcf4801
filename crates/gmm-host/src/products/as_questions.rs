//! The rows of one resident matrix as the questions of another.

use super::operand::MatrixData;
use super::{Multiplier, Operand, ResidentMatrix, Scalar};
use crate::Error;
use crate::cuda::products::CudaRows;

impl<T: Scalar> ResidentMatrix<T> {
    /// The rows as a batch of questions to other matrices on the same engine, `(m, k)`: many vectors stay where they are
    /// while the matrix changes. On a GPU the first call uploads them, and they stay there until this matrix is dropped.
    ///
    /// Cost: none on a CPU. On a GPU memory for the rows in their own precision, beside that of the operands.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    ///
    /// ```
    /// use gmm_host::{CpuEngine, ResidentMatrix};
    /// use ndarray::array;
    ///
    /// let engine = CpuEngine::new(1)?;
    /// let vectors = ResidentMatrix::new(&engine, array![[1.0, 1.0], [0.0, 2.0]])?;
    /// let matrix = ResidentMatrix::new(&engine, array![[4.0, 1.0], [1.0, 1.0]])?;
    /// assert_eq!(matrix.quadratic_form(vectors.as_questions()?)?, [7.0, 4.0]);
    /// # Ok::<(), gmm_host::Error>(())
    /// ```
    pub fn as_questions(&self) -> Result<Operand<'_, T>, Error> {
        let Multiplier(super::Kind::Cuda(gpu)) = &self.multiplier else { return Ok(self.matrix.operand()) };
        let MatrixData::Host(rows) = &self.matrix else { return Ok(self.matrix.operand()) };
        if self.dim().0 == 0 || self.dim().1 == 0 {
            return Ok(self.matrix.operand());
        }
        let there = match self.rows_there.get() {
            Some(there) => there,
            None => {
                let there = CudaRows::new(gpu, T::on_device(rows.view()))?;
                self.rows_there.get_or_init(|| there)
            }
        };
        Ok(there.data().into())
    }
}
