//! Partial results into totals, in a fixed order.

use crate::THREADS;
use crate::device::{self, Shared, WARP, block_sum, thread};

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
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Reduce) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn sum_shared(_: &Reduce) -> u64 {
    u64::from(SUM_BYTES)
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
