//! Lloyd's iterations without a host: labels, sums of each cluster, new centres, and a state that says when they rest.
//!
//! A pass is up to five launches:
//! 1. [`assign`]: labels. `|x − c|²` is least where `x·c − |c|²/2` is largest, a product of matrices in `f64` on the
//!    tensor cores; a lane keeps the best centre of each of its rows, and nothing of size `n*k` is written;
//! 2. [`sums`]: each row is added to its own centre alone, `n*d` additions and not `n*k*d`;
//! 3. [`reduce_blocks`](crate::reduce::reduce_blocks): partial results in a fixed order;
//! 4. [`centres`]: each centre to the mean of its rows, and what [`assign`] needs of it;
//! 5. [`settle`](centres::lloyd_settle): whether the centres came to rest, or one of them lost all its rows.
//!
//! Of few centres one block does the last two, and the third too where partial results are few ([`end`]).
//!
//! **What the product costs in digits.** Its error is `eps |x| |c|` in `f64` about the rows' shift, for rows in `f32`
//! less than their own rounding. For `f64` rows far from the shift it may pass for a distance: the host compares
//! the clusters' spread with it, and leaves such rows to passes with differences.

pub mod assign;
pub mod centres;
pub mod end;
pub mod sums;

use crate::layout::tiles;

/// How centres lie in the coefficients of [`assign`]: pieces of `at_once` groups of eight centres, each step of sixteen
/// columns in turn, so that a block reads all of them from front to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CentreLayout {
    /// Groups of eight centres that a warp multiplies by at a time: 1, 2 or 4.
    pub at_once: u32,
    /// Groups of eight centres: a multiple of `at_once`.
    pub groups: u32,
    /// Groups of sixteen columns.
    pub steps: u32,
}

/// Numbers of a group of eight centres and a step of sixteen columns.
pub const GROUP_LEN: u32 = 128;

impl CentreLayout {
    /// For `k` centres of `d` columns.
    pub const fn of(k: u32, d: u32) -> Self {
        let at_once = match k.div_ceil(8) {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        };
        Self { at_once, groups: k.div_ceil(8 * at_once) * at_once, steps: d.div_ceil(16) }
    }

    /// Coefficients: `128*groups*steps`.
    pub const fn coefficients(self) -> u64 {
        GROUP_LEN as u64 * self.groups as u64 * self.steps as u64
    }

    /// Position of column `j` of centre `c`: as the lanes of a product take them, two and two.
    #[inline(always)]
    pub fn at(self, c: u32, j: u32) -> u64 {
        // At least one, which the compiler does not know: a division by 0 would be a call to a panic.
        let at_once = self.at_once.max(1);
        let (piece, group) = (c / 8 / at_once, c / 8 % at_once);
        let (step, q, t) = (j / 16, j % 16 / 4, j % 4);
        let lane = c % 8 * 4 + t;
        let entry = (piece as u64 * self.steps as u64 + step as u64) * at_once as u64 + group as u64;
        entry * GROUP_LEN as u64 + (q / 2 * 64 + 2 * lane + q % 2) as u64
    }
}

/// The label of a row that counts for no centre: one past the last row, or without weight.
pub const NONE: u32 = u32::MAX;

/// Labels of `n` rows, filled up to whole tiles: `ceil(n/128)*128`.
pub const fn labels_len(n: u64) -> u64 {
    tiles(n) * crate::layout::TILE_ROWS as u64
}

/// How the sums of clusters are cut: `columns*ranges*splits` warps, a column of some centres over some rows for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumSplits {
    /// `d` first moments, Σ w, and, where they are wanted, `d` second moments.
    pub columns: u32,
    /// Ranges of centres, of `ceil(k/ranges)` each: what a warp's shared memory holds.
    pub ranges: u32,
    /// Parts of the rows, each with a partial result.
    pub splits: u32,
}

impl SumSplits {
    /// Numbers in a partial result: `columns*k` sums, then the inertia of each column and range.
    pub const fn len(self, k: u32) -> u64 {
        self.columns as u64 * (k as u64 + self.ranges as u64)
    }

    /// Warps.
    pub const fn warps(self) -> u64 {
        self.columns as u64 * self.ranges as u64 * self.splits as u64
    }
}
