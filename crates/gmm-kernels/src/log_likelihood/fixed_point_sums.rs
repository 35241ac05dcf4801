//! Reduction of the threads' sums to the log-likelihoods over all rows.

use super::fixed_point::{FixedPointPass, THREADS, WARPS};
use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;

/// Writes the block's sum for each of the unit's mixtures; `of_row` mixtures share each thread's sum. The last block of
/// a unit, detected with `counter`, adds up the sums of all blocks.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`FixedPointPass`]. All threads of the block must call
/// this.
#[inline(always)]
pub(crate) unsafe fn store(a: &FixedPointPass, sums: Shared<f64>, of_row: u32, counter: *mut u32) {
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (unit, sets) = (thread::block_idx_y(), a.sets);
    // The warps' sums overwrite the coefficients.
    thread::sync_threads();
    let all = Shared::<f64>::at(0);
    let mut set = 0;
    while set < sets {
        let mut sum = sums.load(set / of_row * THREADS + t);
        each(3, |i| sum += warp::shuffle_xor(sum, 4 << i));
        if lane < of_row {
            all.store(me * sets + set + lane, sum);
        }
        set += of_row;
    }
    thread::sync_threads();
    if t < sets {
        let mut sum = 0.0;
        each(WARPS as usize, |w| sum += all.load(w as u32 * sets + t));
        let at = thread::block_idx_x() as u64 * a.stride + (unit * sets + t) as u64;
        // SAFETY: `unit*sets + t` is one of the unit's mixtures, so `at` is within this block's `stride` partial
        // results.
        unsafe { device::store(a.partials, at, sum * core::f64::consts::LN_2) };
    }
    thread::sync_threads();
    let blocks = thread::grid_dim_x();
    if t == 0 {
        // SAFETY: `counter` is in the unit's header, and the blocks of the unit change it only by this atomic addition.
        let before = unsafe { device::count_block(counter) };
        all.store(0, if before == blocks - 1 { 1.0 } else { 0.0 });
    }
    thread::sync_threads();
    if all.load(0) != 0.0 {
        // SAFETY: the counter shows that all blocks of the unit have written their partial results.
        unsafe { total(a, unit, sets, blocks) };
    }
}

/// Adds up the unit's values over all blocks: each warp handles one mixture at a time.
#[inline(always)]
unsafe fn total(a: &FixedPointPass, unit: u32, sets: u32, blocks: u32) {
    /// Partial results that a lane reads together, so that their latencies overlap.
    const TOGETHER: usize = 5;
    let (lane, mut set) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    while set < sets {
        let (mut sum, at) = (0.0, (unit * sets + set) as u64);
        let mut block = lane;
        while block < blocks.next_multiple_of(WARP) {
            let mut some = [0.0; TOGETHER];
            each(TOGETHER, |i| {
                let block = block + i as u32 * WARP;
                if block < blocks {
                    // SAFETY: `block < blocks` and `at < stride`.
                    some[i] = unsafe { device::load(a.partials.cast_const(), block as u64 * a.stride + at) };
                }
            });
            each(TOGETHER, |i| sum += some[i]);
            block += TOGETHER as u32 * WARP;
        }
        each(5, |i| sum += warp::shuffle_xor(sum, 1 << i));
        if lane == 0 {
            // SAFETY: `at` is one of the unit's mixtures, of which `values` has one number each.
            unsafe { device::store(a.values, at, sum) };
        }
        set += WARPS;
    }
}
