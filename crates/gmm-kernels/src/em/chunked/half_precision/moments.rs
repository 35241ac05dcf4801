//! Sums of features times responsibilities over a chunk of rows, one partial result per split of the rows.
//!
//! As in [`double_precision`](mod@crate::em::chunked::double_precision::moments), a warp owns some tiles of the sums.
//! Here the warps of a block share what they load of the rows (`staged`), and each forms its own features from it.

use crate::device::mma::from_halves;
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::em::chunked::double_precision::down::{Columns, Of, Products};
use crate::em::chunked::double_precision::{self, DoublePrecision};
use crate::em::chunked::half_precision::block_share::{BlockShare, OfWeights};
use crate::em::chunked::half_precision::operand::{EXPONENTIAL, LeftOperand, add_products, left_down};
use crate::em::chunked::half_precision::staged::{Features, Lane, SIXTEENS, Stage};
use crate::em::features::{Family, derive, each};
use crate::em::layout::FeatureLayout;
use crate::em::state::stopped;
use crate::layout::tiles;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `blocks*splits/lanes` blocks, with
    /// [`blocks`](crate::em::chunked::half_precision::HalfPrecision::blocks_of_split) and
    /// [`lanes`](crate::em::chunked::half_precision::HalfPrecision::lanes).
    Moments {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms of the rows if they are a feature; else null.
        norms: *const f32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`mod@derive`].
        derive: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`], a multiple of the groups that a warp processes at a time.
        groups: u32,
        /// [`FeatureLayout::classes`], a multiple of 4.
        classes: u32,
        /// `(d+1,)`: scales of columns and norms; powers of two.
        scales: *const f32,
        /// [`exponentials`](crate::em::chunked::half_precision::HalfPrecision::exponentials) words; 16-byte aligned.
        exponentials: *const u32,
        /// [`DoublePrecision::factors`](crate::em::chunked::half_precision::DoublePrecision::factors) elements; 16-byte
        /// aligned.
        factors: *const f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements.
        likelihoods: *const f64,
        /// Number of partial results: a multiple of
        /// [`lanes`](crate::em::chunked::half_precision::HalfPrecision::lanes).
        splits: u32,
        /// Nonzero: add to the existing partial results.
        accumulate: u32,
        /// `(splits, FeatureLayout::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Products of entries: 64 features by 16 components per warp.
    chunked_split_fp16_moments_full_few => body::<Products, 2, 4, 2, false>, shared_bytes::<Products, 2, false>;
    /// Products of entries: 64 features by 32 components per warp.
    chunked_split_fp16_moments_full_narrow => body::<Products, 2, 4, 4, false>, shared_bytes::<Products, 4, false>;
    /// As `full_narrow`, for more than 64 columns: their stages leave room for fewer blocks, so each thread may have
    /// more registers.
    chunked_split_fp16_moments_full_deep => body::<Products, 2, 4, 4, false>, shared_bytes::<Products, 4, false>;
    /// Products of entries: 32 features by 64 components per warp.
    chunked_split_fp16_moments_full_wide => body::<Products, 1, 2, 8, false>, shared_bytes::<Products, 8, false>;
    /// Columns: 32 features by 16 components per warp.
    chunked_split_fp16_moments_linear_few => body::<Columns, 1, 2, 2, false>, shared_bytes::<Columns, 2, false>;
    /// Columns: 32 features by 32 components per warp.
    chunked_split_fp16_moments_linear_narrow => body::<Columns, 1, 2, 4, false>, shared_bytes::<Columns, 4, false>;
    /// Columns: 32 features by 64 components per warp.
    chunked_split_fp16_moments_linear_wide => body::<Columns, 1, 2, 8, false>, shared_bytes::<Columns, 8, false>;
    /// Hi parts only. Products of entries: 64 features by 32 components per warp.
    chunked_fp16_moments_full_narrow => body::<Products, 2, 4, 4, true>, shared_bytes::<Products, 4, true>;
    /// Hi parts only. Products of entries: 64 features by 64 components per warp.
    chunked_fp16_moments_full_wide => body::<Products, 2, 4, 8, true>, shared_bytes::<Products, 8, true>;
    /// Hi parts only. Columns: 32 features by 32 components per warp.
    chunked_fp16_moments_linear_narrow => body::<Columns, 1, 2, 4, true>, shared_bytes::<Columns, 4, true>;
    /// Hi parts only. Columns: 32 features by 64 components per warp.
    chunked_fp16_moments_linear_wide => body::<Columns, 1, 2, 8, true>, shared_bytes::<Columns, 8, true>;
}

/// Units of two steps per warp: as many as fit in its registers.
const fn per_warp(family: Family, groups: u32, one: bool) -> u32 {
    let products = matches!(family, Family::Full | Family::FullAndOne);
    if products && (one || groups != double_precision::WIDE) { 2 } else { 1 }
}

/// Number of stages summed in `f32` before the sum is added to `f64`.
const RUN: u32 = 128;

/// Units per block: as many as there are, up to its warps. With fewer units than warps, warps of the same unit take
/// every second or fourth sixteen rows.
pub(crate) const fn units_of_block(units: u32) -> u32 {
    match units {
        1 => 1,
        2 => 2,
        _ => WARPS,
    }
}

pub(crate) const WARPS: u32 = THREADS / WARP;

/// Number of units of a piece, as warps take them.
const fn units(of: DoublePrecision, d: u32, one: bool) -> u32 {
    double_precision::moments::twos(of.family, of.place, d).div_ceil(per_warp(of.family, of.at_once, one))
}

/// Partial results per block.
pub(crate) const fn lanes(of: DoublePrecision, d: u32, one: bool) -> u32 {
    WARPS / units_of_block(units(of, d, one))
}

/// Number of blocks that share the sums of a split's rows.
pub(crate) const fn blocks(of: DoublePrecision, d: u32, one: bool) -> u32 {
    let units = units(of, d, one);
    units.div_ceil(units_of_block(units)) * of.pieces()
}

/// Offset of the stages, after each thread's part of Σ r in each group and the lanes' unit data. With 128 columns, two
/// blocks fit on a Hopper multiprocessor.
const fn stages_at(groups: u32, units: u32) -> u32 {
    THREADS * (8 * groups + units * 2 * 16)
}

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len<const ONE: bool>(family: Family, groups: u32, d: u32) -> u64 {
    (stages_at(groups, per_warp(family, groups, ONE)) + 2 * Stage::<ONE>::bytes(groups, d)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<F: Features, const G: usize, const ONE: bool>(a: &Moments) -> u64 {
    shared_len::<ONE>(F::FAMILY, G as u32, a.d)
}

/// A lane's data about its units' features, and its part of Σ r in each group. In shared memory, since registers do not
/// suffice.
#[derive(Clone, Copy)]
struct Memory {
    weights: Shared<f64>,
    groups: u32,
}

impl Memory {
    #[inline(always)]
    fn of_lane(groups: u32) -> Self {
        Self { weights: Shared::at(thread::thread_idx_x() * 8), groups }
    }

    #[inline(always)]
    fn aside(self, which: usize) -> Shared<f32> {
        Shared::at(8 * self.groups * THREADS + (which as u32 * THREADS + thread::thread_idx_x()) * 16)
    }

    /// Data of unit `u`, written by [`prepare`](Self::prepare).
    #[inline(always)]
    fn lane(self, u: usize) -> Lane {
        Lane::unpack(self.aside(2 * u).load4(0).map(f32::to_bits), self.aside(2 * u + 1).load4(0))
    }

    /// Chooses the features of the warp's units, from index `unit` on, and clears Σ r.
    ///
    /// # Safety
    /// The buffers in `a` are as the fields of [`Moments`] document.
    #[inline(always)]
    unsafe fn prepare<F: Features, const U: usize, const G: usize>(self, a: &Moments, of: Of, unit: u32) {
        let lane = warp::lane_id();
        each(U, |u| {
            let choice = F::choose(of, unit * U as u32 + u as u32, lane);
            let mut scales = [1.0; 4];
            each(4, |i| {
                // SAFETY: `j ≤ d`, and `scales` has `d + 1` elements.
                let one = |j: u32| if j <= a.d { unsafe { device::load(a.scales, j as u64) } } else { 1.0 };
                let [j, k] = F::columns(of, choice, i);
                scales[i] = one(j) * one(k);
            });
            self.aside(2 * u).store4(0, F::lane(of, choice, lane).map(f32::from_bits));
            self.aside(2 * u + 1).store4(0, scales);
        });
        each(G, |i| self.weights.store(i as u32 * THREADS, 0.0));
    }
}

/// The stage with an even index (`odd` is 0) or an odd one.
#[inline(always)]
fn stage<const U: usize, const G: usize, const ONE: bool>(a: &Moments, odd: u32) -> Stage<ONE> {
    let first = stages_at(G as u32, U as u32);
    Stage::<ONE>::at(first + odd * Stage::<ONE>::bytes(G as u32, a.d), G as u32, a.d)
}

/// Partial result of a split and a turn.
#[inline(always)]
fn partials_of(a: &Moments, place: FeatureLayout, split: u32, lanes: u32, turn: u32) -> *mut f64 {
    a.partials.wrapping_add(((split * lanes + turn) as u64 * place.sums()) as usize)
}

/// Body of the kernel: `U` units of two steps, `S` steps, by `G` groups of components; with `ONE`, hi parts only.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn body<F: Features, const U: usize, const S: usize, const G: usize, const ONE: bool>(a: Moments) {
    const { assert!(S == 2 * U && U as u32 == per_warp(F::FAMILY, G as u32, ONE)) };
    // SAFETY: `state` is null or a loop's state, as `Moments` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
    let Some(share) = BlockShare::new::<F, U, G>(&a, a.d) else { return };
    let BlockShare { units, lanes, piece, split, unit, turn } = share;
    let of = Of { d: a.d, derive: a.derive, steps: a.steps, classes: a.classes };
    let mine = OfWeights::new(units, unit, G as u32);
    let memory = Memory::of_lane(G as u32);
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Moments` documents.
    unsafe { memory.prepare::<F, U, G>(&a, of, unit) };
    each(2, |odd| stage::<U, G, ONE>(&a, odd as u32).fill(a.derive == derive::NORM));

    // Half tiles of 64 rows. Rows past the last are padding with factors of 0.
    let halves = 2 * tiles(a.n) as u32;
    let splits = a.splits / lanes;
    let mut half = split;
    let mut odd = 0;
    if half < halves {
        // SAFETY: `half < halves`, so it is half of a tile of the chunk, here and below.
        unsafe { stage::<U, G, ONE>(&a, odd).send(&a, half, piece) };
    }
    // A split without rows writes zeros.
    let mut accumulate = a.accumulate != 0;
    let mut again = true;
    while again {
        let mut sums = [[[0.0_f32; 4]; G]; S];
        let mut left_in_run = RUN;
        while left_in_run > 0 && half < halves {
            left_in_run -= 1;
            copies::arrive();
            // Makes all threads' copies visible, and ensures that no thread still reads the other stage.
            thread::sync_threads();
            half += splits;
            if half < halves {
                // SAFETY: `half < halves`.
                unsafe { stage::<U, G, ONE>(&a, 1 - odd).send(&a, half, piece) };
            }
            let here = stage::<U, G, ONE>(&a, odd);
            odd = 1 - odd;
            let mut sixteen = turn;
            while sixteen < SIXTEENS && (unit < units || mine.first() < G as u32) {
                add_rows::<F, U, S, G, ONE>(&mut sums, here, sixteen, mine, memory, unit < units);
                sixteen += lanes;
            }
        }
        // SAFETY: the caller upholds `# Safety`: the buffers are as `Moments` documents.
        unsafe { add_run::<F, U, S, G>(&a, of, place, accumulate, &sums, memory) };
        accumulate = true;
        again = half < halves;
    }
    // SAFETY: as for `add_run`.
    unsafe { store_weights::<G>(&a, place, &share, mine, memory.weights) };
    // SAFETY: as for `add_run`.
    unsafe { store_likelihood(&a, place, &share, halves) };
}

/// Adds sixteen rows of a stage to Σ r of the warp's groups and, if it has a unit, to the unit's sums.
#[inline(always)]
fn add_rows<F: Features, const U: usize, const S: usize, const G: usize, const ONE: bool>(
    sums: &mut [[[f32; 4]; G]; S],
    here: Stage<ONE>,
    sixteen: u32,
    mine: OfWeights,
    memory: Memory,
    has_unit: bool,
) {
    let (lane, weights) = (warp::lane_id(), memory.weights);
    let factors = here.factors(sixteen, lane);
    let mut i = mine.first();
    while i < mine.end() {
        let right = here.exponential(sixteen, i, lane);
        let mut weight = 0.0;
        each(4, |r| {
            let [head, tail] = [from_halves(right[0][r / 2]), from_halves(right[1][r / 2])];
            let e = if ONE { head[r % 2] } else { head[r % 2] + tail[r % 2] };
            weight = Real::fma(e, factors[r], weight);
        });
        weights.store(i * THREADS, weights.load(i * THREADS) + weight.to_f64());
        i += mine.step();
    }
    each(if has_unit { U } else { 0 }, |u| {
        let v = F::features(memory.lane(u), here, sixteen, factors);
        let operands: [LeftOperand; 2] = [left_down(v[0], v[1]), left_down(v[2], v[3])];
        each(G / 4, |four| {
            let right = here.exponentials::<4>(sixteen, 4 * four, lane);
            add_products::<ONE, 4, G>(sums, (2 * u, 4 * four), &operands, &right);
        });
        if G < 4 {
            let right = here.exponentials::<2>(sixteen, 0, lane);
            add_products::<ONE, 2, G>(sums, (2 * u, 0), &operands, &right);
        }
    });
}

/// Adds the `f32` sums of a run of stages to the partial result, or writes them to it.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn add_run<F: Features, const U: usize, const S: usize, const G: usize>(
    a: &Moments,
    of: Of,
    place: FeatureLayout,
    accumulate: bool,
    sums: &[[[f32; 4]; G]; S],
    memory: Memory,
) {
    // Recomputed, so that no register holds it throughout the loop.
    let share = BlockShare::new::<F, U, G>(a, device::unknown(a.d));
    let Some(BlockShare { units, lanes, piece, split, unit, turn }) = share else { return };
    let partials = partials_of(a, place, split, lanes, turn);
    let lane = warp::lane_id();
    each(U, |u| {
        let (steps, scales) = (F::steps(of, unit * U as u32 + u as u32), memory.lane(u).scales);
        each(2, |s| {
            if unit < units && steps[s] < a.steps {
                let at = (steps[s] * a.groups + piece * G as u32) as u64 * 128 + lane as u64;
                each(G, |i| {
                    each(4, |v| {
                        // Factors are powers of two: nothing is rounded.
                        let sum = sums[2 * u + s][i][v] * (1.0 / EXPONENTIAL) * back(scales[2 * s + v / 2]);
                        let sum = sum.to_f64();
                        // SAFETY: the index is within the partial result, and only this lane accesses it.
                        unsafe { add(partials, accumulate, at + (128 * i + 32 * v) as u64, sum) };
                    });
                });
            }
        });
    });
}

/// Writes the warp's Σ r.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn store_weights<const G: usize>(
    a: &Moments,
    place: FeatureLayout,
    share: &BlockShare,
    mine: OfWeights,
    weights: Shared<f64>,
) {
    let lane = warp::lane_id();
    let (accumulate, partials) = (a.accumulate != 0, partials_of(a, place, share.split, share.lanes, share.turn));
    // All lanes take part in the shuffles, so they are outside the condition.
    each(G, |i| {
        let mut w = weights.load(i as u32 * THREADS) / EXPONENTIAL.to_f64();
        w += warp::shuffle_xor(w, 1);
        w += warp::shuffle_xor(w, 2);
        if mine.has(i as u32) && lane.is_multiple_of(4) {
            let at = place.coefficients() + (8 * (share.piece * G as u32 + i as u32) + lane / 4) as u64;
            // SAFETY: `at` is within the partial result, and only this lane accesses it.
            unsafe { add(partials, accumulate, at, w) };
        }
    });
}

/// Writes the log-likelihood of the split's rows, if this warp has the first unit and the first piece.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn store_likelihood(a: &Moments, place: FeatureLayout, share: &BlockShare, halves: u32) {
    let lane = warp::lane_id();
    let splits = a.splits / share.lanes;
    let has_likelihood = share.unit == 0 && share.piece == 0;
    let mut log_likelihood = 0.0;
    if has_likelihood {
        // The lanes share this warp's sixteens.
        let mut half = share.split + lane * splits;
        while half < halves {
            let mut sixteen = share.turn;
            while sixteen < SIXTEENS {
                // SAFETY: `half < halves`, so these sixteen rows are in the chunk.
                log_likelihood += unsafe { device::load(a.likelihoods, (half * SIXTEENS + sixteen) as u64) };
                sixteen += share.lanes;
            }
            half += WARP * splits;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if has_likelihood && lane == 0 {
        let partials = partials_of(a, place, share.split, share.lanes, share.turn);
        // SAFETY: the position is within the partial result, and only this lane accesses it.
        unsafe { add(partials, a.accumulate != 0, place.log_likelihood(), log_likelihood) };
    }
}

/// Reciprocal of a power of two.
#[inline(always)]
pub(crate) fn back(scale: f32) -> f32 {
    f32::from_bits((254 << 23) - scale.to_bits())
}

/// Adds `v` to the element at `at`, or overwrites it if not `accumulate`.
#[inline(always)]
pub(crate) unsafe fn add(partials: *mut f64, accumulate: bool, at: u64, v: f64) {
    // SAFETY: the caller passes an index within the partial result, which no other thread accesses.
    unsafe {
        let before = if accumulate { device::load(partials.cast_const(), at) } else { 0.0 };
        device::store(partials, at, before + v);
    }
}
