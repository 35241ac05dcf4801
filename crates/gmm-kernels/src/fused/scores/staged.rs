//! Features that are products of two entries: entries in shared memory, products formed where they are used.

use super::Scores;
use super::pass::Rows;
use crate::Real;
use crate::device::{self, Shared, WARP, mma, warp};
use crate::fused::features::{Features, GROUP, STRIDE, each};
use crate::layout::TILE_ROWS;
use core::marker::PhantomData;

/// Entries that a lane sends for: of sixteen rows, two columns at a time, half a warp each.
const ARRIVING: usize = 8;

/// The features of a family.
#[derive(Clone, Copy)]
pub(super) struct Staged<F>(PhantomData<F>);

impl<F: Features + Copy> Rows for Staged<F> {
    const FOURS: usize = 4 * F::STEPS;
    const SHARED: u32 = F::COLUMNS * STRIDE;
    type Arriving<T: Real> = [T; ARRIVING];

    #[inline(always)]
    fn begin(x: Shared<f64>, lane: u32) {
        const { assert!(F::ENTRIES <= 2 * ARRIVING as u32) };
        let mut i = lane;
        while i < F::COLUMNS * STRIDE {
            x.store(i, if F::ONES == Some(i / STRIDE) { 1.0 } else { 0.0 });
            i += WARP;
        }
        warp::sync_warp();
    }

    #[inline(always)]
    unsafe fn arrive<T: Real>(a: &Scores<T>, group: u32, lane: u32) -> [T; ARRIVING] {
        let row = group as u64 * GROUP as u64 + (lane % GROUP) as u64;
        let (tile, inside) = (row / TILE_ROWS as u64, row % TILE_ROWS as u64);
        let mut out = [T::ZERO; ARRIVING];
        each(F::ENTRIES.div_ceil(2) as usize, |i| {
            let j = 2 * i as u32 + lane / GROUP;
            if j < a.d {
                let at = (tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + inside;
                // SAFETY: the group is one of the rows', and its tile is filled up.
                out[i] = unsafe { device::load(a.x, at) };
            }
        });
        out
    }

    #[inline(always)]
    fn stage<T: Real>(a: &Scores<T>, arrived: [T; ARRIVING], x: Shared<f64>, lane: u32) -> Self {
        // What was read of the rows before is read.
        warp::sync_warp();
        each(F::ENTRIES.div_ceil(2) as usize, |i| {
            let j = 2 * i as u32 + lane / GROUP;
            if j < a.d {
                x.store(j * STRIDE + lane % GROUP, arrived[i].to_f64());
            }
        });
        warp::sync_warp();
        Self(PhantomData)
    }

    #[inline(always)]
    fn multiply<const TILES: usize, const G: usize>(
        _: &[Self; G],
        x: Shared<f64>,
        lane: u32,
        tiles: Shared<f64>,
        sums: &mut [[[f64; 4]; TILES]; G],
    ) {
        const { assert!(G == 1, "there are one group's columns") };
        let len = super::tile_len(4 * F::STEPS);
        F::across(x, lane, |step, features| {
            each(TILES, |tile| {
                let at = tile as u32 * len + step as u32 * 128 + lane * 2;
                let ([a, b], [c, d]) = (tiles.load2(at), tiles.load2(at + 64));
                mma::f64_16x8x16(&mut sums[0][tile], features, [a, b, c, d]);
            });
        });
    }
}
