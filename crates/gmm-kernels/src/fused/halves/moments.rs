//! Sums of features times responsibilities over a chunk of rows, one partial result for each split of them: as
//! [`large`](crate::fused::large::moments), in halves.

use super::super::features::{GROUP, each};
use super::super::large;
use super::super::large::down::{Columns, Down, Of, Products, Rows, Slots};
use super::super::place::Place;
use super::super::state::stopped;
use super::operand::{EXPONENTIAL, Left, left, products};
use crate::device::mma::from_halves;
use crate::device::{self, Ahead, Shared, WARP, thread, warp};
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `ceil(units*splits/4)` blocks, with [`Large::units`](super::Large::units).
    Moments {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms of the rows, where they are a feature; else null.
        norms: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::fused::pass::derive).
        derive: u32,
        /// [`Place::steps`].
        steps: u32,
        /// [`Place::groups`], a multiple of the groups that a warp takes.
        groups: u32,
        /// [`Place::classes`], a multiple of 4.
        classes: u32,
        /// `(d+1,)`: of columns and norms; powers of two.
        scales: *const f32,
        /// [`exponentials`](super::exponentials); 16-byte aligned.
        exponentials: *const u32,
        /// [`Large::factors`](super::Large::factors); 16-byte aligned.
        factors: *const f32,
        /// [`likelihoods`](super::likelihoods).
        likelihoods: *const f64,
        /// Parts into which the rows are split.
        splits: u32,
        /// Not 0: add to what is there.
        accumulate: u32,
        /// `(splits, Place::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Products of entries, 64 by 32.
    halves_moments_full_narrow => body::<Products, 2, 4, 4>, shared_bytes::<4>;
    /// Products of entries, 32 by 64.
    halves_moments_full_wide => body::<Products, 1, 2, 8>, shared_bytes::<8>;
    /// Columns, 32 by 32.
    halves_moments_linear_narrow => body::<Columns, 1, 2, 4>, shared_bytes::<4>;
    /// Columns, 32 by 64.
    halves_moments_linear_wide => body::<Columns, 1, 2, 8>, shared_bytes::<8>;
}

/// Sixteens of rows that are summed in `f32`.
const RUN: u32 = 512;

/// Where what the next sixteen rows need arrives: after choices and scales of two units, and each thread's part of Σ r in
/// each group.
const fn ahead_at(groups: u32) -> u32 {
    THREADS * (2 * 2 * 16 + 8 * groups)
}

/// Slots of what arrives: factors, exponentials, and columns of the units.
const EXPONENTIALS: u32 = 1;

/// Columns that a unit of two steps reads at most.
const COLUMNS: u32 = 6;

const fn columns_at(groups: u32, unit: u32) -> u32 {
    EXPONENTIALS + groups + unit * COLUMNS
}

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn shared_len(groups: u32) -> u64 {
    (ahead_at(groups) + Ahead::bytes(columns_at(groups, 2))) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<const G: usize>(_: &Moments) -> u64 {
    shared_len(G as u32)
}

/// The kernel: `U` units of two steps, `S` steps, by `G` groups of components.
///
/// # Safety
/// As the fields of [`Moments`] say.
#[inline(always)]
unsafe fn body<F: Down, const U: usize, const S: usize, const G: usize>(a: Moments) {
    const { assert!(S == 2 * U) };
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let units = large::moments::twos(F::FAMILY, place, a.d).div_ceil(U as u32);
    let pieces = a.groups / G as u32;
    let at = thread::block_idx_x() * (THREADS / WARP) + me;
    // There are units: it says so to the compiler, which else would guard the division.
    if units == 0 || pieces == 0 || at >= units * pieces * a.splits {
        return;
    }
    let (unit, rest) = (at % units, at / units);
    let (piece, split) = (rest % pieces, rest / pieces);
    let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
    let of = Of { d: a.d, derive: a.derive, steps: a.steps, classes: a.classes };
    // Σ r of a group is one warp's, so that no warp has more to do than another.
    let has_weight_of = |i: usize| if units > i as u32 { unit == i as u32 } else { unit + 1 == units };

    let aside =
        |which: u32| Shared::<f32>::at(8 * G as u32 * THREADS + (which * THREADS + thread::thread_idx_x()) * 16);
    let choice_of = |u: usize| aside(u as u32).load4(0).map(f32::to_bits);
    // Of a lane's four features of a unit.
    let scales_of = |u: usize| aside(2 + u as u32).load4(0);
    each(U, |u| {
        let choice = F::choose(of, unit * U as u32 + u as u32, lane);
        aside(u as u32).store4(0, choice.map(f32::from_bits));
        let mut scales = [1.0; 4];
        each(4, |i| {
            // SAFETY: a column, or `d`.
            let one = |j: u32| if j <= a.d { unsafe { device::load(a.scales, j as u64) } } else { 1.0 };
            let [j, k] = F::columns(of, choice, i);
            scales[i] = one(j) * one(k);
        });
        aside(2 + u as u32).store4(0, scales);
    });
    let weights = Shared::<f64>::at(thread::thread_idx_x() * 8);
    each(G, |i| weights.store(i as u32 * THREADS, 0.0));

    let ahead = Ahead::at(ahead_at(G as u32));
    let slots =
        |u: usize| Slots::<f32> { ahead, first: columns_at(G as u32, u as u32), d: a.d, of: core::marker::PhantomData };
    let rows = |sixteen: u32| {
        let (tile, inside) = ((sixteen / 8) as u64, (sixteen % 8 * GROUP + lane % 4 * 4) as u64);
        Rows {
            x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + inside) as usize),
            norm: a.norms.wrapping_add((tile * TILE_ROWS as u64 + inside) as usize),
            factors: a
                .factors
                .wrapping_add(((tile * pieces as u64 + piece as u64) * TILE_ROWS as u64 + inside) as usize),
            exponentials: a
                .exponentials
                .wrapping_add(
                    ((sixteen as u64 * a.groups as u64 + (piece * G as u32) as u64) * 128 + (lane * 4) as u64) as usize,
                )
                .cast(),
            d: a.d,
        }
    };
    // So many rows as would pass 32 bits here no device holds.
    let sixteens = a.n.div_ceil(GROUP as u64) as u32;
    let mut sixteen = split;
    let mut next = rows(sixteen);
    if sixteen < sixteens {
        // SAFETY: a group of the chunk's rows; the buffers are as long as their fields say. Here and below.
        unsafe {
            ahead.send(0, next.factors);
            each(U, |u| F::send(choice_of(u), next, slots(u)));
            each(G, |i| ahead.send(EXPONENTIALS + i as u32, next.exponentials.wrapping_add(128 * i)));
        }
    }
    // A split without rows leaves zeros.
    let mut accumulate = a.accumulate != 0;
    let mut first = true;
    while first || sixteen < sixteens {
        first = false;
        let mut sums = [[[0.0_f32; 4]; G]; S];
        let mut left_in_run = RUN;
        while left_in_run > 0 && sixteen < sixteens {
            left_in_run -= 1;
            let norm = next.norm;
            sixteen += a.splits;
            let more = sixteen < sixteens;
            next = rows(sixteen);
            // What arrived is used, and at once sent for again, for the rows that come next.
            ahead.arrive();
            // SAFETY: as above, for `next` where there is more.
            unsafe {
                let factor = ahead.four::<f32>(0);
                if more {
                    ahead.send(0, next.factors);
                }
                each(U, |u| {
                    let choice = choice_of(u);
                    let mut values = F::operands::<f32, f32>(choice, slots(u), norm);
                    if more {
                        F::send(choice, next, slots(u));
                    }
                    let scales = scales_of(u);
                    each(2, |s| each(8, |v| values[s][v] *= factor[v / 2] * scales[2 * s + v % 2]));
                    let operands: [Left; 2] = [left(values[0]), left(values[1])];
                    each(G / 4, |four| {
                        let mut right = [[[0; 2]; 2]; 4];
                        each(4, |j| {
                            let i = 4 * four + j;
                            let slot = EXPONENTIALS + i as u32;
                            let [a, b, c, d] = ahead.four::<f32>(slot).map(f32::to_bits);
                            right[j] = [[a, c], [b, d]];
                            if u == 0 && has_weight_of(i) {
                                let mut weight = 0.0;
                                each(4, |r| {
                                    let [head, tail] =
                                        [from_halves(right[j][0][r / 2]), from_halves(right[j][1][r / 2])];
                                    weight = Real::fma(head[r % 2] + tail[r % 2], factor[r], weight);
                                });
                                let at = i as u32 * THREADS;
                                weights.store(at, weights.load(at) + weight.to_f64());
                            }
                            if more && u + 1 == U {
                                ahead.send(slot, next.exponentials.wrapping_add(128 * i));
                            }
                        });
                        let new = products(&operands, &right);
                        each(2, |s| each(4, |j| each(4, |v| sums[2 * u + s][4 * four + j][v] += new[s][j][v])));
                    });
                });
            }
        }
        each(U, |u| {
            let (steps, scales) = (F::steps(of, unit * U as u32 + u as u32), scales_of(u));
            each(2, |s| {
                if steps[s] < a.steps {
                    let at = (steps[s] * a.groups + piece * G as u32) as u64 * 128 + lane as u64;
                    each(G, |i| {
                        each(4, |v| {
                            // Powers of two: nothing is rounded.
                            let sum = (sums[2 * u + s][i][v] / (EXPONENTIAL * scales[2 * s + v / 2])).to_f64();
                            // SAFETY: a place within the split's sums, which this lane alone has.
                            unsafe { add(partials, accumulate, at + (128 * i + 32 * v) as u64, sum) };
                        });
                    });
                }
            });
        });
        accumulate = true;
    }
    let accumulate = a.accumulate != 0;
    // Shuffles are for all lanes, so they stand outside.
    each(G, |i| {
        let mut w = weights.load(i as u32 * THREADS) / EXPONENTIAL.to_f64();
        w += warp::shuffle_xor(w, 1);
        w += warp::shuffle_xor(w, 2);
        if has_weight_of(i) && lane % 4 == 0 {
            let at = place.coefficients() + (8 * (piece * G as u32 + i as u32) + lane / 4) as u64;
            // SAFETY: as above.
            unsafe { add(partials, accumulate, at, w) };
        }
    });
    let has_likelihood = unit == 0 && piece == 0;
    let mut log_likelihood = 0.0;
    if has_likelihood {
        let mut sixteen = split + lane * a.splits;
        while sixteen < sixteens {
            // SAFETY: a group of the chunk's rows.
            log_likelihood += unsafe { device::load(a.likelihoods, sixteen as u64) };
            sixteen += WARP * a.splits;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if has_likelihood && lane == 0 {
        // SAFETY: as above.
        unsafe { add(partials, accumulate, place.log_likelihood(), log_likelihood) };
    }
}

/// Adds to what is there, or to nothing.
#[inline(always)]
unsafe fn add(partials: *mut f64, accumulate: bool, at: u64, v: f64) {
    // SAFETY: the caller's promise.
    unsafe {
        let before = if accumulate { device::load(partials.cast_const(), at) } else { 0.0 };
        device::store(partials, at, before + v);
    }
}
