//! Lloyd's iterations without the host: labels, sums of each cluster, new centres, and a state that records
//! convergence.
//!
//! A pass is up to five launches:
//! 1. [`assign`]: labels. `|x − c|²` is smallest where `x·c − |c|²/2` is largest, a matrix product in `f64` on the
//!    tensor cores. A lane keeps the best centre of each of its rows, and nothing of size `n*k` is written.
//! 2. [`sums`]: each row is added only to its own centre, in `n*d` additions instead of `n*k*d`.
//! 3. [`reduce_blocks`](crate::reduce::reduce_blocks): partial results in a fixed order.
//! 4. [`centres`]: moves each centre to the mean of its rows, and computes what [`assign`] needs of it.
//! 5. [`settle`](centres::lloyd_settle): checks whether the centres have converged, or one of them lost all its rows.
//!
//! [`products`] adds the second moments of full and tied covariances, for the M-step after k-means.
//!
//! For few centres one block does the last two steps, and also the third if there are few partial results ([`end`]).
//!
//! **Precision of the product.** Its error is `eps |x| |c|` in `f64`, relative to the rows' shift; for `f32` rows this
//! is less than their own rounding. For `f64` rows far from the shift the error can be as large as a distance. The host
//! compares it with the clusters' spread, and uses the passes based on differences for such rows.

pub mod assign;
pub mod centres;
pub mod end;
pub mod products;
pub mod sums;

use crate::layout::tiles;

/// Layout of centres in the coefficients of [`assign`]: pieces of `at_once` groups of eight centres, each with its
/// steps of 16 columns in order, so that a block reads the coefficients from front to back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CentreLayout {
    /// Groups of eight centres that a warp multiplies at a time: 1, 2 or 4.
    pub at_once: u32,
    /// Groups of eight centres: a multiple of `at_once`.
    pub groups: u32,
    /// Groups of sixteen columns.
    pub steps: u32,
}

/// Numbers in a group of eight centres and a step of 16 columns.
pub const GROUP_LEN: u32 = 128;

impl CentreLayout {
    /// The layout for `k` centres of `d` columns.
    pub const fn of(k: u32, d: u32) -> Self {
        let at_once = match k.div_ceil(8) {
            0 | 1 => 1,
            2 => 2,
            _ => 4,
        };
        Self { at_once, groups: k.div_ceil(8 * at_once) * at_once, steps: d.div_ceil(16) }
    }

    /// Number of coefficients: `128*groups*steps`.
    pub const fn coefficients(self) -> u64 {
        GROUP_LEN as u64 * self.groups as u64 * self.steps as u64
    }

    /// Position of column `j` of centre `c`: ordered as the lanes of a product read them, in pairs.
    #[inline(always)]
    pub fn at(self, c: u32, j: u32) -> u64 {
        // `max(1)` tells the compiler that it is not 0; a check for division by 0 would be a call to a panic.
        let at_once = self.at_once.max(1);
        let (piece, group) = (c / 8 / at_once, c / 8 % at_once);
        let (step, q, t) = (j / 16, j % 16 / 4, j % 4);
        let lane = c % 8 * 4 + t;
        let entry = (piece as u64 * self.steps as u64 + step as u64) * at_once as u64 + group as u64;
        entry * GROUP_LEN as u64 + (q / 2 * 64 + 2 * lane + q % 2) as u64
    }
}

/// The label of a row that belongs to no centre: past the last row, or of weight 0.
pub const NONE: u32 = u32::MAX;

/// Length of the labels of `n` rows, padded to whole tiles: `ceil(n/128)*128`.
pub const fn labels_len(n: u64) -> u64 {
    tiles(n) * crate::layout::TILE_ROWS as u64
}

/// Division of the cluster sums into `columns*ranges*splits` warps: each has one column, a range of centres and a part
/// of the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumSplits {
    /// `d` first moments, Σ w and, if requested, `d` second moments.
    pub columns: u32,
    /// Ranges of centres, `ceil(k/ranges)` each, such that the sums fit into a warp's shared memory.
    pub ranges: u32,
    /// Parts of the rows, each with its own partial result.
    pub splits: u32,
}

impl SumSplits {
    /// Length of a partial result: `columns*k` sums, then the inertia of each column and range.
    pub const fn len(self, k: u32) -> u64 {
        self.columns as u64 * (k as u64 + self.ranges as u64)
    }

    /// Number of warps.
    pub const fn warps(self) -> u64 {
        self.columns as u64 * self.ranges as u64 * self.splits as u64
    }
}
