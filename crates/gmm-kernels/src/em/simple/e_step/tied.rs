//! A tied covariance: as for full ones, with one factor for all.
//!
//! Solving once for `L⁻¹x` and subtracting `L⁻¹μ` would cost `d²/2` instead of `k*d²/2`, but cancels in `f32` where rows
//! lie far from the shift compared with the covariance; it waits for a proof of its error.

use crate::Real;
use crate::em::simple::e_step::full::squared_distance;
use crate::em::simple::e_step::{EStep, InScratch, InShared, Solved, run};

/// The kernel with solved columns in shared memory.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn in_shared<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe { body(&a, InShared::new()) };
}

/// The kernel with solved columns in `scratch`.
///
/// # Safety
/// As the fields of [`EStep`] say.
#[inline(always)]
pub unsafe fn in_scratch<T: Real>(a: EStep<T>) {
    // SAFETY: the caller's promise.
    unsafe { body(&a, InScratch::new(&a)) };
}

#[inline(always)]
unsafe fn body<T: Real>(a: &EStep<T>, solved: impl Solved<T>) {
    // SAFETY: the caller's promise.
    unsafe { run(a, |x, c| squared_distance(a, x, c, a.factor, solved)) };
}
