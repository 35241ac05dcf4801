//! The E-step of one tile of rows: log joint densities per component, then log-sum-exp and responsibilities.
//!
//! A tile is up to [`BLOCK`] rows of one block. `joint` holds `(k, BLOCK)` values: `ln(w_c N(x | c))` first, then the
//! responsibilities in their place.

mod diag;
mod full;
mod spherical;
mod tied;

use super::layout::BLOCK;
use super::math;
use super::simd::{Real, Words};
use super::terms::{Scales, Terms};

pub(crate) use full::solve;
pub(crate) use spherical::squared_distance;

/// Writes the log joint densities of `rows` rows, a multiple of `GROUP * LANES`, into `joint`.
///
/// `x` is `(d, BLOCK)`; `scratch` holds `2*d*BLOCK` values. −∞ where a distance overflows.
#[inline(always)]
pub(crate) fn log_joint<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    x: &[T],
    rows: usize,
    joint: &mut [T],
    scratch: &mut [T],
) {
    assert!(x.len() >= terms.d * BLOCK && joint.len() >= terms.k * BLOCK && scratch.len() >= 2 * terms.d * BLOCK);
    assert!(rows <= BLOCK && rows.is_multiple_of(W::GROUP * W::LANES));
    match &terms.scales {
        Scales::Full(all) => full::log_joint(w, terms, all, x, rows, joint, scratch),
        Scales::Tied(one, means) => tied::log_joint(w, terms, one, means, x, rows, joint, scratch),
        Scales::Diag(scales) => diag::log_joint(w, terms, scales, x, rows, joint),
        Scales::Spherical(scales) => spherical::log_joint(w, terms, scales, x, rows, joint),
    }
}

/// `constant − distance/2`, or −∞ where the distance is infinite or a difference of infinities.
#[inline(always)]
fn finish<T: Real, W: Words<T>>(w: W, distance: W::V, constant: T) -> W::V {
    let value = w.neg_fma(distance, w.splat(T::of(0.5)), w.splat(constant));
    w.max(value, w.splat(T::of(f64::NEG_INFINITY)))
}

/// What [`normalise`] leaves per row besides the responsibilities, `BLOCK` values each.
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
pub(crate) fn normalise<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    rows: usize,
    weights: &[T],
    joint: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    let k = terms.k;
    assert!(joint.len() >= k * BLOCK && weights.len() >= rows && rows.is_multiple_of(W::LANES));
    assert!(out.top.len() >= rows && out.rest.len() >= rows && out.entropy.as_ref().is_none_or(|e| e.len() >= rows));
    let cells = joint.as_mut_ptr();
    let lowest = w.splat(T::of(-T::MAX.to_f64()));
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK, and the lengths were checked above.
        unsafe {
            let mut top = lowest;
            for c in 0..k {
                top = w.max(w.load(cells.add(c * BLOCK + row)), top);
            }
            let mut sum = w.splat(T::ZERO);
            let mut weighted = w.splat(T::ZERO);
            for c in 0..k {
                let cell = cells.add(c * BLOCK + row);
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
                let cell = cells.add(c * BLOCK + row);
                w.store(cell, w.mul(w.load(cell), factor));
            }
            let rest = math::ln(w, sum);
            w.store(out.top.as_mut_ptr().add(row), top);
            w.store(out.rest.as_mut_ptr().add(row), rest);
            if let Some(entropy) = &mut out.entropy {
                w.store(entropy.as_mut_ptr().add(row), w.sub(rest, w.div(weighted, sum)));
            }
            // A sum below 1 means that no density of some row is above 0: its largest is not at the top.
            if w.any_lt(sum, w.splat(T::of(0.5))) {
                underflow(terms, row..row + W::LANES, weights, joint, out);
            }
        }
    }
}

/// Rewrites the rows whose every density is 0: log density −∞, responsibilities the component weights.
#[cold]
fn underflow<T: Real>(
    terms: &Terms<T>,
    rows: std::ops::Range<usize>,
    weights: &[T],
    joint: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    for row in rows {
        if out.top[row].to_f64() > -T::MAX.to_f64() {
            continue;
        }
        for c in 0..terms.k {
            joint[c * BLOCK + row] = T::of(terms.weights[c].to_f64() * weights[row].to_f64());
        }
        out.top[row] = T::of(f64::NEG_INFINITY);
        out.rest[row] = T::ZERO;
        if let Some(entropy) = &mut out.entropy {
            entropy[row] = T::ZERO;
        }
    }
}
