//! Diagonal covariances: `Σ ((x_j − μ_j) / σ_j)²`.

use super::rows::{Group, Mean};
use super::squares::SumOfSquares;
use super::{EStep, SquaredDistances, run};
use crate::each::each;
use crate::{Real, device};

struct Distances<'a, T: Real>(&'a EStep<T>);

impl<T: Real> SquaredDistances<T> for Distances<'_, T> {
    const SEVERAL: bool = true;

    #[inline(always)]
    unsafe fn of<const R: usize>(&self, x: Group<T, R>, c: u32) -> [f64; R] {
        let mean = Mean::of(self.0, c);
        let factor = self.0.factor.wrapping_add((c as u64 * self.0.d as u64) as usize);
        SumOfSquares::of(self.0.d, |j| {
            // SAFETY: `c < k` and `j < d`, so indices are within the buffers.
            let (mut z, scale) = unsafe { (x.centred(mean, j), device::load(factor, j as u64)) };
            each(R, |i| z[i] = z[i] * scale);
            z
        })
    }
}

/// Body of the kernel; `factor` is `(k, d)`, `1/σ`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`.
    unsafe { run(&a, &Distances(&a)) };
}
