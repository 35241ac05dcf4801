//! A warp's rows as mma operands in shared memory, data rows down and columns across.

use crate::device::{self, Shared, WARP};
use crate::em::chunked::half_precision::densities::Densities;
use crate::em::chunked::half_precision::operand::{LeftOperand, left, squares};
use crate::em::features::derive;
use crate::em::features::{GROUP, each};
use crate::layout::{TILE_ROWS, tiles};

/// Rows per warp: two operands of sixteen.
pub(crate) const ROWS: u32 = 2 * GROUP;

/// Bytes of an operand's hi parts, and of its lo parts.
const PART: u32 = 16 * WARP;

/// Two operands for each step of sixteen columns; squares are computed from the columns on use. Lane `4g + t` has rows
/// `2g` and `2g+1` of sixteen, so that its results for them are adjacent, and columns `t`, `t+4`, `t+8`, `t+12`. With
/// `ONE` there are hi parts only.
#[derive(Clone, Copy)]
pub(crate) struct Rows<const ONE: bool> {
    /// Offset of this lane's part.
    at: u32,
    lane: u32,
    /// Number of stored steps; steps from here on are their squares.
    held: u32,
}

/// Number of stored steps among `steps`.
const fn held(steps: u32, with_squares: u32) -> u32 {
    if with_squares == derive::SQUARES { steps / 2 } else { steps }
}

impl<const ONE: bool> Rows<ONE> {
    /// Bytes per warp.
    pub(crate) const fn bytes(steps: u32, derive: u32) -> u32 {
        2 * Self::PARTS as u32 * PART * held(steps, derive)
    }

    /// Parts of an operand: hi, or hi and lo.
    const PARTS: usize = if ONE { 1 } else { 2 };

    #[inline(always)]
    pub(crate) fn at(offset: u32, a: &Densities, lane: u32) -> Self {
        Self { at: offset + 16 * lane, lane, held: held(a.steps, a.derive) }
    }

    /// Loads the rows from row `first` of a tile. Does not synchronise: each lane reads only what it wrote.
    #[inline(always)]
    pub(crate) unsafe fn stage(self, a: &Densities, tile: u64, first: u32) {
        let (g, t) = (self.lane / 4, self.lane % 4);
        let mut step = 0;
        while step < self.held {
            // All loads of a step before any store, so that latencies overlap.
            let mut rows = [[[0.0; 2]; 4]; 2];
            let mut scales = [0.0; 4];
            each(4, |quarter| {
                let j = 16 * step + 4 * quarter as u32 + t;
                each(2, |half| {
                    let row = first + GROUP * half as u32 + 2 * g;
                    // SAFETY: `j < d`, or `norms` is not null since norms are a feature; the tile is padded past the
                    // last row.
                    unsafe {
                        if j < a.d {
                            rows[half][quarter] =
                                pair(a.x, (tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + row as u64);
                        } else if a.derive == derive::NORM && j == a.d {
                            rows[half][quarter] = pair(a.norms, tile * TILE_ROWS as u64 + row as u64);
                        }
                    }
                });
                if j <= a.d {
                    // SAFETY: `j ≤ d`, and `scales` has `d + 1` elements.
                    scales[quarter] = unsafe { device::load(a.scales, j as u64) };
                }
            });
            each(2, |half| {
                let mut v = [0.0; 8];
                each(8, |i| v[i] = rows[half][i / 2][i % 2] * scales[i / 2]);
                let parts = left(v);
                each(Self::PARTS, |part| self.part(half, step, part).store4(0, parts[part].map(f32::from_bits)));
            });
            step += 1;
        }
    }

    /// Prefetches the rows from `first` on of another tile, which may be past the last, into the cache: one line per
    /// column.
    #[inline(always)]
    pub(crate) fn expect(self, a: &Densities, tile: u64, first: u32) {
        let mut j = self.lane;
        while j < a.d && tile < tiles(a.n) {
            device::prefetch(
                a.x.wrapping_add(((tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + first as u64) as usize),
            );
            j += WARP;
        }
    }

    #[inline(always)]
    fn part(self, half: usize, step: u32, part: usize) -> Shared<f32> {
        Shared::at(self.at + ((step * 2 + half as u32) * Self::PARTS as u32 + part as u32) * PART)
    }

    /// Both operands of a stored step: a lane reads what it wrote.
    #[inline(always)]
    pub(crate) fn left(self, step: u32) -> [LeftOperand; 2] {
        let mut out = [[[0; 4]; 2]; 2];
        each(2, |half| {
            each(Self::PARTS, |part| out[half][part] = self.part(half, step, part).load4(0).map(f32::to_bits))
        });
        out
    }

    /// Both operands of a step, which may be a step of squares.
    #[inline(always)]
    pub(crate) fn left_or_squares(self, step: u32) -> [LeftOperand; 2] {
        if step < self.held {
            return self.left(step);
        }
        let mut out = self.left(step - self.held);
        each(2, |half| out[half] = squares::<ONE>(out[half]));
        out
    }
}

/// Loads two adjacent elements; `at` is even, so they are 8-byte aligned.
#[inline(always)]
pub(crate) unsafe fn pair(x: *const f32, at: u64) -> [f32; 2] {
    // SAFETY: the caller passes an even `at` within `x`, and a tile's column is 8-byte aligned.
    let both: u64 = unsafe { device::load(x.wrapping_add(at as usize).cast(), 0) };
    [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)]
}
