//! Log densities of rows with a few components each, under many mixtures: those that [`largest()`](super::largest::largest())
//! listed, for log-likelihood ratios.
//!
//! A warp takes a row at a time. Its lanes share the columns of one component after another.

use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::each::each;
use crate::em::lanes::{larger, row_weight};
use crate::layout::{TILE_ROWS, packed_len, tiled_index};
use crate::math::{exp_below_f64, ln_f64};
use crate::{Real, THREADS};

kernels! {
    /// Splits of the rows in `x`, any number; a trial each in `y`.
    Trials<T> {
        /// `(n, d)` tiled.
        x: *const T,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Components of a mixture.
        k: u32,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// `(n, count)`.
        components: *const u32,
        /// Components of each row.
        count: u32,
        /// The mixture of each trial, `(trials,)`.
        mixtures: *const u32,
        /// `(mixtures, k, d)`, about the shift of the rows.
        means: *const f64,
        /// Inverse standard deviations `(k, d)`, or inverses of the Cholesky factors, `(k, d*(d+1)/2)`, lower triangles
        /// column by column.
        scales: *const f64,
        /// 1 if `scales` has triangles.
        has_triangles: u32,
        /// `(k,)`: the log of the weight and of the density at the mean.
        constants: *const f64,
        /// 1 if `scales` and `constants` are of each mixture; 0 if all share them.
        of_each: u32,
        /// 1 to add to `sums`, for chunks but the first.
        accumulate: u32,
        /// `(trials, splits)`: Σ w ln Σ over the row's components.
        sums: *mut f64,
    }
    /// The kernel.
    trials => chunked_f64_trials_f32, chunked_f64_trials_f64, body::<T>, shared_bytes::<T>;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &Trials<T>) -> u64 {
    // A sum of each warp.
    8 * WARPS as u64
}

const WARPS: u32 = THREADS / WARP;

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Trials`] document.
#[inline(always)]
unsafe fn body<T: Real>(a: Trials<T>) {
    let (trial, splits) = (thread::block_idx_y() as u64, thread::grid_dim_x() as u64);
    // SAFETY: there is a trial for each `y`.
    let mixture = unsafe { device::load(a.mixtures, trial) } as u64;
    let (k, d) = (a.k as u64, a.d as u64);
    let scales = k * if a.has_triangles == 1 { packed_len(a.d) } else { d };
    let own = mixture * a.of_each as u64;
    let of_mixture = Mixture {
        means: a.means.wrapping_add((mixture * k * d) as usize),
        scales: a.scales.wrapping_add((own * scales) as usize),
        constants: a.constants.wrapping_add((own * k) as usize),
    };
    let mut row = thread::block_idx_x() as u64 * WARPS as u64 + (thread::thread_idx_x() / WARP) as u64;
    let mut sum = 0.0;
    while row < a.n {
        // SAFETY: a row of the chunk.
        unsafe {
            let weight = row_weight(a.row_weights, a.n, row);
            // All lanes have the same row.
            if weight > 0.0 {
                sum += weight * log_density(&a, of_mixture, row);
            }
        }
        row += splits * WARPS as u64;
    }
    let sum = block_sum(if warp::lane_id() == 0 { sum } else { 0.0 }, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        let at = trial * splits + thread::block_idx_x() as u64;
        // SAFETY: one for each block.
        unsafe {
            let before = if a.accumulate == 1 { device::load(a.sums.cast_const(), at) } else { 0.0 };
            device::store(a.sums, at, before + sum);
        }
    }
}

/// Where the parameters of a mixture are.
#[derive(Clone, Copy)]
struct Mixture {
    means: *const f64,
    scales: *const f64,
    constants: *const f64,
}

/// ln Σ of a row over its components; −∞ if all densities are 0. All lanes get it.
///
/// # Safety
/// `row` is one of the chunk, and all lanes of the warp have it.
#[inline(always)]
unsafe fn log_density<T: Real>(a: &Trials<T>, of: Mixture, row: u64) -> f64 {
    let lane = warp::lane_id();
    // Of this lane's components: the largest log density, and the sum relative to it.
    let (mut most, mut total) = (f64::NEG_INFINITY, 0.0);
    let mut first = 0;
    while first < a.count {
        let mut own = f64::NEG_INFINITY;
        let mut i = 0;
        while i < WARP && first + i < a.count {
            // SAFETY: the row has `count` components. None is past the last, except where a density was NaN.
            let (c, constant) = unsafe {
                let c = device::load(a.components, row * a.count as u64 + (first + i) as u64);
                let c = if c < a.k { c } else { a.k - 1 };
                (c as u64, device::load(of.constants, c as u64))
            };
            // SAFETY: a component of the mixture.
            let mut distance = unsafe { squares(a, of, row, c) };
            each(WARP.ilog2() as usize, |i| distance += warp::shuffle_xor(distance, 1 << i));
            let value = constant - 0.5 * distance;
            // A distance that overflows leaves a density of 0.
            if lane == i && value.is_finite() {
                own = value;
            }
            i += 1;
        }
        if own > most {
            total = if total > 0.0 { total * exp_below_f64(most - own) + 1.0 } else { 1.0 };
            most = own;
        } else if own > f64::NEG_INFINITY {
            total += exp_below_f64(own - most);
        }
        first += WARP;
    }
    let mut top = most;
    each(WARP.ilog2() as usize, |i| top = larger(top, warp::shuffle_xor(top, 1 << i)));
    let mut all = if total > 0.0 { total * exp_below_f64(most - top) } else { 0.0 };
    each(WARP.ilog2() as usize, |i| all += warp::shuffle_xor(all, 1 << i));
    if all > 0.0 { top + ln_f64(all) } else { top }
}

/// This lane's part of the squared distance of a row from the mean of component `c`.
///
/// # Safety
/// `row` is one of the chunk, and `c < k`.
#[inline(always)]
unsafe fn squares<T: Real>(a: &Trials<T>, of: Mixture, row: u64, c: u64) -> f64 {
    let start = tiled_index(row, 0, a.d);
    let difference = |j: u32| {
        // SAFETY: `j < d`.
        unsafe {
            let x = device::load(a.x, start + (j * TILE_ROWS) as u64).to_f64();
            x - device::load(of.means, c * a.d as u64 + j as u64)
        }
    };
    let (mut i, mut sum) = (warp::lane_id(), 0.0);
    while i < a.d {
        let z = if a.has_triangles == 1 {
            let (mut at, mut j, mut z) = (c * packed_len(a.d) + i as u64, 0, 0.0);
            while j <= i {
                // SAFETY: entry `(i, j)` of the triangle.
                z += difference(j) * unsafe { device::load(of.scales, at) };
                at += (a.d - 1 - j) as u64;
                j += 1;
            }
            z
        } else {
            // SAFETY: `i < d`.
            difference(i) * unsafe { device::load(of.scales, c * a.d as u64 + i as u64) }
        };
        sum += z * z;
        i += WARP;
    }
    sum
}
