//! The largest numbers of each row: see [`products`](crate::products).
//!
//! The order of numbers is one of words: digit by digit, from the first, is found what the last of the wanted is, by counting.
//! Then those above it are taken, and of its equals the first.

use crate::device::words::{shared_load_u32, shared_store_u32};
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

kernels! {
    /// Any grid in `x`: a block takes a row at a time.
    Select<T> {
        /// `(rows, m)`, row by row.
        values: *const T,
        /// Rows.
        rows: u64,
        /// Numbers of a row, fewer than 2³¹.
        m: u32,
        /// How many are wanted, from 1 to `m`.
        count: u32,
        /// `(rows, count)`, written: where they are, those above the last of them first, in no other order.
        indices: *mut u32,
        /// `(rows, count)`, written: what they are.
        found: *mut T,
    }
    /// The kernel.
    select => select_f32, select_f64, body::<T>, shared::<T>;
}

const WARPS: u32 = THREADS / WARP;

/// Numbers that a thread reads together.
const AT_ONCE: usize = 8;

/// Values of a digit.
const DIGITS: u32 = 16;

/// Where totals lie in shared memory: behind the counts of each thread.
const TOTALS: u32 = 4 * DIGITS * THREADS;

#[cfg(not(target_arch = "nvptx64"))]
fn shared<T: Real>(_: &Select<T>) -> u64 {
    u64::from(TOTALS + 4 * DIGITS)
}

/// Larger where the number is: NaN is less than all, and both zeros are the same.
#[inline(always)]
fn order<T: Real>(value: T) -> u64 {
    // An `f32`'s digits are the first 32 of these, in their order, with three bits more of the exponent.
    let value = value.to_f64();
    if value.is_nan() {
        return 0;
    }
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Digits by which two of `T` differ: an `f32` in `f64` ends with 29 equal bits.
#[inline(always)]
const fn digits<T: Real>() -> u32 {
    if T::BYTES == 4 { 9 } else { 16 }
}

/// The kernel.
///
/// # Safety
/// As the fields of [`Select`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Select<T>) {
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let mut row = thread::block_idx_x() as u64;
    while row < a.rows {
        let values = a.values.wrapping_add((row * a.m as u64) as usize);
        // Read together, so that their latencies pass together; those past the end are the last.
        let keys = |first: u32, step: u32| {
            let mut keys = [0; AT_ONCE];
            each(AT_ONCE, |i| {
                let at = first + step * i as u32;
                // SAFETY: a number of the row.
                keys[i] = order(unsafe { device::load(values, (if at < a.m { at } else { a.m - 1 }) as u64) });
            });
            keys
        };
        // The first digits of the last that is wanted, and how many are still wanted of those that begin so.
        let (mut last, mut wanted) = (0_u64, a.count);
        let mut shift = 64;
        while shift > 64 - 4 * digits::<T>() {
            shift -= 4;
            let own = |digit: u32| 4 * (digit * THREADS + t);
            each(DIGITS as usize, |digit| shared_store_u32(own(digit as u32), 0));
            let mut i = t;
            while i < a.m {
                let keys = keys(i, THREADS);
                each(AT_ONCE, |turn| {
                    let (key, is_there) = (keys[turn], i + THREADS * (turn as u32) < a.m);
                    // Of the first digit all begin alike.
                    if is_there && (shift == 60 || key >> (shift + 4) == last) {
                        let at = own((key >> shift) as u32 % DIGITS);
                        shared_store_u32(at, shared_load_u32(at) + 1);
                    }
                });
                i += THREADS * AT_ONCE as u32;
            }
            thread::sync_threads();
            each((DIGITS / WARPS) as usize, |i| {
                let digit = me * (DIGITS / WARPS) + i as u32;
                let mut sum = 0;
                each(WARPS as usize, |w| sum += shared_load_u32(4 * (digit * THREADS + lane + WARP * w as u32)));
                each(5, |by| sum += warp::shuffle_xor_u32(sum, 1 << by));
                if lane == 0 {
                    shared_store_u32(TOTALS + 4 * digit, sum);
                }
            });
            thread::sync_threads();
            let (mut digit, mut is_found) = (0, false);
            each(DIGITS as usize, |i| {
                let here = DIGITS - 1 - i as u32;
                let there = shared_load_u32(TOTALS + 4 * here);
                if !is_found && there >= wanted {
                    (digit, is_found) = (here, true);
                } else if !is_found {
                    wanted -= there;
                }
            });
            last = last << 4 | digit as u64;
            // All have read the totals before they are counted anew: behind the next barrier. Own counts are a thread's.
            thread::sync_threads();
        }
        // Each thread takes neighbours, so that what is before its own is known from a sum.
        let long = a.m.div_ceil(THREADS);
        let first = if t * long < a.m { t * long } else { a.m };
        let end = if first + long < a.m { first + long } else { a.m };
        let (mut above, mut equal) = (0, 0);
        let mut i = first;
        while i < end {
            let keys = keys(i, 1);
            each(AT_ONCE, |turn| {
                let (key, is_there) = (keys[turn] >> shift, i + (turn as u32) < end);
                above += (is_there && key > last) as u32;
                equal += (is_there && key == last) as u32;
            });
            i += AT_ONCE as u32;
        }
        shared_store_u32(4 * t, above);
        shared_store_u32(4 * (THREADS + t), equal);
        thread::sync_threads();
        let (mut at, mut equals) = (0, 0);
        let mut before = 0;
        while before < t {
            at += shared_load_u32(4 * before);
            equals += shared_load_u32(4 * (THREADS + before));
            before += 1;
        }
        let put = |at: u32, i: u32| {
            let to = row * a.count as u64 + at as u64;
            // SAFETY: a place that is this number's alone.
            unsafe {
                device::store(a.indices, to, i);
                device::store(a.found, to, device::load(values, i as u64));
            }
        };
        let mut i = first;
        while i < end {
            // SAFETY: a number of the row.
            let key = order(unsafe { device::load(values, i as u64) }) >> shift;
            if key > last {
                put(at, i);
                at += 1;
            } else if key == last {
                if equals < wanted {
                    put(a.count - wanted + equals, i);
                }
                equals += 1;
            }
            i += 1;
        }
        thread::sync_threads();
        row += thread::grid_dim_x() as u64;
    }
}
