//! One whole E- and M-pass over `f32` rows of few columns: each warp has components of its own.
//!
//! Where a row has two entries, products of matrices have next to nothing to add up, and what costs is one exponential and
//! some twenty operations for each row and component. So all warps of a block take the same rows, two or four to a lane,
//! and each its own components, whose sums stay in its registers:
//! 1. densities about the means, `2^(c − |W(x − μ)|²)` of `c` less the largest: no row is above 1, and the largest of a
//!    row need not be known. Rows so far from everything that this could underflow are done again about their own largest;
//! 2. what warps have of a row's sum passes through shared memory, one barrier for all these rows;
//! 3. moments about the means, of the same exponentials.
//!
//! `x − μ` is formed of `μ` as two numbers, so its error is relative to itself. A lane adds up at most `FLUSH` times its
//! rows in `f32`; everything longer is added in `f64`, in a fixed order.

mod component;
mod exchange;
mod memory;
mod out;

use crate::Real;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::em::features::each;
use crate::em::lanes::{larger, row_weight};
use crate::em::layout::Place;
use crate::em::small_d::component::{Sums, Terms, prepare};
use crate::em::small_d::exchange::exchange;
#[cfg(not(target_arch = "nvptx64"))]
pub use crate::em::small_d::memory::shared_bytes;
use crate::em::small_d::memory::{Mine, SHARES, TOP, parameters, sums_len};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::small_d::memory::{shared, threads};
use crate::em::small_d::out::Out;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, packed_len};
use crate::math::{exp2_f32, log2_f32, reciprocal_f32};

kernels! {
    /// Any grid in `x`, blocks of [`Partition::warps`].
    Narrow {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this begins, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Components.
        k: u32,
        /// [`Place::groups`] of [`place`].
        groups: u32,
        /// Warps of a block, [`Partition::warps`].
        warps: u32,
        /// `(k, d)`: means less the shift.
        means: *const f64,
        /// Packed inverses of the Cholesky factors, `(k, d*(d+1)/2)`.
        roots: *const f64,
        /// `(8*groups,)`: what log joint densities are at the means; −∞ past the last component.
        constants: *const f64,
        /// `(blocks, Place::sums)`, written.
        partials: *mut f64,
    }
    /// One column.
    narrow_1 => body::<1, 1, 12, 4>, shared::<1, 12, 4>, threads;
    /// Two columns, 7 components for each warp.
    narrow_2_7 => body::<2, 3, 7, 4>, shared::<2, 7, 4>, threads;
    /// Two columns, 8 components for each warp.
    narrow_2_8 => body::<2, 3, 8, 4>, shared::<2, 8, 4>, threads;
    /// Three columns.
    narrow_3 => body::<3, 6, 6, 2>, shared::<3, 6, 2>, threads;
}

/// Warps of a block at most: with 128 registers for each thread they fill a multiprocessor.
const MOST_WARPS: u32 = 16;

/// Turns, of [`Partition::rows`] rows for each lane, of which sums are kept in `f32`.
const FLUSH: u32 = 128;

/// Distance of one number of all lanes from the next, where they cross: one more than the lanes, against bank conflicts.
const CROSSING: u32 = WARP + 1;

/// Below that a row's sum of densities may have lost what underflowed: 2⁻⁶⁰, where the least number is 2⁻¹²⁶.
const LOW: f32 = f32::from_bits((127 - 60) << 23);

/// How a mixture is cut into warps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Columns.
    pub d: u32,
    /// Components of a warp.
    pub each: u32,
    /// Rows of a lane.
    pub rows: u32,
    /// Warps of a block.
    pub warps: u32,
}

impl Partition {
    /// None where rows have too many columns, or a block has too few warps.
    pub fn of(k: u32, d: u32) -> Option<Self> {
        let (sizes, rows): (&[u32], u32) = match d {
            1 => (&[12], 4),
            2 => (&[8, 7], 4),
            3 => (&[6], 2),
            _ => return None,
        };
        let cuts = sizes.iter().map(|each| Self { d, each: *each, rows, warps: k.div_ceil(*each) });
        // Each quarter of a multiprocessor has every fourth warp: what counts is the one with the most.
        cuts.filter(|cut| cut.warps <= MOST_WARPS).min_by_key(|cut| cut.warps.div_ceil(4) * cut.each)
    }

    /// Rows that a block takes at a time.
    pub const fn rows_of_block(self) -> u64 {
        (WARP * self.rows) as u64
    }
}

/// Where the sums lie.
pub const fn place(k: u32) -> Place {
    Place::full(1, k.div_ceil(8))
}

/// The kernel of a cut.
///
/// # Panics
/// Where there is none; [`Partition::of`] gives those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel(cut: Partition) -> crate::Kernel<Narrow> {
    match (cut.d, cut.each) {
        (1, _) => narrow_1(),
        (2, 7) => narrow_2_7(),
        (2, _) => narrow_2_8(),
        (3, _) => narrow_3(),
        _ => panic!("{cut:?} is not there"),
    }
}

/// Rows of a lane, from device memory: the tile is filled up with zeros past the last.
#[inline(always)]
unsafe fn fetch<const D: usize, const R: usize>(x: *const f32, some: u32, lane: u32) -> [[f32; D]; R] {
    let in_tile = TILE_ROWS / (R as u32 * WARP);
    let (tile, part) = (some / in_tile, some % in_tile);
    let from = x.wrapping_add((tile as u64 * (TILE_ROWS as u64 * D as u64)) as usize);
    let mut out = [[0.0; D]; R];
    each(R, |r| {
        each(D, |j| {
            let at = j as u32 * TILE_ROWS + (part * R as u32 + r as u32) * WARP + lane;
            // SAFETY: a tile of the rows.
            out[r][j] = unsafe { device::load(from, at as u64) };
        });
    });
    out
}

/// The kernel: `D` columns, `S` the length of a packed matrix, `C` components of a warp, `R` rows of a lane.
///
/// # Safety
/// As the fields of [`Narrow`] say.
#[inline(always)]
unsafe fn body<const D: usize, const S: usize, const C: usize, const R: usize>(a: Narrow) {
    const { assert!(S as u64 == packed_len(D as u32) && parameters(D as u32) <= 16) };
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    // SAFETY: as the fields say.
    unsafe { prepare::<D, S, C, R>(&a) };
    let mine = Mine::new::<D, C, R>();
    let mut i = mine.lane;
    while i < C as u32 * sums_len(D as u32) {
        mine.totals.store(i, 0.0);
        i += WARP;
    }
    mine.likelihood.store(mine.lane, 0.0);
    warp::sync_warp();

    let place = |own: u32, c: usize| Shared::<f32>::at(own + 4 * c as u32 * parameters(D as u32));
    let terms = |own: u32, c: usize| Terms::<D, S>::load(place(own, c));
    let mut sums = Sums::<D, S, C>::NOTHING;
    // So many rows as would pass 32 bits here no device holds.
    let all = a.n.div_ceil(WARP as u64 * R as u64) as u32;
    let mut now = thread::block_idx_x();
    let (mut done, mut turn) = (0, 0);
    let mut x = [[0.0; D]; R];
    if now < all {
        // SAFETY: rows that there are, here and below.
        x = unsafe { fetch(a.x, now, mine.lane) };
    }
    while now < all {
        let mine = Mine::new::<D, C, R>();
        let mut e = [[0.0; R]; C];
        let mut sum = [0.0; R];
        each(C, |c| {
            let terms = terms(mine.parameters, c);
            each(R, |r| {
                e[c][r] = exp2_f32(terms.density(x[r]));
                sum[r] += e[c][r];
            });
        });
        let mut total = exchange(done, a.warps, sum, |a, b| a + b);
        let mine = Mine::new::<D, C, R>();
        let first = device::unknown(now) as u64 * (WARP as u64 * R as u64);
        // Of the block's rows in this turn.
        let there =
            if a.n - first < (WARP as u64 * R as u64) { (a.n - first) as u32 } else { (WARP as u64 * R as u64) as u32 };
        let row = |r: usize| r as u32 * WARP + mine.lane;
        let mut about = [0.0; R];
        let mut low = false;
        each(R, |r| {
            // Also where it is not a number.
            let enough = total[r] >= LOW;
            low |= row(r) < there && !enough;
        });
        if warp::any(low) {
            // All warps see the same sums, so all come here together.
            let mut most = [f32::NEG_INFINITY; R];
            each(C, |c| {
                let terms = terms(mine.parameters, c);
                each(R, |r| most[r] = larger(most[r], terms.density(x[r])));
            });
            about = exchange(done + 1, a.warps, most, larger);
            sum = [0.0; R];
            let mine = Mine::new::<D, C, R>();
            each(C, |c| {
                let terms = terms(mine.parameters, c);
                each(R, |r| {
                    e[c][r] = exp2_f32(terms.density(x[r]) - about[r]);
                    sum[r] += e[c][r];
                });
            });
            total = exchange(done, a.warps, sum, |a, b| a + b);
        }
        let mut share = [0.0; R];
        let mut weight = [0.0; R];
        each(R, |r| {
            // SAFETY: the weights are as the arguments' field says.
            weight[r] = unsafe { row_weight(a.row_weights, a.n, first + row(r) as u64) };
            // Not a number where a density is: it shows in the sums, and the pass is made another way.
            share[r] = if weight[r] > 0.0 { weight[r] as f32 * reciprocal_f32(total[r]) } else { 0.0 };
        });
        // The warps take turns with the likelihood.
        if turn == mine.warp {
            let mut likelihood = mine.likelihood.load(mine.lane);
            let top = Shared::<f64>::at(TOP).load(0);
            each(R, |r| {
                let log = top + (about[r] + log2_f32(total[r])).to_f64();
                likelihood += if weight[r] > 0.0 { weight[r] * log } else { 0.0 };
            });
            mine.likelihood.store(mine.lane, likelihood);
        }
        turn = if turn + 1 == a.warps { 0 } else { turn + 1 };
        now += thread::grid_dim_x();
        let mut next = x;
        let mine = Mine::new::<D, C, R>();
        each(C, |c| {
            if c == C / 2 && now < all {
                // Sent for when half of the exponentials need no registers any more.
                // SAFETY: as above.
                next = unsafe { fetch(a.x, now, mine.lane) };
            }
            let mean = place(mine.parameters, c).load4(0);
            each(R, |r| {
                let mut from = [0.0; D];
                each(D, |j| from[j] = x[r][j] - mean[j]);
                sums.add(c, e[c][r] * share[r], from);
            });
        });
        x = next;
        done += 1;
        if done.is_multiple_of(FLUSH) {
            sums.flush(Mine::new::<D, C, R>());
        }
    }
    let mine = Mine::new::<D, C, R>();
    sums.flush(mine);
    let mut likelihood = mine.likelihood.load(mine.lane) * core::f64::consts::LN_2;
    each(5, |by| likelihood += warp::shuffle_xor(likelihood, 1 << by));
    let likelihoods = Shared::<f64>::at(SHARES);
    thread::sync_threads();
    if mine.lane == 0 {
        likelihoods.store(mine.warp, likelihood);
    }
    let out = Out { a: &a, place: Place::full(1, a.groups) };
    // SAFETY: the block's own piece.
    unsafe { out.clear() };
    thread::sync_threads();
    let c = mine.warp * C as u32 + mine.lane;
    if mine.lane < C as u32 && c < a.k {
        // SAFETY: as above, and no other thread has this component.
        unsafe { out.component::<D, C, R>(c) };
    }
    if mine.warp == 0 && mine.lane == 0 {
        let mut total = 0.0;
        let mut w = 0;
        while w < a.warps {
            total += likelihoods.load(w);
            w += 1;
        }
        // SAFETY: as above.
        unsafe { out.put(out.place.log_likelihood(), total) };
    }
}
