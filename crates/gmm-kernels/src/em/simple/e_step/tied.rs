//! A tied covariance: as for full covariances, with one factor for all components.
//!
//! Solving once for `L⁻¹x` and subtracting `L⁻¹μ` would cost `d²/2` instead of `k*d²/2`, but cancels in `f32` if rows
//! are far from the shift relative to the covariance. It is not used until its error has been bounded.

use super::full::Distances;
use super::solved::{InScratch, InShared, Solved};
use super::{EStep, run};
use crate::Real;

/// Body of the kernel that keeps solved columns in shared memory.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { body::<T, _, false>(&a, InShared) };
}

/// Body of the kernel that computes several rows per thread.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn rows_in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `EStep` documents.
    unsafe { body::<T, _, true>(&a, InShared) };
}

/// Body of the kernel that keeps solved columns in `scratch`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document.
#[inline(always)]
pub unsafe fn in_scratch<T: Real>(a: EStep<T>) {
    // SAFETY: the caller upholds `# Safety`: the buffers, `scratch` among them, are as `EStep` documents.
    unsafe { body::<T, _, false>(&a, InScratch::new(&a)) };
}

#[inline(always)]
unsafe fn body<T: Real, S: Solved<T>, const SEVERAL: bool>(a: &EStep<T>, solved: S) {
    // SAFETY: the entries uphold `# Safety`; `factor` is one factor of `panel_len(d)` elements.
    unsafe { run(a, &Distances::<T, S, SEVERAL> { a, solved, stride: 0 }) };
}
