//! Diagonal covariances: `Σ ((x_j − μ_j) / σ_j)²`.

use crate::em::simple::e_step::{EStep, SumOfSquares, run};
use crate::{Real, device};

/// The kernel; `factor` is `(k, d)`, `1/σ`.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        run(&a, |x, c| {
            SumOfSquares::of(a.d, |j| x.centred(&a, c, j) * device::load(a.factor, c as u64 * a.d as u64 + j as u64))
        });
    }
}
