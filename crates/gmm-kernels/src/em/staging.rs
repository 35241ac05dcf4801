//! Prefetch of one warp's rows from device memory, sixteen at a time: `cp.async` copies the values unchanged into
//! shared memory while the group before is processed; then they are converted to columns of `f64`.

use crate::device::{Shared, WARP, copies, warp};
use crate::em::features::{GROUP, STRIDE, derive, each};
use crate::layout::TILE_ROWS;

/// Bytes of shared memory for one warp's prefetched rows, with `number_bytes` per value: 4 for `f32`, 8 for `f64`.
#[inline(always)]
pub(crate) const fn raw_bytes(entries: u32, number_bytes: u32) -> u32 {
    GROUP * entries * number_bytes
}

/// Values that a lane loads before it uses any, so that their latencies overlap.
const AT_ONCE: usize = 8;

/// One lane's part in the prefetch of a warp's rows.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    /// Global address of this lane's first 16 bytes of the first group.
    x: *const u8,
    d: u32,
    /// Whether values are `f64` rather than `f32`.
    double: bool,
    /// Shared-memory offset of the warp's prefetched values, in bytes, column by column.
    raw: u32,
    lane: u32,
}

/// Bytes between a lane's copies of consecutive rounds. The same for both types: half as many columns of values twice
/// as wide.
const ROUND: u32 = WARP / pieces(false) * TILE_ROWS * 4;
const _: () = assert!(ROUND == WARP / pieces(true) * TILE_ROWS * 8);

/// 16-byte copies per column of a group.
#[inline(always)]
const fn pieces(double: bool) -> u32 {
    (GROUP / 4) << double as u32
}

/// Rounds in which a warp's lanes copy `entries` columns.
const fn rounds(entries: u32, double: bool) -> usize {
    (entries * pieces(double)).div_ceil(WARP) as usize
}

impl Rows {
    #[inline(always)]
    pub(crate) fn new(x: *const u8, d: u32, number_bytes: u32, raw: u32, lane: u32) -> Self {
        let double = number_bytes == 8;
        let (column, piece) = if double {
            (lane / pieces(true), lane % pieces(true))
        } else {
            (lane / pieces(false), lane % pieces(false))
        };
        let at = column * TILE_ROWS * number_bytes + piece * 16;
        Self { x: x.wrapping_add(at as usize), d, double, raw, lane }
    }

    #[inline(always)]
    const fn number_bytes(self) -> u32 {
        4 << self.double as u32
    }

    /// Starts the copy of a group with at most `entries` columns. All lanes must have read the group that arrived
    /// before.
    ///
    /// # Safety
    /// `group` is a group of this chunk, and its tile is filled up with zeros past the last row.
    #[inline(always)]
    pub(crate) unsafe fn send(self, entries: u32, group: u32) {
        const GROUPS: u32 = TILE_ROWS / GROUP;
        let first = (group / GROUPS) as u64 * (TILE_ROWS * self.d) as u64 + (group % GROUPS * GROUP) as u64;
        let from = self.x.wrapping_add((first * self.number_bytes() as u64) as usize);
        let pieces = self.d * pieces(self.double);
        let round = |i: usize| {
            let at = i as u32 * WARP + self.lane;
            if at < pieces {
                // SAFETY: `at < pieces`, so this is 16 bytes of one of the `d` columns of the group.
                unsafe { copies::send_once(self.raw + 16 * at, from.wrapping_add(i * ROUND as usize)) };
            }
        };
        let (short, long) = (rounds(entries, false), rounds(entries, true));
        each(short, round);
        if self.double {
            each(long - short, |i| round(short + i));
        }
    }

    /// Zeroes the columns from `d` to `entries`, which no copy writes.
    #[inline(always)]
    pub(crate) fn clear(self, entries: u32) {
        let raw = Shared::<f32>::at(self.raw);
        let words = GROUP << self.double as u32;
        let mut i = self.d * words + self.lane;
        while i < entries * words {
            raw.store(i, 0.0);
            i += WARP;
        }
    }

    /// Waits for the group whose copy was started last and writes its `entries` columns to `x` as `f64`. If `norms` and
    /// `derived` is [`derive::NORM`], also writes the column of the sums of squares. All lanes call it.
    #[inline(always)]
    pub(crate) fn stage(self, entries: u32, norms: bool, derived: u32, x: Shared<f64>) {
        copies::arrive();
        // Makes the copies of each lane visible to all lanes.
        warp::sync_warp();
        let (single, double) = (Shared::<f32>::at(self.raw), Shared::<f64>::at(self.raw));
        let to = self.lane / GROUP * STRIDE + self.lane % GROUP;
        // With an odd number of columns, the last step has a column for the first half of the warp only.
        let there = |i: usize| 2 * (i as u32) + 1 < entries || self.lane < GROUP;
        let steps = entries.div_ceil(2) as usize;
        let mut norm = 0.0;
        each(steps.div_ceil(AT_ONCE), |some| {
            // All loads before any store: the compiler cannot know that source and destination do not overlap.
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
