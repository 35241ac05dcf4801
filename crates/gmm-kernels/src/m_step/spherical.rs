//! Spherical covariances: a block per component.

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
    // SAFETY: `c < k`, `j < d`.
    unsafe {
        let of = a.component(c, a.total());
        a.write_mean(of);
        let mut squares = 0.0;
        let mut j = t;
        while j < a.d {
            let shift = a.shift(of, j);
            squares += shift * shift;
            j += THREADS;
        }
        let squares = block_sum(squares, Shared::at(0));
        if t == 0 {
            let d = a.d as f64;
            let v = if of.empty {
                device::load(a.old_covariances, c as u64)
            } else {
                let raw = device::load(a.statistics, second_at(a.k, a.d) + c as u64);
                variance(raw, of.weight, squares) / d + a.reg_covar
            };
            device::store(a.covariances, c as u64, v);
            match deviation(v) {
                Some((sd, ln)) => {
                    device::store(a.factors, c as u64, sd);
                    device::store(a.log_normalizers, c as u64, a.log_normalizer(d * ln));
                    a.report(c, 0, 0.0);
                }
                None => a.report(c, 1, v),
            }
        }
    }
}
