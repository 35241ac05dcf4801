//! Rows of one warp on their way from device memory, sixteen at a time: their numbers come to shared memory as they are
//! while the group before is worked on, and there they become columns of `f64`.

use crate::Real;
use crate::device::{Shared, WARP, copies, warp};
use crate::em::features::derive;
use crate::em::features::{GROUP, STRIDE, each};
use crate::em::fused::Pass;
use crate::layout::TILE_ROWS;

/// What a warp needs of shared memory for numbers on their way, in `f64`.
pub(crate) const fn raw_len<T: Real>(entries: u32) -> u32 {
    GROUP * entries * T::BYTES / 8
}

/// Numbers that a lane reads together, so that their latencies pass together.
const AT_ONCE: usize = 8;

/// A lane's part in bringing rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows<T> {
    /// The first 16 bytes that it sends for, of the first group.
    x: *const T,
    d: u32,
    /// Where the warp's numbers arrive, column by column.
    raw: u32,
    lane: u32,
}

impl<T: Real> Rows<T> {
    /// Numbers of 16 bytes, and such pieces of a group's column.
    const PIECE: u32 = 16 / T::BYTES;
    const PIECES: u32 = GROUP / Self::PIECE;

    #[inline(always)]
    pub(crate) fn new(a: &Pass<T>, d: u32, raw: u32, lane: u32) -> Self {
        let at = lane / Self::PIECES * TILE_ROWS + lane % Self::PIECES * Self::PIECE;
        Self { x: a.x.wrapping_add(at as usize), d, raw, lane }
    }

    /// Sends for a group, of so many entries at most. All lanes have read what arrived before.
    ///
    /// # Safety
    /// The group is one of the chunk's; its tile is filled up with zeros past the last row.
    #[inline(always)]
    pub(crate) unsafe fn send(self, entries: u32, group: u32) {
        const GROUPS: u32 = TILE_ROWS / GROUP;
        let first = (group / GROUPS) as u64 * (TILE_ROWS * self.d) as u64 + (group % GROUPS * GROUP) as u64;
        let from = self.x.wrapping_add(first as usize);
        each((entries * Self::PIECES).div_ceil(WARP) as usize, |i| {
            let (i, by) = (i as u32, i * (WARP / Self::PIECES * TILE_ROWS) as usize);
            if i * WARP + self.lane < self.d * Self::PIECES {
                // SAFETY: a piece of one of `d` columns.
                unsafe { copies::send_once(self.raw + 16 * (i * WARP + self.lane), from.wrapping_add(by).cast()) };
            }
        });
    }

    /// Zeros for the columns between `d` and `entries`, which never arrive.
    #[inline(always)]
    pub(crate) fn clear(self, entries: u32) {
        let raw = Shared::<T>::at(self.raw);
        let mut i = self.d * GROUP + self.lane;
        while i < entries * GROUP {
            raw.store(i, T::ZERO);
            i += WARP;
        }
    }

    /// Makes columns of the group that was sent for last, all of `entries`, and of their squares' sum one more where it is
    /// derived. All lanes.
    #[inline(always)]
    pub(crate) fn stage(self, entries: u32, norms: bool, derived: u32, x: Shared<f64>) {
        copies::arrive();
        // What each lane waited for is there for all.
        warp::sync_warp();
        let raw = Shared::<T>::at(self.raw);
        let to = self.lane / GROUP * STRIDE + self.lane % GROUP;
        // What follows an odd number of columns is not theirs.
        let there = |i: usize| 2 * (i as u32) + 1 < entries || self.lane < GROUP;
        let steps = entries.div_ceil(2) as usize;
        let mut norm = 0.0;
        each(steps.div_ceil(AT_ONCE), |some| {
            // Read before any is written: nobody else could know that the two places are different ones.
            let mut v = [T::ZERO; AT_ONCE];
            let of = |i: usize| some * AT_ONCE + i;
            let here = AT_ONCE.min(steps - of(0));
            each(here, |i| {
                if there(of(i)) {
                    v[i] = raw.load(of(i) as u32 * WARP + self.lane);
                }
            });
            each(here, |i| {
                let v = v[i].to_f64();
                if there(of(i)) {
                    x.store(2 * of(i) as u32 * STRIDE + to, v);
                }
                if norms {
                    norm += v * v;
                }
            });
        });
        warp::sync_warp();
        if norms && derived == derive::NORM {
            norm += warp::shuffle_xor(norm, GROUP);
            if self.lane < GROUP {
                x.store(self.d * STRIDE + self.lane, norm);
            }
            warp::sync_warp();
        }
    }
}
