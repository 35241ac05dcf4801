//! Diagonal covariances: `Σ ((x_j − μ_j) / σ_j)²`.

use crate::em::simple::e_step::{EStep, SumOfSquares, run};
use crate::{Real, device};

/// Body of the kernel; `factor` is `(k, d)`, `1/σ`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`; `c < k` and `j < d`, so indices are within the buffers.
    unsafe {
        run(&a, |x, c| {
            SumOfSquares::of(a.d, |j| x.centred(&a, c, j) * device::load(a.factor, c as u64 * a.d as u64 + j as u64))
        });
    }
}
