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
