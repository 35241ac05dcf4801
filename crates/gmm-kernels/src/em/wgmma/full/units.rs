//! Units of work of a moments warp: products of sixteen columns with one.
//!
//! Each sixteen columns have a list of partners: the columns that are not past the sixteen; ones, which gives the sums
//! of the columns themselves; and, to make the list even, an unused one. After all lists, one unit of ones times ones
//! gives Σ r.

use crate::em::layout::FeatureLayout;

/// Units per warp; both have the same sixteen columns.
pub(crate) const OF_WARP: u32 = 2;

/// Units per block of eight warps.
pub(crate) const OF_BLOCK: u32 = 8 * OF_WARP;

/// Number of blocks that share all units.
#[inline(always)]
pub(crate) const fn parts(d: u32) -> u32 {
    let (mut all, mut sixteen) = (OF_WARP, 0);
    while sixteen < d.div_ceil(16) {
        all += len(d, sixteen);
        sixteen += 1;
    }
    all.div_ceil(OF_BLOCK)
}

/// Number of columns that the `sixteen`th sixteen are multiplied with.
#[inline(always)]
const fn entries(d: u32, sixteen: u32) -> u32 {
    let past = 16 * sixteen + 16;
    if past < d { past } else { d }
}

/// Number of units in a list.
#[inline(always)]
const fn len(d: u32, sixteen: u32) -> u32 {
    (entries(d, sixteen) + 1).next_multiple_of(OF_WARP)
}

/// A unit of work: sixteen columns times one.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    /// Index of its sixteen columns; past the last, the columns of ones and zeros.
    pub(crate) sixteen: u32,
    /// Index in their list.
    at: u32,
}

/// Positions of a lane's sums of a feature: of its first component, and the distances to the next component and to the
/// next eight.
pub(crate) struct Sums {
    pub(crate) first: u64,
    pub(crate) odd: u64,
    pub(crate) group: u64,
}

impl Unit {
    /// Unit number `unit` of `parts*OF_BLOCK`.
    #[inline(always)]
    pub(crate) fn of(d: u32, unit: u32) -> Self {
        let (mut at, mut sixteen) = (unit, 0);
        while sixteen < d.div_ceil(16) && at >= len(d, sixteen) {
            at -= len(d, sixteen);
            sixteen += 1;
        }
        Self { sixteen, at }
    }

    #[inline(always)]
    fn is_weight(self, d: u32) -> bool {
        self.sixteen == d.div_ceil(16)
    }

    /// Column that the sixteen are multiplied with.
    #[inline(always)]
    pub(crate) fn column(self, d: u32) -> u32 {
        if !self.is_weight(d) && self.at < entries(d, self.sixteen) { self.at } else { 16 * d.div_ceil(16) }
    }

    /// Positions of the sums of the unit's `i`th product, from component `k` (even) on. `None` if nothing is to be
    /// written: past the last column, above the diagonal, and in unused units.
    #[inline(always)]
    pub(crate) fn sums(self, place: FeatureLayout, d: u32, i: u32, k: u32) -> Option<Sums> {
        let (column, entries) = (16 * self.sixteen + i, entries(d, self.sixteen));
        if self.is_weight(d) {
            let there = i == 0 && self.at == 0;
            return if there { Some(Sums { first: place.weight(k), odd: 4, group: 8 }) } else { None };
        }
        if column >= d || self.at > entries || (self.at < entries && self.at > column) {
            return None;
        }
        let first = if self.at < entries { place.product_sum(column, self.at, k) } else { place.entry_sum(column, k) };
        Some(Sums { first, odd: 2, group: 128 })
    }
}
