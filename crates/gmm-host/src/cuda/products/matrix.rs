//! A matrix on a device, and the queries to it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ndarray::{Array2, ArrayViewMut2};

use super::plan;
use super::question::Question;
use super::state::State;
use super::times::DeviceTime;
use crate::Error;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::number::Number;
use crate::cuda::rows::device_input::DeviceData;
use crate::products::Operand;

/// Multiplies matrices on a device.
#[derive(Clone)]
pub(crate) struct CudaMultiplier {
    gpu: Arc<Gpu>,
}

impl CudaMultiplier {
    pub(crate) fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu }
    }

    pub(super) const fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Errors if the matrix is on another device.
    ///
    /// # Errors
    /// [`Error::Option`].
    pub(crate) fn check(&self, matrix: &DeviceData) -> Result<(), Error> {
        matrix.check_on(&self.gpu)
    }
}

/// A matrix, `(m, k)`, resident on a device: its operands in each form that a query needed so far.
pub(crate) struct CudaMatrix<T: Number> {
    gpu: Arc<Gpu>,
    state: Mutex<State<T>>,
}

impl<T: Number> CudaMatrix<T> {
    /// Opens a stream. The matrix is uploaded with the first query.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn new(multiplier: &CudaMultiplier) -> Result<Self, Error> {
        let gpu = multiplier.gpu.clone();
        gpu.enter()?;
        let queue = Queue::new(&gpu)?;
        Ok(Self { gpu, state: Mutex::new(State::new(queue)) })
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // After a panic the buffers are still usable: their contents are written before they are read.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes `matrix xᵀ`, `(m, n)`, of `(m, k)` and `(n, k)`.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn product(
        &self,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        mut out: ArrayViewMut2<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        if matrix.is_empty() || x.is_empty() {
            out.fill(T::ZERO);
            return Ok(());
        }
        self.ask(matrix, x, &mut Question::Product(out), fast)
    }

    /// Computes quadratic forms, `(n,)`, at the rows of `(n, d)`. `folded`, `(d, d)`, is the matrix folded onto its
    /// lower triangle.
    ///
    /// # Errors
    /// As for [`product`](Self::product).
    pub(crate) fn forms(&self, folded: &Operand<'_, T>, x: &Operand<'_, T>, out: &mut [f64]) -> Result<(), Error> {
        if folded.is_empty() || x.is_empty() {
            out.fill(0.0);
            return Ok(());
        }
        self.ask(folded, x, &mut Question::Forms(out), false)
    }

    /// For each query, finds the `count` rows of the matrix with the largest products, perhaps among others: row numbers and
    /// products, `(n, candidates)` each, unordered.
    ///
    /// # Errors
    /// As for [`product`](Self::product); [`Error::Option`] for more rows than the device can count.
    pub(crate) fn largest(
        &self,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        count: usize,
        fast: bool,
    ) -> Result<(Array2<u32>, Array2<T>), Error> {
        let m = matrix.dim().0;
        if i32::try_from(m).is_err() {
            let must = "at most 2147483647".to_owned();
            return Err(Error::Option { option: "rows of the matrix", value: m.to_string(), must });
        }
        let n = x.dim().0;
        let segment = plan::segment(m as u64, n as u64, count as u64);
        let shape = (n, plan::candidates(m as u64, segment.max(1), count as u64) as usize);
        crate::memory::check("the candidates of a search", shape.0 as u128 * shape.1 as u128 * (4 + T::BYTES) as u128)?;
        let (indices, mut found) = (Array2::zeros(shape), Array2::from_elem(shape, T::ZERO));
        if n == 0 || count == 0 {
            return Ok((indices, found));
        }
        if matrix.dim().1 == 0 {
            // All products are 0, so the first rows are returned.
            found.fill(T::ZERO);
            return Ok((Array2::from_shape_fn(shape, |(_, i)| i as u32), found));
        }
        let segment = segment as usize;
        let mut asked = Question::Largest { count, segment, indices, found };
        self.ask(matrix, x, &mut asked, fast)?;
        match asked {
            Question::Largest { mut indices, found, .. } => {
                indices.indexed_iter_mut().for_each(|((_, at), index)| *index += (at / count * segment) as u32);
                Ok((indices, found))
            }
            _ => unreachable!("what was asked"),
        }
    }

    pub(super) fn ask(
        &self,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        asked: &mut Question<'_, T>,
        fast: bool,
    ) -> Result<(), Error> {
        let mut state = self.state();
        self.gpu.enter()?;
        let done = state.ask(&self.gpu, matrix, x, asked, fast);
        state.settle(&self.gpu, done)
    }

    /// Times [`product`](Self::product), or [`forms`](Self::forms) if `forms`, on the device, without copying the
    /// result to the host. Returns one time per repetition.
    ///
    /// # Errors
    /// As for [`product`](Self::product); [`Error::Memory`] if everything does not fit in one chunk.
    pub(crate) fn times(
        &self,
        matrix: &Operand<'_, T>,
        x: &Operand<'_, T>,
        forms: bool,
        fast: bool,
        repeats: usize,
    ) -> Result<Vec<DeviceTime>, Error> {
        if matrix.is_empty() || x.is_empty() {
            return Ok(Vec::new());
        }
        let mut state = self.state();
        self.gpu.enter()?;
        let done = state.times(&self.gpu, matrix, x, forms, fast, repeats);
        state.settle(&self.gpu, done)
    }
}

impl<T: Number> Drop for CudaMatrix<T> {
    fn drop(&mut self) {
        // The buffers, which are dropped after this, belong to the context, and return to the pool, which gives them to
        // others.
        self.gpu.enter_to_drop();
        self.state.get_mut().unwrap_or_else(PoisonError::into_inner).come_to_rest();
    }
}
