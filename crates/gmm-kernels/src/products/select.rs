//! The largest numbers of each row; see [`products`](crate::products).
//!
//! Numbers are mapped to 64-bit keys of the same order. A radix select finds the key of the smallest wanted number,
//! digit by digit from the most significant, by counting. The numbers above it are then taken, and the first of those
//! equal to it.

use crate::device::words::{shared_load_u32, shared_store_u32};
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

kernels! {
    /// Any grid in `x`; a block processes a row at a time.
    Select<T> {
        /// `(rows, m)`, row-major.
        values: *const T,
        /// Rows.
        rows: u64,
        /// Numbers per row, fewer than 2³¹.
        m: u32,
        /// Number of values to select, from 1 to `m`.
        count: u32,
        /// `(rows, count)`, written: column indices; those above the threshold first, otherwise unsorted.
        indices: *mut u32,
        /// `(rows, count)`, written: the selected values.
        found: *mut T,
    }
    /// The kernel.
    select => select_f32, select_f64, body::<T>, shared::<T>;
}

const WARPS: u32 = THREADS / WARP;

/// Numbers that a thread reads together.
const AT_ONCE: usize = 8;

/// Number of values of a digit.
const DIGITS: u32 = 16;

/// Byte position of the totals in shared memory, behind each thread's counts.
const TOTALS: u32 = 4 * DIGITS * THREADS;

#[cfg(not(target_arch = "nvptx64"))]
fn shared<T: Real>(_: &Select<T>) -> u64 {
    u64::from(TOTALS + 4 * DIGITS)
}

/// Key that is larger for a larger number: NaN has the smallest key, and both zeros the same.
#[inline(always)]
fn order<T: Real>(value: T) -> u64 {
    // The digits of an `f32` are the first 32 bits of this in the same order, with three more bits of the exponent.
    let value = value.to_f64();
    if value.is_nan() {
        return 0;
    }
    let bits = if value == 0.0 { 0 } else { value.to_bits() };
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// Number of significant key digits: an `f32` converted to `f64` ends in 29 equal bits.
#[inline(always)]
const fn digits<T: Real>() -> u32 {
    if T::BYTES == 4 { 9 } else { 16 }
}

/// Result of the search in a row, before its numbers are taken.
#[derive(Clone, Copy)]
struct Threshold {
    /// Leading digits of the smallest wanted key.
    last: u64,
    /// Number of wanted values whose key begins with these digits.
    wanted: u32,
    /// Number of key bits after these digits.
    shift: u32,
}

/// Body of [`select`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Select`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: Select<T>) {
    let mut row = thread::block_idx_x() as u64;
    while row < a.rows {
        let values = a.values.wrapping_add((row * a.m as u64) as usize);
        // SAFETY: `row < rows`, so `values` has `m` numbers, and the row has `count` entries in both outputs.
        unsafe {
            let threshold = threshold(&a, values);
            take(&a, row, values, threshold);
        }
        thread::sync_threads();
        row += thread::grid_dim_x() as u64;
    }
}

/// Keys of some numbers, `step` apart, read together so that their latencies overlap; past the end, the last number's
/// key.
///
/// # Safety
/// `values` must have `m` numbers.
#[inline(always)]
unsafe fn keys<T: Real>(values: *const T, m: u32, first: u32, step: u32) -> [u64; AT_ONCE] {
    let mut keys = [0; AT_ONCE];
    each(AT_ONCE, |i| {
        let at = first + step * i as u32;
        // SAFETY: the index is clamped to `m - 1`.
        keys[i] = order(unsafe { device::load(values, (if at < m { at } else { m - 1 }) as u64) });
    });
    keys
}

/// Finds the leading digits of the smallest wanted key of a row; for each digit, all threads count their own numbers.
///
/// # Safety
/// `values` must have [`Select::m`] numbers.
#[inline(always)]
unsafe fn threshold<T: Real>(a: &Select<T>, values: *const T) -> Threshold {
    let t = thread::thread_idx_x();
    let (mut last, mut wanted) = (0_u64, a.count);
    let mut shift = 64;
    while shift > 64 - 4 * digits::<T>() {
        shift -= 4;
        let own = |digit: u32| 4 * (digit * THREADS + t);
        each(DIGITS as usize, |digit| shared_store_u32(own(digit as u32), 0));
        let mut i = t;
        while i < a.m {
            // SAFETY: `values` has `m` numbers.
            let keys = unsafe { keys(values, a.m, i, THREADS) };
            each(AT_ONCE, |turn| {
                let (key, is_there) = (keys[turn], i + THREADS * (turn as u32) < a.m);
                // The first digit has no prefix to compare.
                if is_there && (shift == 60 || key >> (shift + 4) == last) {
                    let at = own((key >> shift) as u32 % DIGITS);
                    shared_store_u32(at, shared_load_u32(at) + 1);
                }
            });
            i += THREADS * AT_ONCE as u32;
        }
        thread::sync_threads();
        add_up_counts();
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
        // All threads must have read the totals before they are overwritten. Counts are private to a thread.
        thread::sync_threads();
    }
    Threshold { last, wanted, shift }
}

/// Adds up all threads' counts of each digit.
#[inline(always)]
fn add_up_counts() {
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    each((DIGITS / WARPS) as usize, |i| {
        let digit = me * (DIGITS / WARPS) + i as u32;
        let mut sum = 0;
        each(WARPS as usize, |w| sum += shared_load_u32(4 * (digit * THREADS + lane + WARP * w as u32)));
        each(5, |by| sum += warp::shuffle_xor_u32(sum, 1 << by));
        if lane == 0 {
            shared_store_u32(TOTALS + 4 * digit, sum);
        }
    });
}

/// Takes a row's numbers above the threshold, and the first of those equal to it. Each thread takes consecutive
/// numbers, so that its output position follows from the preceding threads' counts.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Select`]; `values` must be the row's.
#[inline(always)]
unsafe fn take<T: Real>(a: &Select<T>, row: u64, values: *const T, threshold: Threshold) {
    let t = thread::thread_idx_x();
    let Threshold { last, wanted, shift } = threshold;
    let long = a.m.div_ceil(THREADS);
    let first = if t * long < a.m { t * long } else { a.m };
    let end = if first + long < a.m { first + long } else { a.m };
    let (mut above, mut equal) = (0, 0);
    let mut i = first;
    while i < end {
        // SAFETY: `values` has `m` numbers.
        let keys = unsafe { keys(values, a.m, i, 1) };
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
        // SAFETY: `at < count`, no other number has this position, and `i < m`.
        unsafe {
            device::store(a.indices, to, i);
            device::store(a.found, to, device::load(values, i as u64));
        }
    };
    let mut i = first;
    while i < end {
        // SAFETY: `i < m`.
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
}
