//! Factors of the covariance of the observed columns, for each set of them and each component: with many rows of each set,
//! they cost less than the rows.
//!
//! A component is conditioned on one observed column after another. Before column `j`, `P` is the covariance of the columns
//! given those before, and `P_jj` is a pivot. With `g_ij = P_ij / P_jj` then `P_il ← P_il − g_ij P_lj`, for missing columns
//! `i`, `l`, and for those observed later. What is left of `P` is the covariance of the missing columns given the observed.
//! For a row, `rest_j = z_j − Σ_{l<j} g_jl rest_l` is what is new in column `j`, and `Σ_j g_ij rest_j` the expected value of
//! the missing column `i`, less its mean.

use crate::deconvolution::Form;
use crate::deconvolution::pivots::Pivots;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::layout::{packed_index, packed_len};
use crate::math::reciprocal;

/// Numbers before the others: `−½ ln det`, column and pivot of a failure.
const HEAD: u32 = 3;

/// Rows of `g` that a row of data meets at a time.
pub(super) const BLOCK: u32 = 4;

/// Numbers of the factors of a pattern and component: whole groups of four, so that each begins at a multiple of 16 bytes.
pub const fn factors_len(d: u32) -> u64 {
    (rest(d) as u64 + packed_len(d)).next_multiple_of(4)
}

/// Position of the reciprocals of the pivots, `(d,)`; 0 for missing columns.
#[inline(always)]
pub(super) const fn reciprocals() -> u32 {
    HEAD
}

/// Rows of `g`, and numbers of a row: whole blocks of [`BLOCK`].
#[inline(always)]
pub(super) const fn pitch(d: u32) -> u32 {
    d.next_multiple_of(BLOCK)
}

/// Position of `g`, `(pitch, pitch)`; 0 where there is none. At a multiple of 16 bytes.
#[inline(always)]
pub(super) const fn gains(d: u32) -> u32 {
    (HEAD + d).next_multiple_of(2)
}

/// Position of the covariance of the missing columns, packed; 0 for observed columns.
#[inline(always)]
pub(super) const fn rest(d: u32) -> u32 {
    gains(d) + pitch(d) * pitch(d)
}

kernels! {
    /// The factors of consecutive patterns, for [`Deconvolution`](crate::deconvolution::Deconvolution). A block for each
    /// pattern and component.
    PatternFactors {
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// The first pattern.
        first: u32,
        /// A bit for each observed column of each pattern.
        masks: *const u64,
        /// `(k, Form::record)`: log weight, mean, packed covariance.
        records: *const f64,
        /// `(patterns, k, factors_len)`, written.
        factors: *mut f64,
    }
    /// The kernel.
    deconvolution_factors => body, shared, threads;
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &PatternFactors) -> u32 {
    WARP
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared(a: &PatternFactors) -> u64 {
    (8 * packed_len(a.d)).next_multiple_of(16)
}

/// Position of entry `(i, j)` or `(j, i)` in a packed lower triangle.
#[inline(always)]
const fn either(i: u32, j: u32) -> u32 {
    (if i > j { packed_index(i, j) } else { packed_index(j, i) }) as u32
}

/// Calls `f` with position, row and column of this lane's entries of a packed triangle.
#[inline(always)]
fn entries(len: u32, lane: u32, mut f: impl FnMut(u32, u32, u32)) {
    let (mut at, mut i, mut start) = (lane, 0, 0);
    while at < len {
        while at > start + i {
            start += i + 1;
            i += 1;
        }
        f(at, i, at - start);
        at += WARP;
    }
}

/// What the kernel left of a failure.
pub(super) fn failure(column: f64, pivot: f64) -> (u32, f64) {
    (column as u32, pivot)
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`PatternFactors`] document.
#[inline(always)]
unsafe fn body(a: PatternFactors) {
    device::await_previous_grid();
    let (block, lane) = (thread::block_idx_x(), thread::thread_idx_x());
    // Not 0, as the compiler cannot know.
    let k = if a.k > 0 { a.k } else { 1 };
    let (pattern, c) = (block / k, block % k);
    let (d, len) = (a.d, packed_len(a.d) as u32);
    let covariance = a.records.wrapping_add((c as u64 * Form::Patterns.record(d) as u64) as usize + 1 + d as usize);
    let first = block as u64 * factors_len(d);
    // SAFETY: the position of a number below `factors_len`, which no other block writes.
    let write = |at: u32, value: f64| unsafe { device::store(a.factors, first + at as u64, value) };
    let p = Shared::<f64>::at(0);
    // SAFETY: the pattern is one of the grid's.
    let mask = unsafe { device::load(a.masks, (a.first + pattern) as u64) };
    let is_observed = |j: u32| mask >> j & 1 == 1;
    let mut at = lane;
    while at < len {
        // SAFETY: a position within the covariance.
        p.store(at, unsafe { device::load(covariance, at as u64) });
        at += WARP;
    }
    at = lane;
    // Not 0, as the compiler cannot know.
    let pitch = if pitch(d) > 0 { pitch(d) } else { 1 };
    while at < rest(d) {
        // What the steps below write is left to them.
        let is_written = if at < gains(d) {
            at < HEAD || at < HEAD + d && is_observed(at - HEAD)
        } else {
            let (i, j) = ((at - gains(d)) / pitch, (at - gains(d)) % pitch);
            i < d && j < d && i != j && is_observed(j) && (i > j || !is_observed(i))
        };
        if !is_written {
            write(at, 0.0);
        }
        at += WARP;
    }
    warp::sync_warp();
    let mut pivots = Pivots::new(mask.count_ones());
    let mut j = 0;
    while j < d {
        if is_observed(j) {
            // Whether column `i` is conditioned on column `j`.
            let is_later = |i: u32| i > j || !is_observed(i);
            let pivot = p.load(either(j, j));
            // SAFETY: a position within the covariance.
            pivots.multiply(j, pivot, unsafe { device::load(covariance, either(j, j) as u64) });
            let one_of = reciprocal(pivot);
            entries(len, lane, |at, i, l| {
                if is_later(i) && is_later(l) && i != j && l != j {
                    let product = p.load(either(i, j)) * one_of;
                    p.store(at, crate::Real::fma(-product, p.load(either(l, j)), p.load(at)));
                }
            });
            let mut i = lane;
            while i < d {
                if is_later(i) && i != j {
                    write(gains(d) + i * pitch + j, p.load(either(i, j)) * one_of);
                }
                i += WARP;
            }
            if lane == 0 {
                write(reciprocals() + j, one_of);
            }
            warp::sync_warp();
        }
        j += 1;
    }
    entries(len, lane, |at, i, l| {
        let left = p.load(at);
        // Not below 0 by rounding.
        let left = if i == l && left < 0.0 { 0.0 } else { left };
        let value = if is_observed(i) || is_observed(l) { 0.0 } else { left };
        write(rest(d) + at, value);
    });
    let density = pivots.finish();
    if lane == 0 {
        let (column, pivot) = density.failure();
        write(0, density.exponent);
        write(1, column as f64);
        write(2, pivot);
    }
}
