//! Where the forward substitution keeps the columns that are solved.

use super::rows::{four_of, of_four};
use super::{EStep, SUM_BYTES, solved_columns};
use crate::Real;
use crate::device::{self, thread};
use crate::layout::TILE_ROWS;

/// Columns of this thread's rows that are solved so far: `y` of `L y = x − μ`.
pub(super) trait Solved<T>: Copy {
    unsafe fn get<const R: usize>(self, j: u32) -> [T; R];
    unsafe fn set<const R: usize>(self, j: u32, values: [T; R]);
}

/// In shared memory, after the scratch of the block sum; the threads of a warp are adjacent.
#[derive(Clone, Copy)]
pub(super) struct InShared;

impl InShared {
    /// Byte offset of column `j` of this thread's `R` rows.
    #[inline(always)]
    fn at<T: Real, const R: usize>(j: u32) -> u32 {
        SUM_BYTES + (j * TILE_ROWS + thread::thread_idx_x()) * (R as u32 * T::BYTES)
    }
}

impl<T: Real> Solved<T> for InShared {
    #[inline(always)]
    unsafe fn get<const R: usize>(self, j: u32) -> [T; R] {
        let at = Self::at::<T, R>(j);
        if R == 1 { [T::shared_load(at); R] } else { of_four(T::shared_load4(at)) }
    }
    #[inline(always)]
    unsafe fn set<const R: usize>(self, j: u32, values: [T; R]) {
        let at = Self::at::<T, R>(j);
        if R == 1 { T::shared_store(at, values[0]) } else { T::shared_store4(at, four_of(values)) }
    }
}

/// In global memory, with one section per block.
#[derive(Clone, Copy)]
pub(super) struct InScratch<T>(*mut T);

impl<T: Real> InScratch<T> {
    #[inline(always)]
    pub(super) fn new(a: &EStep<T>) -> Self {
        let piece = solved_columns(a.d) as u64 * TILE_ROWS as u64;
        Self(a.scratch.wrapping_add((thread::block_idx_x() as u64 * piece) as usize))
    }
}

impl<T: Real> Solved<T> for InScratch<T> {
    #[inline(always)]
    unsafe fn get<const R: usize>(self, j: u32) -> [T; R] {
        // SAFETY: `R` is 1, and `j < solved_columns(d)`: the block's section of `scratch` has `128 * solved_columns(d)`
        // elements.
        unsafe { [device::load(self.0, j as u64 * TILE_ROWS as u64 + thread::thread_idx_x() as u64); R] }
    }
    #[inline(always)]
    unsafe fn set<const R: usize>(self, j: u32, values: [T; R]) {
        // SAFETY: as in `get`; each thread has its own column.
        unsafe { device::store(self.0, j as u64 * TILE_ROWS as u64 + thread::thread_idx_x() as u64, values[0]) };
    }
}
