//! First moments and the traces of the second.

use super::super::simd::{Real, Words};
use super::diag;

/// `first[j] += Σ r z_j`, `second += Σ r |z|²` with `z = x − centre`.
#[inline(always)]
pub(super) fn accumulate<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    r: &[T],
    first: &mut [f64],
    second: &mut f64,
) {
    diag::columns(w, centre, x, r, |j, a, b| {
        first[j] += a;
        *second += b;
    });
}
