//! What the passes share: reductions over the lanes of a row, and a row's weight.

use crate::Real;
use crate::device::{self, warp};

/// The weight of a row of `n`, where there are weights; 0 past the last.
///
/// # Safety
/// The weights are `(n,)` or null.
#[inline(always)]
pub(crate) unsafe fn row_weight(row_weights: *const f64, n: u64, row: u64) -> f64 {
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
pub(crate) fn quad<T: Real>(v: T, with: impl Fn(T, T) -> T) -> T {
    let v = with(v, warp::shuffle_xor(v, 1));
    with(v, warp::shuffle_xor(v, 2))
}

#[inline(always)]
pub(crate) fn larger<T: Real>(a: T, b: T) -> T {
    if b > a { b } else { a }
}

/// Adds up what the four lanes of a row have, of each of `G`: each lane gets the sum of its own, `lane % G`. The order is the
/// same for all.
#[inline(always)]
pub(crate) fn across<const G: usize>(sums: [f32; 4], lane: u32) -> f32 {
    // What a lane keeps of two, and the other lane's share of what it gives away. By bits: of conditions the compiler makes
    // branches, with shuffles in either.
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
