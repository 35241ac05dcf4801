//! The memory of truncated EM on a device.

use std::ops::Range;

use cust::memory::{DeviceCopy, DeviceSlice};

use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::number::Number;
use crate::cuda::rows::Rows;

/// All numbers and all integers, kept between passes.
pub(crate) struct Memory {
    numbers: Slot<f64>,
    integers: Slot<u32>,
}

impl Memory {
    pub(crate) fn empty() -> Self {
        Self { numbers: Slot::empty(), integers: Slot::empty() }
    }

    /// Makes room for that many of each.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub(super) fn reserve<T: Number>(
        &mut self,
        rows: &mut Rows<T>,
        numbers: usize,
        integers: usize,
    ) -> Result<(), Error> {
        let wanted = 8 * numbers as u128 + 4 * integers as u128;
        rows.room("truncated EM on the GPU", wanted, self.numbers.bytes() + self.integers.bytes())?;
        self.numbers.reserve(&rows.gpu, numbers)?;
        self.integers.reserve(&rows.gpu, integers)
    }

    pub(super) fn numbers(&self, range: &Range<usize>) -> DeviceSlice<f64> {
        of(&self.numbers, range)
    }

    pub(super) fn integers(&self, range: &Range<usize>) -> DeviceSlice<u32> {
        of(&self.integers, range)
    }
}

fn of<A: DeviceCopy>(slot: &Slot<A>, range: &Range<usize>) -> DeviceSlice<A> {
    slot.first(range.end).index(range.clone())
}

/// Divides memory into ranges, each of which starts at a multiple of 32 elements.
#[derive(Default)]
pub(super) struct Ranges {
    pub(super) len: usize,
}

impl Ranges {
    pub(super) fn take(&mut self, len: usize) -> Range<usize> {
        let start = self.len;
        self.len += len.next_multiple_of(32);
        start..start + len
    }
}
