//! What the rows of one component tried, in the shared memory of their warp.

use crate::device::{self, Integers, Shared, WARP, anew, warp};
use crate::truncated::{StepMemory, TABLE, Truncated};

/// A density that is less than that of the row's best component by more than this counts as this.
const LEAST: f64 = -1e30;

/// The components that the rows of `of` tried, each with the sum of its log joint densities over that of `of`.
pub(super) struct Table {
    sums: Shared<f64>,
    tried: Integers,
    rows: Integers,
    /// How many are there.
    len: u32,
    /// The component whose rows these are.
    pub(super) of: u32,
    /// How many of its rows there were.
    pub(super) seen: u32,
}

impl Table {
    #[inline(always)]
    pub(super) fn new(first: u32, at: StepMemory, of: u32) -> Self {
        let (tried, rows) = (Integers::at(2 * (first + at.tried)), Integers::at(2 * (first + at.rows)));
        Self { sums: Shared::at(8 * (first + at.sums)), tried, rows, len: 0, of, seen: 0 }
    }

    /// Adds what a row tried: `count` candidates and their log joint densities, those of `of` first. All lanes call it.
    #[inline(always)]
    pub(super) fn note(&mut self, candidates: Integers, joint: Shared<f64>, count: u32) {
        let own = joint.load(0);
        self.seen += 1;
        let mut from = 0;
        while from < count {
            let i = from + warp::lane_id();
            let there = i < count;
            let (mut c, mut over, mut at) = (0, 0.0, TABLE);
            if there {
                c = candidates.load(i);
                // Both may be −∞.
                let by = joint.load(i) - own;
                over = if by > LEAST { by } else { LEAST };
                let mut j = 0;
                while j < self.len {
                    if self.tried.load(j) == c {
                        at = j;
                    }
                    j += 1;
                }
            }
            warp::sync_warp();
            let is_new = anew(there) && at == TABLE;
            let new = warp::ballot(is_new);
            if anew(there) {
                if is_new {
                    let to = self.len + (new & warp::lanes_below()).count_ones();
                    if to < TABLE {
                        self.tried.store(to, c);
                        self.sums.store(to, over);
                        self.rows.store(to, 1);
                    }
                } else {
                    self.sums.store(at, self.sums.load(at) + over);
                    self.rows.store(at, self.rows.load(at) + 1);
                }
            }
            let len = self.len + new.count_ones();
            self.len = if len < TABLE { len } else { TABLE };
            warp::sync_warp();
            from += WARP;
        }
    }

    /// Writes the neighbours of the component: itself, then those of the largest means, the lower index first among equals. If
    /// fewer were tried, the last ones stay. All lanes call it.
    ///
    /// # Safety
    /// The buffers in `a` are as the fields of [`Truncated`] document, and this warp alone has this component.
    #[inline(always)]
    pub(super) unsafe fn write(&self, a: &Truncated) {
        let mut i = warp::lane_id();
        while i < self.len {
            self.sums.store(i, self.sums.load(i) / self.rows.load(i) as f64);
            i += WARP;
        }
        warp::sync_warp();
        let to = self.of as u64 * a.each as u64;
        if warp::lane_id() == 0 {
            // SAFETY: the component is below `k`.
            unsafe { device::store(a.next_neighbours, to, self.of) };
        }
        let mut i = warp::lane_id();
        while i < self.len {
            let (c, mean) = (self.tried.load(i), self.sums.load(i));
            if c != self.of {
                let (mut rank, mut j) = (0, 0);
                while j < self.len {
                    let (other, of_other) = (self.tried.load(j), self.sums.load(j));
                    let is_before = of_other > mean || (of_other == mean && other < c);
                    if other != self.of && is_before {
                        rank += 1;
                    }
                    j += 1;
                }
                if rank + 1 < a.each {
                    // SAFETY: the position is below `each`.
                    unsafe { device::store(a.next_neighbours, to + 1 + rank as u64, c) };
                }
            }
            i += WARP;
        }
        warp::sync_warp();
    }
}
