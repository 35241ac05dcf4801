//! Partial results into totals, in a fixed order.

use crate::THREADS;
use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::each::each;

kernels! {
    /// `count` partial results of `len` numbers each.
    Reduce {
        /// `(count, len)`.
        partials: *const f64,
        /// Partial results.
        count: u64,
        /// Numbers in each.
        len: u64,
        /// `(len,)`, written or added to.
        out: *mut f64,
        /// Not 0: add to what is there.
        accumulate: u32,
    }
    /// Many numbers, few partial results: a thread per number, any grid; adds them one after another.
    reduce_partials => partials_body, no_shared;
    /// Few numbers, many partial results: block `x` has number `x`, a grid of `len` blocks.
    reduce_scalars => scalars_body, sum_shared;
    /// Both many: a block has [`numbers`] at a time, whose partial results its threads share. Any grid.
    reduce_blocks => blocks_body::<8>, blocks_shared;
    /// The same, with more partial results read at once: for fewer numbers.
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

/// Numbers that a block of [`reduce_blocks`] has at a time at most: neighbours make a read worth its while.
const MOST: u32 = 8;

/// Numbers that a block of [`reduce_blocks`] has at a time, where there are `len`: fewer where there would be few blocks.
#[inline(always)]
pub const fn numbers(len: u64) -> u32 {
    match len {
        0..=512 => 2,
        513..=8192 => 4,
        _ => MOST,
    }
}

/// The kernel for `len` numbers, both many. Where they are few, a thread reads more partial results at once, with registers
/// that no other block wants.
#[cfg(not(target_arch = "nvptx64"))]
pub fn of_blocks(len: u64) -> crate::Kernel<Reduce> {
    if numbers(len) < MOST { reduce_many_blocks() } else { reduce_blocks() }
}

/// Scratch of a block sum: one `f64` per warp.
pub const SUM_BYTES: u32 = THREADS / WARP * 8;

#[inline(always)]
unsafe fn finish(a: &Reduce, i: u64, sum: f64) {
    // SAFETY: `i < len`; one thread has it.
    unsafe {
        let before = if a.accumulate != 0 { device::load(a.out.cast_const(), i) } else { 0.0 };
        device::store(a.out, i, before + sum);
    }
}

/// [`reduce_partials`].
///
/// # Safety
/// As the fields of [`Reduce`] say.
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
        // SAFETY: the caller's promise.
        unsafe { finish(&a, i, sum) };
        i += thread::count_1d();
    }
}

/// [`reduce_scalars`].
///
/// # Safety
/// As the fields of [`Reduce`] say.
#[inline(always)]
pub unsafe fn scalars_body(a: Reduce) {
    let i = thread::block_idx_x() as u64;
    let mut sum = 0.0;
    let mut s = thread::thread_idx_x() as u64;
    while s < a.count {
        // SAFETY: `s < count`, `i < len`.
        sum += unsafe { device::load(a.partials, s * a.len + i) };
        s += THREADS as u64;
    }
    let sum = block_sum(sum, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: the caller's promise.
        unsafe { finish(&a, i, sum) };
    }
}

/// [`reduce_blocks`] and [`reduce_many_blocks`]: a thread reads `M` partial results of a number at once.
///
/// # Safety
/// As the fields of [`Reduce`] say.
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
            // Read together, so that their latencies pass together.
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
        // First the lanes that have the same number, then the warps.
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
            // SAFETY: the caller's promise.
            unsafe { finish(&a, i, total) };
        }
        thread::sync_threads();
        first += thread::grid_dim_x() as u64 * numbers as u64;
    }
}
