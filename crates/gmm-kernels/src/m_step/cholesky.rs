//! Cholesky factors by a block: column by column, a row per thread, with the sums of `gmm_model::Cholesky`.

use crate::THREADS;
use crate::device::{self, Shared, block_sum, thread};
use crate::layout::{packed_index, packed_len};
use crate::math::ln_f64;

/// How a factorisation ended; the same in all threads.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    /// 0, or 1 and the column of the failing pivot.
    pub(super) failed: u32,
    /// That pivot, or 0.
    pub(super) pivot: f64,
    /// Σ ln of the factor's diagonal.
    pub(super) half_ln_det: f64,
}

/// Writes the lower factor of the packed `(d, d)` matrix `a` to `l`, packed. All threads call this, after a barrier.
#[inline(always)]
pub(super) unsafe fn factor(a: *const f64, l: *mut f64, d: u32) -> Outcome {
    let t = thread::thread_idx_x();
    let known = l.cast_const();
    let mut j = 0;
    // SAFETY: rows and columns are below `d`; entry `(i, j)` is written by one thread, and read by others after a barrier.
    unsafe {
        while j < d {
            // What is left of column j after those before it; the pivot's row is this thread's if `t` is 0.
            let mut i = j + t;
            while i < d {
                let mut dot = 0.0;
                let mut m = 0;
                while m < j {
                    dot += device::load(known, packed_index(i, m)) * device::load(known, packed_index(j, m));
                    m += 1;
                }
                device::store(l, packed_index(i, j), device::load(a, packed_index(i, j)) - dot);
                i += THREADS;
            }
            thread::sync_threads();
            let rest = device::load(known, packed_index(j, j));
            let least = (d + 1) as f64 * f64::EPSILON * device::load(a, packed_index(j, j));
            // Also false for NaN. The same in all threads, so all leave together.
            if !(rest > least && rest > 0.0 && rest < f64::INFINITY) {
                return Outcome { failed: j + 1, pivot: rest, half_ln_det: 0.0 };
            }
            let root = crate::Real::sqrt(rest);
            thread::sync_threads();
            let mut i = j + t;
            while i < d {
                let value = if i == j { root } else { device::load(known, packed_index(i, j)) / root };
                device::store(l, packed_index(i, j), value);
                i += THREADS;
            }
            thread::sync_threads();
            j += 1;
        }
        let mut sum = 0.0;
        let mut i = t;
        while i < d {
            sum += ln_f64(device::load(known, packed_len(i + 1) - 1));
            i += THREADS;
        }
        let half_ln_det = block_sum(sum, Shared::at(0));
        Outcome { failed: 0, pivot: 0.0, half_ln_det }
    }
}
