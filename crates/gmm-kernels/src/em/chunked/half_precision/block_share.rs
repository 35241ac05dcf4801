//! Share of each warp of a moments block: its unit of the sums, its rows, and its groups of Σ r.

use super::moments::{Moments, WARPS, units_of_block};
use crate::device::{WARP, thread};
use crate::em::chunked::double_precision;
use crate::em::chunked::half_precision::staged::Features;
use crate::em::layout::FeatureLayout;

/// A warp's share of the work.
pub(crate) struct BlockShare {
    /// Number of units of a piece.
    pub(crate) units: u32,
    /// Partial results per block; warps with the same unit take different sixteens of rows.
    pub(crate) lanes: u32,
    /// Piece of the components.
    pub(crate) piece: u32,
    /// Split of the rows.
    pub(crate) split: u32,
    /// This warp's unit, which may be past the last, and the first of its sixteens.
    pub(crate) unit: u32,
    pub(crate) turn: u32,
}

impl BlockShare {
    /// `None` if there is nothing to do; the check tells the compiler that the divisors are not 0.
    #[inline(always)]
    pub(crate) fn new<F: Features, const U: usize, const G: usize>(a: &Moments, d: u32) -> Option<Self> {
        let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
        let units = double_precision::moments::twos(F::FAMILY, place, d).div_ceil(U as u32);
        let at_once = units_of_block(units);
        // `at_once` is a power of two.
        let (lanes, shift) = (WARPS / at_once, at_once.trailing_zeros());
        let (pieces, parts) = (a.groups / G as u32, (units + at_once - 1) >> shift);
        if parts == 0 || pieces == 0 {
            return None;
        }
        let (at, me) = (thread::block_idx_x(), thread::thread_idx_x_anew() / WARP);
        let (part, rest) = (at % parts, at / parts);
        let (piece, split) = (rest % pieces, rest / pieces);
        Some(Self { units, lanes, piece, split, unit: (part << shift) + (me & (at_once - 1)), turn: me >> shift })
    }
}

/// Groups of components for which a warp adds up Σ r: every `step`th from `first` up to `end`, packed into one byte
/// each to save registers.
#[derive(Clone, Copy)]
pub(crate) struct OfWeights(u32);

impl OfWeights {
    /// Warps without a unit share the groups. If all warps have units, each warp takes the group with its unit's
    /// number, and the last unit also all groups after that.
    #[inline(always)]
    pub(crate) fn new(units: u32, unit: u32, groups: u32) -> Self {
        let idle = units.next_multiple_of(units_of_block(units)) - units;
        let (first, end, step) = match (idle > 0, unit < units) {
            (true, false) => (unit - units, groups, idle),
            (true, true) => (groups, groups, 1),
            (false, _) => (unit, if unit + 1 == units { groups } else { unit + 1 }, 1),
        };
        Self(first.min(groups) | end.min(groups) << 8 | step << 16)
    }

    #[inline(always)]
    pub(crate) fn first(self) -> u32 {
        self.0 & 0xff
    }

    #[inline(always)]
    pub(crate) fn end(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    #[inline(always)]
    pub(crate) fn step(self) -> u32 {
        self.0 >> 16
    }

    #[inline(always)]
    pub(crate) fn has(self, group: u32) -> bool {
        group >= self.first() && group < self.end() && (group - self.first()).is_multiple_of(self.step())
    }
}
