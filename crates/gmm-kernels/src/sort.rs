//! A stable sort of items by small keys: radix sort, eight bits of the keys at a time, the lowest first.
//!
//! ```text
//! for each eight bits of the keys:
//!     sort_count     counts[digit][block] <- keys of each digit in the block's part
//!     sort_scan      counts[digit]        <- sums of the blocks before; totals[digit] <- sum of all
//!     sort_place     each item to: digits below its own, then blocks, warps, steps and lanes before its own
//! ```
//! Equal keys keep their order, so the result depends on the keys alone. Lanes of a warp with the same digit find one another
//! by eight ballots, one for each bit; there are no atomics.

use crate::device::{self, Integers, WARP, anew, thread, warp};
use crate::layout::TILE_ROWS;

kernels! {
    /// Sorts by the bits `shift..shift + 8` of the keys.
    Sort {
        /// Items, fewer than 2³².
        n: u64,
        /// The first bit of the keys that counts.
        shift: u32,
        /// Blocks that share the items, [`blocks`] of `n`.
        blocks: u32,
        /// `(n,)`: what each item is; keys unless there are `ranks`.
        labels: *const u32,
        /// The key of each label; or null if labels are keys.
        ranks: *const u32,
        /// `(n,)`: the items; or null if they are `0..n`.
        items: *const u32,
        /// `(256, blocks)`.
        counts: *mut u32,
        /// `(256,)`.
        totals: *mut u32,
        /// `(n,)`, written by `sort_place`: the sorted items' keys, or null.
        sorted_keys: *mut u32,
        /// `(n,)`, written by `sort_place`: the items by these bits, equal ones in their order.
        sorted_items: *mut u32,
    }
    /// [`blocks`] blocks.
    sort_count => count, counters_shared;
    /// One block for each of [`DIGITS`].
    sort_scan => scan, scan_shared;
    /// [`blocks`] blocks.
    sort_place => place, counters_shared;
}

/// Values of eight bits.
pub const DIGITS: u32 = 256;

/// Bits of a digit.
pub const BITS: u32 = 8;

const WARPS: u32 = TILE_ROWS / WARP;

/// Items of a warp of `sort_count` and `sort_place`.
const OF_WARP: u64 = 1024;

/// Blocks that share `n` items.
pub const fn blocks(n: u64) -> u64 {
    n.div_ceil(OF_WARP * WARPS as u64)
}

#[cfg(not(target_arch = "nvptx64"))]
fn counters_shared(_: &Sort) -> u64 {
    u64::from(4 * (WARPS + 1) * DIGITS)
}

#[cfg(not(target_arch = "nvptx64"))]
fn scan_shared(_: &Sort) -> u64 {
    u64::from(4 * WARPS)
}

/// A warp's part of the items: calls `f(item's position, its key, its digit)` for 32 of them at a time, in their order; past the
/// last item the digit is [`DIGITS`].
#[inline(always)]
unsafe fn over(a: &Sort, mut f: impl FnMut(u64, u32, u32)) {
    let (lane, of_warp) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let first = (thread::block_idx_x() * WARPS + of_warp) as u64 * OF_WARP;
    let mut from = first;
    while from < first + OF_WARP && from < a.n {
        let i = from + lane as u64;
        let (mut key, mut digit) = (0, DIGITS);
        if i < a.n {
            // SAFETY: `i < n`, and `ranks` has every label.
            key = unsafe { device::load(a.labels, i) };
            if !a.ranks.is_null() {
                // SAFETY: as above.
                key = unsafe { device::load(a.ranks, key as u64) };
            }
            digit = (key >> a.shift) % DIGITS;
        }
        f(i, key, digit);
        from += WARP as u64;
    }
}

/// The lanes of the warp that have this digit; all lanes call it.
#[inline(always)]
fn peers(digit: u32) -> u32 {
    let mut same = u32::MAX;
    let mut bit = 0;
    // Nine bits: one more tells lanes past the last item.
    while bit <= BITS {
        let mine = digit >> bit & 1 == 1;
        let with = warp::ballot(mine);
        same &= if mine { with } else { !with };
        bit += 1;
    }
    same
}

/// Writes the numbers of each digit in a warp's part to its counters.
#[inline(always)]
unsafe fn count_digits(a: &Sort, counters: Integers) {
    let mut i = warp::lane_id();
    while i < DIGITS {
        counters.store(i, 0);
        i += WARP;
    }
    warp::sync_warp();
    // SAFETY: the caller upholds the lengths of the fields.
    unsafe {
        over(a, |_, _, digit| {
            let same = peers(digit);
            if digit < DIGITS && same & warp::lanes_below() == 0 {
                counters.store(digit, counters.load(digit) + same.count_ones());
            }
            warp::sync_warp();
        });
    }
}

/// # Safety
/// The buffers in `a` are as the fields of [`Sort`] document.
#[inline(always)]
unsafe fn count(a: Sort) {
    device::await_previous_grid();
    let t = thread::thread_idx_x();
    // SAFETY: the caller upholds `# Safety`.
    unsafe { count_digits(&a, Integers::at(t / WARP * DIGITS)) };
    thread::sync_threads();
    let mut digit = t;
    while digit < DIGITS {
        let (mut sum, mut w) = (0, 0);
        while w < WARPS {
            sum += Integers::at(w * DIGITS).load(digit);
            w += 1;
        }
        let at = digit as u64 * a.blocks as u64 + thread::block_idx_x() as u64;
        // SAFETY: `digit < 256`, and the block is below `blocks`.
        unsafe { device::store(a.counts, at, sum) };
        digit += TILE_ROWS;
    }
}

/// The sum of `value` in the lanes below this one, and in all.
#[inline(always)]
fn warp_scan(value: u32) -> (u32, u32) {
    let lane = warp::lane_id();
    let (mut sum, mut step) = (value, 1);
    while step < WARP {
        let other = warp::shuffle_idx_u32(sum, if lane >= step { lane - step } else { lane });
        sum += if lane >= step { other } else { 0 };
        step *= 2;
    }
    (sum - value, warp::shuffle_idx_u32(sum, WARP - 1))
}

/// The sum of `value` in the threads below this one, and in all of the block. It ends with a barrier.
#[inline(always)]
fn block_scan(value: u32, scratch: Integers) -> (u32, u32) {
    let (mut before, all) = warp_scan(value);
    let own = thread::thread_idx_x() / WARP;
    if warp::lane_id() == 0 {
        scratch.store(own, all);
    }
    thread::sync_threads();
    let (mut sum, mut w) = (0, 0);
    while w < WARPS {
        let of_warp = scratch.load(w);
        if w < own {
            before += of_warp;
        }
        sum += of_warp;
        w += 1;
    }
    thread::sync_threads();
    (before, sum)
}

/// # Safety
/// The buffers in `a` are as the fields of [`Sort`] document.
#[inline(always)]
unsafe fn scan(a: Sort) {
    device::await_previous_grid();
    let (digit, t) = (thread::block_idx_x() as u64, thread::thread_idx_x());
    let (mut sum, mut from) = (0, 0);
    while from < a.blocks {
        let at = digit * a.blocks as u64 + (from + t) as u64;
        let there = from + t < a.blocks;
        // SAFETY: the block is below `blocks`, if it is there.
        let value = if there { unsafe { device::load(a.counts.cast_const(), at) } } else { 0 };
        let (before, all) = block_scan(value, Integers::at(0));
        if anew(there) {
            // SAFETY: as above.
            unsafe { device::store(a.counts, at, sum + before) };
        }
        sum += all;
        from += TILE_ROWS;
    }
    if t == 0 {
        // SAFETY: the grid has one block for each digit.
        unsafe { device::store(a.totals, digit, sum) };
    }
}

/// # Safety
/// The buffers in `a` are as the fields of [`Sort`] document.
#[inline(always)]
unsafe fn place(a: Sort) {
    const { assert!(DIGITS == 2 * TILE_ROWS) };
    device::await_previous_grid();
    let t = thread::thread_idx_x();
    let (own, scratch) = (Integers::at(t / WARP * DIGITS), Integers::at(WARPS * DIGITS));
    // SAFETY: the caller upholds `# Safety`; digits are below 256 and the block below `blocks`.
    unsafe {
        count_digits(&a, own);
        let total = |digit: u32| device::load(a.totals.cast_const(), digit as u64);
        // Two digits for each thread.
        let (first, second) = (total(2 * t), total(2 * t + 1));
        let (before, _) = block_scan(first + second, scratch);
        let mut i = 0;
        while i < 2 {
            let digit = 2 * t + i;
            let of_block = digit as u64 * a.blocks as u64 + thread::block_idx_x() as u64;
            let mut next = before + i * first + device::load(a.counts.cast_const(), of_block);
            let mut w = 0;
            while w < WARPS {
                let of_warp = Integers::at(w * DIGITS);
                let count = of_warp.load(digit);
                of_warp.store(digit, next);
                next += count;
                w += 1;
            }
            i += 1;
        }
        thread::sync_threads();
        over(&a, |i, key, digit| {
            let same = peers(digit);
            let first = if digit < DIGITS { own.load(digit) } else { 0 };
            warp::sync_warp();
            if anew(digit < DIGITS) {
                let to = (first + (same & warp::lanes_below()).count_ones()) as u64;
                let item = if a.items.is_null() { i as u32 } else { device::load(a.items, i) };
                device::store(a.sorted_items, to, item);
                if !a.sorted_keys.is_null() {
                    device::store(a.sorted_keys, to, key);
                }
                if same & warp::lanes_below() == 0 {
                    own.store(digit, first + same.count_ones());
                }
            }
            warp::sync_warp();
        });
    }
}
