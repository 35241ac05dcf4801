//! Rows without projections under covariances that are matrices, or with correlated errors: a Cholesky factor of `T = Σ + S`
//! for each row and component.
//!
//! With `t = T⁻¹ z` the true row is `b − μ = Σ t = z − S t` and its covariance `B = S T⁻¹ Σ`. Of the two forms of `b − μ`, each
//! column takes the one in which less cancels; `B` is summed over rows as `N = Σ r S T⁻¹`, so that it vanishes with the errors
//! and nothing cancels in it. Where a value is missing, the limit of large errors applies: its row of `S T⁻¹` is that of
//! `I − Σ T⁻¹` over the measured columns.

use gmm_model::{packed_index, packed_len};

use super::component::Component;
use super::factor::{Factor, Pivots};
use super::lanes::{Pair, Rows};
use super::layout::{Block, WIDTH, packed_either};
use crate::cpu::simd::Words;

/// Numbers that a row keeps of a component: the factor and `L⁻¹ z`.
pub(super) const fn kept(d: usize) -> usize {
    packed_len(d) + d
}

/// Scratch per row: `t`, `b − μ`, `L⁻¹` and `T⁻¹`.
pub(super) const fn scratch(d: usize) -> usize {
    2 * d + 2 * packed_len(d)
}

/// Sums of a component: `Σ r`, `Σ r (b − μ)`, packed `Σ r (b − μ)(b − μ)ᵀ`, and `N`, `(d, d)`.
pub(super) const fn sums(d: usize) -> usize {
    1 + d + packed_len(d) + d * d
}

/// Factors `T`, and writes the log joint densities.
#[inline(always)]
pub(super) fn factor<W: Words<f64>>(
    rows: Rows<W>,
    block: Block<'_>,
    is_diagonal: bool,
    of: &Component<'_>,
    kept: &mut [f64],
) -> Factor<W> {
    let d = of.mean.len();
    let (lower, y) = kept.split_at_mut(packed_len(d) * WIDTH);
    let mut pivots = Pivots::new(rows, d);
    let mut distance = rows.splat(0.0);
    for i in 0..d {
        let (above, own) = lower.split_at_mut(packed_index(i, 0) * WIDTH);
        let own_mask = block.mask.map(|mask| rows.load(mask, i));
        for j in 0..=i {
            let mut t = rows.splat(of.covariance[packed_index(i, j)]);
            if let (Some(mask), Some(own)) = (block.mask, own_mask) {
                t = rows.mul(t, rows.mul(own, rows.load(mask, j)));
            }
            if !is_diagonal {
                t = rows.add(t, rows.load(block.errors, packed_index(i, j)));
            } else if i == j {
                t = rows.add(t, rows.load(block.errors, i));
            }
            let (done, at) = own.split_at_mut(j * WIDTH);
            if j == i {
                let pivot = rows.minus_dot(t, done, done);
                rows.store(at, 0, pivots.reciprocal_root(i, pivot, t));
                break;
            }
            let other = &above[packed_index(j, 0) * WIDTH..][..(j + 1) * WIDTH];
            let rest = rows.minus_dot(t, done, &other[..j * WIDTH]);
            rows.store(at, 0, rows.mul(rest, rows.load(other, j)));
        }
        let (solved, at) = y.split_at_mut(i * WIDTH);
        let rest = rows.minus_dot(difference(rows, block, of, i), &own[..i * WIDTH], solved);
        let value = rows.mul(rest, rows.load(own, i));
        rows.store(at, 0, value);
        distance = rows.fma(value, value, distance);
    }
    pivots.finish(distance)
}

/// `z` of a column; 0 where it is missing.
#[inline(always)]
fn difference<W: Words<f64>>(rows: Rows<W>, block: Block<'_>, of: &Component<'_>, i: usize) -> Pair<W> {
    let z = rows.sub(rows.load(block.measured, i), rows.splat(of.mean[i]));
    block.mask.map_or(z, |mask| rows.mul(z, rows.load(mask, i)))
}

/// Adds the expected moments of the rows, with weighted responsibilities `r`, to the sums of a component.
#[inline(always)]
pub(super) fn add<W: Words<f64>>(
    rows: Rows<W>,
    (block, is_diagonal): (Block<'_>, bool),
    of: &Component<'_>,
    (kept, r): (&[f64], Pair<W>),
    scratch: &mut [f64],
    sums: &mut [f64],
) {
    let (d, p) = (of.mean.len(), packed_len(of.mean.len()));
    let (lower, y) = kept.split_at(p * WIDTH);
    let (t, rest) = scratch.split_at_mut(d * WIDTH);
    let (moved, rest) = rest.split_at_mut(d * WIDTH);
    let (inverse, product) = rest.split_at_mut(p * WIDTH);
    solve_transposed(rows, lower, y, t);
    for i in 0..d {
        rows.store(moved, i, true_difference(rows, (block, is_diagonal), of, t, i));
    }
    invert(rows, lower, d, inverse);
    multiply(rows, block, inverse, d, product);
    rows.accumulate(sums, 0, r, rows.splat(1.0));
    let mut at = 1 + d;
    for i in 0..d {
        let own = rows.mul(r, rows.load(moved, i));
        rows.accumulate(sums, 1 + i, own, rows.splat(1.0));
        for j in 0..=i {
            rows.accumulate(sums, at, own, rows.load(moved, j));
            at += 1;
        }
    }
    let total = at;
    for i in 0..d {
        for j in 0..d {
            let value = share(rows, (block, is_diagonal), of, product, (i, j));
            rows.accumulate(sums, total + i * d + j, r, value);
        }
    }
}

/// `L⁻ᵀ y`.
#[inline(always)]
fn solve_transposed<W: Words<f64>>(rows: Rows<W>, lower: &[f64], y: &[f64], t: &mut [f64]) {
    let d = t.len() / WIDTH;
    for i in (0..d).rev() {
        let mut rest = rows.load(y, i);
        for l in i + 1..d {
            rest = rows.neg_fma(rows.load(lower, packed_index(l, i)), rows.load(t, l), rest);
        }
        rows.store(t, i, rows.mul(rest, rows.load(lower, packed_index(i, i))));
    }
}

/// Column `i` of `b − μ`.
#[inline(always)]
fn true_difference<W: Words<f64>>(
    rows: Rows<W>,
    (block, is_diagonal): (Block<'_>, bool),
    of: &Component<'_>,
    t: &[f64],
    i: usize,
) -> Pair<W> {
    let d = of.mean.len();
    let mut variance =
        if is_diagonal { rows.load(block.errors, i) } else { rows.load(block.errors, packed_index(i, i)) };
    let mut error = rows.splat(0.0);
    if is_diagonal {
        error = rows.mul(variance, rows.load(t, i));
    } else {
        for l in 0..d {
            error = rows.fma(rows.load(block.errors, packed_either(i, l)), rows.load(t, l), error);
        }
    }
    let large = rows.splat(f64::MAX);
    if let Some(mask) = block.mask {
        variance = rows.select_lt(rows.load(mask, i), rows.splat(0.5), large, variance);
    }
    let small_error = rows.sub(difference(rows, block, of, i), error);
    let large_error = rows.plus_common_dot(rows.splat(0.0), &of.dense[i * d..][..d], t);
    rows.select_lt(variance, rows.splat(of.dense[i * d + i]), small_error, large_error)
}

/// `L⁻¹`, packed.
#[inline(always)]
fn invert<W: Words<f64>>(rows: Rows<W>, lower: &[f64], d: usize, inverse: &mut [f64]) {
    for i in 0..d {
        let root = rows.load(lower, packed_index(i, i));
        let (above, own) = inverse.split_at_mut(packed_index(i, 0) * WIDTH);
        let row = &lower[packed_index(i, 0) * WIDTH..];
        for j in 0..i {
            let mut sum = rows.splat(0.0);
            for l in j..i {
                sum = rows.neg_fma(rows.load(row, l), rows.load(above, packed_index(l, j)), sum);
            }
            rows.store(own, j, rows.mul(sum, root));
        }
        rows.store(own, i, root);
    }
}

/// `T⁻¹ = L⁻ᵀ L⁻¹`, packed; 0 where a value is missing.
#[inline(always)]
fn multiply<W: Words<f64>>(rows: Rows<W>, block: Block<'_>, inverse: &[f64], d: usize, product: &mut [f64]) {
    for i in 0..d {
        for j in 0..=i {
            let mut sum = rows.splat(0.0);
            for l in i..d {
                let (a, b) = (rows.load(inverse, packed_index(l, i)), rows.load(inverse, packed_index(l, j)));
                sum = rows.fma(a, b, sum);
            }
            if let Some(mask) = block.mask {
                sum = rows.mul(sum, rows.mul(rows.load(mask, i), rows.load(mask, j)));
            }
            rows.store(product, packed_index(i, j), sum);
        }
    }
}

/// Entry `(i, j)` of `S T⁻¹`.
#[inline(always)]
fn share<W: Words<f64>>(
    rows: Rows<W>,
    (block, is_diagonal): (Block<'_>, bool),
    of: &Component<'_>,
    product: &[f64],
    (i, j): (usize, usize),
) -> Pair<W> {
    let d = of.mean.len();
    let mut value = rows.splat(0.0);
    if is_diagonal {
        value = rows.mul(rows.load(block.errors, i), rows.load(product, packed_either(i, j)));
    } else {
        for l in 0..d {
            value =
                rows.fma(rows.load(block.errors, packed_either(i, l)), rows.load(product, packed_either(l, j)), value);
        }
    }
    let Some(mask) = block.mask else { return value };
    let mut of_missing = rows.splat(f64::from(i == j));
    for l in 0..d {
        of_missing = rows.neg_fma(rows.splat(of.dense[i * d + l]), rows.load(product, packed_either(l, j)), of_missing);
    }
    rows.select_lt(rows.load(mask, i), rows.splat(0.5), of_missing, value)
}
