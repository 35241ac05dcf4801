//! Rows that another library put on the device, for a single evaluation: each chunk is tiled when a pass comes to it.
//!
//! So the tiles stay in the cache for the kernel that reads them, and no memory is taken for all of them. The rows are not
//! checked: a row that is not finite has no density, which the total shows.

use std::ops::Range;

use cust::memory::{DevicePointer, DeviceSlice};
use gmm_kernels::layout::tiled_len;

use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::launch::Launcher;
use crate::cuda::number::Number;
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
    /// Takes memory for the shift, which the caller writes.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(crate) fn new(gpu: &Gpu, rows: DeviceRows) -> Result<Self, Error> {
        Ok(Self { rows, shift: Slot::taken(gpu, WHAT, rows.d)?, window: Slot::empty() })
    }

    /// The shift on the device, `(d,)`.
    pub(crate) fn shift(&self) -> DeviceSlice<f64> {
        self.shift.first(self.rows.d)
    }

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
        Launcher { gpu, queue }.hold((n, d as u32), self.rows.precision, &from, &self.shift(), &to)?;
        Ok(to)
    }
}
