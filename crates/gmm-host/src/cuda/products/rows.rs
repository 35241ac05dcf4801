//! Rows that stay on a device as questions to other matrices.

use std::sync::Arc;

use gmm_model::Precision;
use ndarray::ArrayView2;

use super::matrix::CudaMultiplier;
use super::transfer::put;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::send;
use crate::cuda::number::Number;
use crate::cuda::rows::device_input::DeviceData;
use crate::data::DeviceRows;

/// Rows, `(n, k)`, in device memory of their own.
pub(crate) struct CudaRows<T: Number> {
    gpu: Arc<Gpu>,
    data: DeviceData,
    /// Owns the memory that `data` describes.
    _numbers: Slot<T>,
}

impl<T: Number> CudaRows<T> {
    /// Uploads the rows; there is at least one number.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn new(multiplier: &CudaMultiplier, rows: ArrayView2<'_, T>) -> Result<Self, Error> {
        const WHAT: &str = "rows as questions on the GPU";
        let gpu = multiplier.gpu().clone();
        gpu.enter()?;
        gpu.room(WHAT, u128::from(T::BYTES) * rows.len() as u128, 0)?;
        let (queue, numbers) = (Queue::new(&gpu)?, Slot::taken(&gpu, WHAT, rows.len())?);
        send(&gpu, &queue, &mut numbers.first(rows.len()), 1, |piece, chunk| put(rows, piece.start, chunk))?;
        let address = numbers.first(rows.len()).as_device_ptr().as_raw();
        let precision = if T::BYTES == 4 { Precision::F32 } else { Precision::F64 };
        let there = DeviceRows { address, n: rows.nrows(), d: rows.ncols(), precision, stream: None };
        // SAFETY: the numbers were written above, nothing writes them again, and they live as long as `data`.
        let data = unsafe { DeviceData::new(&gpu, there, None)? };
        Ok(Self { gpu, data, _numbers: numbers })
    }

    pub(crate) const fn data(&self) -> &DeviceData {
        &self.data
    }
}

impl<T: Number> Drop for CudaRows<T> {
    fn drop(&mut self) {
        // The buffer, which is dropped after this, belongs to the context and returns to the pool.
        self.gpu.enter_to_drop();
    }
}
