//! Sums of features times responsibilities over a chunk of rows, one partial result for each split of them.
//!
//! Each warpgroup of a block has 64 components: it takes their densities in 64 rows, which with the rows' logarithms are
//! responsibilities, in those registers that the product with the features reads. All sums stay in registers. The rows'
//! features pass by in shared memory, where both products read them: for the densities their lines run along the columns, for
//! the sums along the terms.

use crate::Real;
use crate::device::mma::{from_halves, stores_before_products, to_halves};
use crate::device::warpgroup::{self, Cores, InMemory, of_memory};
use crate::device::{self, Shared, WARP, copies, thread, warp, words};
use crate::each::each;
use crate::em::chunked::half_precision::moments::{add, back};
use crate::em::chunked::half_precision::operand::EXPONENTIAL;
use crate::em::features::derive;
use crate::em::layout::Place;
use crate::em::state::stopped;
use crate::em::wgmma::linear::stages::{PLACES, Stages, send};
use crate::em::wgmma::linear::{COMPONENTS, NEXT_FEATURES, NEXT_OTHERS, ROWS, column, core_bytes, groups, stage_bytes};

kernels! {
    /// The grid is [`blocks_of_split`](crate::em::wgmma::linear::Linear::blocks_of_split) times `splits` blocks.
    Sums {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`mod@derive`].
        derive: u32,
        /// One of [`FEATURES`](crate::em::wgmma::linear::FEATURES): that of the kernel.
        features: u32,
        /// [`Place::groups`].
        groups: u32,
        /// `(d+1,)`: of columns and norms; powers of two.
        scales: *const f32,
        /// [`Linear::operands`](crate::em::wgmma::linear::Linear::operands), 16-byte aligned.
        operands: *const u32,
        /// [`Linear::feature_words`](crate::em::wgmma::linear::Linear::feature_words), 16-byte aligned.
        rows: *const u32,
        /// [`logs_len`](crate::em::wgmma::linear::logs_len), 16-byte aligned.
        logs: *const f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods).
        likelihoods: *const f64,
        /// Partial results.
        splits: u32,
        /// Not 0: add to what is there.
        accumulate: u32,
        /// `(splits, Place::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Of 64 features.
    warpgroups_sums_64 => body::<4, [f32; 32]>, shared_bytes, threads;
    /// Of 96 features.
    warpgroups_sums_96 => body::<6, [f32; 48]>, shared_bytes, threads;
    /// Of 128 features.
    warpgroups_sums_128 => body::<8, [f32; 64]>, shared_bytes, threads;
    /// Of 160 features.
    warpgroups_sums_160 => body::<10, [f32; 80]>, shared_bytes, threads;
    /// Of 192 features.
    warpgroups_sums_192 => body::<12, [f32; 96]>, shared_bytes, threads;
    /// Of 256 features.
    warpgroups_sums_256 => body::<16, [f32; 128]>, shared_bytes, threads;
}

/// Threads of a block: two warpgroups.
pub const THREADS: u32 = 2 * GROUP;
const GROUP: u32 = 4 * WARP;

/// Times [`ROWS`] rows that are summed in `f32`.
const RUN: u32 = 128;

/// Bytes of a place for rows: features, then logarithms.
const fn place_bytes(features: u32) -> u32 {
    core_bytes(features) + 8 * ROWS
}

/// Bytes of shared memory: coefficients of both warpgroups, then rows.
pub(crate) const fn shared_len(features: u32) -> u64 {
    (2 * stage_bytes(features) + PLACES * place_bytes(features)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Sums) -> u64 {
    shared_len(a.features)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Sums) -> u32 {
    THREADS
}

/// What takes products to densities, of a lane's two components; and where logarithms lie behind a place's features.
struct Scalars {
    constants: [f32; 2],
    by: [f32; 2],
    cores: u32,
}

impl Scalars {
    #[inline(always)]
    fn of(at: u32, component: u32, cores: u32) -> Self {
        let one = |i: u32| {
            let two = Shared::<f64>::at(at).load(component + i).to_bits();
            [two as u32, (two >> 32) as u32].map(f32::from_bits)
        };
        let [[c, m], [d, n]] = [one(0), one(8)];
        Self { constants: [c, d], by: [m, n], cores }
    }
}

/// The features at a place as a right operand whose terms are rows.
#[inline(always)]
const fn down(at: u32) -> Cores {
    Cores { at, terms: NEXT_OTHERS, others: NEXT_FEATURES }
}

/// Responsibilities of products with the rows at a place, as a left operand, and added up for each component, those of even rows
/// and of odd ones.
#[inline(always)]
fn responsibilities(joint: &[f32; 32], at: u32, of: &Scalars, weights: &mut [f32; 4]) -> [u32; 16] {
    let t = warp::lane_id() % 4;
    let logs = Shared::<f32>::at(at + of.cores);
    let mut left = [0; 16];
    each(8, |i| {
        let [top, share, other_top, other_share] = logs.load4(2 * (8 * i as u32 + 2 * t));
        each(2, |r| {
            let one = |v: f32, top: f32, share: f32| {
                words::exp2_approx_f32(Real::fma(of.by[r], v, of.constants[r]) - top) * share
            };
            let [p, q] = [joint[4 * i + 2 * r], joint[4 * i + 2 * r + 1]];
            left[2 * i + r] = to_halves(one(p, top, share), one(q, other_top, other_share));
        });
    });
    // Of what halves hold, so that a component has weight where it has rows. Not by the tensor cores: for their small products a
    // warp would wait behind others' large ones.
    each(16, |i| {
        let [even, odd] = from_halves(left[i]);
        weights[i % 2 * 2] += even;
        weights[i % 2 * 2 + 1] += odd;
    });
    left
}

/// The kernel for `S` steps of sixteen features, whose sums a lane has as `M`.
///
/// # Safety
/// As the fields of [`Sums`] say.
#[inline(always)]
unsafe fn body<const S: usize, M: warpgroup::Sums>(a: Sums) {
    const { assert!(size_of::<M>() == 32 * S) };
    let blocks = a.groups * 8 / (2 * COMPONENTS);
    // There are some; the compiler would guard divisions. SAFETY: the state is as `state` says.
    if blocks == 0 || unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let features = 16 * S as u32;
    let (cores, of_stage) = (core_bytes(features), stage_bytes(features));
    let (me, lane) = (thread::thread_idx_x() / WARP, warp::lane_id());
    let g = lane / 4;
    let place = Place { steps: S as u32, groups: a.groups, classes: 0 };
    let (two, split) = (thread::block_idx_x() % blocks, thread::block_idx_x() / blocks);
    let all = groups(a.n) as u32;

    // SAFETY: the coefficients of two times 64 components.
    unsafe { send(0, a.operands.wrapping_add((two * (of_stage / 2)) as usize), 2 * of_stage, THREADS) };
    let mut next = split;
    let mut send_next = |to: u32| {
        if next < all {
            let rows = a.rows.wrapping_add(next as usize * (cores / 4) as usize);
            let logs = a.logs.wrapping_add(next as usize * 2 * ROWS as usize);
            // SAFETY: a group of the chunk's.
            unsafe {
                send(to, rows, cores, THREADS);
                send(to + cores, logs.cast(), 8 * ROWS, THREADS);
            }
        }
        next += a.splits;
    };
    // The coefficients are in the first group of copies.
    let mut stages = Stages::start(2 * of_stage, place_bytes(features), &mut send_next);
    copies::arrive_but::<1>();
    stores_before_products();
    thread::sync_threads();
    let own = me / 4 * of_stage;
    let scalars = Scalars::of(own + cores, me % 4 * 16 + g, cores);
    let coefficients = Cores { at: own, terms: NEXT_FEATURES, others: NEXT_OTHERS };
    // A stage behind the other warpgroup.
    let behind = me >= 4;

    let mut group = split;
    // A split without rows leaves zeros.
    let mut accumulate = a.accumulate != 0;
    let mut again = true;
    while again {
        let mut sums = M::ZERO;
        let mut weights = [0.0_f32; 4];
        let mut left_in_run = RUN;
        // Products of a turn: sums with the last place's responsibilities, and densities of the next. Who is ahead makes
        // responsibilities after them, who is behind before: while the ones do the others have the tensor cores.
        let (mut joint, mut left) = ([0.0; 32], [0; 16]);
        let mut at = 0;
        let mut first = true;
        while left_in_run > 0 && group < all {
            left_in_run -= 1;
            group += a.splits;
            let before = at;
            at = stages.take(&mut send_next);
            if behind && !first {
                left = responsibilities(&joint, before, &scalars, &mut weights);
            }
            let densities = InMemory {
                left: coefficients,
                right: Cores { at, terms: NEXT_FEATURES, others: NEXT_OTHERS },
                steps: S as u32,
            };
            if first {
                of_memory(&mut joint, densities);
            } else {
                sums.four_steps_and_of_memory(&left, down(before), &mut joint, densities);
            }
            if !behind {
                left = responsibilities(&joint, at, &scalars, &mut weights);
            }
            first = false;
        }
        if !first {
            if behind {
                left = responsibilities(&joint, at, &scalars, &mut weights);
            }
            sums.four_steps(&left, down(at), false);
        }
        // Found anew, so that no register holds it throughout the loop.
        let place = Place { groups: device::unknown(a.groups), ..place };
        let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
        let (me, lane) = (thread::thread_idx_x_anew() / WARP, thread::thread_idx_x_anew() % WARP);
        let (g, t) = (lane / 4, lane % 4);
        let component = |r: usize| two * 2 * COMPONENTS + me * 16 + g + 8 * r as u32;
        let scales = a.scales.wrapping_add(device::unknown(0) as usize);
        each(S, |s| {
            // All that is read of a step before any of it is written, so that latencies pass together.
            let (mut at, mut values) = ([0; 8], [0.0; 8]);
            each(4, |i| {
                let f = 16 * s as u32 + 8 * (i / 2) as u32 + 2 * t + i as u32 % 2;
                let (j, square) = column(f, features, a.derive == derive::SQUARES);
                // SAFETY: of a column, or of the norms.
                let scale = if j <= a.d { unsafe { device::load(scales, j as u64) } } else { 1.0 };
                // Powers of two: nothing is rounded, and squares of large columns stay finite.
                let back = back(scale).to_f64();
                let by = if square { back * back } else { back } / EXPONENTIAL.to_f64();
                each(2, |r| {
                    at[2 * i + r] = place.column_sum(f, component(r));
                    values[2 * i + r] = sums[8 * s + i / 2 * 4 + 2 * r + i % 2].to_f64() * by;
                });
            });
            if accumulate {
                // SAFETY: places within the partial result, which this lane alone has, here and below.
                each(8, |i| values[i] += unsafe { device::load(partials.cast_const(), at[i]) });
            }
            // SAFETY: as above.
            each(8, |i| unsafe { device::store(partials, at[i], values[i]) });
        });
        each(2, |r| {
            let mut sum = (weights[2 * r] + weights[2 * r + 1]) * (1.0 / EXPONENTIAL);
            sum += warp::shuffle_xor(sum, 1);
            sum += warp::shuffle_xor(sum, 2);
            if t == 0 {
                // SAFETY: as above.
                unsafe { add(partials, accumulate, place.weight(component(r)), sum.to_f64()) };
            }
        });
        accumulate = true;
        again = group < all;
    }
    // What is on its way and will not be used.
    copies::arrive();
    let mut log_likelihood = 0.0;
    if two == 0 && me == 0 {
        let mut i = lane;
        while split + i / 4 * a.splits < all {
            // SAFETY: sixteen rows of the chunk's.
            log_likelihood += unsafe { device::load(a.likelihoods, ((split + i / 4 * a.splits) * 4 + i % 4) as u64) };
            i += WARP;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if two == 0 && thread::thread_idx_x() == 0 {
        let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
        // SAFETY: as above.
        unsafe { add(partials, a.accumulate != 0, place.log_likelihood(), log_likelihood) };
    }
}
