//! Spherical covariances: `Σ ((x_j − μ_j) / σ)²`.

use crate::em::simple::e_step::{EStep, SumOfSquares, run};
use crate::{Real, device};

/// The kernel; `factor` is `(k,)`, `1/σ`.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe {
        run(&a, |x, c| {
            let precision = device::load(a.factor, c as u64);
            // Scaled before it is squared: the square of the difference alone may be out of range.
            SumOfSquares::of(a.d, |j| x.centred(&a, c, j) * precision)
        });
    }
}
