//! The M-step: statistics in, parameters out, all in `f64`. The same rules as `gmm_model::m_step`.
//!
//! Weights are `Σr / Σ all r`, means `centre + Σrz / Σr`, covariances the moments about the new means with `reg_covar` on
//! the diagonal. A component with `Σr ≤ eps * Σ all r` is empty: it keeps the mean and covariance it had, so there must
//! be a previous mixture. A covariance that is not positive definite is reported by component, never divided by.

mod cholesky;
pub mod diag;
pub mod full;
pub mod spherical;
pub mod tied;

use crate::THREADS;
use crate::device::{self, Shared, block_sum, thread};
use crate::layout::first_at;
use crate::math::ln_f64;
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;

kernels! {
    /// The grid is `k` blocks; for a tied covariance, one.
    MStep {
        /// `statistics_len(kind, k, d)`.
        statistics: *const f64,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// Added to variances.
        reg_covar: f64,
        /// `(k, d)`: means of the mixture that the statistics came from, which are the centres.
        old_means: *const f64,
        /// Packed covariances of that mixture, `second_len(kind, k, d)`.
        old_covariances: *const f64,
        /// `(k,)`, written.
        weights: *mut f64,
        /// `(k, d)`, written.
        means: *mut f64,
        /// `second_len(kind, k, d)`, written: packed lower triangles, or variances.
        covariances: *mut f64,
        /// `second_len(kind, k, d)`, written: packed lower Cholesky factors, or standard deviations.
        factors: *mut f64,
        /// `(k,)`, written: `−(d/2) ln 2π − ½ ln det Σ`.
        log_normalizers: *mut f64,
        /// `(k,)`, or `(1,)` for tied, written: 0, or 1 and the column whose pivot failed.
        failed: *mut u32,
        /// As long as `failed`, written: that pivot, or 0.
        pivots: *mut f64,
        /// `(k,)`, written: 1 where the component was empty.
        empty: *mut u32,
    }
    /// Full covariances.
    m_step_full => full::body, shared_bytes;
    /// A tied covariance.
    m_step_tied => tied::body, shared_bytes;
    /// Diagonal covariances.
    m_step_diag => diag::body, shared_bytes;
    /// Spherical covariances.
    m_step_spherical => spherical::body, shared_bytes;
}

/// One `f64` per warp.
#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &MStep) -> u64 {
    u64::from(SUM_BYTES)
}

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// A component of the new mixture.
#[derive(Clone, Copy)]
struct Component {
    c: u32,
    /// Σr.
    weight: f64,
    empty: bool,
}

impl MStep {
    /// Σ over all components of Σr; all threads call this.
    #[inline(always)]
    unsafe fn total(&self) -> f64 {
        let mut sum = 0.0;
        let mut c = thread::thread_idx_x();
        while c < self.k {
            // SAFETY: `c < k`.
            sum += unsafe { device::load(self.statistics, c as u64) };
            c += THREADS;
        }
        block_sum(sum, Shared::at(0))
    }

    /// Component `c` and its weight; thread 0 writes the weight and whether it is empty.
    #[inline(always)]
    unsafe fn component(&self, c: u32, total: f64) -> Component {
        // SAFETY: `c < k`.
        unsafe {
            let weight = device::load(self.statistics, c as u64);
            let empty = weight <= f64::EPSILON * total;
            if thread::thread_idx_x() == 0 {
                device::store(self.weights, c as u64, weight / total);
                device::store(self.empty, c as u64, empty as u32);
            }
            Component { c, weight, empty }
        }
    }

    /// New mean less old in column `j`; 0 for an empty component.
    #[inline(always)]
    unsafe fn shift(&self, of: Component, j: u32) -> f64 {
        if of.empty {
            return 0.0;
        }
        let at = first_at(self.k) + of.c as u64 * self.d as u64 + j as u64;
        // SAFETY: `c < k`, `j < d`.
        unsafe { device::load(self.statistics, at) / of.weight }
    }

    /// Writes the component's mean, a column per thread.
    #[inline(always)]
    unsafe fn write_mean(&self, of: Component) {
        let mut j = thread::thread_idx_x();
        while j < self.d {
            let at = of.c as u64 * self.d as u64 + j as u64;
            // SAFETY: `c < k`, `j < d`.
            unsafe { device::store(self.means, at, device::load(self.old_means, at) + self.shift(of, j)) };
            j += THREADS;
        }
    }

    /// Records success, or the column and pivot at which factor `c` failed; one thread calls this.
    #[inline(always)]
    unsafe fn report(&self, c: u32, failed: u32, pivot: f64) {
        // SAFETY: `c` is below the length of both.
        unsafe {
            device::store(self.failed, c as u64, failed);
            device::store(self.pivots, c as u64, pivot);
        }
    }

    /// The normaliser, given Σ ln of the factor's diagonal.
    #[inline(always)]
    fn log_normalizer(&self, half_ln_det: f64) -> f64 {
        -0.5 * self.d as f64 * LN_2PI - half_ln_det
    }
}

/// `raw/weight − shift²`, or 0 where that is no more than its own rounding error.
#[inline(always)]
fn variance(raw: f64, weight: f64, shift_squared: f64) -> f64 {
    let about_centre = raw / weight;
    let v = about_centre - shift_squared;
    if v <= 4.0 * f64::EPSILON * about_centre { 0.0 } else { v }
}

/// A standard deviation and its logarithm; a variance that is not positive and finite is told by `None`.
#[inline(always)]
fn deviation(variance: f64) -> Option<(f64, f64)> {
    if variance > 0.0 && variance < f64::INFINITY {
        let sd = crate::Real::sqrt(variance);
        Some((sd, ln_f64(sd)))
    } else {
        None
    }
}
