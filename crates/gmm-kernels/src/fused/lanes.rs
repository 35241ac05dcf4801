//! What the passes share: reductions over the lanes of a row, and a row's weight.

use crate::Real;
use crate::device::{self, warp};

/// The weight of a row of `n`, where there are weights; 0 past the last.
///
/// # Safety
/// The weights are `(n,)` or null.
#[inline(always)]
pub(super) unsafe fn row_weight(row_weights: *const f64, n: u64, row: u64) -> f64 {
    if row >= n {
        0.0
    } else if row_weights.is_null() {
        1.0
    } else {
        // SAFETY: `row < n`.
        unsafe { device::load(row_weights, row) }
    }
}

/// A reduction over the four lanes that share a row.
#[inline(always)]
pub(super) fn quad<T: Real>(v: T, with: impl Fn(T, T) -> T) -> T {
    let v = with(v, warp::shuffle_xor(v, 1));
    with(v, warp::shuffle_xor(v, 2))
}

#[inline(always)]
pub(super) fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}
