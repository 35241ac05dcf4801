//! Rows with independent errors and no projections under diag and spherical covariances: every column by itself.
//!
//! With `g = σ² / (σ² + s²)` the true value is `b − μ = g z` and its variance `g s²`.

use super::component::Component;
use super::factor::{Factor, Pivots};
use super::lanes::{Pair, Rows};
use super::layout::Block;
use crate::cpu::simd::Words;

/// Sums of a component: `Σ r`, `Σ r (b − μ)` and `Σ r ((b − μ)² + B)` of each column.
pub(super) const fn sums(d: usize) -> usize {
    1 + 2 * d
}

/// Writes the log joint densities. `of.covariance` are variances, `(d,)`.
#[inline(always)]
pub(super) fn factor<W: Words<f64>>(rows: Rows<W>, block: Block<'_>, of: &Component<'_>) -> Factor<W> {
    let mut pivots = Pivots::new(rows, 0);
    let mut distance = rows.splat(0.0);
    for (j, mean) in of.mean.iter().enumerate() {
        let mut variance = rows.splat(of.covariance[j]);
        let mut z = rows.sub(rows.load(block.measured, j), rows.splat(*mean));
        if let Some(mask) = block.mask {
            let own = rows.load(mask, j);
            (variance, z) = (rows.mul(variance, own), rows.mul(z, own));
        }
        let total = rows.add(variance, rows.load(block.errors, j));
        let scaled = rows.mul(z, pivots.reciprocal_root(j, total, total));
        distance = rows.fma(scaled, scaled, distance);
    }
    pivots.finish(distance)
}

/// Adds the expected moments of the rows, with weighted responsibilities `r`, to the sums of a component.
#[inline(always)]
pub(super) fn add<W: Words<f64>>(rows: Rows<W>, block: Block<'_>, of: &Component<'_>, r: Pair<W>, sums: &mut [f64]) {
    let d = of.mean.len();
    rows.accumulate(sums, 0, r, rows.splat(1.0));
    for (j, mean) in of.mean.iter().enumerate() {
        let variance = rows.splat(of.covariance[j]);
        let error = rows.load(block.errors, j);
        let z = rows.sub(rows.load(block.measured, j), rows.splat(*mean));
        let gain = rows.div(variance, rows.add(variance, error));
        let (mut moved, mut rest) = (rows.mul(gain, z), rows.mul(gain, error));
        if let Some(mask) = block.mask {
            let (mask, half) = (rows.load(mask, j), rows.splat(0.5));
            moved = rows.select_lt(mask, half, rows.splat(0.0), moved);
            rest = rows.select_lt(mask, half, variance, rest);
        }
        rows.accumulate(sums, 1 + j, r, moved);
        rows.accumulate(sums, 1 + d + j, r, rows.fma(moved, moved, rest));
    }
}
