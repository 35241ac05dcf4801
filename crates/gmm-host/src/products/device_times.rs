//! Work on a GPU apart from answers: the matrix uploaded ahead, and products timed.

use super::{DeviceTime, Operand, ResidentMatrix, Scalar};
use crate::Error;

impl<T: Scalar> ResidentMatrix<T> {
    /// Measures the device time of a product with `questions`, `(q, k)`, or of their quadratic forms if `forms`, in
    /// each of `repeats` repetitions. `None` if the engine is not a GPU. The questions are uploaded beforehand, which
    /// is not counted, and the results are not downloaded.
    ///
    /// # Errors
    /// As for [`inner`](Self::inner) and [`quadratic_form`](Self::quadratic_form); [`Error::Memory`] if the batch needs
    /// more than one chunk.
    pub fn device_times<'b>(
        &self,
        questions: impl Into<Operand<'b, T>>,
        forms: bool,
        repeats: usize,
    ) -> Result<Option<Vec<DeviceTime>>, Error> {
        let questions = questions.into();
        self.check_questions(&questions)?;
        let Some([matrix, folded]) = &self.on_device else { return Ok(None) };
        let questions = questions.on_device();
        if forms {
            self.check_square("the matrix of a quadratic form")?;
            return folded.times(&T::on_device(self.folded()?).into(), &questions, true, false, repeats).map(Some);
        }
        matrix.times(&self.matrix.operand().on_device(), &questions, false, self.fast, repeats).map(Some)
    }

    /// Uploads the matrix to a GPU now, in f64, so that the first question need not wait; nothing on a CPU.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub fn prepare(&self) -> Result<(), Error> {
        let question = ndarray::Array2::zeros((1, self.dim().1));
        self.device_times(question.view(), false, 0).map(drop)
    }
}
