//! Features that are products of two entries: entries are staged in shared memory, products computed where they are
//! used.

use crate::Real;
use crate::device::{self, Shared, WARP, mma, warp};
use crate::each::each;
use crate::em::features::{Features, Full, FullAndOne, GROUP, STRIDE};
use crate::layout::TILE_ROWS;
use crate::log_likelihood::LogLikelihoods;
use crate::log_likelihood::pass::Rows;

/// Entries that a lane loads: for 16 rows, two columns at a time, each by half a warp.
const ARRIVING: usize = 8;

/// The features of [`Full`], or of [`FullAndOne`] if `ONE` is 1.
#[derive(Clone, Copy)]
pub(crate) struct Staged<const C: usize, const ONE: usize>;

/// Computes the features step by step, in the order of [`Features::across`]. The steps are unrolled, so all indices are
/// constants.
struct Walk<const C: usize> {
    x: Shared<f64>,
    /// Positions of the entries in the lane's own class and in the next two classes.
    starts: [u32; 3],
    u: [[f64; 2]; C],
    /// The factor of `u[i]`, if it is not one of the `u`.
    v: [f64; 2],
}

impl<const C: usize> Walk<C> {
    #[inline(always)]
    fn new(x: Shared<f64>, lane: u32) -> Self {
        let starts = [0, 1, 2].map(|turn| (lane + turn) % 4 * STRIDE + lane / 4);
        let mut walk = Self { x, starts, u: [[0.0; 2]; C], v: [1.0; 2] };
        each(C, |i| walk.u[i] = walk.both(0, i));
        walk
    }

    /// Entry `i` of a class, for both rows of the lane.
    #[inline(always)]
    fn both(&self, class: usize, i: usize) -> [f64; 2] {
        let at = self.starts[class] + 4 * i as u32 * STRIDE;
        [self.x.load(at), self.x.load(at + 8)]
    }

    #[inline(always)]
    fn slot(&mut self, slot: usize) -> [f64; 2] {
        let (half, m, i) = (slot / (C * (C + 1)), slot / C % (C + 1), slot % C);
        if i == 0 {
            self.v = if m < C { self.both(1 + half, m) } else { [1.0; 2] };
        }
        let by = if half == 1 && m > i { self.u[m - 1] } else { self.v };
        [self.u[i][0] * by[0], self.u[i][1] * by[1]]
    }

    #[inline(always)]
    fn step(&mut self, step: usize) -> [f64; 8] {
        let ([a, b], [c, d]) = (self.slot(4 * step), self.slot(4 * step + 1));
        let ([e, f], [g, h]) = (self.slot(4 * step + 2), self.slot(4 * step + 3));
        [a, b, c, d, e, f, g, h]
    }
}

/// The last 16 features of [`FullAndOne`].
#[inline(always)]
fn with_one<const C: usize>(x: Shared<f64>, lane: u32) -> [f64; 8] {
    let (row, class) = (lane / 4, lane % 4);
    let z = [0, 8].map(|r| x.load(4 * C as u32 * STRIDE + row + r));
    let mut a = [0.0; 8];
    each(C + 1, |i| {
        let at = FullAndOne::<C>::partner(i as u32, class) * STRIDE + row;
        each(2, |half| a[2 * i + half] = z[half] * x.load(at + 8 * half as u32));
    });
    a
}

/// Adds the products of 16 features with each tile.
#[inline(always)]
fn products<const TILES: usize>(
    features: [f64; 8],
    at: u32,
    len: u32,
    tiles: Shared<f64>,
    sums: &mut [[f64; 4]; TILES],
) {
    each(TILES, |tile| {
        let at = at + tile as u32 * len;
        let ([a, b], [c, d]) = (tiles.load2(at), tiles.load2(at + 64));
        mma::f64_16x8x16(&mut sums[tile], features, [a, b, c, d]);
    });
}

impl<const C: usize, const ONE: usize> Staged<C, ONE> {
    const STEPS: usize = Full::<C>::STEPS + ONE;
    const COLUMNS: u32 = if ONE == 0 { Full::<C>::COLUMNS } else { FullAndOne::<C>::COLUMNS };
    /// Pairs of entries, each loaded by one lane.
    const PAIRS: usize = (4 * C + ONE).div_ceil(2);
}

impl<const C: usize, const ONE: usize> Rows for Staged<C, ONE> {
    const FOURS: usize = 4 * Self::STEPS;
    const WHOLE: bool = true;
    const SHARED: u32 = Self::COLUMNS * STRIDE;
    type Arriving<T: Real> = [T; ARRIVING];

    #[inline(always)]
    fn begin(x: Shared<f64>, lane: u32) {
        const { assert!(Self::PAIRS <= ARRIVING && ONE <= 1) };
        let ones = if ONE == 0 { None } else { FullAndOne::<C>::ONES };
        let mut i = lane;
        while i < Self::SHARED {
            x.store(i, if ones == Some(i / STRIDE) { 1.0 } else { 0.0 });
            i += WARP;
        }
        warp::sync_warp();
    }

    #[inline(always)]
    unsafe fn arrive<T: Real>(a: &LogLikelihoods<T>, group: u32, lane: u32) -> [T; ARRIVING] {
        let row = group as u64 * GROUP as u64 + (lane % GROUP) as u64;
        let (tile, inside) = (row / TILE_ROWS as u64, row % TILE_ROWS as u64);
        let mut out = [T::ZERO; ARRIVING];
        each(Self::PAIRS, |i| {
            let j = 2 * i as u32 + lane / GROUP;
            if j < a.d {
                let at = (tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + inside;
                // SAFETY: the group is within the `n` rows, tiles are padded to 128 rows, and `j < d`.
                out[i] = unsafe { device::load(a.x, at) };
            }
        });
        out
    }

    #[inline(always)]
    fn stage<T: Real>(a: &LogLikelihoods<T>, arrived: [T; ARRIVING], x: Shared<f64>, lane: u32) -> Self {
        // All lanes have finished reading the previous rows.
        warp::sync_warp();
        each(Self::PAIRS, |i| {
            let j = 2 * i as u32 + lane / GROUP;
            if j < a.d {
                x.store(j * STRIDE + lane % GROUP, arrived[i].to_f64());
            }
        });
        warp::sync_warp();
        Self
    }

    #[inline(always)]
    fn multiply<const TILES: usize>(
        &self,
        x: Shared<f64>,
        lane: u32,
        tiles: Shared<f64>,
        sums: &mut [[f64; 4]; TILES],
    ) {
        let len = crate::log_likelihood::tile_len(Self::FOURS);
        let mut walk = Walk::<C>::new(x, lane);
        each(Self::STEPS, |step| {
            let features = if step < Full::<C>::STEPS { walk.step(step) } else { with_one::<C>(x, lane) };
            products(features, step as u32 * 128 + lane * 2, len, tiles, sums);
        });
    }
}
