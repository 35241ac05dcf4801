//! A tied covariance: one block for all components.

use super::{MStep, cholesky};
use crate::THREADS;
use crate::device::{self, thread};
use crate::layout::{packed_index, second_at};

/// The kernel.
///
/// # Safety
/// As the fields of [`MStep`] say.
#[inline(always)]
pub unsafe fn body(a: MStep) {
    let t = thread::thread_idx_x();
    // SAFETY: `c < k`; indices into the packed triangle are below its length.
    unsafe {
        let total = a.total();
        let mut c = 0;
        while c < a.k {
            a.write_mean(a.component(c, total));
            c += 1;
        }
        let mut i = 0;
        while i < a.d {
            let mut j = t;
            while j <= i {
                // Σ over components of Σr δδᵀ moves the pooled moments from the centres to the new means.
                let mut correction = 0.0;
                let mut c = 0;
                while c < a.k {
                    let weight = device::load(a.statistics, c as u64);
                    let of = super::Component { c, weight, empty: weight <= f64::EPSILON * total };
                    correction += weight * a.shift(of, i) * a.shift(of, j);
                    c += 1;
                }
                let raw = device::load(a.statistics, second_at(a.k, a.d) + packed_index(i, j));
                let reg = if i == j { a.reg_covar } else { 0.0 };
                device::store(a.covariances, packed_index(i, j), (raw - correction) / total + reg);
                j += THREADS;
            }
            i += 1;
        }
        thread::sync_threads();
        let outcome = cholesky::factor(a.covariances.cast_const(), a.factors, a.d);
        let mut c = t;
        while c < a.k {
            device::store(a.log_normalizers, c as u64, a.log_normalizer(outcome.half_ln_det));
            c += THREADS;
        }
        if t == 0 {
            a.report(0, outcome.failed, outcome.pivot);
        }
    }
}
