//! Sums of features times responsibilities over a chunk of rows, one partial result for each split of them.
//!
//! As in [`large`](mod@crate::em::chunked::double_precision::moments) a warp owns some tiles of the sums; here the warps of a block share what
//! they read of the rows (`staged`), and each forms its own features of them.

use crate::device::mma::from_halves;
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::em::chunked::double_precision::down::{Columns, Of, Products};
use crate::em::chunked::double_precision::{self, Large};
use crate::em::chunked::half_precision::operand::{EXPONENTIAL, Left, add_products, left_down};
use crate::em::chunked::half_precision::staged::{Features, Lane, SIXTEENS, Stage};
use crate::em::features::Family;
use crate::em::features::derive;
use crate::em::features::each;
use crate::em::layout::Place;
use crate::em::state::stopped;
use crate::layout::tiles;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `blocks*splits/lanes` blocks, with
    /// [`blocks`](crate::em::chunked::half_precision::Halves::blocks_of_split) and [`lanes`](crate::em::chunked::half_precision::Halves::lanes).
    Moments {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms of the rows, where they are a feature; else null.
        norms: *const f32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`mod@derive`].
        derive: u32,
        /// [`Place::steps`].
        steps: u32,
        /// [`Place::groups`], a multiple of the groups that a warp takes.
        groups: u32,
        /// [`Place::classes`], a multiple of 4.
        classes: u32,
        /// `(d+1,)`: of columns and norms; powers of two.
        scales: *const f32,
        /// [`exponentials`](crate::em::chunked::half_precision::Halves::exponentials); 16-byte aligned.
        exponentials: *const u32,
        /// [`Large::factors`](crate::em::chunked::half_precision::Large::factors); 16-byte aligned.
        factors: *const f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods).
        likelihoods: *const f64,
        /// Partial results: a multiple of [`lanes`](crate::em::chunked::half_precision::Halves::lanes).
        splits: u32,
        /// Not 0: add to what is there.
        accumulate: u32,
        /// `(splits, Place::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Products of entries, 64 by 16.
    halves_moments_full_few => body::<Products, 2, 4, 2, false>, shared_bytes::<Products, 2, false>;
    /// Products of entries, 64 by 32.
    halves_moments_full_narrow => body::<Products, 2, 4, 4, false>, shared_bytes::<Products, 4, false>;
    /// The same for more than 64 columns, whose stages leave room for fewer blocks, and so more registers.
    halves_moments_full_deep => body::<Products, 2, 4, 4, false>, shared_bytes::<Products, 4, false>;
    /// Products of entries, 32 by 64.
    halves_moments_full_wide => body::<Products, 1, 2, 8, false>, shared_bytes::<Products, 8, false>;
    /// Columns, 32 by 16.
    halves_moments_linear_few => body::<Columns, 1, 2, 2, false>, shared_bytes::<Columns, 2, false>;
    /// Columns, 32 by 32.
    halves_moments_linear_narrow => body::<Columns, 1, 2, 4, false>, shared_bytes::<Columns, 4, false>;
    /// Columns, 32 by 64.
    halves_moments_linear_wide => body::<Columns, 1, 2, 8, false>, shared_bytes::<Columns, 8, false>;
    /// Of heads alone: products of entries, 64 by 32.
    heads_moments_full_narrow => body::<Products, 2, 4, 4, true>, shared_bytes::<Products, 4, true>;
    /// Of heads alone: products of entries, 64 by 64.
    heads_moments_full_wide => body::<Products, 2, 4, 8, true>, shared_bytes::<Products, 8, true>;
    /// Of heads alone: columns, 32 by 32.
    heads_moments_linear_narrow => body::<Columns, 1, 2, 4, true>, shared_bytes::<Columns, 4, true>;
    /// Of heads alone: columns, 32 by 64.
    heads_moments_linear_wide => body::<Columns, 1, 2, 8, true>, shared_bytes::<Columns, 8, true>;
}

/// Units of two steps that a warp takes: as many as it has registers for.
const fn per_warp(family: Family, groups: u32, one: bool) -> u32 {
    let products = matches!(family, Family::Full | Family::FullAndOne);
    if products && (one || groups != double_precision::WIDE) { 2 } else { 1 }
}

/// Stages that are summed in `f32`.
const RUN: u32 = 128;

/// Units of a block: as many as there are, up to its warps; those that are left over take every second, or third and
/// fourth, sixteen rows.
const fn units_of_block(units: u32) -> u32 {
    match units {
        1 => 1,
        2 => 2,
        _ => WARPS,
    }
}

const WARPS: u32 = THREADS / WARP;

/// Units that a piece has, as warps take them.
const fn units(of: Large, d: u32, one: bool) -> u32 {
    double_precision::moments::twos(of.family, of.place, d).div_ceil(per_warp(of.family, of.at_once, one))
}

/// Partial results of a block.
pub(crate) const fn lanes(of: Large, d: u32, one: bool) -> u32 {
    WARPS / units_of_block(units(of, d, one))
}

/// Blocks that share the sums of a split's rows.
pub(crate) const fn blocks(of: Large, d: u32, one: bool) -> u32 {
    let units = units(of, d, one);
    units.div_ceil(units_of_block(units)) * of.pieces()
}

/// Where stages start: after each thread's part of Σ r in each group, and what lanes know of their units. Two blocks have
/// room on a Hopper for 128 columns.
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

/// The kernel: `U` units of two steps, `S` steps, by `G` groups of components; with `ONE` of heads alone.
///
/// # Safety
/// As the fields of [`Moments`] say.
#[inline(always)]
unsafe fn body<F: Features, const U: usize, const S: usize, const G: usize, const ONE: bool>(a: Moments) {
    const { assert!(S == 2 * U && U as u32 == per_warp(F::FAMILY, G as u32, ONE)) };
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let lane = warp::lane_id();
    let Some(BlockShare { units, lanes, piece, split, unit, turn }) = BlockShare::new::<F, U, G>(&a, a.d) else {
        return;
    };
    let partials = |split: u32, lanes: u32, turn: u32| {
        a.partials.wrapping_add(((split * lanes + turn) as u64 * place.sums()) as usize)
    };
    let of = Of { d: a.d, derive: a.derive, steps: a.steps, classes: a.classes };
    let mine = OfWeights::new(units, unit, G as u32);

    // What a lane knows of its features waits in shared memory: there are not registers for it too.
    let aside = |which: usize| {
        let at = 8 * G as u32 * THREADS + (which as u32 * THREADS + thread::thread_idx_x()) * 16;
        Shared::<f32>::at(at)
    };
    let lane_of = |u: usize| Lane::unpack(aside(2 * u).load4(0).map(f32::to_bits), aside(2 * u + 1).load4(0));
    each(U, |u| {
        let choice = F::choose(of, unit * U as u32 + u as u32, lane);
        let mut scales = [1.0; 4];
        each(4, |i| {
            // SAFETY: a column, or `d`.
            let one = |j: u32| if j <= a.d { unsafe { device::load(a.scales, j as u64) } } else { 1.0 };
            let [j, k] = F::columns(of, choice, i);
            scales[i] = one(j) * one(k);
        });
        aside(2 * u).store4(0, F::lane(of, choice, lane).map(f32::from_bits));
        aside(2 * u + 1).store4(0, scales);
    });
    let weights = Shared::<f64>::at(thread::thread_idx_x() * 8);
    each(G, |i| weights.store(i as u32 * THREADS, 0.0));
    let first = stages_at(G as u32, U as u32);
    let stage = |odd: u32| Stage::<ONE>::at(first + odd * Stage::<ONE>::bytes(G as u32, a.d), G as u32, a.d);
    each(2, |odd| stage(odd as u32).fill(a.derive == derive::NORM));

    // Halves of tiles; those past the last row are filled up, with factors of 0.
    let halves = 2 * tiles(a.n) as u32;
    let splits = a.splits / lanes;
    let mut half = split;
    let mut odd = 0;
    if half < halves {
        // SAFETY: half of a tile of the chunk's, here and below.
        unsafe { stage(odd).send(&a, half, piece) };
    }
    // A split without rows leaves zeros.
    let mut accumulate = a.accumulate != 0;
    let mut again = true;
    while again {
        let mut sums = [[[0.0_f32; 4]; G]; S];
        let mut left_in_run = RUN;
        while left_in_run > 0 && half < halves {
            left_in_run -= 1;
            copies::arrive();
            // What each thread waited for is there for all, and the other stage is read by none any more.
            thread::sync_threads();
            half += splits;
            if half < halves {
                // SAFETY: as above.
                unsafe { stage(1 - odd).send(&a, half, piece) };
            }
            let here = stage(odd);
            odd = 1 - odd;
            let mut sixteen = turn;
            while sixteen < SIXTEENS && (unit < units || mine.first() < G as u32) {
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
                each(if unit < units { U } else { 0 }, |u| {
                    let v = F::features(lane_of(u), here, sixteen, factors);
                    let operands: [Left; 2] = [left_down(v[0], v[1]), left_down(v[2], v[3])];
                    each(G / 4, |four| {
                        let right = here.exponentials::<4>(sixteen, 4 * four, lane);
                        add_products::<ONE, 4, G>(&mut sums, (2 * u, 4 * four), &operands, &right);
                    });
                    if G < 4 {
                        let right = here.exponentials::<2>(sixteen, 0, lane);
                        add_products::<ONE, 2, G>(&mut sums, (2 * u, 0), &operands, &right);
                    }
                });
                sixteen += lanes;
            }
        }
        // Found anew, so that no register holds it throughout the loop.
        let Some(BlockShare { units, lanes, piece, split, unit, turn }) =
            BlockShare::new::<F, U, G>(&a, device::unknown(a.d))
        else {
            return;
        };
        let partials = partials(split, lanes, turn);
        each(U, |u| {
            let (steps, scales) = (F::steps(of, unit * U as u32 + u as u32), lane_of(u).scales);
            each(2, |s| {
                if unit < units && steps[s] < a.steps {
                    let at = (steps[s] * a.groups + piece * G as u32) as u64 * 128 + lane as u64;
                    each(G, |i| {
                        each(4, |v| {
                            // Powers of two: nothing is rounded.
                            let sum = sums[2 * u + s][i][v] * (1.0 / EXPONENTIAL) * back(scales[2 * s + v / 2]);
                            let sum = sum.to_f64();
                            // SAFETY: a place within the partial result, which this lane alone has.
                            unsafe { add(partials, accumulate, at + (128 * i + 32 * v) as u64, sum) };
                        });
                    });
                }
            });
        });
        accumulate = true;
        again = half < halves;
    }
    let (accumulate, partials) = (a.accumulate != 0, partials(split, lanes, turn));
    // Shuffles are for all lanes, so they stand outside.
    each(G, |i| {
        let mut w = weights.load(i as u32 * THREADS) / EXPONENTIAL.to_f64();
        w += warp::shuffle_xor(w, 1);
        w += warp::shuffle_xor(w, 2);
        if mine.has(i as u32) && lane.is_multiple_of(4) {
            let at = place.coefficients() + (8 * (piece * G as u32 + i as u32) + lane / 4) as u64;
            // SAFETY: as above.
            unsafe { add(partials, accumulate, at, w) };
        }
    });
    let has_likelihood = unit == 0 && piece == 0;
    let mut log_likelihood = 0.0;
    if has_likelihood {
        // Lane by lane, the sixteens of this warp's.
        let mut half = split + lane * splits;
        while half < halves {
            let mut sixteen = turn;
            while sixteen < SIXTEENS {
                // SAFETY: one of the chunk's.
                log_likelihood += unsafe { device::load(a.likelihoods, (half * SIXTEENS + sixteen) as u64) };
                sixteen += lanes;
            }
            half += WARP * splits;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if has_likelihood && lane == 0 {
        // SAFETY: as above.
        unsafe { add(partials, accumulate, place.log_likelihood(), log_likelihood) };
    }
}

/// What a warp of a block has to do.
struct BlockShare {
    /// Of a piece.
    units: u32,
    /// Partial results of a block, whose warps take a sixteen in turns.
    lanes: u32,
    /// Of the components.
    piece: u32,
    /// Of the rows.
    split: u32,
    /// This warp's unit, which may be past the last, and which of the sixteens it takes.
    unit: u32,
    turn: u32,
}

impl BlockShare {
    /// None where there is nothing to do: it says so to the compiler, which else would guard divisions.
    #[inline(always)]
    fn new<F: Features, const U: usize, const G: usize>(a: &Moments, d: u32) -> Option<Self> {
        let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
        let units = double_precision::moments::twos(F::FAMILY, place, d).div_ceil(U as u32);
        let at_once = units_of_block(units);
        // Powers of two.
        let (lanes, shift) = (WARPS / at_once, at_once.trailing_zeros());
        let (pieces, parts) = (a.groups / G as u32, (units + at_once - 1) >> shift);
        if parts == 0 || pieces == 0 {
            return None;
        }
        let (at, me) = (thread::block_idx_x(), thread::thread_idx_x_anew() / WARP);
        let (part, rest) = (at % parts, at / parts);
        let (piece, split) = (rest % pieces, rest / pieces);
        Some(Self { units, lanes, piece, split, unit: (part << shift) + (me & (at_once - 1)), turn: me >> shift })
    }
}

/// The groups of components of which a warp adds up Σ r: every `step`th from `first` up to `end`, in a byte each, since
/// registers are few.
#[derive(Clone, Copy)]
struct OfWeights(u32);

impl OfWeights {
    /// Warps without a unit share them. If there are none, a warp has the group with its unit's number, and the last unit's
    /// all from there on.
    #[inline(always)]
    fn new(units: u32, unit: u32, groups: u32) -> Self {
        let idle = units.next_multiple_of(units_of_block(units)) - units;
        let (first, end, step) = match (idle > 0, unit < units) {
            (true, false) => (unit - units, groups, idle),
            (true, true) => (groups, groups, 1),
            (false, _) => (unit, if unit + 1 == units { groups } else { unit + 1 }, 1),
        };
        Self(first.min(groups) | end.min(groups) << 8 | step << 16)
    }

    #[inline(always)]
    fn first(self) -> u32 {
        self.0 & 0xff
    }

    #[inline(always)]
    fn end(self) -> u32 {
        self.0 >> 8 & 0xff
    }

    #[inline(always)]
    fn step(self) -> u32 {
        self.0 >> 16
    }

    #[inline(always)]
    fn has(self, group: u32) -> bool {
        group >= self.first() && group < self.end() && (group - self.first()).is_multiple_of(self.step())
    }
}

/// One over a power of two.
#[inline(always)]
pub(crate) fn back(scale: f32) -> f32 {
    f32::from_bits((254 << 23) - scale.to_bits())
}

/// Adds to what is there, or to nothing.
#[inline(always)]
pub(crate) unsafe fn add(partials: *mut f64, accumulate: bool, at: u64, v: f64) {
    // SAFETY: the caller's promise.
    unsafe {
        let before = if accumulate { device::load(partials.cast_const(), at) } else { 0.0 };
        device::store(partials, at, before + v);
    }
}
