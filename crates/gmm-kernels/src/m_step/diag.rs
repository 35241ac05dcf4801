//! Diagonal covariances: a block per component, a column per thread.

use super::{MStep, deviation, variance};
use crate::THREADS;
use crate::device::{self, Shared, block_sum, thread};
use crate::layout::second_at;

/// The kernel.
///
/// # Safety
/// As the fields of [`MStep`] say.
#[inline(always)]
pub unsafe fn body(a: MStep) {
    let (t, c) = (thread::thread_idx_x(), thread::block_idx_x());
    let at = c as u64 * a.d as u64;
    // SAFETY: `c < k`, `j < d`.
    unsafe {
        let of = a.component(c, a.total());
        a.write_mean(of);
        let mut half_ln_det = 0.0;
        let mut failures = 0.0;
        let mut j = t;
        while j < a.d {
            let entry = at + j as u64;
            let v = if of.empty {
                device::load(a.old_covariances, entry)
            } else {
                let shift = a.shift(of, j);
                let raw = device::load(a.statistics, second_at(a.k, a.d) + entry);
                variance(raw, of.weight, shift * shift) + a.reg_covar
            };
            device::store(a.covariances, entry, v);
            match deviation(v) {
                Some((sd, ln)) => {
                    device::store(a.factors, entry, sd);
                    half_ln_det += ln;
                }
                None => failures += 1.0,
            }
            j += THREADS;
        }
        let scratch = Shared::at(0);
        let half_ln_det = block_sum(half_ln_det, scratch);
        let failures = block_sum(failures, scratch);
        if t == 0 {
            // Rare: look for the first column again.
            let mut first = 0;
            while failures > 0.0 && deviation(device::load(a.covariances.cast_const(), at + first as u64)).is_some() {
                first += 1;
            }
            let pivot = if failures > 0.0 { device::load(a.covariances.cast_const(), at + first as u64) } else { 0.0 };
            a.report(c, if failures > 0.0 { first + 1 } else { 0 }, pivot);
            device::store(a.log_normalizers, c as u64, a.log_normalizer(half_ln_det));
        }
    }
}
