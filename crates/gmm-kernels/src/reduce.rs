//! Sums of partial results, in a fixed order.

use crate::THREADS;
use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::each::each;

kernels! {
    /// Adds up `count` partial results of `len` numbers each.
    Reduce {
        /// `(count, len)`.
        partials: *const f64,
        /// Number of partial results.
        count: u64,
        /// Numbers in each partial result.
        len: u64,
        /// `(len,)`, overwritten or added to.
        out: *mut f64,
        /// If not 0, adds to the values in `out`.
        accumulate: u32,
    }
    /// For many numbers and few partial results: one thread per number, which adds them one after another. Any grid.
    reduce_partials => partials_body, no_shared;
    /// For few numbers and many partial results: block `x` sums number `x`. A grid of `len` blocks.
    reduce_scalars => scalars_body, sum_shared;
    /// For many numbers and many partial results: a block takes [`numbers`] numbers at a time, and its threads share
    /// the partial results of each. Any grid.
    reduce_blocks => blocks_body::<8>, blocks_shared;
    /// As [`reduce_blocks`], with more partial results read at once: for fewer numbers.
    reduce_many_blocks => blocks_body::<16>, blocks_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Reduce) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn sum_shared(_: &Reduce) -> u64 {
    u64::from(SUM_BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn blocks_shared(_: &Reduce) -> u64 {
    u64::from(THREADS / WARP * MOST * 8)
}

/// Most numbers that a block of [`reduce_blocks`] takes at a time: 8 neighbours make a read efficient.
const MOST: u32 = 8;

/// Numbers that a block of [`reduce_blocks`] takes at a time, given `len` in all: fewer if there would be few blocks.
#[inline(always)]
pub const fn numbers(len: u64) -> u32 {
    match len {
        0..=512 => 2,
        513..=8192 => 4,
        _ => MOST,
    }
}

/// Returns the kernel for many partial results of `len` numbers. If `len` is small, a thread reads more partial results
/// at once: few blocks leave registers unused.
#[cfg(not(target_arch = "nvptx64"))]
pub fn of_blocks(len: u64) -> crate::Kernel<Reduce> {
    if numbers(len) < MOST { reduce_many_blocks() } else { reduce_blocks() }
}

/// Bytes of scratch for a block sum: one `f64` per warp.
pub const SUM_BYTES: u32 = THREADS / WARP * 8;

#[inline(always)]
unsafe fn finish(a: &Reduce, i: u64, sum: f64) {
    // SAFETY: `i < len`, and only one thread handles `i`.
    unsafe {
        let before = if a.accumulate != 0 { device::load(a.out.cast_const(), i) } else { 0.0 };
        device::store(a.out, i, before + sum);
    }
}

/// Body of [`reduce_partials`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Reduce`].
#[inline(always)]
pub unsafe fn partials_body(a: Reduce) {
    let mut i = thread::index_1d();
    while i < a.len {
        let mut sum = 0.0;
        let mut s = 0;
        while s < a.count {
            // SAFETY: `s < count`, `i < len`.
            sum += unsafe { device::load(a.partials, s * a.len + i) };
            s += 1;
        }
        // SAFETY: `i < len`, and no other thread has this `i`.
        unsafe { finish(&a, i, sum) };
        i += thread::count_1d();
    }
}

/// Body of [`reduce_scalars`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Reduce`]; the grid has `len` blocks.
#[inline(always)]
pub unsafe fn scalars_body(a: Reduce) {
    let i = thread::block_idx_x() as u64;
    let mut sum = 0.0;
    let mut s = thread::thread_idx_x() as u64;
    while s < a.count {
        // SAFETY: `s < count`; `i < len`, since the grid has `len` blocks.
        sum += unsafe { device::load(a.partials, s * a.len + i) };
        s += THREADS as u64;
    }
    let sum = block_sum(sum, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: `i < len`, and only thread 0 of block `i` gets here.
        unsafe { finish(&a, i, sum) };
    }
}

/// Body of [`reduce_blocks`] and [`reduce_many_blocks`]: a thread reads `M` partial results of a number at once.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Reduce`].
#[inline(always)]
pub unsafe fn blocks_body<const M: usize>(a: Reduce) {
    device::await_previous_grid();
    let t = thread::thread_idx_x();
    let numbers = numbers(a.len);
    let (number, part, parts) = (t & (numbers - 1), t / numbers, (THREADS / numbers) as u64);
    let of_warps = Shared::<f64>::at(0);
    let mut first = thread::block_idx_x() as u64 * numbers as u64;
    while first < a.len {
        let i = first + number as u64;
        let mut sum = 0.0;
        let mut s = part as u64;
        while i < a.len && s < a.count {
            // Issue the `M` reads together, so that their latencies overlap.
            let mut some = [0.0; M];
            each(M, |j| {
                let at = s + j as u64 * parts;
                if at < a.count {
                    // SAFETY: `at < count`, `i < len`.
                    some[j] = unsafe { device::load(a.partials, at * a.len + i) };
                }
            });
            let mut left = M;
            each(M.ilog2() as usize, |_| {
                left /= 2;
                each(left, |j| some[j] = some[2 * j] + some[2 * j + 1]);
            });
            sum += some[0];
            s += M as u64 * parts;
        }
        // First add up the lanes that share a number, then the warps.
        let mut by = WARP / 2;
        while by >= numbers {
            sum += warp::shuffle_xor(sum, by);
            by /= 2;
        }
        if t % WARP < numbers {
            of_warps.store(t / WARP * numbers + number, sum);
        }
        thread::sync_threads();
        if t < numbers && i < a.len {
            let mut total = 0.0;
            let mut w = 0;
            while w < THREADS / WARP {
                total += of_warps.load(w * numbers + t);
                w += 1;
            }
            // SAFETY: `i < len` is checked above, and only thread `t` of this block has number `i`.
            unsafe { finish(&a, i, total) };
        }
        thread::sync_threads();
        first += thread::grid_dim_x() as u64 * numbers as u64;
    }
}
