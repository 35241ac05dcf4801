//! One row of a tile, or four successive ones, which are loaded and stored together.

use super::EStep;
use crate::Real;
use crate::device;
use crate::each::each;
use crate::layout::TILE_ROWS;

/// The `R` values of an array of four, where `R` is 4.
#[inline(always)]
pub(super) fn of_four<T: Real, const R: usize>(four: [T; 4]) -> [T; R] {
    let mut out = [T::ZERO; R];
    each(R, |i| out[i] = four[i]);
    out
}

/// The inverse of [`of_four`].
#[inline(always)]
pub(super) fn four_of<T: Real, const R: usize>(values: [T; R]) -> [T; 4] {
    let mut out = [T::ZERO; 4];
    each(R, |i| out[i] = values[i]);
    out
}

/// Entry `at` of each of `R` successive rows: `R` is 1 or 4.
#[inline(always)]
pub(super) unsafe fn load_rows<T: Real, const R: usize>(column: *const T, at: u32) -> [T; R] {
    // SAFETY: the caller passes a column of rows in tiles; four rows are 16-byte aligned.
    unsafe {
        if R == 1 {
            [device::load(column, at as u64); R]
        } else {
            of_four(T::global_load4(column.wrapping_add(at as usize)))
        }
    }
}

/// The counterpart of [`load_rows`].
#[inline(always)]
pub(super) unsafe fn store_rows<T: Real, const R: usize>(column: *mut T, at: u32, values: [T; R]) {
    // SAFETY: the caller passes a column of rows in tiles, its own rows; four rows are 16-byte aligned.
    unsafe {
        if R == 1 {
            device::store(column, at as u64, values[0]);
        } else {
            T::global_store4(column.wrapping_add(at as usize), four_of(values));
        }
    }
}

/// `R` successive rows of this thread, with entry `j` at `x[128 j]`.
#[derive(Clone, Copy)]
pub(super) struct Group<T, const R: usize>(pub(super) *const T);

/// A component's mean: its rounded entries and their rounding errors.
#[derive(Clone, Copy)]
pub(super) struct Mean<T> {
    high: *const T,
    low: *const T,
}

impl<T: Real> Mean<T> {
    #[inline(always)]
    pub(super) fn of(a: &EStep<T>, c: u32) -> Self {
        let at = (c as u64 * a.d as u64) as usize;
        Self { high: a.mean_high.wrapping_add(at), low: a.mean_low.wrapping_add(at) }
    }
}

impl<T: Real, const R: usize> Group<T, R> {
    /// Entry `j` of each row, less that of the mean.
    #[inline(always)]
    pub(super) unsafe fn centred(self, mean: Mean<T>, j: u32) -> [T; R] {
        // SAFETY: `j < d`, so indices are within the mean and the rows, which are the chunk's.
        unsafe {
            let (high, low) = (device::load(mean.high, j as u64), device::load(mean.low, j as u64));
            let mut out = load_rows::<T, R>(self.0, j * TILE_ROWS);
            each(R, |i| out[i] = out[i] - high - low);
            out
        }
    }
}
