//! Reductions over a block, in a fixed order.

use super::{Shared, WARP, thread, warp};

/// Sum of `value` over the block's threads, in the same order every time; every thread gets it.
///
/// `scratch` holds one number per warp. All threads call this; it starts and ends with a barrier, so `scratch` may be
/// used before and after.
#[inline(always)]
pub fn block_sum(value: f64, scratch: Shared<f64>) -> f64 {
    let mut sum = value;
    let mut step = WARP / 2;
    while step > 0 {
        sum += warp::shuffle_xor(sum, step);
        step /= 2;
    }
    thread::sync_threads();
    if warp::lane_id() == 0 {
        scratch.store(thread::thread_idx_x() / WARP, sum);
    }
    thread::sync_threads();
    let mut total = 0.0;
    let mut w = 0;
    while w < thread::block_dim_x() / WARP {
        total += scratch.load(w);
        w += 1;
    }
    thread::sync_threads();
    total
}

/// The largest of all threads' `value`, none of which is negative; every thread gets it.
///
/// `scratch` holds one number per warp. All threads call this; it starts with a barrier, and `scratch` may be used again
/// behind another.
#[inline(always)]
pub fn block_max(value: f32, scratch: Shared<f32>) -> f32 {
    let larger = |a: f32, b: f32| if b > a { b } else { a };
    let mut most = value;
    let mut step = WARP / 2;
    while step > 0 {
        most = larger(most, warp::shuffle_xor(most, step));
        step /= 2;
    }
    thread::sync_threads();
    if warp::lane_id() == 0 {
        scratch.store(thread::thread_idx_x() / WARP, most);
    }
    thread::sync_threads();
    let mut w = 0;
    while w < thread::block_dim_x() / WARP {
        most = larger(most, scratch.load(w));
        w += 1;
    }
    most
}
