//! Tied covariance: each row is solved once with the shared factor; distances are then Euclidean.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::{Terms, Triangle};
use super::{solve, squared_distances, store_log_joint};

/// Writes `L⁻¹x` of `G` vectors of rows from `row` on into the second half of `scratch`, `(2*d, STRIDE)`.
#[inline(always)]
pub(super) fn solve_rows<T: Real, W: Words<T>, const G: usize>(
    w: W,
    factor: &Triangle<T>,
    x: &[T],
    row: usize,
    scratch: &mut [T],
) {
    solve::<T, W, G>(w, factor, x, &mut scratch[factor.d * STRIDE + row..], STRIDE);
}

/// `joint[c] = constant[c] − ½ |L⁻¹x − means[c]|²` for `C` components from `c` on and `WIDE` vectors of solved rows,
/// where `means`, `(k, d)`, are already solved with `L`. Cost: `d² + 3*k*d` flops per row in all. It also serves rows
/// and means multiplied by a factor of the precision, `Uᵀx`.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const C: usize>(
    w: W,
    terms: &Terms<T>,
    means: &[T],
    c: usize,
    row: usize,
    scratch: &[T],
    joint: &mut [T],
) {
    let solved = &scratch[terms.d * STRIDE + row..];
    let distances = squared_distances::<T, W, C>(w, &means[c * terms.d..], terms.d, solved);
    for (i, distance) in distances.into_iter().enumerate() {
        store_log_joint(w, terms, c + i, distance, joint);
    }
}
