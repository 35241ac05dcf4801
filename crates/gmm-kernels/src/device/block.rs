//! Reductions over a block, in a fixed order.

use super::{Shared, WARP, thread, warp};
use crate::THREADS;
use crate::each::each;

/// Returns the sum of `value` over the block's threads to every thread, adding in the same order every time.
///
/// `scratch` holds one number per warp. All threads must call this. It starts and ends with a barrier, so `scratch` may
/// be used before and after. Blocks must have [`THREADS`] threads.
#[inline(always)]
pub fn block_sum(value: f64, scratch: Shared<f64>) -> f64 {
    block_sums([value], scratch)[0]
}

/// Returns `M` block sums for the barriers of one; `scratch` holds `M` numbers per warp.
#[inline(always)]
pub fn block_sums<const M: usize>(values: [f64; M], scratch: Shared<f64>) -> [f64; M] {
    block_sums_of(values, scratch, THREADS / WARP)
}

/// [`block_sums`] for a block of `warps` warps.
#[inline(always)]
pub fn block_sums_of<const M: usize>(values: [f64; M], scratch: Shared<f64>, warps: u32) -> [f64; M] {
    let sums = warp_sums(values);
    thread::sync_threads();
    if warp::lane_id() == 0 {
        each(M, |i| scratch.store(thread::thread_idx_x() / WARP * M as u32 + i as u32, sums[i]));
    }
    thread::sync_threads();
    let mut total = [0.0; M];
    each(warps as usize, |w| each(M, |i| total[i] += scratch.load((w * M + i) as u32)));
    thread::sync_threads();
    total
}

/// Returns the sums over the warp's lanes to every lane.
#[inline(always)]
pub fn warp_sums<const M: usize>(values: [f64; M]) -> [f64; M] {
    let mut sums = values;
    let mut step = WARP / 2;
    while step > 0 {
        each(M, |i| sums[i] += warp::shuffle_xor(sums[i], step));
        step /= 2;
    }
    sums
}

/// As [`warp_sums`] if only the first `lanes` lanes have numbers other than 0: these lanes get the sums.
#[inline(always)]
pub fn first_lanes_sums<const M: usize>(values: [f64; M], lanes: u32) -> [f64; M] {
    let (mut sums, mut step) = (values, 1);
    while step < lanes {
        each(M, |i| sums[i] += warp::shuffle_xor(sums[i], step));
        step *= 2;
    }
    sums
}

/// Returns the largest `value` of the block's threads to every thread; no `value` may be negative.
///
/// `scratch` holds one number per warp. All threads must call this. It starts with a barrier; `scratch` may be reused
/// after a further one.
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
    each((THREADS / WARP) as usize, |w| most = larger(most, scratch.load(w as u32)));
    most
}
