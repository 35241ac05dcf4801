//! Sums of features times responsibilities over a chunk of rows, one partial result per split of the rows.
//!
//! A warp owns some tiles of the sums, sixteen features by eight components each, and processes its split's rows
//! sixteen at a time. Each feature of a lane is a product of two columns that are chosen before the loop. The sum over
//! rows may take them in any order, so each lane takes four adjacent rows of each column and loads them together.

use crate::device::{self, Prefetch, Shared, WARP, mma, thread, warp};
use crate::em::chunked::double_precision::down::{Columns, Down, Of, Products, Rows};
use crate::em::chunked::double_precision::share::{Memory, Share};
use crate::em::chunked::double_precision::{DoublePrecision, FEW, NARROW};
use crate::em::features::{Family, GROUP, each};
use crate::em::layout::FeatureLayout;
use crate::em::state::stopped;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `ceil(units*splits/4)` blocks, with [`DoublePrecision::units`].
    Moments<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const T,
        /// `(ceil(n/128)*128,)`: squared norms of the rows if they are a feature; else null.
        norms: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::em::features::derive).
        derive: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`], a multiple of the groups that a warp processes at a time.
        groups: u32,
        /// [`FeatureLayout::classes`], a multiple of 4.
        classes: u32,
        /// [`DoublePrecision::exponentials`] elements; 16-byte aligned.
        exponentials: *const T,
        /// [`DoublePrecision::factors`] elements; 16-byte aligned.
        factors: *const f64,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements.
        likelihoods: *const f64,
        /// Number of splits of the rows.
        splits: u32,
        /// Nonzero: add to the existing partial results.
        accumulate: u32,
        /// `(splits, FeatureLayout::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Products of entries: 96 features by 16 components per warp.
    full_few => chunked_f64_moments_full_few_f32, chunked_f64_moments_full_few_f64, body::<T, Products, 3, 6, 2>, shared_bytes::<T, 2>;
    /// Products of entries: 64 features by 32 components per warp.
    full_narrow => chunked_f64_moments_full_narrow_f32, chunked_f64_moments_full_narrow_f64, body::<T, Products, 2, 4, 4>, shared_bytes::<T, 4>;
    /// Products of entries: 32 features by 64 components per warp.
    full_wide => chunked_f64_moments_full_wide_f32, chunked_f64_moments_full_wide_f64, body::<T, Products, 1, 2, 8>, shared_bytes::<T, 8>;
    /// Columns: 32 features by 16 components per warp.
    linear_few => chunked_f64_moments_linear_few_f32, chunked_f64_moments_linear_few_f64, body::<T, Columns, 1, 2, 2>, shared_bytes::<T, 2>;
    /// Columns: 32 features by 32 components per warp.
    linear_narrow => chunked_f64_moments_linear_narrow_f32, chunked_f64_moments_linear_narrow_f64, body::<T, Columns, 1, 2, 4>, shared_bytes::<T, 4>;
    /// Columns: 32 features by 64 components per warp.
    linear_wide => chunked_f64_moments_linear_wide_f32, chunked_f64_moments_linear_wide_f64, body::<T, Columns, 1, 2, 8>, shared_bytes::<T, 8>;
}

/// Units of two steps per warp: more if components are few. Columns take one, since some chips have too few registers
/// for more.
const fn at_once(products: bool, groups: u32) -> u32 {
    match groups {
        FEW if products => 3,
        NARROW if products => 2,
        _ => 1,
    }
}

/// Offset of the prefetch slots for the next sixteen rows, after the units' choices and each thread's part of Σ r in
/// each group.
pub(crate) const fn ahead_at(groups: u32) -> u32 {
    THREADS * (at_once(true, groups) * 16 + 8 * groups)
}

/// Indices of prefetch slots: factors, exponentials, the columns that the units share, then each unit's own columns.
pub(crate) const fn exponentials_at<T: Real>(group: u32) -> u32 {
    2 + group * Prefetch::slots_of_four::<T>()
}

pub(crate) const fn columns_at<T: Real>(groups: u32, column: u32) -> u32 {
    exponentials_at::<T>(groups) + column * Prefetch::slots_of_four::<T>()
}

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len<T: Real>(groups: u32) -> u64 {
    let columns = Products::SHARED + at_once(true, groups) * Products::OWN;
    (ahead_at(groups) + Prefetch::bytes(columns_at::<T>(groups, columns))) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(_: &Moments<T>) -> u64 {
    shared_len::<T>(G as u32)
}

/// Number of units of two steps in the sums of a piece.
pub(crate) const fn twos(family: Family, place: FeatureLayout, d: u32) -> u32 {
    match family {
        Family::Linear | Family::Squares => place.steps.div_ceil(2),
        Family::Full | Family::FullAndOne => d.div_ceil(16) * partners(place.classes, d),
    }
}

/// Number of partners `m` of an entry in rows of `d` entries: 0 to `ceil(d/4)`, and `classes`, which is the factor 1.
pub(crate) const fn partners(classes: u32, d: u32) -> u32 {
    let used = d.div_ceil(4);
    if used < classes { used + 2 } else { classes + 1 }
}

/// Number of bundles of `each` units; a warp takes one. For products, the units of a bundle have their four entries in
/// common.
pub(crate) const fn bundles(family: Family, place: FeatureLayout, d: u32, each: u32) -> u32 {
    match family {
        Family::Linear | Family::Squares => twos(family, place, d).div_ceil(each),
        Family::Full | Family::FullAndOne => d.div_ceil(16) * partners(place.classes, d).div_ceil(each),
    }
}

/// Number of warps that share the sums of a split's rows.
pub(crate) const fn units(of: DoublePrecision, d: u32) -> u32 {
    let products = matches!(of.family, Family::Full | Family::FullAndOne);
    bundles(of.family, of.place, d, at_once(products, of.at_once)) * of.pieces()
}

#[inline(always)]
pub(crate) fn layout<T: Real>(a: &Moments<T>) -> FeatureLayout {
    FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes }
}

/// Body of the kernel: `U` units of two steps, `S` steps, by `G` groups of components.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn body<T: Real, F: Down, const U: usize, const S: usize, const G: usize>(a: Moments<T>) {
    const { assert!(S == 2 * U && U as u32 == at_once(F::SHARED > 0, G as u32)) };
    // SAFETY: `state` is null or a loop's state, as `Moments` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let Some(share) = Share::of_warp::<T, F, U, G>(&a, a.d, thread::thread_idx_x()) else { return };
    let of = Of { d: a.d, derive: a.derive, steps: a.steps, classes: a.classes };
    let memory = Memory::<T>::of_lane(G as u32, a.d);
    each(U, |u| {
        let choice = F::choose(of, F::of_bundle(of, share.unit, u as u32, U as u32), share.lane);
        memory.choices.store4(4 * THREADS * u as u32, choice.map(f32::from_bits));
    });
    let mut sums = [[[0.0; 4]; G]; S];
    each(G, |i| memory.weights.store(i as u32 * THREADS, 0.0));

    // No device holds enough rows to exceed 32 bits here.
    let sixteens = a.n.div_ceil(GROUP as u64) as u32;
    let mut sixteen = share.split;
    let mut next = share.rows(&a, G as u32, sixteen);
    if sixteen < sixteens {
        // SAFETY: `sixteen < sixteens`, and the buffers have the lengths that `Moments` documents.
        unsafe {
            memory.ahead.send(0, next.factors);
            F::send_shared(memory.choice(0), next, memory.slots(0));
            each(U, |u| F::send(memory.choice(u), next, memory.own_slots::<F>(u)));
            each(G, |i| memory.send_exponentials(next, i));
        }
    }
    while sixteen < sixteens {
        let norm = next.norm;
        sixteen += a.splits;
        let more = sixteen < sixteens;
        next = share.rows(&a, G as u32, sixteen);
        // SAFETY: `next` exists if `more`; the buffers have the lengths that `Moments` documents.
        unsafe { add_rows::<T, F, U, S, G>(&mut sums, share.with_weights(), memory, norm, more, next) };
    }
    // Recomputed, so that no register holds it throughout the loop.
    let share = Share::of_warp::<T, F, U, G>(&a, device::unknown(a.d), thread::thread_idx_x_anew());
    let Some(share) = share else { return };
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Moments` documents.
    unsafe { store::<T, F, U, S, G>(&a, of, share, &sums, memory.weights) };
}

/// Adds the sixteen rows that arrived to the sums. Each slot is refilled for the next rows as soon as it has been used,
/// if there are `more`.
///
/// # Safety
/// If `more`, `next` are rows of the chunk; `norm` is as [`Moments::norms`] documents.
#[inline(always)]
unsafe fn add_rows<T: Real, F: Down, const U: usize, const S: usize, const G: usize>(
    sums: &mut [[[f64; 4]; G]; S],
    with_weights: bool,
    memory: Memory<T>,
    norm: *const f64,
    more: bool,
    next: Rows<T, f64>,
) {
    let (ahead, weights) = (memory.ahead, memory.weights);
    ahead.arrive();
    // SAFETY: `next` is in the chunk if `more`, as `# Safety` requires.
    unsafe {
        let factor = ahead.four::<f64>(0);
        if more {
            ahead.send(0, next.factors);
        }
        // Exponentials of one group; once, in the first unit, also adds them to Σ r.
        let exponentials = |i: usize, first: bool| {
            let e = ahead.four::<T>(exponentials_at::<T>(i as u32));
            let mut right = [0.0; 4];
            each(4, |r| right[r] = e[r].to_f64());
            if with_weights && first {
                let at = i as u32 * THREADS;
                let mut weight = weights.load(at);
                each(4, |r| weight = Real::fma(right[r], factor[r], weight));
                weights.store(at, weight);
            }
            right
        };
        let send_exponentials = |i: usize| {
            if more {
                memory.send_exponentials(next, i);
            }
        };
        // With few groups, responsibilities and shared columns are kept in registers for all units. Otherwise they are
        // loaded for each unit, and the features are multiplied by the factor.
        let kept = G == FEW as usize;
        let mut rights = [[0.0; 4]; G];
        if kept {
            each(G, |i| {
                rights[i] = exponentials(i, true);
                send_exponentials(i);
                each(4, |r| rights[i][r] *= factor[r]);
            });
        }
        let mut shared = [[0.0; 4]; 4];
        if kept {
            let choice = memory.choice(0);
            each(4, |i| shared[i] = F::shared::<T, f64>(choice, memory.slots(0), i as u32));
        }
        each(U, |u| {
            let choice = memory.choice(u);
            let slots = memory.own_slots::<F>(u);
            let column = |i: u32| if kept { shared[i as usize] } else { F::shared(choice, memory.slots(0), i) };
            let mut left = F::operands::<T, f64>(choice, column, slots, norm);
            if more {
                F::send(choice, next, slots);
                if u + 1 == U {
                    F::send_shared(choice, next, memory.slots(0));
                }
            }
            if !kept {
                each(2, |s| each(8, |v| left[s][v] *= factor[v / 2]));
            }
            each(G, |i| {
                let right = if kept { rights[i] } else { exponentials(i, u == 0) };
                each(2, |s| mma::f64_16x8x16(&mut sums[2 * u + s][i], left[s], right));
                if !kept && u + 1 == U {
                    send_exponentials(i);
                }
            });
        });
    }
}

/// Writes a warp's sums, Σ r if the warp has it, and, from the warp of the first unit and piece, the log-likelihood of
/// the split's rows.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Moments`] document.
#[inline(always)]
unsafe fn store<T: Real, F: Down, const U: usize, const S: usize, const G: usize>(
    a: &Moments<T>,
    of: Of,
    share: Share,
    sums: &[[[f64; 4]; G]; S],
    weights: Shared<f64>,
) {
    let Share { unit, piece, split, lane, .. } = share;
    let place = layout(a);
    let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
    let add = |at: u64, v: f64| {
        // SAFETY: `at` is below the length of the split's sums, and only this lane accesses it.
        unsafe {
            let before = if a.accumulate != 0 { device::load(partials.cast_const(), at) } else { 0.0 };
            device::store(partials, at, before + v);
        }
    };
    each(U, |u| {
        let steps = F::steps(of, F::of_bundle(of, unit, u as u32, U as u32));
        each(2, |s| {
            if steps[s] < a.steps {
                let at = (steps[s] * a.groups + piece * G as u32) as u64 * 128 + lane as u64;
                each(G, |i| each(4, |v| add(at + (128 * i + 32 * v) as u64, sums[2 * u + s][i][v])));
            }
        });
    });
    // All lanes take part in the shuffles, so they are outside the condition.
    each(G, |i| {
        let mut w = weights.load(i as u32 * THREADS);
        w += warp::shuffle_xor(w, 1);
        w += warp::shuffle_xor(w, 2);
        if share.with_weights() && lane % 4 == 0 {
            add(place.coefficients() + (8 * (piece * G as u32 + i as u32) + lane / 4) as u64, w);
        }
    });
    let first = share.with_weights() && piece == 0;
    let mut log_likelihood = 0.0;
    if first {
        let sixteens = a.n.div_ceil(GROUP as u64) as u32;
        let mut sixteen = split + lane * a.splits;
        while sixteen < sixteens {
            // SAFETY: `sixteen < sixteens`.
            log_likelihood += unsafe { device::load(a.likelihoods, sixteen as u64) };
            sixteen += WARP * a.splits;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if first && lane == 0 {
        add(place.log_likelihood(), log_likelihood);
    }
}
