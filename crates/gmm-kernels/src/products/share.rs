//! The part of a product that a thread block computes.

use super::BLOCK;
use crate::device::thread;

/// A thread block's sums, and the range of steps that it adds up.
#[derive(Clone, Copy)]
pub(super) struct Share {
    /// Block of the left factor.
    pub(super) left: u32,
    /// Block of the right factor.
    pub(super) right: u32,
    pub(super) first: u32,
    pub(super) end: u32,
}

impl Share {
    /// The share with index `at`. `triangle` is 0 or the steps of [`BLOCK`] columns. Consecutive shares read the same
    /// few blocks of rows, which are then in the L2 cache.
    #[inline(always)]
    pub(super) fn of(at: u32, left_blocks: u32, right_blocks: u32, steps: u32, slice: u32, triangle: u32) -> Self {
        const GROUP: u32 = 8;
        let group = at.checked_div(GROUP * right_blocks).unwrap_or(0);
        let within = at - group * GROUP * right_blocks;
        let rest = left_blocks - group * GROUP;
        let high = if rest < GROUP { rest } else { GROUP };
        let right = within.checked_div(high).unwrap_or(0);
        let left = group * GROUP + within - right * high;
        // A triangular factor is zero past the column of the block's last row.
        let needed = if triangle == 0 { steps } else { (left + 1) * triangle };
        let all = if needed < steps { needed } else { steps };
        let first = thread::block_idx_y() * slice;
        let end = if first + slice < all { first + slice } else { all };
        Self { left, right, first, end: if end < first { first } else { end } }
    }

    /// Position of the block's sum `(row, column)` among the sums of all slices.
    #[inline(always)]
    pub(super) fn sum_at(self, left_blocks: u32, right_blocks: u32, row: u32, column: u32) -> u64 {
        let wide = right_blocks as u64 * BLOCK as u64;
        let high = left_blocks as u64 * BLOCK as u64;
        let row = thread::block_idx_y() as u64 * high + (self.left * BLOCK + row) as u64;
        row * wide + (self.right * BLOCK + column) as u64
    }
}
