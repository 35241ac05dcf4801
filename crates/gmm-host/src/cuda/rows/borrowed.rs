//! Rows that another library put on the device, for a single evaluation: each chunk is tiled when a pass comes to it.
//!
//! So the tiles stay in the cache for the kernel that reads them, and no memory is taken for all of them. The rows are not
//! checked: a row that is not finite has no density, which the total shows.

use std::ops::Range;
use std::sync::Arc;

use cust::memory::{AsyncCopyDestination, DevicePointer, DeviceSlice};
use gmm_kernels::layout::tiled_len;
use gmm_model::Precision;

use super::upload;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::launch::Launcher;
use crate::cuda::launch::plan::ForcedPlan;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;
use crate::cuda::rows::device_input::DeviceData;
use crate::data::DeviceRows;

const WHAT: &str = "rows that are tiled on the GPU";

/// The rows, and the tiles of the chunk that a pass is at.
pub(crate) struct Borrowed<T: Number> {
    rows: DeviceRows,
    /// `(d,)`.
    shift: Slot<f64>,
    window: Slot<T>,
}

impl<T: Number> Borrowed<T> {
    /// The rows of a range as tiles, for kernels that are enqueued before the next call.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn stage(&mut self, gpu: &Gpu, queue: &Queue, rows: Range<usize>) -> Result<DeviceSlice<T>, Error> {
        let (n, d) = (rows.len() as u64, self.rows.d);
        let len = tiled_len(n, d as u32) as usize;
        if self.window.room() < len {
            // Kernels may still read the old tiles.
            queue.rest(gpu)?;
            self.window = Slot::taken(gpu, WHAT, len)?;
        }
        let bytes = self.rows.number_bytes();
        let (first, words) = ((rows.start * d * bytes) as u64, (rows.len() * d * bytes).div_ceil(8));
        // SAFETY: the words cover numbers of `rows`, which `device_data` requires to be readable. If the last word holds
        // only one `f32`, the kernel reads no further.
        let from =
            unsafe { DeviceSlice::<f64>::from_raw_parts(DevicePointer::from_raw(self.rows.address + first), words) };
        let to = self.window.first(len);
        Launcher { gpu, queue }.hold((n, d as u32), self.rows.precision, &from, &self.shift.first(d), &to)?;
        Ok(to)
    }
}

impl<T: Number> Rows<T> {
    /// Rows of another library, all of which are present.
    ///
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(crate) fn borrow(
        gpu: Arc<Gpu>,
        data: &DeviceData,
        precision: Precision,
        shift: &[f64],
        forced: ForcedPlan,
    ) -> Result<Self, Error> {
        gpu.enter()?;
        let total_weight = data.weights().map(|weights| weights.iter().sum());
        let mut rows = Self::taken(gpu, (data.rows.n, data.rows.d), 0, total_weight, precision, shift, forced)?;
        let at = Slot::taken(&rows.gpu, WHAT, shift.len())?;
        rows.borrowed = Some(Borrowed { rows: data.rows, shift: at, window: Slot::empty() });
        // The copy is done when `run` returns, so that the caller may drop `shift`.
        rows.run(|rows| {
            if let (Some(to), Some(weights)) = (&rows.row_weights, data.weights()) {
                upload::weights(&rows.gpu, &rows.queue, weights, &mut to.first(rows.n))?;
            }
            let Some(borrowed) = &rows.borrowed else { return Ok(()) };
            // SAFETY: the stream is waited for below, or in `run` after a failure.
            let copied = unsafe { borrowed.shift.first(rows.d).async_copy_from(&rows.shift[..], &rows.queue.stream) };
            rows.gpu.check("a copy of a shift to the device", copied)?;
            rows.queue.wait(&rows.gpu)
        })?;
        Ok(rows)
    }
}
