//! Parameters, `f64`, into what the E-step reads, `T`.

use crate::Real;
use crate::device::{self, thread};
use crate::layout::{PANEL, packed_index, packed_len, panel_len};

kernels! {
    /// Means, weights and normalisers; any grid.
    PrepareMeans<T> {
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// `(k, d)`.
        means: *const f64,
        /// `(d,)`, or null: taken from each mean first.
        shift: *const f64,
        /// `(k,)`, or null: component weights.
        weights: *const f64,
        /// `(k,)`, or null: `−(d/2) ln 2π − ½ ln det Σ`.
        log_normalizers: *const f64,
        /// `(k, d)`, written: means less the shift.
        mean_high: *mut T,
        /// `(k, d)`, written: what rounding took from them.
        mean_low: *mut T,
        /// `(k,)`, written where there are weights: `ln w` and the normaliser.
        log_scale: *mut T,
        /// `(k,)`, written where there are weights.
        weights_out: *mut T,
    }
    /// The kernel.
    prepare_means => prepare_means_f32, prepare_means_f64, means_body, no_shared;
}

kernels! {
    /// Factors; any grid.
    PrepareFactors<T> {
        /// Factors: `k` for full covariances, else 1.
        count: u64,
        /// Dimensions; numbers to turn for diagonal (`k*d`) and spherical (`k`) covariances.
        d: u64,
        /// Packed lower factors, `(count, d*(d+1)/2)`; or standard deviations, `(d,)`.
        factors: *const f64,
        /// In panels, `(count, panel_len(d))`; or reciprocals, `(d,)`. Written.
        out: *mut T,
    }
    /// Lower factors into panels.
    prepare_panels => prepare_panels_f32, prepare_panels_f64, panels_body, no_shared_factors;
    /// Standard deviations into reciprocals.
    prepare_reciprocals => prepare_reciprocals_f32, prepare_reciprocals_f64, reciprocals_body, no_shared_factors;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &PrepareMeans<T>) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared_factors<T: Real>(_: &PrepareFactors<T>) -> u64 {
    0
}

/// [`prepare_means`].
///
/// # Safety
/// As the fields of [`PrepareMeans`] say.
#[inline(always)]
pub unsafe fn means_body<T: Real>(a: PrepareMeans<T>) {
    let d = a.d as u64;
    let mut i = thread::index_1d();
    // SAFETY: `i < k*d`, and then `c < k`.
    unsafe {
        while i < a.k as u64 * d {
            let shift = if a.shift.is_null() { 0.0 } else { device::load(a.shift, i % d.max(1)) };
            let mean = device::load(a.means, i) - shift;
            let high = T::from_f64(mean);
            device::store(a.mean_high, i, high);
            device::store(a.mean_low, i, T::from_f64(mean - high.to_f64()));
            i += thread::count_1d();
        }
        let mut c = thread::index_1d();
        while c < a.k as u64 && !a.weights.is_null() {
            let weight = device::load(a.weights, c);
            let log_scale = crate::math::ln_f64(weight) + device::load(a.log_normalizers, c);
            device::store(a.log_scale, c, T::from_f64(log_scale));
            device::store(a.weights_out, c, T::from_f64(weight));
            c += thread::count_1d();
        }
    }
}

/// [`prepare_panels`].
///
/// # Safety
/// As the fields of [`PrepareFactors`] say.
#[inline(always)]
pub unsafe fn panels_body<T: Real>(a: PrepareFactors<T>) {
    let d = a.d as u32;
    // At least 1, so that no division can panic: a panic would need a call.
    let per = panel_len(d).max(1);
    let mut at = thread::index_1d();
    while at < a.count * per {
        let (c, inside) = (at / per, at % per);
        // Panel q starts at 64 * q(q+1)/2.
        let (block, mut q) = (inside / (PANEL * PANEL) as u64, 0);
        while packed_len(q + 1) <= block {
            q += 1;
        }
        let left = (inside - (PANEL * PANEL) as u64 * packed_len(q)) as u32;
        let (i, j) = (q * PANEL + left % PANEL, left / PANEL);
        let value = if i >= d || j >= d {
            if i == j { 1.0 } else { 0.0 }
        } else if j > i {
            0.0
        } else {
            // SAFETY: `j <= i < d`.
            let l = unsafe { device::load(a.factors, c * packed_len(d) + packed_index(i, j)) };
            if i == j { 1.0 / l } else { l }
        };
        // SAFETY: `at < count * panel_len(d)`.
        unsafe { device::store(a.out, at, T::from_f64(value)) };
        at += thread::count_1d();
    }
}

/// [`prepare_reciprocals`].
///
/// # Safety
/// As the fields of [`PrepareFactors`] say.
#[inline(always)]
pub unsafe fn reciprocals_body<T: Real>(a: PrepareFactors<T>) {
    let mut i = thread::index_1d();
    while i < a.d {
        // SAFETY: `i < d`.
        unsafe { device::store(a.out, i, T::from_f64(1.0 / device::load(a.factors, i))) };
        i += thread::count_1d();
    }
}
