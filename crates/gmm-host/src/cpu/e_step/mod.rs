//! The E-step of one tile of rows: log joint densities per component, then log-sum-exp and responsibilities.
//!
//! A tile is up to [`BLOCK`] rows of one block. `joint` holds `(k, STRIDE)` values: `ln(w_c N(x | c))` first, then the
//! responsibilities in their place.

mod diag;
mod full;
mod spherical;
mod tied;

use std::ops::Range;

use super::layout::{BLOCK, STRIDE};
use super::math;
use super::simd::{Real, Words};
use super::terms::{Scales, Terms};

use full::solve;
pub(crate) use spherical::{Plain, squared_distances};

/// Writes the responsibilities of `rows` rows, a multiple of `GROUP * LANES`, times the row weights, into `joint`.
///
/// `x` is `(d, STRIDE)`; `scratch` holds `2*d*STRIDE` values; `weights` are the rows' weights. For
/// the spherical kind `distances`, `(k, STRIDE)`, receives the squared distances to the means.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the workspace's parts, which have different lives")]
pub(crate) fn responsibilities<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    x: &[T],
    rows: usize,
    weights: &[T],
    joint: &mut [T],
    distances: &mut [T],
    scratch: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    assert!(x.len() >= terms.d * STRIDE && joint.len() >= terms.k * STRIDE && scratch.len() >= 2 * terms.d * STRIDE);
    assert!(rows <= BLOCK && rows.is_multiple_of(W::GROUP * W::LANES));
    if W::GROUP == 4 {
        log_joint::<T, W, 4>(w, terms, x, rows, joint, distances, scratch);
    } else {
        log_joint::<T, W, 2>(w, terms, x, rows, joint, distances, scratch);
    }
    normalise(w, terms, rows, weights, joint, out);
}

/// Components whose densities are worked out side by side, so that a load of the rows serves both.
const SIDE_BY_SIDE: usize = 2;

/// Log joint densities of all rows; −∞ where a distance overflows.
///
/// Components go outside and rows inside: columns are then read in the order in which the processor fetches ahead.
#[inline(always)]
fn log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    x: &[T],
    rows: usize,
    joint: &mut [T],
    distances: &mut [T],
    scratch: &mut [T],
) {
    if let Scales::Tied(factor, _) = &terms.scales {
        for row in (0..rows).step_by(G * W::LANES) {
            tied::solve_rows::<T, W, G>(w, factor, &x[row..], row, scratch);
        }
    }
    for c in (0..terms.k).step_by(SIDE_BY_SIDE) {
        let components = c..terms.k.min(c + SIDE_BY_SIDE);
        for row in (0..rows).step_by(G * W::LANES) {
            let (x, joint, components) = (&x[row..], &mut joint[row..], components.clone());
            match &terms.scales {
                Scales::Full(all) => full::log_joint::<T, W, G>(w, terms, all, components, x, joint, scratch),
                Scales::Tied(_, means) => tied::log_joint::<T, W, G>(w, terms, means, components, row, scratch, joint),
                Scales::Diag(scales) => diag::log_joint::<T, W, G>(w, terms, scales, components, x, joint),
                Scales::Spherical(scales) => {
                    spherical::log_joint::<T, W, G>(w, terms, scales, components, x, joint, &mut distances[row..]);
                }
            }
        }
    }
}

/// What becomes of `G` vectors of squared distances to component `c`.
///
/// A trait and not a closure: only `#[inline(always)]` functions are sure to be compiled with the machine's
/// instructions, and closures cannot be that. The same goes for iterator adapters and `array::map` over vectors.
pub(crate) trait Finish<T: Real, W: Words<T>>: Copy {
    fn apply(self, w: W, c: usize, distance: W::V) -> W::V;
}

/// `constant[c] − distance/2`, or −∞ where the distance is infinite or a difference of infinities.
#[derive(Clone, Copy)]
struct LogJoint<'a, T> {
    constants: &'a [T],
}

impl<T: Real, W: Words<T>> Finish<T, W> for LogJoint<'_, T> {
    #[inline(always)]
    fn apply(self, w: W, c: usize, distance: W::V) -> W::V {
        let value = w.neg_fma(distance, w.splat(T::of(0.5)), w.splat(self.constants[c]));
        w.max(value, w.splat(T::of(f64::NEG_INFINITY)))
    }
}

/// Writes what becomes of `G` vectors of squared distances to the front of `out`.
#[inline(always)]
fn store<T: Real, W: Words<T>, const G: usize>(
    w: W,
    c: usize,
    distance: [W::V; G],
    finish: impl Finish<T, W>,
    out: &mut [T],
) {
    assert!(out.len() >= G * W::LANES);
    for (g, q) in distance.into_iter().enumerate() {
        // SAFETY: inside out, as asserted.
        unsafe { w.store(out.as_mut_ptr().add(g * W::LANES), finish.apply(w, c, q)) };
    }
}

/// What [`responsibilities`] leaves per row besides the responsibilities, `BLOCK` values each.
pub(crate) struct RowOutputs<'a, T> {
    /// The largest log joint density.
    pub(crate) top: &'a mut [T],
    /// ln of the sum of the exponentials relative to it; the log density is `top + rest`.
    pub(crate) rest: &'a mut [T],
    /// −Σ r ln r, where it is asked for.
    pub(crate) entropy: Option<&'a mut [T]>,
}

/// Turns log joint densities into responsibilities times the row weight, in place.
///
/// `weights` are the rows' weights. Where all densities underflow the responsibilities are the component weights.
#[inline(always)]
fn normalise<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    rows: usize,
    weights: &[T],
    joint: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    let k = terms.k;
    assert!(joint.len() >= k * STRIDE && weights.len() >= rows && rows.is_multiple_of(W::LANES) && rows <= BLOCK);
    assert!(out.top.len() >= rows && out.rest.len() >= rows && out.entropy.as_ref().is_none_or(|e| e.len() >= rows));
    let cells = joint.as_mut_ptr();
    let lowest = w.splat(T::of(-T::MAX.to_f64()));
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK, and the lengths were checked above.
        unsafe {
            let mut top = lowest;
            for c in 0..k {
                top = w.max(w.load(cells.add(c * STRIDE + row)), top);
            }
            let mut sum = w.splat(T::ZERO);
            let mut weighted = w.splat(T::ZERO);
            for c in 0..k {
                let cell = cells.add(c * STRIDE + row);
                let below = w.sub(w.load(cell), top);
                let e = math::exp(w, below);
                sum = w.add(sum, e);
                if out.entropy.is_some() {
                    // Finite, so that it vanishes against a density of 0.
                    weighted = w.fma(e, w.max(below, lowest), weighted);
                }
                w.store(cell, e);
            }
            let row_weight = w.load(weights.as_ptr().add(row));
            let factor = w.div(row_weight, sum);
            for c in 0..k {
                let cell = cells.add(c * STRIDE + row);
                w.store(cell, w.mul(w.load(cell), factor));
            }
            let rest = math::ln(w, sum);
            w.store(out.top.as_mut_ptr().add(row), top);
            w.store(out.rest.as_mut_ptr().add(row), rest);
            if let Some(entropy) = &mut out.entropy {
                w.store(entropy.as_mut_ptr().add(row), w.sub(rest, w.div(weighted, sum)));
            }
            // A sum below 1 means that no density of some row is above 0: its largest is not at the top.
            if w.lt_bits(sum, w.splat(T::of(0.5))) != 0 {
                underflow(terms, row..row + W::LANES, weights, joint, out);
            }
        }
    }
}

/// Rewrites the rows whose every density is 0: log density −∞, responsibilities the component weights.
#[cold]
fn underflow<T: Real>(
    terms: &Terms<T>,
    rows: Range<usize>,
    weights: &[T],
    joint: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    for row in rows {
        if out.top[row].to_f64() > -T::MAX.to_f64() {
            continue;
        }
        for c in 0..terms.k {
            joint[c * STRIDE + row] = T::of(terms.weights[c].to_f64() * weights[row].to_f64());
        }
        out.top[row] = T::of(f64::NEG_INFINITY);
        out.rest[row] = T::ZERO;
        if let Some(entropy) = &mut out.entropy {
            entropy[row] = T::ZERO;
        }
    }
}
