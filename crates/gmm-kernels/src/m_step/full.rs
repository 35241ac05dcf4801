//! Full covariances: a block per component.

use super::{MStep, cholesky, variance};
use crate::THREADS;
use crate::device::{self, thread};
use crate::layout::{packed_index, packed_len, second_at};

/// The kernel.
///
/// # Safety
/// As the fields of [`MStep`] say.
#[inline(always)]
pub unsafe fn body(a: MStep) {
    let (t, c) = (thread::thread_idx_x(), thread::block_idx_x());
    let at = c as u64 * packed_len(a.d);
    // SAFETY: `c < k`; indices into packed triangles are below their length.
    unsafe {
        let of = a.component(c, a.total());
        a.write_mean(of);
        let mut i = 0;
        while i < a.d {
            let mut j = t;
            while j <= i {
                let entry = at + packed_index(i, j);
                let value = if of.empty {
                    // It already holds reg_covar.
                    device::load(a.old_covariances, entry)
                } else {
                    let raw = device::load(a.statistics, second_at(a.k, a.d) + entry);
                    let product = a.shift(of, i) * a.shift(of, j);
                    if i == j { variance(raw, of.weight, product) + a.reg_covar } else { raw / of.weight - product }
                };
                device::store(a.covariances, entry, value);
                j += THREADS;
            }
            i += 1;
        }
        thread::sync_threads();
        let (covariance, factor) = (a.covariances.wrapping_add(at as usize), a.factors.wrapping_add(at as usize));
        let outcome = cholesky::factor(covariance.cast_const(), factor, a.d);
        if t == 0 {
            a.report(c, outcome.failed, outcome.pivot);
            device::store(a.log_normalizers, c as u64, a.log_normalizer(outcome.half_ln_det));
        }
    }
}
