//! Share of each warp of the moments kernel, and its lanes' shared memory.

use core::marker::PhantomData;

use super::moments::{Moments, ahead_at, bundles, columns_at, exponentials_at, layout};
use crate::device::{Prefetch, Shared, WARP, thread};
use crate::em::chunked::double_precision::down::{Choice, Down, Rows, Slots};
use crate::em::features::GROUP;
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

/// A warp's share of the sums: some units of features by a piece of the components, over the rows of one split.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    pub(crate) unit: u32,
    pub(crate) piece: u32,
    /// Total number of pieces.
    pub(crate) pieces: u32,
    pub(crate) split: u32,
    pub(crate) lane: u32,
}

impl Share {
    /// Returns the share of the warp of thread `t`; `None` for warps past the last share. Units are `U` times two
    /// steps, pieces are `G` groups.
    #[inline(always)]
    pub(crate) fn of_warp<T: Real, F: Down, const U: usize, const G: usize>(
        a: &Moments<T>,
        d: u32,
        t: u32,
    ) -> Option<Self> {
        let (lane, me) = (t % WARP, t / WARP);
        let (each, groups) = (U as u32, G as u32);
        let units = bundles(F::FAMILY, layout(a), d, each);
        let pieces = a.groups / groups;
        let at = thread::block_idx_x() * (THREADS / WARP) + me;
        // There are units and pieces; the check tells the compiler that the divisors are not 0.
        if units == 0 || pieces == 0 || at >= units * pieces * a.splits {
            return None;
        }
        let (unit, rest) = (at % units, at / units);
        Some(Self { unit, piece: rest % pieces, pieces, split: rest / pieces, lane })
    }

    /// Whether the warp also adds up Σ r.
    #[inline(always)]
    pub(crate) const fn with_weights(self) -> bool {
        self.unit == 0
    }

    /// Addresses of a lane's values of the `sixteen`th sixteen rows.
    #[inline(always)]
    pub(crate) fn rows<T: Real>(self, a: &Moments<T>, groups: u32, sixteen: u32) -> Rows<T, f64> {
        let (tile, inside) = ((sixteen / 8) as u64, (sixteen % 8 * GROUP + self.lane % 4 * 4) as u64);
        let (pieces, piece) = (self.pieces as u64, self.piece as u64);
        let group = sixteen as u64 * a.groups as u64 + (self.piece * groups) as u64;
        Rows {
            x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + inside) as usize),
            norm: a.norms.wrapping_add((tile * TILE_ROWS as u64 + inside) as usize),
            factors: a.factors.wrapping_add(((tile * pieces + piece) * TILE_ROWS as u64 + inside) as usize),
            exponentials: a.exponentials.wrapping_add((group * 128 + (self.lane * 4) as u64) as usize),
            d: a.d,
        }
    }
}

/// A lane's shared memory: Σ r of each group, its choice for each unit, and the prefetch slots.
#[derive(Clone, Copy)]
pub(crate) struct Memory<T> {
    pub(crate) weights: Shared<f64>,
    pub(crate) choices: Shared<f32>,
    pub(crate) ahead: Prefetch,
    pub(crate) groups: u32,
    pub(crate) d: u32,
    pub(crate) of: PhantomData<T>,
}

impl<T: Real> Memory<T> {
    #[inline(always)]
    pub(crate) fn of_lane(groups: u32, d: u32) -> Self {
        let t = thread::thread_idx_x();
        Self {
            weights: Shared::at(t * 8),
            choices: Shared::at(groups * THREADS * 8 + t * 16),
            ahead: Prefetch::at(ahead_at(groups)),
            groups,
            d,
            of: PhantomData,
        }
    }

    #[inline(always)]
    pub(crate) fn choice(self, u: usize) -> Choice {
        self.choices.load4(4 * THREADS * u as u32).map(f32::to_bits)
    }

    /// Slots of columns from index `column` on; the columns that the units share come first.
    #[inline(always)]
    pub(crate) fn slots(self, column: u32) -> Slots<T> {
        Slots { ahead: self.ahead, first: columns_at::<T>(self.groups, column), d: self.d, of: PhantomData }
    }

    /// Slots of a unit's own columns.
    #[inline(always)]
    pub(crate) fn own_slots<F: Down>(self, u: usize) -> Slots<T> {
        self.slots(F::SHARED + u as u32 * F::OWN)
    }

    /// Starts the copy of the exponentials of group `i`.
    ///
    /// # Safety
    /// `next` are rows of the chunk.
    #[inline(always)]
    pub(crate) unsafe fn send_exponentials(self, next: Rows<T, f64>, i: usize) {
        // SAFETY: `next` are rows of the chunk, as `# Safety` requires.
        unsafe { self.ahead.send(exponentials_at::<T>(i as u32), next.exponentials.wrapping_add(128 * i)) };
    }
}
