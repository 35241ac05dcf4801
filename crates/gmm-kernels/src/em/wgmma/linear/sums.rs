//! Sums of features times responsibilities over a chunk of rows, one partial result per split of the rows.
//!
//! Each warpgroup of a block has 64 components. It computes their densities for 64 rows and turns them, with the rows'
//! normalisers, into responsibilities in the registers that the product with the features reads. All sums stay in
//! registers. The rows' features are streamed through shared memory, where both products read them: for the densities,
//! rows of core matrices run along the columns of the result; for the sums, along the summed terms.

use crate::Real;
use crate::device::mma::{from_halves, to_halves};
use crate::device::warpgroup::{self, Cores, InMemory, of_memory};
use crate::device::{self, Shared, WARP, copies, thread, warp, words};
use crate::each::each;
use crate::em::chunked::half_precision::moments::{add, back};
use crate::em::chunked::half_precision::operand::EXPONENTIAL;
use crate::em::features::derive;
use crate::em::layout::FeatureLayout;
use crate::em::state::stopped;
use crate::em::wgmma::linear::stages::{Stages, meet, send};
use crate::em::wgmma::linear::{COMPONENTS, NEXT_FEATURES, NEXT_OTHERS, ROWS, column, core_bytes, groups, stage_bytes};

kernels! {
    /// The grid is [`blocks_of_split`](crate::em::wgmma::linear::Linear::blocks_of_split) times `splits` blocks.
    Sums {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`mod@derive`].
        derive: u32,
        /// The kernel's number of features, one of [`FEATURES`](crate::em::wgmma::linear::FEATURES).
        features: u32,
        /// [`FeatureLayout::groups`].
        groups: u32,
        /// `(d+1,)`: scales of columns and norms; powers of two.
        scales: *const f32,
        /// [`Linear::operands`](crate::em::wgmma::linear::Linear::operands) words, 16-byte aligned.
        operands: *const u32,
        /// [`Linear::feature_words`](crate::em::wgmma::linear::Linear::feature_words) words, 16-byte aligned.
        rows: *const u32,
        /// [`logs_len`](crate::em::wgmma::linear::logs_len) elements, 16-byte aligned.
        logs: *const f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements.
        likelihoods: *const f64,
        /// Number of partial results.
        splits: u32,
        /// Nonzero: add to the existing partial results.
        accumulate: u32,
        /// `(splits, FeatureLayout::sums)`, written or added to.
        partials: *mut f64,
    }
    /// 64 features.
    wgmma_sums_64 => body::<4, [f32; 32]>, shared_bytes, threads;
    /// 96 features.
    wgmma_sums_96 => body::<6, [f32; 48]>, shared_bytes, threads;
    /// 128 features.
    wgmma_sums_128 => body::<8, [f32; 64]>, shared_bytes, threads;
    /// 160 features.
    wgmma_sums_160 => body::<10, [f32; 80]>, shared_bytes, threads;
    /// 192 features.
    wgmma_sums_192 => body::<12, [f32; 96]>, shared_bytes, threads;
    /// 256 features.
    wgmma_sums_256 => body::<16, [f32; 128]>, shared_bytes, threads;
}

/// Threads per block: two warpgroups.
pub const THREADS: u32 = 2 * GROUP;
const GROUP: u32 = 4 * WARP;

/// Number of groups of [`ROWS`] rows that are summed in `f32`.
const RUN: u32 = 128;

/// Bytes of a buffer for rows: features, then normalisers.
const fn place_bytes(features: u32) -> u32 {
    core_bytes(features) + 8 * ROWS
}

/// Bytes of a group's features, of 64 components' coefficients with their scalars, and of a buffer for rows.
#[inline(always)]
const fn of_features(features: u32) -> (u32, u32, u32) {
    (core_bytes(features), stage_bytes(features), place_bytes(features))
}

/// Bytes of shared memory: coefficients of both warpgroups, then rows.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(features: u32) -> u64 {
    (2 * stage_bytes(features) + crate::em::wgmma::linear::stages::SLOTS * place_bytes(features)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Sums) -> u64 {
    shared_len(a.features)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Sums) -> u32 {
    THREADS
}

/// Constants and multipliers that turn products into log densities, for a lane's two components; and the offset of the
/// normalisers in a buffer.
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

/// The features in a buffer as a right operand whose terms are rows.
#[inline(always)]
const fn down(at: u32) -> Cores {
    Cores { at, terms: NEXT_OTHERS, others: NEXT_FEATURES }
}

/// Responsibilities as a left operand, from products with the rows in the buffer `at`. Also adds them to `weights` for
/// each component, even rows and odd rows separately.
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
    // From the fp16 values, so that Σ r is nonzero if a component has rows. Not on the tensor cores: for these small
    // products a warp would wait behind the large products of others.
    each(16, |i| {
        let [even, odd] = from_halves(left[i]);
        weights[i % 2 * 2] += even;
        weights[i % 2 * 2 + 1] += odd;
    });
    left
}

/// Starts the copies of the features and normalisers of a group of rows to a buffer with `cores` bytes of features. All
/// threads of the block call it.
///
/// # Safety
/// `group` is one of the chunk's groups.
#[inline(always)]
unsafe fn send_group(a: &Sums, group: u32, to: u32, cores: u32) {
    let rows = a.rows.wrapping_add(group as usize * (cores / 4) as usize);
    let logs = a.logs.wrapping_add(group as usize * 2 * ROWS as usize);
    // SAFETY: `group` is one of the chunk's, as `# Safety` requires.
    unsafe {
        send(to, rows, cores, THREADS);
        send(to + cores, logs.cast(), 8 * ROWS, THREADS);
    }
}

/// Body of the kernel for `S` steps of sixteen features, whose sums a lane has as `M`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
unsafe fn body<const S: usize, M: warpgroup::Sums>(a: Sums) {
    const { assert!(size_of::<M>() == 32 * S) };
    let blocks = a.groups * 8 / (2 * COMPONENTS);
    // The check tells the compiler that the divisor is not 0. SAFETY: `state` is null or a loop's state, as `Sums`
    // documents.
    if blocks == 0 || unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (cores, of_stage, of_place) = of_features(16 * S as u32);
    let (me, lane) = (thread::thread_idx_x() / WARP, warp::lane_id());
    let place = FeatureLayout { steps: S as u32, groups: a.groups, classes: 0 };
    let (two, split) = (thread::block_idx_x() % blocks, thread::block_idx_x() / blocks);
    let all = groups(a.n) as u32;

    // SAFETY: `two < blocks`, so the coefficients of these two times 64 components exist.
    unsafe { send(0, a.operands.wrapping_add((two * (of_stage / 2)) as usize), 2 * of_stage, THREADS) };
    let mut next = split;
    let mut send_next = |to: u32| {
        if next < all {
            // SAFETY: `next < all`, so the group exists.
            unsafe { send_group(&a, next, to, cores) };
        }
        next += a.splits;
    };
    // The first group of copies includes the coefficients.
    let mut stages = Stages::start(2 * of_stage, of_place, &mut send_next);
    meet();
    let own = me / 4 * of_stage;
    let scalars = Scalars::of(own + cores, me % 4 * 16 + lane / 4, cores);
    let coefficients = Cores { at: own, terms: NEXT_FEATURES, others: NEXT_OTHERS };
    // Whether this warpgroup works one stage behind the other.
    let behind = me >= 4;

    let mut group = split;
    // A split without rows writes zeros.
    let mut accumulate = a.accumulate != 0;
    let mut again = true;
    while again {
        let mut sums = M::ZERO;
        let mut weights = [0.0_f32; 4];
        let mut left_in_run = RUN;
        // Products of an iteration: sums with the previous buffer's responsibilities, and densities of the next. The
        // warpgroup ahead computes responsibilities after them, the one behind before them: while one does, the other
        // has the tensor cores.
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
            let right = Cores { at, terms: NEXT_FEATURES, others: NEXT_OTHERS };
            let densities = InMemory { left: coefficients, right, steps: S as u32 };
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
        // SAFETY: the caller upholds `# Safety`: the buffers are as `Sums` documents.
        unsafe { add_run::<S, M>(&a, place, (two, split), accumulate, &sums, &weights) };
        accumulate = true;
        again = group < all;
    }
    // Waits for copies in flight that will not be used.
    copies::arrive();
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Sums` documents.
    unsafe { store_likelihood(&a, place, (two, split), all) };
}

/// Adds the `f32` sums of a run to the partial result, or writes them to it: the sums and Σ r of the 128 components
/// from `128*two` on.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
unsafe fn add_run<const S: usize, M: warpgroup::Sums>(
    a: &Sums,
    place: FeatureLayout,
    (two, split): (u32, u32),
    accumulate: bool,
    sums: &M,
    weights: &[f32; 4],
) {
    let features = 16 * S as u32;
    // Recomputed, so that no register holds it throughout the loop.
    let place = FeatureLayout { groups: device::unknown(a.groups), ..place };
    let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
    let (me, lane) = (thread::thread_idx_x_anew() / WARP, thread::thread_idx_x_anew() % WARP);
    let (g, t) = (lane / 4, lane % 4);
    let component = |r: usize| two * 2 * COMPONENTS + me * 16 + g + 8 * r as u32;
    let scales = a.scales.wrapping_add(device::unknown(0) as usize);
    each(S, |s| {
        // All loads of a step before any store, so that latencies overlap.
        let (mut at, mut values) = ([0; 8], [0.0; 8]);
        each(4, |i| {
            let f = 16 * s as u32 + 8 * (i / 2) as u32 + 2 * t + i as u32 % 2;
            let (j, square) = column(f, features, a.derive == derive::SQUARES);
            // SAFETY: `j ≤ d`, and `scales` has `d + 1` elements.
            let scale = if j <= a.d { unsafe { device::load(scales, j as u64) } } else { 1.0 };
            // Powers of two, so nothing is rounded; in `f64`, so that squares of large columns stay finite.
            let back = back(scale).to_f64();
            let by = if square { back * back } else { back } / EXPONENTIAL.to_f64();
            each(2, |r| {
                at[2 * i + r] = place.column_sum(f, component(r));
                values[2 * i + r] = sums[8 * s + i / 2 * 4 + 2 * r + i % 2].to_f64() * by;
            });
        });
        if accumulate {
            // SAFETY: positions within the partial result, which only this lane accesses, here and below.
            each(8, |i| values[i] += unsafe { device::load(partials.cast_const(), at[i]) });
        }
        // SAFETY: only this lane accesses the positions.
        each(8, |i| unsafe { device::store(partials, at[i], values[i]) });
    });
    each(2, |r| {
        let mut sum = (weights[2 * r] + weights[2 * r + 1]) * (1.0 / EXPONENTIAL);
        sum += warp::shuffle_xor(sum, 1);
        sum += warp::shuffle_xor(sum, 2);
        if t == 0 {
            // SAFETY: only this lane accesses the position.
            unsafe { add(partials, accumulate, place.weight(component(r)), sum.to_f64()) };
        }
    });
}

/// Writes the log-likelihood of the split's rows, if this is the first warp of the block of the first components.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Sums`] document.
#[inline(always)]
unsafe fn store_likelihood(a: &Sums, place: FeatureLayout, (two, split): (u32, u32), all: u32) {
    let (me, lane) = (thread::thread_idx_x() / WARP, warp::lane_id());
    let mut log_likelihood = 0.0;
    if two == 0 && me == 0 {
        let mut i = lane;
        while split + i / 4 * a.splits < all {
            // SAFETY: the group is below `all`, so its four sixteens exist.
            log_likelihood += unsafe { device::load(a.likelihoods, ((split + i / 4 * a.splits) * 4 + i % 4) as u64) };
            i += WARP;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if two == 0 && thread::thread_idx_x() == 0 {
        let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
        // SAFETY: the position is within the partial result, and only this thread accesses it.
        unsafe { add(partials, a.accumulate != 0, place.log_likelihood(), log_likelihood) };
    }
}
