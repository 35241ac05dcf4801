//! The E-step of one tile of rows: log joint densities per component, then log-sum-exp and responsibilities.
//!
//! A tile is up to [`BLOCK`] rows of one block. `joint` holds `(k, STRIDE)` values: first `ln(w_c N(x | c))`, which the
//! responsibilities then overwrite.

mod diag;
mod full;
mod log_densities;
mod product;
mod spherical;
mod tied;

use std::ops::Range;

use super::layout::{BLOCK, STRIDE};
use super::math;
use super::simd::{Kernel, Real, Words};
use super::terms::{Columns, Scales, Terms};

use full::solve;
pub(crate) use log_densities::LogDensities;
pub(crate) use spherical::squared_distances;

/// Writes the responsibilities of a tile, multiplied by the row weights, into `joint`.
pub(crate) struct Responsibilities<'a, T> {
    pub(crate) terms: &'a Terms<T>,
    /// `(d, STRIDE)`.
    pub(crate) x: &'a [T],
    /// Number of rows, a multiple of `WIDE * LANES`.
    pub(crate) rows: usize,
    /// Row weights.
    pub(crate) weights: &'a [T],
    /// `(k, STRIDE)`.
    pub(crate) joint: &'a mut [T],
    /// `(k, STRIDE)` for the spherical kind: receives the squared distances to the means.
    pub(crate) distances: &'a mut [T],
    /// `(2*d, STRIDE)`.
    pub(crate) scratch: &'a mut [T],
    pub(crate) out: RowOutputs<'a, T>,
}

impl<T: Real> Kernel<T> for Responsibilities<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, x, rows, weights, joint, distances, scratch, mut out } = self;
        let (k, d) = (terms.k, terms.d);
        assert!(x.len() >= d * STRIDE && joint.len() >= k * STRIDE && scratch.len() >= 2 * d * STRIDE);
        assert!(rows <= BLOCK && rows.is_multiple_of(WIDE * W::LANES));
        let step = resident_rows::<T, W>(d);
        for first in (0..rows).step_by(step) {
            let rows = first..rows.min(first + step);
            log_joint(w, terms, 0..k, x, rows.clone(), joint, distances, scratch);
            w.apart(Normalise { terms, rows, weights, joint, out: &mut out });
        }
    }
}

/// Log joint densities of some rows of a tile and some components, for any kind.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the workspace's parts, which have different lives")]
fn log_joint<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    components: Range<usize>,
    x: &[T],
    rows: Range<usize>,
    joint: &mut [T],
    distances: &mut [T],
    scratch: &mut [T],
) {
    match &terms.scales {
        Scales::Full(_) | Scales::Tied(..) => {
            w.apart(Solve { terms, components: components.clone(), x, rows: rows.clone(), joint, scratch });
        }
        Scales::Precisions(factors) => w.apart(Multiply { terms, factors, x, rows: rows.clone(), joint, scratch }),
        Scales::Shared(factor, _) => w.apart(MultiplyRows { factor, x, rows: rows.clone(), scratch }),
        Scales::Diag(..) | Scales::Spherical(_) => {}
    }
    if !matches!(terms.scales, Scales::Full(_) | Scales::Precisions(_)) {
        w.apart(Distances { terms, components, x, rows, joint, distances, scratch });
    }
}

/// Log joint densities of the first `rows` rows of a tile, a multiple of `WIDE * LANES`, and some components (all, if
/// the terms are factors of precisions), for callers that need neither responsibilities nor their sums.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the workspace's parts, which have different lives")]
pub(crate) fn log_joint_of_rows<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    components: Range<usize>,
    x: &[T],
    rows: usize,
    joint: &mut [T],
    distances: &mut [T],
    scratch: &mut [T],
) {
    let (k, d) = (terms.k, terms.d);
    assert!(x.len() >= d * STRIDE && joint.len() >= k * STRIDE && scratch.len() >= 2 * d * STRIDE);
    assert!(rows <= BLOCK && rows.is_multiple_of(WIDE * W::LANES));
    let step = resident_rows::<T, W>(d);
    for first in (0..rows).step_by(step) {
        let rows = first..rows.min(first + step);
        log_joint(w, terms, components.clone(), x, rows, joint, distances, scratch);
    }
}

/// Number of rows whose columns all fit into half of a 32 KiB L1 cache: they stay there while all components are
/// processed.
#[inline(always)]
fn resident_rows<T: Real, W: Words<T>>(d: usize) -> usize {
    let unit = WIDE * W::LANES;
    ((16 << 10) / (d * size_of::<T>()) / unit * unit).clamp(unit, BLOCK)
}

/// Vectors of rows whose distances are computed together.
pub(crate) const WIDE: usize = 4;
/// Components whose distances are computed together. Four vectors by two components give eight running sums, which
/// hides the latency of two FMA units, and each load of rows or parameters is used several times.
pub(crate) const SIDE_BY_SIDE: usize = 2;

/// Forward substitution: the log joint densities of the full kind, or the solved rows of the tied kind.
struct Solve<'a, T> {
    terms: &'a Terms<T>,
    components: Range<usize>,
    x: &'a [T],
    rows: Range<usize>,
    joint: &'a mut [T],
    scratch: &'a mut [T],
}

impl<T: Real> Kernel<T> for Solve<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, components, x, rows, joint, scratch } = self;
        solve_all::<T, W, WIDE>(w, terms, components, x, rows, joint, scratch);
    }
}

/// Components are the outer loop and rows the inner one, so that a factor also stays in cache.
#[inline(always)]
fn solve_all<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    components: Range<usize>,
    x: &[T],
    rows: Range<usize>,
    joint: &mut [T],
    scratch: &mut [T],
) {
    match &terms.scales {
        Scales::Full(factors) => {
            for (c, factor) in components.clone().zip(&factors[components]) {
                for row in rows.clone().step_by(G * W::LANES) {
                    full::log_joint::<T, W, G>(w, terms, factor, c, &x[row..], &mut joint[row..], scratch);
                }
            }
        }
        Scales::Tied(factor, _) => {
            for row in rows.step_by(G * W::LANES) {
                tied::solve_rows::<T, W, G>(w, factor, &x[row..], row, scratch);
            }
        }
        Scales::Diag(..) | Scales::Spherical(_) | Scales::Precisions(_) | Scales::Shared(..) => {}
    }
}

/// Log joint densities from factors of the precisions.
struct Multiply<'a, T> {
    terms: &'a Terms<T>,
    factors: &'a [Columns<T>],
    x: &'a [T],
    rows: Range<usize>,
    joint: &'a mut [T],
    scratch: &'a mut [T],
}

impl<T: Real> Kernel<T> for Multiply<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, factors, x, rows, joint, scratch } = self;
        for c in 0..terms.k {
            let factor = &factors[c.min(factors.len() - 1)];
            for row in rows.clone().step_by(WIDE * W::LANES) {
                product::log_joint::<T, W, WIDE>(w, terms, factor, c, &x[row..], &mut joint[row..], scratch);
            }
        }
    }
}

/// Multiplies the rows by the single factor of the precisions, into the second half of `scratch`, `(2*d, STRIDE)`.
struct MultiplyRows<'a, T> {
    factor: &'a Columns<T>,
    x: &'a [T],
    rows: Range<usize>,
    scratch: &'a mut [T],
}

impl<T: Real> Kernel<T> for MultiplyRows<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { factor, x, rows, scratch } = self;
        let multiplied = &mut scratch[factor.d * STRIDE..];
        for row in rows.step_by(WIDE * W::LANES) {
            product::multiply::<T, W, WIDE>(w, factor, &x[row..], &mut multiplied[row..]);
        }
    }
}

/// Log joint densities of the kinds whose distances are computed column by column.
struct Distances<'a, T> {
    terms: &'a Terms<T>,
    components: Range<usize>,
    x: &'a [T],
    rows: Range<usize>,
    joint: &'a mut [T],
    distances: &'a mut [T],
    scratch: &'a [T],
}

impl<T: Real> Kernel<T> for Distances<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, components, x, rows, joint, distances, scratch } = self;
        for c in components.clone().step_by(SIDE_BY_SIDE) {
            if components.end - c >= SIDE_BY_SIDE {
                distances_to::<T, W, SIDE_BY_SIDE>(w, terms, c, x, rows.clone(), joint, distances, scratch);
            } else {
                distances_to::<T, W, 1>(w, terms, c, x, rows.clone(), joint, distances, scratch);
            }
        }
    }
}

/// Log joint densities of `C` components from `c` on; −∞ if a distance overflows.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the workspace's parts, which have different lives")]
fn distances_to<T: Real, W: Words<T>, const C: usize>(
    w: W,
    terms: &Terms<T>,
    c: usize,
    x: &[T],
    rows: Range<usize>,
    joint: &mut [T],
    distances: &mut [T],
    scratch: &[T],
) {
    for row in rows.step_by(WIDE * W::LANES) {
        let (x, joint) = (&x[row..], &mut joint[row..]);
        match &terms.scales {
            Scales::Full(_) | Scales::Precisions(_) => {}
            Scales::Tied(_, means) | Scales::Shared(_, means) => {
                tied::log_joint::<T, W, C>(w, terms, means, c, row, scratch, joint);
            }
            Scales::Diag(scales, offsets) => {
                diag::log_joint::<T, W, C>(w, terms, scales, offsets.as_deref(), c, x, joint);
            }
            Scales::Spherical(scales) => {
                spherical::log_joint::<T, W, C>(w, terms, scales, c, x, joint, &mut distances[row..]);
            }
        }
    }
}

/// `joint[c] = constant[c] − distance/2` for `G` vectors of rows; −∞ if the distance is infinite or NaN (a difference
/// of infinities).
///
/// This is not a closure passed to the distance functions: only `#[inline(always)]` functions are sure to be compiled
/// with the enabled instructions, and closures cannot have that attribute. The same applies to iterator adapters and
/// `array::map` over vectors.
#[inline(always)]
pub(crate) fn store_log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    c: usize,
    mut distance: [W::V; G],
    joint: &mut [T],
) {
    let constant = w.splat(terms.constants[c]);
    for q in &mut distance {
        let value = w.neg_fma(*q, w.splat(T::of(0.5)), constant);
        *q = w.max(value, w.splat(T::of(f64::NEG_INFINITY)));
    }
    store(w, distance, &mut joint[c * STRIDE..]);
}

/// Writes `G` vectors to the start of `out`.
#[inline(always)]
pub(crate) fn store<T: Real, W: Words<T>, const G: usize>(w: W, values: [W::V; G], out: &mut [T]) {
    assert!(out.len() >= G * W::LANES);
    for (g, v) in values.into_iter().enumerate() {
        // SAFETY: (g + 1)*LANES <= G*LANES <= out.len(), as asserted.
        unsafe { w.store(out.as_mut_ptr().add(g * W::LANES), v) };
    }
}

/// Per-row results of [`Responsibilities`] other than the responsibilities, `BLOCK` values each.
pub(crate) struct RowOutputs<'a, T> {
    /// The largest log joint density.
    pub(crate) top: &'a mut [T],
    /// ln of the sum of the exponentials relative to `top`; the log density is `top + rest`.
    pub(crate) rest: &'a mut [T],
    /// −Σ r ln r, if requested.
    pub(crate) entropy: Option<&'a mut [T]>,
}

/// Replaces log joint densities by responsibilities multiplied by the row weights.
///
/// If all densities of a row underflow, its responsibilities are the component weights.
pub(crate) struct Normalise<'a, 'b, T> {
    pub(crate) terms: &'a Terms<T>,
    pub(crate) rows: Range<usize>,
    /// Row weights.
    pub(crate) weights: &'a [T],
    pub(crate) joint: &'a mut [T],
    pub(crate) out: &'a mut RowOutputs<'b, T>,
}

impl<T: Real> Kernel<T> for Normalise<'_, '_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, rows, weights, joint, out } = self;
        normalise(w, terms, rows, weights, joint, out);
    }
}

#[inline(always)]
fn normalise<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    rows: Range<usize>,
    weights: &[T],
    joint: &mut [T],
    out: &mut RowOutputs<'_, T>,
) {
    // Vectors per turn: each constant of exp is used for two, and with 32-byte vectors a turn covers a whole cache
    // line.
    const G: usize = 2;
    let k = terms.k;
    let end = rows.end;
    assert!(
        joint.len() >= k * STRIDE && weights.len() >= end && rows.len().is_multiple_of(G * W::LANES) && end <= BLOCK
    );
    assert!(out.top.len() >= end && out.rest.len() >= end && out.entropy.as_ref().is_none_or(|e| e.len() >= end));
    let cells = joint.as_mut_ptr();
    let lowest = w.splat(T::of(-T::MAX.to_f64()));
    for row in rows.step_by(G * W::LANES) {
        // SAFETY: row + G*LANES <= end <= BLOCK, and the lengths were checked above.
        unsafe {
            let mut top = [lowest; G];
            for c in 0..k {
                for g in 0..G {
                    top[g] = w.max(w.load(cells.add(c * STRIDE + row + g * W::LANES)), top[g]);
                }
            }
            let mut sum = [w.splat(T::ZERO); G];
            let mut weighted = [w.splat(T::ZERO); G];
            for c in 0..k {
                let cell = cells.add(c * STRIDE + row);
                let mut below = top;
                for g in 0..G {
                    below[g] = w.sub(w.load(cell.add(g * W::LANES)), top[g]);
                }
                let e = math::exp::<T, W, G>(w, below);
                for g in 0..G {
                    sum[g] = w.add(sum[g], e[g]);
                    if out.entropy.is_some() {
                        // Finite, so that its product with a density of 0 is 0.
                        weighted[g] = w.fma(e[g], w.max(below[g], lowest), weighted[g]);
                    }
                    w.store(cell.add(g * W::LANES), e[g]);
                }
            }
            let mut factor = sum;
            for g in 0..G {
                factor[g] = w.div(w.load(weights.as_ptr().add(row + g * W::LANES)), sum[g]);
            }
            for c in 0..k {
                for g in 0..G {
                    let cell = cells.add(c * STRIDE + row + g * W::LANES);
                    w.store(cell, w.mul(w.load(cell), factor[g]));
                }
            }
            for g in 0..G {
                let row = row + g * W::LANES;
                let rest = math::ln(w, sum[g]);
                w.store(out.top.as_mut_ptr().add(row), top[g]);
                w.store(out.rest.as_mut_ptr().add(row), rest);
                if let Some(entropy) = &mut out.entropy {
                    w.store(entropy.as_mut_ptr().add(row), w.sub(rest, w.div(weighted[g], sum[g])));
                }
                // A sum below 1 means that all densities of a row are 0: otherwise the largest contributes exp(0) = 1.
                if w.lt_bits(sum[g], w.splat(T::of(0.5))) != 0 {
                    underflow(terms, row..row + W::LANES, weights, joint, out);
                }
            }
        }
    }
}

/// Rewrites the rows whose every density is 0: log density −∞, and the component weights as responsibilities.
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
