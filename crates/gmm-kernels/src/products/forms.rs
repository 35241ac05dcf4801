//! Quadratic forms and squared norms from the sums of a product; see [`products`](crate::products).

use super::finish::total;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

/// Query rows that a thread block processes at a time.
pub const TOGETHER: u32 = WARP;

kernels! {
    /// Any grid in `x`; a block processes 32 queries at a time.
    Forms<T> {
        /// `(slices, sums_len(d, n))`: products of a matrix's rows with the queries.
        sums: *const f64,
        /// Number of slices.
        slices: u32,
        /// Rows of the matrix.
        d: u64,
        /// Number of queries.
        n: u64,
        /// `(n, d)`: the queries, or null.
        x: *const T,
        /// If not 0, queries are column-major; otherwise row-major.
        by_columns: u32,
        /// `(n,)`, written: Σ 2xᵢ·sumᵢ, or Σ sumᵢ² if `x` is null.
        to: *mut f64,
    }
    /// The kernel.
    forms => forms_f32, forms_f64, body::<T>, shared::<T>;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared<T: Real>(_: &Forms<T>) -> u64 {
    u64::from(8 * THREADS)
}

/// Body of [`forms`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Forms`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: Forms<T>) {
    const WARPS: u32 = THREADS / WARP;
    const AT_ONCE: usize = 4;
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let parts = Shared::<f64>::at(0);
    let mut first = thread::block_idx_x() as u64 * TOGETHER as u64;
    while first < a.n {
        let question = first + lane as u64;
        let mut sum = 0.0;
        if question < a.n {
            let mut row = me as u64;
            while row < a.d {
                let mut terms = [0.0; AT_ONCE];
                each(AT_ONCE, |i| {
                    let row = row + (WARPS * i as u32) as u64;
                    if row < a.d {
                        // SAFETY: `row < d` and `question < n`.
                        unsafe {
                            let v = total(a.sums, a.slices, (a.d, a.n), row, question);
                            let by = if a.x.is_null() {
                                v
                            } else {
                                let at = if a.by_columns != 0 { row * a.n + question } else { question * a.d + row };
                                2.0 * device::load(a.x, at).to_f64()
                            };
                            terms[i] = by * v;
                        }
                    }
                });
                each(AT_ONCE, |i| sum += terms[i]);
                row += AT_ONCE as u64 * WARPS as u64;
            }
        }
        thread::sync_threads();
        parts.store(thread::thread_idx_x(), sum);
        thread::sync_threads();
        if me == 0 && question < a.n {
            let mut all = 0.0;
            each(WARPS as usize, |w| all += parts.load(w as u32 * WARP + lane));
            // SAFETY: `question < n`, and only this lane writes it.
            unsafe { device::store(a.to, question, all) };
        }
        first += thread::grid_dim_x() as u64 * TOGETHER as u64;
    }
}
