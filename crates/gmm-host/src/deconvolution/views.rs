//! Linear views of rows: a Cholesky factor of `T = R Σ Rᵀ + S` for each row and component.
//!
//! With `G = L⁻¹ R` the true row is `b − μ = Σ Gᵀ (L⁻¹ z)` and its covariance `B = Σ − Σ Gᵀ G Σ`, of which `Gᵀ G` is summed over
//! rows: nothing is inverted.

use gmm_model::{packed_index, packed_len};

use super::component::Component;
use super::factor::{Factor, Pivots};
use super::lanes::{Pair, Rows};
use super::layout::{Block, WIDTH};
use crate::cpu::simd::Words;

/// Numbers that a row keeps of a component: the factor and `L⁻¹ z`.
pub(super) const fn kept(m: usize) -> usize {
    packed_len(m) + m
}

/// Scratch per row: `R Σ` or `G`, `Gᵀ L⁻¹ z` and `b − μ`.
pub(super) const fn scratch(m: usize, d: usize) -> usize {
    m * d + 2 * d
}

/// Sums of a component: `Σ r`, `Σ r (b − μ)`, packed `Σ r (b − μ)(b − μ)ᵀ` and packed `Σ r Gᵀ G`.
pub(super) const fn sums(d: usize) -> usize {
    1 + d + 2 * packed_len(d)
}

/// Factors `T`, and writes the log joint densities.
#[inline(always)]
pub(super) fn factor<W: Words<f64>>(
    rows: Rows<W>,
    (block, is_diagonal): (Block<'_>, bool),
    of: &Component<'_>,
    kept: &mut [f64],
    scratch: &mut [f64],
) -> Factor<W> {
    let (m, d) = (block.measured.len() / WIDTH, of.mean.len());
    let projection = |i: usize| &block.projections[i * d * WIDTH..][..d * WIDTH];
    let (lower, y) = kept.split_at_mut(packed_len(m) * WIDTH);
    let seen = &mut scratch[..m * d * WIDTH];
    let mut pivots = Pivots::new(rows, m);
    let mut distance = rows.splat(0.0);
    for i in 0..m {
        for j in 0..d {
            let value = rows.plus_common_dot(rows.splat(0.0), &of.dense[j * d..][..d], projection(i));
            rows.store(seen, i * d + j, value);
        }
        let (above, own) = lower.split_at_mut(packed_index(i, 0) * WIDTH);
        for j in 0..=i {
            let mut t = match (is_diagonal, i == j) {
                (false, _) => rows.load(block.errors, packed_index(i, j)),
                (true, true) => rows.load(block.errors, i),
                (true, false) => rows.splat(0.0),
            };
            let (a, b) = (&seen[i * d * WIDTH..][..d * WIDTH], projection(j));
            t = rows.plus_dot(t, a, b);
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
        let mean = rows.plus_common_dot(rows.splat(0.0), of.mean, projection(i));
        let z = rows.sub(rows.load(block.measured, i), mean);
        let (solved, at) = y.split_at_mut(i * WIDTH);
        let rest = rows.minus_dot(z, &own[..i * WIDTH], solved);
        let value = rows.mul(rest, rows.load(own, i));
        rows.store(at, 0, value);
        distance = rows.fma(value, value, distance);
    }
    pivots.finish(distance)
}

/// Adds the expected moments of the rows, with weighted responsibilities `r`, to the sums of a component.
#[inline(always)]
pub(super) fn add<W: Words<f64>>(
    rows: Rows<W>,
    block: Block<'_>,
    of: &Component<'_>,
    (kept, r): (&[f64], Pair<W>),
    scratch: &mut [f64],
    sums: &mut [f64],
) {
    let (m, d) = (block.measured.len() / WIDTH, of.mean.len());
    let (lower, y) = kept.split_at(packed_len(m) * WIDTH);
    let (g, rest) = scratch.split_at_mut(m * d * WIDTH);
    let (pulled, moved) = rest.split_at_mut(d * WIDTH);
    for i in 0..m {
        let row = &lower[packed_index(i, 0) * WIDTH..];
        for j in 0..d {
            let mut value = rows.load(block.projections, i * d + j);
            for l in 0..i {
                value = rows.neg_fma(rows.load(row, l), rows.load(g, l * d + j), value);
            }
            rows.store(g, i * d + j, rows.mul(value, rows.load(row, i)));
        }
    }
    for j in 0..d {
        let mut sum = rows.splat(0.0);
        for i in 0..m {
            sum = rows.fma(rows.load(g, i * d + j), rows.load(y, i), sum);
        }
        rows.store(pulled, j, sum);
    }
    rows.accumulate(sums, 0, r, rows.splat(1.0));
    let (second, gram) = (1 + d, 1 + d + packed_len(d));
    for i in 0..d {
        rows.store(moved, i, rows.plus_common_dot(rows.splat(0.0), &of.dense[i * d..][..d], pulled));
        let own = rows.mul(r, rows.load(moved, i));
        rows.accumulate(sums, 1 + i, own, rows.splat(1.0));
        for j in 0..=i {
            rows.accumulate(sums, second + packed_index(i, j), own, rows.load(moved, j));
            let mut product = rows.splat(0.0);
            for l in 0..m {
                product = rows.fma(rows.load(g, l * d + i), rows.load(g, l * d + j), product);
            }
            rows.accumulate(sums, gram + packed_index(i, j), r, product);
        }
    }
}
