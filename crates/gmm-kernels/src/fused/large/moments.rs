//! Sums of features times responsibilities over a chunk of rows, one partial result for each split of them.
//!
//! A warp owns some tiles of the sums, sixteen features by eight components each, for its split's rows, sixteen at a
//! time. A lane's feature is a product of two columns that it knows before it begins. The contraction may take rows in
//! any order, so that a lane has four neighbours of each column and reads them together.

use super::super::Family;
use super::super::features::{GROUP, each};
use super::super::pass::derive;
use super::super::place::Place;
use super::super::state::stopped;
use super::Large;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

kernels! {
    /// The grid is `ceil(units*splits/4)` blocks, with [`Large::units`](super::Large::units).
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
        /// One of [`derive`].
        derive: u32,
        /// [`Place::steps`].
        steps: u32,
        /// [`Place::groups`], a multiple of the groups that a warp takes.
        groups: u32,
        /// [`Place::classes`], a multiple of 4.
        classes: u32,
        /// [`Large::exponentials`](super::Large::exponentials); 16-byte aligned.
        exponentials: *const T,
        /// [`Large::factors`](super::Large::factors); 16-byte aligned.
        factors: *const f64,
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
    full_narrow => moments_full_narrow_f32, moments_full_narrow_f64, body::<T, Products, 2, 4, 4>, shared_bytes::<T, 4>;
    /// Products of entries, 32 by 64.
    full_wide => moments_full_wide_f32, moments_full_wide_f64, body::<T, Products, 1, 2, 8>, shared_bytes::<T, 8>;
    /// Columns, 64 by 32.
    linear_narrow => moments_linear_narrow_f32, moments_linear_narrow_f64, body::<T, Columns, 2, 4, 4>, shared_bytes::<T, 4>;
    /// Columns, 32 by 64.
    linear_wide => moments_linear_wide_f32, moments_linear_wide_f64, body::<T, Columns, 1, 2, 8>, shared_bytes::<T, 8>;
}

/// Shared memory: each thread keeps its part of Σ r of a component in each group, and of the likelihood, which registers have no room for.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn shared_len(groups: u32) -> u64 {
    ((groups + 1) * THREADS * 8) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(_: &Moments<T>) -> u64 {
    shared_len(G as u32)
}

/// Units of two steps that the sums of a piece have.
const fn twos(family: Family, place: Place, d: u32) -> u32 {
    match family {
        Family::Linear | Family::Squares => place.steps.div_ceil(2),
        Family::Full | Family::FullAndOne => d.div_ceil(16) * partners(place.classes, d),
    }
}

/// Partners of an entry that rows of `d` entries have: those before the last there is, and 1.
const fn partners(classes: u32, d: u32) -> u32 {
    let used = d.div_ceil(4);
    if used < classes { used + 2 } else { classes + 1 }
}

/// Warps that share the sums of a split's rows.
pub(super) const fn units(of: Large, d: u32) -> u32 {
    // Two times two steps where components are few.
    let each = if of.at_once == super::GROUPS[0] { 2 } else { 1 };
    twos(of.family, of.place, d).div_ceil(each) * of.pieces()
}

/// No column: 1 in every row.
const ONES: u32 = u32::MAX;

/// Rows `4t..4t+4` of sixteen.
#[derive(Clone, Copy)]
struct Rows<T> {
    /// Entry `j` of the first is at `128 j`.
    x: *const T,
    norm: *const f64,
    d: u32,
}

impl<T: Real> Rows<T> {
    /// Entry `j` of each; 0 where there is none.
    #[inline(always)]
    unsafe fn entry(self, j: u32) -> [f64; 4] {
        let mut out = [if j == ONES { 1.0 } else { 0.0 }; 4];
        if j < self.d {
            // SAFETY: `j < d`, and the tile is filled up past the last row.
            let four = unsafe { T::global_load4(self.x.wrapping_add((j * TILE_ROWS) as usize)) };
            each(4, |i| out[i] = four[i].to_f64());
        }
        out
    }
}

/// Two operands, features down and rows across.
type Left = [[f64; 8]; 2];

/// A lane's features of two steps, chosen once.
pub trait Down: Copy {
    /// Of two steps; `unit` counts them.
    fn choose<T: Real>(a: &Moments<T>, unit: u32, lane: u32) -> Self;
    /// Units of two steps.
    fn units<T: Real>(a: &Moments<T>) -> u32;
    /// The first and the second of the two steps, as sums have them; `steps` or more where there is none.
    fn steps<T: Real>(a: &Moments<T>, unit: u32) -> [u32; 2];
}

trait Operands: Down {
    unsafe fn operands<T: Real>(self, x: Rows<T>) -> Left;
}

/// Columns as they are, and what is derived from them.
#[derive(Clone, Copy)]
pub struct Columns {
    /// Of features `g` and `g+8` of the first step, then of the second.
    columns: [u32; 4],
    square: [bool; 4],
    norm: [bool; 4],
}

impl Down for Columns {
    #[inline(always)]
    fn choose<T: Real>(a: &Moments<T>, unit: u32, lane: u32) -> Self {
        let mut out = Self { columns: [0; 4], square: [false; 4], norm: [false; 4] };
        each(4, |i| {
            let feature = 32 * unit + 8 * i as u32 + lane / 4;
            out.square[i] = a.derive == derive::SQUARES && feature >= 8 * a.steps;
            out.norm[i] = a.derive == derive::NORM && feature == a.d;
            out.columns[i] = if out.square[i] { feature - 8 * a.steps } else { feature };
        });
        out
    }

    #[inline(always)]
    fn units<T: Real>(a: &Moments<T>) -> u32 {
        twos(Family::Linear, Place::linear(a.steps, a.groups), a.d)
    }

    #[inline(always)]
    fn steps<T: Real>(_: &Moments<T>, unit: u32) -> [u32; 2] {
        [2 * unit, 2 * unit + 1]
    }
}

impl Operands for Columns {
    #[inline(always)]
    unsafe fn operands<T: Real>(self, x: Rows<T>) -> Left {
        let mut left = [[0.0; 8]; 2];
        each(4, |i| {
            // SAFETY: the caller's promise.
            let mut v = unsafe { x.entry(self.columns[i]) };
            if self.norm[i] {
                // SAFETY: norms are a feature, so they are there.
                v = unsafe { f64::global_load4(x.norm) };
            }
            each(4, |r| left[i / 2][2 * r + i % 2] = v[r] * if self.square[i] { v[r] } else { 1.0 });
        });
        left
    }
}

/// Products of entries: see [`Full`](super::super::features::Full). Two steps have four entries of a class and one
/// partner of them.
#[derive(Clone, Copy)]
pub struct Products {
    /// Of the first of the four entries.
    column: u32,
    /// Of the partner of the first, and of the last.
    partners: [u32; 2],
    /// Of the four, how many have the first partner.
    before: u32,
}

/// Four entries, by the index of the first, and a partner.
#[inline(always)]
fn pair<T: Real>(a: &Moments<T>, unit: u32) -> (u32, u32) {
    let fours = a.d.div_ceil(16);
    // There are dimensions: it says so to the compiler, which else would guard the division.
    let m = if fours == 0 { 0 } else { unit / fours };
    let used = a.d.div_ceil(4);
    (4 * (unit - m * fours), if m <= used { m } else { m + a.classes - used - 1 })
}

impl Down for Products {
    #[inline(always)]
    fn choose<T: Real>(a: &Moments<T>, unit: u32, lane: u32) -> Self {
        let (class, half) = (lane / 4 % 4, lane / 16);
        let (first, m) = pair(a, unit);
        let below = if m < a.classes { 4 * m + (class + 1 + half) % 4 } else { ONES };
        let above = if half == 0 { below } else { 4 * (m.max(1) - 1) + class };
        let before = if m > first { m - first } else { 0 };
        Self {
            column: 4 * first + class,
            partners: [if m > first { above } else { below }, if m > first + 3 { above } else { below }],
            before,
        }
    }

    #[inline(always)]
    fn units<T: Real>(a: &Moments<T>) -> u32 {
        twos(Family::Full, Place { steps: a.steps, groups: a.groups, classes: a.classes }, a.d)
    }

    #[inline(always)]
    fn steps<T: Real>(a: &Moments<T>, unit: u32) -> [u32; 2] {
        let (first, m) = pair(a, unit);
        let step = first / 2 * (a.classes + 1) + m;
        // A unit past the last has no partner.
        if m > a.classes { [a.steps; 2] } else { [step, step + a.classes + 1] }
    }
}

impl Operands for Products {
    #[inline(always)]
    unsafe fn operands<T: Real>(self, x: Rows<T>) -> Left {
        let mut left = [[0.0; 8]; 2];
        // SAFETY: the caller's promise, here and below.
        let by = unsafe { x.entry(self.partners[0]) };
        let mut other = by;
        // The same in all lanes.
        if self.before > 0 && self.before < 4 {
            other = unsafe { x.entry(self.partners[1]) };
        }
        each(4, |i| {
            let u = unsafe { x.entry(self.column + 4 * i as u32) };
            each(4, |r| {
                let by = if (i as u32) < self.before || self.before == 0 { by[r] } else { other[r] };
                left[i / 2][2 * r + i % 2] = u[r] * by;
            });
        });
        left
    }
}

/// The kernel: `U` units of two steps, `S` steps, by `G` groups of components.
///
/// # Safety
/// As the fields of [`Moments`] say.
#[inline(always)]
#[allow(private_bounds)]
pub unsafe fn body<T: Real, F: Operands, const U: usize, const S: usize, const G: usize>(a: Moments<T>) {
    const { assert!(S == 2 * U) };
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let units = F::units(&a).div_ceil(U as u32);
    let pieces = a.groups / G as u32;
    let at = thread::block_idx_x() * (THREADS / WARP) + me;
    // There are units: it says so to the compiler, which else would guard the division.
    if units == 0 || pieces == 0 || at >= units * pieces * a.splits {
        return;
    }
    let (unit, rest) = (at % units, at / units);
    let (piece, split) = (rest % pieces, rest / pieces);
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let partials = a.partials.wrapping_add((split as u64 * place.sums()) as usize);
    let with_weights = unit == 0;

    let mut features = [F::choose(&a, unit * U as u32, lane); U];
    each(U, |u| features[u] = F::choose(&a, unit * U as u32 + u as u32, lane));
    let mut sums = [[[0.0; 4]; G]; S];
    let weights = Shared::<f64>::at(thread::thread_idx_x() * 8);
    each(G + 1, |i| weights.store(i as u32 * THREADS, 0.0));
    let likelihood_at = G as u32 * THREADS;

    let sixteens = a.n.div_ceil(GROUP as u64);
    let mut sixteen = split as u64;
    while sixteen < sixteens {
        let (tile, inside) = (sixteen / 8, sixteen as u32 % 8 * GROUP + lane % 4 * 4);
        let x = Rows {
            x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + inside as u64) as usize),
            norm: a.norms.wrapping_add((tile * TILE_ROWS as u64 + inside as u64) as usize),
            d: a.d,
        };
        let factors = (tile * pieces as u64 + piece as u64) * TILE_ROWS as u64 + inside as u64;
        let exponentials = (sixteen * a.groups as u64 + (piece * G as u32) as u64) * 128 + (lane * 4) as u64;
        // SAFETY: a group of the chunk's rows; the buffers are as long as their fields say.
        unsafe {
            let factor = f64::global_load4(a.factors.wrapping_add(factors as usize));
            each(U, |u| {
                let mut left = features[u].operands(x);
                each(2, |s| each(8, |v| left[s][v] *= factor[v / 2]));
                each(G, |i| {
                    let e = T::global_load4(a.exponentials.wrapping_add(exponentials as usize + 128 * i));
                    let mut right = [0.0; 4];
                    each(4, |r| right[r] = e[r].to_f64());
                    if with_weights && u == 0 {
                        let at = i as u32 * THREADS;
                        let mut weight = weights.load(at);
                        each(4, |r| weight = Real::fma(right[r], factor[r], weight));
                        weights.store(at, weight);
                    }
                    each(2, |s| mma::f64_16x8x16(&mut sums[2 * u + s][i], left[s], right));
                });
            });
            if with_weights {
                weights.store(likelihood_at, weights.load(likelihood_at) + device::load(a.likelihoods, sixteen));
            }
        }
        sixteen += a.splits as u64;
    }

    let add = |at: u64, v: f64| {
        // SAFETY: a place within the split's sums, which this lane alone has.
        unsafe {
            let before = if a.accumulate != 0 { device::load(partials.cast_const(), at) } else { 0.0 };
            device::store(partials, at, before + v);
        }
    };
    each(U, |u| {
        let steps = F::steps(&a, unit * U as u32 + u as u32);
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
    if with_weights && piece == 0 && lane == 0 {
        add(place.log_likelihood(), weights.load(likelihood_at));
    }
}
