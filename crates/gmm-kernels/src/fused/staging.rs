//! Rows of one warp on their way from device memory into shared memory, sixteen at a time.

use super::features::{GROUP, STRIDE, each};
use super::pass::{Pass, derive};
use crate::Real;
use crate::device::{self, Shared, warp};
use crate::layout::TILE_ROWS;

/// Entries of the next group that a lane may have on their way while the current one is worked on.
pub(super) const AHEAD: usize = 8;

/// Rows on their way: sixteen rows, two columns at a time, half a warp each.
#[derive(Clone, Copy)]
pub(super) struct Arriving<T>(pub(super) [T; AHEAD]);

/// Where a lane finds its row of a group.
#[derive(Clone, Copy)]
pub(super) struct Group<T> {
    /// Entry `j` of this lane's row is at `128 j`.
    x: *const T,
}

impl<T: Real> Group<T> {
    #[inline(always)]
    pub(super) fn of(a: &Pass<T>, group: u32, lane: u32) -> Self {
        let row = group as u64 * GROUP as u64 + (lane % GROUP) as u64;
        let (tile, inside) = (row / TILE_ROWS as u64, row % TILE_ROWS as u64);
        let at = tile * TILE_ROWS as u64 * a.d as u64 + inside;
        Self { x: a.x.wrapping_add(at as usize) }
    }

    /// Entry `j` of the row; the tile is filled up with zeros past the last row.
    #[inline(always)]
    unsafe fn entry(self, j: u32) -> T {
        // SAFETY: the group is one of the chunk's, `j < d`.
        unsafe { device::load(self.x, j as u64 * TILE_ROWS as u64) }
    }

    #[inline(always)]
    pub(super) unsafe fn arrive(self, ahead: usize, d: u32, lane: u32) -> Arriving<T> {
        let mut out = [T::ZERO; AHEAD];
        each(ahead, |i| {
            let j = 2 * i as u32 + lane / GROUP;
            if j < d {
                // SAFETY: `j < d`.
                out[i] = unsafe { self.entry(j) };
            }
        });
        Arriving(out)
    }
}

/// The columns of one warp.
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) x: Shared<f64>,
    pub(super) lane: u32,
    pub(super) d: u32,
    pub(super) derive: u32,
}

impl Columns {
    #[inline(always)]
    fn put(self, j: u32, v: f64) {
        self.x.store(j * STRIDE + self.lane % GROUP, v);
    }

    /// Writes a group's columns; all lanes.
    #[inline(always)]
    pub(super) unsafe fn stage<T: Real>(self, group: Group<T>, ahead: usize, arrived: Arriving<T>) {
        let mut norm = 0.0;
        each(ahead, |i| {
            let j = 2 * i as u32 + self.lane / GROUP;
            let v = arrived.0[i].to_f64();
            if j < self.d {
                self.put(j, v);
            }
            norm += v * v;
        });
        let mut j = 2 * ahead as u32 + self.lane / GROUP;
        while j < self.d {
            // SAFETY: `j < d`.
            let v = unsafe { group.entry(j) }.to_f64();
            self.put(j, v);
            norm += v * v;
            j += 2;
        }
        if self.derive == derive::NORM {
            norm += warp::shuffle_xor(norm, GROUP);
            if self.lane < GROUP {
                self.x.store(self.d * STRIDE + self.lane, norm);
            }
        }
    }
}
