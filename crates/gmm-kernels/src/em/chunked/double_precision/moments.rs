//! Sums of features times responsibilities over a chunk of rows, one partial result for each split of them.
//!
//! A warp owns some tiles of the sums, sixteen features by eight components each, for its split's rows, sixteen at a
//! time. A lane's feature is a product of two columns that it knows before it begins. The contraction may take rows in
//! any order, so that a lane has four neighbours of each column and reads them together.

use crate::device::{self, Ahead, Shared, WARP, mma, thread, warp};
use crate::em::chunked::double_precision::Large;
use crate::em::chunked::double_precision::down::{Columns, Down, Of, Products, Rows, Slots};
use crate::em::features::Family;
use crate::em::features::{GROUP, each};
use crate::em::layout::Place;
use crate::em::state::stopped;
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `ceil(units*splits/4)` blocks, with [`Large::units`](crate::em::chunked::double_precision::Large::units).
    Moments<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const T,
        /// `(ceil(n/128)*128,)`: squared norms of the rows, where they are a feature; else null.
        norms: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::em::features::derive).
        derive: u32,
        /// [`Place::steps`].
        steps: u32,
        /// [`Place::groups`], a multiple of the groups that a warp takes.
        groups: u32,
        /// [`Place::classes`], a multiple of 4.
        classes: u32,
        /// [`Large::exponentials`](crate::em::chunked::double_precision::Large::exponentials); 16-byte aligned.
        exponentials: *const T,
        /// [`Large::factors`](crate::em::chunked::double_precision::Large::factors); 16-byte aligned.
        factors: *const f64,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods).
        likelihoods: *const f64,
        /// Parts into which the rows are split.
        splits: u32,
        /// Not 0: add to what is there.
        accumulate: u32,
        /// `(splits, Place::sums)`, written or added to.
        partials: *mut f64,
    }
    /// Products of entries, 96 by 16.
    full_few => moments_full_few_f32, moments_full_few_f64, body::<T, Products, 3, 6, 2>, shared_bytes::<T, 2>;
    /// Products of entries, 64 by 32.
    full_narrow => moments_full_narrow_f32, moments_full_narrow_f64, body::<T, Products, 2, 4, 4>, shared_bytes::<T, 4>;
    /// Products of entries, 32 by 64.
    full_wide => moments_full_wide_f32, moments_full_wide_f64, body::<T, Products, 1, 2, 8>, shared_bytes::<T, 8>;
    /// Columns, 32 by 16.
    linear_few => moments_linear_few_f32, moments_linear_few_f64, body::<T, Columns, 1, 2, 2>, shared_bytes::<T, 2>;
    /// Columns, 32 by 32.
    linear_narrow => moments_linear_narrow_f32, moments_linear_narrow_f64, body::<T, Columns, 1, 2, 4>, shared_bytes::<T, 4>;
    /// Columns, 32 by 64.
    linear_wide => moments_linear_wide_f32, moments_linear_wide_f64, body::<T, Columns, 1, 2, 8>, shared_bytes::<T, 8>;
}

/// Units of two steps that a warp takes: more where components are few; for columns there are too few registers on some chips.
const fn at_once(products: bool, groups: u32) -> u32 {
    match groups {
        crate::em::chunked::double_precision::FEW if products => 3,
        crate::em::chunked::double_precision::NARROW if products => 2,
        _ => 1,
    }
}

/// Where what the next sixteen rows need arrives, after the choices of the units and each thread's part of Σ r in each group.
const fn ahead_at(groups: u32) -> u32 {
    THREADS * (at_once(true, groups) * 16 + 8 * groups)
}

/// Slots of what arrives: factors, exponentials, and columns: those that the units share, then each one's own.
const fn exponentials_at<T: Real>(group: u32) -> u32 {
    2 + group * Ahead::slots_of_four::<T>()
}

const fn columns_at<T: Real>(groups: u32, column: u32) -> u32 {
    exponentials_at::<T>(groups) + column * Ahead::slots_of_four::<T>()
}

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len<T: Real>(groups: u32) -> u64 {
    let columns = Products::SHARED + at_once(true, groups) * Products::OWN;
    (ahead_at(groups) + Ahead::bytes(columns_at::<T>(groups, columns))) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(_: &Moments<T>) -> u64 {
    shared_len::<T>(G as u32)
}

/// Units of two steps that the sums of a piece have.
pub(crate) const fn twos(family: Family, place: Place, d: u32) -> u32 {
    match family {
        Family::Linear | Family::Squares => place.steps.div_ceil(2),
        Family::Full | Family::FullAndOne => d.div_ceil(16) * partners(place.classes, d),
    }
}

/// Partners of an entry that rows of `d` entries have: those before the last there is, and 1.
pub(crate) const fn partners(classes: u32, d: u32) -> u32 {
    let used = d.div_ceil(4);
    if used < classes { used + 2 } else { classes + 1 }
}

/// Bundles of `each` units, of which a warp takes one: of products those that have their four entries in common.
const fn bundles(family: Family, place: Place, d: u32, each: u32) -> u32 {
    match family {
        Family::Linear | Family::Squares => twos(family, place, d).div_ceil(each),
        Family::Full | Family::FullAndOne => d.div_ceil(16) * partners(place.classes, d).div_ceil(each),
    }
}

/// Warps that share the sums of a split's rows.
pub(crate) const fn units(of: Large, d: u32) -> u32 {
    let products = matches!(of.family, Family::Full | Family::FullAndOne);
    bundles(of.family, of.place, d, at_once(products, of.at_once)) * of.pieces()
}

/// The kernel: `U` units of two steps, `S` steps, by `G` groups of components.
///
/// # Safety
/// As the fields of [`Moments`] say.
#[inline(always)]
unsafe fn body<T: Real, F: Down, const U: usize, const S: usize, const G: usize>(a: Moments<T>) {
    const { assert!(S == 2 * U && U as u32 == at_once(F::SHARED > 0, G as u32)) };
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let units = bundles(F::FAMILY, place, a.d, U as u32);
    let pieces = a.groups / G as u32;
    let at = thread::block_idx_x() * (THREADS / WARP) + me;
    // There are units: it says so to the compiler, which else would guard the division.
    if units == 0 || pieces == 0 || at >= units * pieces * a.splits {
        return;
    }
    let (unit, rest) = (at % units, at / units);
    let (piece, split) = (rest % pieces, rest / pieces);
    let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
    let with_weights = unit == 0;
    let of = Of { d: a.d, derive: a.derive, steps: a.steps, classes: a.classes };

    let choices = Shared::<f32>::at(G as u32 * THREADS * 8 + thread::thread_idx_x() * 16);
    let choice_of = |u: usize| choices.load4(4 * THREADS * u as u32).map(f32::to_bits);
    each(U, |u| {
        let choice = F::choose(of, F::of_bundle(of, unit, u as u32, U as u32), lane);
        choices.store4(4 * THREADS * u as u32, choice.map(f32::from_bits));
    });
    let mut sums = [[[0.0; 4]; G]; S];
    let weights = Shared::<f64>::at(thread::thread_idx_x() * 8);
    each(G, |i| weights.store(i as u32 * THREADS, 0.0));

    let ahead = Ahead::at(ahead_at(G as u32));
    let slots_at = |column: u32| Slots::<T> {
        ahead,
        first: columns_at::<T>(G as u32, column),
        d: a.d,
        of: core::marker::PhantomData,
    };
    let (shared_slots, slots) = (slots_at(0), |u: usize| slots_at(F::SHARED + u as u32 * F::OWN));
    let rows = |sixteen: u32| {
        let (tile, inside) = ((sixteen / 8) as u64, (sixteen % 8 * GROUP + lane % 4 * 4) as u64);
        Rows {
            x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + inside) as usize),
            norm: a.norms.wrapping_add((tile * TILE_ROWS as u64 + inside) as usize),
            factors: a
                .factors
                .wrapping_add(((tile * pieces as u64 + piece as u64) * TILE_ROWS as u64 + inside) as usize),
            exponentials: a.exponentials.wrapping_add(
                ((sixteen as u64 * a.groups as u64 + (piece * G as u32) as u64) * 128 + (lane * 4) as u64) as usize,
            ),
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
            F::send_shared(choice_of(0), next, shared_slots);
            each(U, |u| F::send(choice_of(u), next, slots(u)));
            each(G, |i| ahead.send(exponentials_at::<T>(i as u32), next.exponentials.wrapping_add(128 * i)));
        }
    }
    while sixteen < sixteens {
        let norm = next.norm;
        sixteen += a.splits;
        let more = sixteen < sixteens;
        next = rows(sixteen);
        // What arrived is used, and at once sent for again, for the rows that come next.
        ahead.arrive();
        // SAFETY: as above, for `next` where there is more.
        unsafe {
            let factor = ahead.four::<f64>(0);
            if more {
                ahead.send(0, next.factors);
            }
            // Of one group: exponentials, and once for all units what they add to the weights.
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
                    ahead.send(exponentials_at::<T>(i as u32), next.exponentials.wrapping_add(128 * i));
                }
            };
            // Few groups' responsibilities and the shared columns have room for all units; else they are read for each, and the
            // features get the factor.
            let kept = G == crate::em::chunked::double_precision::FEW as usize;
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
                let choice = choice_of(0);
                each(4, |i| shared[i] = F::shared::<T, f64>(choice, shared_slots, i as u32));
            }
            each(U, |u| {
                let choice = choice_of(u);
                let column = |i: u32| if kept { shared[i as usize] } else { F::shared(choice, shared_slots, i) };
                let mut left = F::operands::<T, f64>(choice, column, slots(u), norm);
                if more {
                    F::send(choice, next, slots(u));
                    if u + 1 == U {
                        F::send_shared(choice, next, shared_slots);
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

    let add = |at: u64, v: f64| {
        // SAFETY: a place within the split's sums, which this lane alone has.
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
    // Shuffles are for all lanes, so they stand outside.
    each(G, |i| {
        let mut w = weights.load(i as u32 * THREADS);
        w += warp::shuffle_xor(w, 1);
        w += warp::shuffle_xor(w, 2);
        if with_weights && lane % 4 == 0 {
            add(place.coefficients() + (8 * (piece * G as u32 + i as u32) + lane / 4) as u64, w);
        }
    });
    let mut log_likelihood = 0.0;
    if with_weights && piece == 0 {
        let mut sixteen = split + lane * a.splits;
        while sixteen < sixteens {
            // SAFETY: a group of the chunk's rows.
            log_likelihood += unsafe { device::load(a.likelihoods, sixteen as u64) };
            sixteen += WARP * a.splits;
        }
    }
    each(5, |i| log_likelihood += warp::shuffle_xor(log_likelihood, 1 << i));
    if with_weights && piece == 0 && lane == 0 {
        add(place.log_likelihood(), log_likelihood);
    }
}
