//! Functions that several paths share: reductions over the lanes of a row, and a row's weight.

use crate::Real;
use crate::device::{self, warp};

/// Returns the weight of `row`: 1 without row weights, 0 past the last of `n` rows.
///
/// # Safety
/// `row_weights` is null or has `n` elements.
#[inline(always)]
pub(crate) unsafe fn row_weight(row_weights: *const f64, n: u64, row: u64) -> f64 {
    if row >= n {
        0.0
    } else if row_weights.is_null() {
        1.0
    } else {
        // SAFETY: `row < n`, and `row_weights` is not null, so it has `n` elements.
        unsafe { device::load(row_weights, row) }
    }
}

/// Reduces over the four lanes that share a row.
#[inline(always)]
pub(crate) fn quad<T: Real>(v: T, with: impl Fn(T, T) -> T) -> T {
    let v = with(v, warp::shuffle_xor(v, 1));
    with(v, warp::shuffle_xor(v, 2))
}

#[inline(always)]
pub(crate) fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Adds up each of `G` values over the four lanes of a row: lane `l` gets the sum of value `l % G`. The order of
/// additions is the same for all lanes.
#[inline(always)]
pub(crate) fn across<const G: usize>(sums: [f32; 4], lane: u32) -> f32 {
    // Exchanges one of two values with the other lane and adds. Selects by bit masks: from conditions the compiler
    // would make branches, with shuffles in either.
    let share = |first: f32, second: f32, by: u32| {
        let [first, second] = [first, second].map(f32::to_bits);
        let changed = (first ^ second) & 0_u32.wrapping_sub((lane & by) / by);
        f32::from_bits(first ^ changed) + warp::shuffle_xor(f32::from_bits(second ^ changed), by)
    };
    match G {
        1 => {
            let two = sums[0] + warp::shuffle_xor(sums[0], 1);
            two + warp::shuffle_xor(two, 2)
        }
        2 => {
            let two = share(sums[0], sums[1], 1);
            two + warp::shuffle_xor(two, 2)
        }
        _ => share(share(sums[0], sums[1], 1), share(sums[2], sums[3], 1), 2),
    }
}
