//! Rows of one warp on their way from device memory, sixteen at a time: their numbers come to shared memory as they are
//! while the group before is worked on, and there they become columns of `f64`.

use super::features::{GROUP, STRIDE, each};
use super::pass::{Pass, derive};
use crate::device::{Shared, WARP, copies, warp};
use crate::layout::TILE_ROWS;

/// Bytes of shared memory that a warp needs for numbers on their way, each of so many bytes: 4 of `f32`, 8 of `f64`.
#[inline(always)]
pub(super) const fn raw_bytes(entries: u32, number_bytes: u32) -> u32 {
    GROUP * entries * number_bytes
}

/// Numbers that a lane reads together, so that their latencies pass together.
const AT_ONCE: usize = 8;

/// A lane's part in bringing rows.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// The first 16 bytes that it sends for, of the first group.
    x: *const u8,
    d: u32,
    /// Whether numbers are `f64`, and not `f32`.
    double: bool,
    /// Where the warp's numbers arrive, column by column.
    raw: u32,
    lane: u32,
}

/// Bytes by which a piece is further than that of the round before: in either type as many, since half as many columns of
/// numbers twice as long.
const ROUND: u32 = WARP / pieces(false) * TILE_ROWS * 4;
const _: () = assert!(ROUND == WARP / pieces(true) * TILE_ROWS * 8);

/// Pieces of 16 bytes of a group's column.
#[inline(always)]
const fn pieces(double: bool) -> u32 {
    GROUP / 4 << double as u32
}

/// Rounds in which a warp's lanes send for all pieces of so many entries.
const fn rounds(entries: u32, double: bool) -> usize {
    (entries * pieces(double)).div_ceil(WARP) as usize
}

impl Rows {
    #[inline(always)]
    pub(super) fn new(a: &Pass, d: u32, number_bytes: u32, raw: u32, lane: u32) -> Self {
        let double = number_bytes == 8;
        let (column, piece) = if double {
            (lane / pieces(true), lane % pieces(true))
        } else {
            (lane / pieces(false), lane % pieces(false))
        };
        let at = column * TILE_ROWS * number_bytes + piece * 16;
        Self { x: a.x.wrapping_add(at as usize), d, double, raw, lane }
    }

    #[inline(always)]
    const fn number_bytes(self) -> u32 {
        4 << self.double as u32
    }

    /// Sends for a group, of so many entries at most. All lanes have read what arrived before.
    ///
    /// # Safety
    /// The group is one of the chunk's; its tile is filled up with zeros past the last row.
    #[inline(always)]
    pub(super) unsafe fn send(self, entries: u32, group: u32) {
        const GROUPS: u32 = TILE_ROWS / GROUP;
        let first = (group / GROUPS) as u64 * (TILE_ROWS * self.d) as u64 + (group % GROUPS * GROUP) as u64;
        let from = self.x.wrapping_add((first * self.number_bytes() as u64) as usize);
        let pieces = self.d * pieces(self.double);
        let round = |i: usize| {
            let at = i as u32 * WARP + self.lane;
            if at < pieces {
                // SAFETY: a piece of one of `d` columns.
                unsafe { copies::send_once(self.raw + 16 * at, from.wrapping_add(i * ROUND as usize)) };
            }
        };
        let (short, long) = (rounds(entries, false), rounds(entries, true));
        each(short, round);
        if self.double {
            each(long - short, |i| round(short + i));
        }
    }

    /// Zeros for the columns between `d` and `entries`, which never arrive.
    #[inline(always)]
    pub(super) fn clear(self, entries: u32) {
        let raw = Shared::<f32>::at(self.raw);
        let words = GROUP << self.double as u32;
        let mut i = self.d * words + self.lane;
        while i < entries * words {
            raw.store(i, 0.0);
            i += WARP;
        }
    }

    /// Makes columns of the group that was sent for last, all of `entries`, and of their squares' sum one more where it is
    /// derived. All lanes.
    #[inline(always)]
    pub(super) fn stage(self, entries: u32, norms: bool, derived: u32, x: Shared<f64>) {
        copies::arrive();
        // What each lane waited for is there for all.
        warp::sync_warp();
        let (single, double) = (Shared::<f32>::at(self.raw), Shared::<f64>::at(self.raw));
        let to = self.lane / GROUP * STRIDE + self.lane % GROUP;
        // What follows an odd number of columns is not theirs.
        let there = |i: usize| 2 * (i as u32) + 1 < entries || self.lane < GROUP;
        let steps = entries.div_ceil(2) as usize;
        let mut norm = 0.0;
        each(steps.div_ceil(AT_ONCE), |some| {
            // Read before any is written: nobody else could know that the two places are different ones.
            let mut v = [0.0; AT_ONCE];
            let of = |i: usize| some * AT_ONCE + i;
            let here = AT_ONCE.min(steps - of(0));
            let at = |i: usize| of(i) as u32 * WARP + self.lane;
            if self.double {
                each(here, |i| {
                    if there(of(i)) {
                        v[i] = double.load(at(i));
                    }
                });
            } else {
                let mut short = [0.0_f32; AT_ONCE];
                each(here, |i| {
                    if there(of(i)) {
                        short[i] = single.load(at(i));
                    }
                });
                each(here, |i| v[i] = short[i] as f64);
            }
            each(here, |i| {
                let v = v[i];
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
