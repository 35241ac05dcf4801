//! First moments and the traces of the second moments.

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

/// Σ r q, where `q` are the squared distances to the centre; a distance that overflowed has responsibility 0 and is
/// skipped.
#[inline(always)]
pub(super) fn second<T: Real, W: Words<T>>(w: W, r: &[T], q: &[T]) -> f64 {
    assert!(r.len() == q.len());
    let zero = w.splat(T::ZERO);
    let mut sum = zero;
    for (r, q) in r.chunks_exact(W::LANES).zip(q.chunks_exact(W::LANES)) {
        // SAFETY: both chunks hold LANES values.
        unsafe {
            let r = w.load(r.as_ptr());
            sum = w.add(sum, w.select_lt(zero, r, w.mul(r, w.load(q.as_ptr())), zero));
        }
    }
    w.sum(sum).to_f64()
}
