//! The buffers of queries, which are reused.

use cust::memory::{DeviceCopy, DeviceSlice};

use super::question::WHAT;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::launch::Factor;
use crate::cuda::number::Number;

/// The buffers of queries, which are reused.
pub(super) struct Room<T: Number> {
    pub(super) raw: Slot<T>,
    pub(super) operands: Slot<u32>,
    pub(super) scales: Slot<f32>,
    pub(super) largest: Slot<u32>,
    pub(super) trouble: Slot<u32>,
    pub(super) sums: Slot<u32>,
    pub(super) product: Slot<T>,
    pub(super) numbers: Slot<f64>,
    pub(super) indices: Slot<u32>,
    pub(super) found: Slot<T>,
    pub(super) shift: Slot<f64>,
    /// Gathered numbers of another precision, contiguous.
    pub(super) strided: Slot<f64>,
    /// Numbers that were rounded to f32.
    pub(super) single: Slot<f32>,
    pub(super) zero: Slot<f64>,
}

impl<T: Number> Room<T> {
    pub(super) const fn empty() -> Self {
        Self {
            raw: Slot::empty(),
            operands: Slot::empty(),
            scales: Slot::empty(),
            largest: Slot::empty(),
            trouble: Slot::empty(),
            sums: Slot::empty(),
            product: Slot::empty(),
            numbers: Slot::empty(),
            indices: Slot::empty(),
            found: Slot::empty(),
            shift: Slot::empty(),
            strided: Slot::empty(),
            single: Slot::empty(),
            zero: Slot::empty(),
        }
    }

    /// Allocated bytes.
    pub(super) fn bytes(&self) -> u128 {
        let words = self.operands.bytes() + self.largest.bytes() + self.trouble.bytes() + self.indices.bytes();
        let numbers =
            self.raw.bytes() + self.product.bytes() + self.found.bytes() + self.scales.bytes() + self.single.bytes();
        words + numbers + self.sums.bytes() + self.numbers.bytes() + self.shift.bytes() + self.strided.bytes()
    }
}

/// Makes room for `len` numbers.
pub(super) fn reserve<A: DeviceCopy>(gpu: &Gpu, slot: &mut Slot<A>, len: usize) -> Result<(), Error> {
    if len > slot.room() {
        // Frees the old buffer first: both may not fit.
        *slot = Slot::empty();
        *slot = Slot::taken(gpu, WHAT, len)?;
    }
    Ok(())
}

/// Cached operands of the matrix.
pub(super) struct HeldOperand {
    pub(super) operands: Slot<u32>,
    pub(super) scales: Slot<f32>,
    pub(super) rows: u64,
    pub(super) words: usize,
}

impl HeldOperand {
    pub(super) fn factor(&self) -> Factor {
        let scales = self.scales.first(if self.scales.room() == 0 { 0 } else { self.rows as usize });
        Factor { operands: self.operands.first(self.words), scales, rows: self.rows }
    }
}

/// Views numbers of type `f32` as such.
pub(super) fn as_f32<T: Number>(numbers: &DeviceSlice<T>) -> DeviceSlice<f32> {
    assert!(T::BYTES == 4, "f64 is multiplied in f64");
    // SAFETY: the assert checked that `T` is `f32`.
    unsafe { DeviceSlice::from_raw_parts(numbers.as_device_ptr().cast(), numbers.len()) }
}
