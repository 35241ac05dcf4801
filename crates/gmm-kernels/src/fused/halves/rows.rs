//! A warp's rows as operands in shared memory, rows down and columns across.

use super::super::features::{GROUP, each};
use super::super::pass::derive;
use super::densities::Densities;
use super::operand::{Left, left};
use crate::device::{self, Shared, WARP};
use crate::layout::TILE_ROWS;

/// Rows of a warp: two operands of sixteen.
pub(super) const ROWS: u32 = 2 * GROUP;

/// Bytes of an operand's heads, and of its tails.
const PART: u32 = 16 * WARP;

/// Two operands for each step of sixteen columns. Lane `4g + t` has rows `2g` and `2g+1` of sixteen, so that what it finds
/// about them lies side by side; and columns `t`, `t+4`, `t+8`, `t+12`.
#[derive(Clone, Copy)]
pub(super) struct Rows {
    /// Of this lane.
    at: u32,
    lane: u32,
}

impl Rows {
    /// Bytes of a warp.
    pub(super) const fn bytes(steps: u32) -> u32 {
        4 * PART * steps
    }

    #[inline(always)]
    pub(super) fn at(offset: u32, lane: u32) -> Self {
        Self { at: offset + 16 * lane, lane }
    }

    /// Takes rows in from row `first` of a tile; ends with nothing that other lanes may count on.
    #[inline(always)]
    pub(super) unsafe fn stage(self, a: &Densities, tile: u64, first: u32) {
        let (g, t) = (self.lane / 4, self.lane % 4);
        let mut step = 0;
        while step < a.steps {
            each(2, |half| {
                let row = first + GROUP * half as u32 + 2 * g;
                let mut v = [0.0; 8];
                each(4, |quarter| {
                    let feature = 16 * step + 4 * quarter as u32 + t;
                    let square = a.derive == derive::SQUARES && feature >= 8 * a.steps;
                    let j = if square { feature - 8 * a.steps } else { feature };
                    let mut two = [0.0; 2];
                    // SAFETY: columns and norms that there are; the tile is filled up past the last row.
                    unsafe {
                        if j < a.d {
                            two = pair(a.x, (tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + row as u64);
                        } else if a.derive == derive::NORM && j == a.d {
                            let at = tile * TILE_ROWS as u64 + row as u64;
                            two = [device::load(a.norms, at) as f32, device::load(a.norms, at + 1) as f32];
                        }
                        if j <= a.d {
                            let scale = device::load(a.scales, j as u64);
                            two = two.map(|v| v * scale);
                        }
                    }
                    each(2, |odd| v[2 * quarter + odd] = if square { two[odd] * two[odd] } else { two[odd] });
                });
                let parts = left(v);
                each(2, |part| self.part(half, step, part).store4(0, parts[part].map(f32::from_bits)));
            });
            step += 1;
        }
    }

    #[inline(always)]
    fn part(self, half: usize, step: u32, part: usize) -> Shared<f32> {
        Shared::at(self.at + ((step * 2 + half as u32) * 2 + part as u32) * PART)
    }

    /// Both operands of a step: a lane reads what it wrote.
    #[inline(always)]
    pub(super) fn left(self, step: u32) -> [Left; 2] {
        let mut out = [[[0; 4]; 2]; 2];
        each(2, |half| each(2, |part| out[half][part] = self.part(half, step, part).load4(0).map(f32::to_bits)));
        out
    }
}

/// Two neighbours, of which the first is at an even place.
#[inline(always)]
unsafe fn pair(x: *const f32, at: u64) -> [f32; 2] {
    // SAFETY: the caller's promise; a tile's column is 8-byte aligned.
    let both: u64 = unsafe { device::load(x.wrapping_add(at as usize).cast(), 0) };
    [f32::from_bits(both as u32), f32::from_bits((both >> 32) as u32)]
}
