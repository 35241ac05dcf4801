//! What a warp of the moments has: products of sixteen columns with one.
//!
//! For each sixteen columns there is a list of those that are not past them, of ones, which leaves the columns' own sums, and
//! of one more that is not used where the list would be odd; after all lists one for ones times ones, which leaves weights.

use crate::em::layout::Place;

/// Units of a warp, which have the same sixteen columns.
pub(crate) const OF_WARP: u32 = 2;

/// Units of a block of eight warps.
pub(crate) const OF_BLOCK: u32 = 8 * OF_WARP;

/// Blocks that share all units.
#[inline(always)]
pub(crate) const fn parts(d: u32) -> u32 {
    let (mut all, mut sixteen) = (OF_WARP, 0);
    while sixteen < d.div_ceil(16) {
        all += len(d, sixteen);
        sixteen += 1;
    }
    all.div_ceil(OF_BLOCK)
}

/// Columns that the `sixteen`th sixteen are multiplied with.
#[inline(always)]
const fn entries(d: u32, sixteen: u32) -> u32 {
    let past = 16 * sixteen + 16;
    if past < d { past } else { d }
}

/// Units in a list.
#[inline(always)]
const fn len(d: u32, sixteen: u32) -> u32 {
    (entries(d, sixteen) + 1).next_multiple_of(OF_WARP)
}

/// A unit.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    /// Which sixteen columns; those after all have ones.
    pub(crate) sixteen: u32,
    /// Place in their list.
    at: u32,
}

/// Where a lane's sums of a feature lie: of its first component, and how far from there on are those of the component after
/// it, and of the next eight.
pub(crate) struct Sums {
    pub(crate) first: u64,
    pub(crate) odd: u64,
    pub(crate) group: u64,
}

impl Unit {
    /// One of `parts*OF_BLOCK`.
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

    /// The column that the sixteen are multiplied with.
    #[inline(always)]
    pub(crate) fn column(self, d: u32) -> u32 {
        if !self.is_weight(d) && self.at < entries(d, self.sixteen) { self.at } else { 16 * d.div_ceil(16) }
    }

    /// Where sums of the unit's `i`th product lie for components `k`, an even one, and so on; none where nothing is to be
    /// written: past the columns, above the diagonal, in units that are not used.
    #[inline(always)]
    pub(crate) fn sums(self, place: Place, d: u32, i: u32, k: u32) -> Option<Sums> {
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
