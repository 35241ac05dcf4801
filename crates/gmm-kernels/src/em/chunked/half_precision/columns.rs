//! Coefficients of a component's columns, scaled to the range of fp16.

use crate::device::{self, Shared, block_max, block_sum, thread};
use crate::em::chunked::half_precision::encode::{head, scale_for};
use crate::em::layout::FeatureLayout;
use crate::em::m_step::kind;
use crate::math::reciprocal;
use crate::{Real, THREADS};

/// Coefficients of one component; all threads of a block of [`THREADS`] call its methods together.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// One of [`kind`].
    pub(crate) kind: u32,
    /// The component.
    pub(crate) k: u32,
    pub(crate) d: u32,
    /// Layout of the features.
    pub(crate) place: FeatureLayout,
    /// `(d+1,)`: scales of columns and norms; powers of two.
    pub(crate) scales: *const f32,
    /// [`FeatureLayout::coefficients`] elements.
    pub(crate) coefficients: *const f64,
    /// `(k, d)`: means less the shift.
    pub(crate) means: *const f64,
}

/// Scaling of a component's coefficients to fp16.
pub(crate) struct Scaled {
    /// Factor of the coefficients: a power of two.
    pub(crate) scale: f64,
    /// Reciprocal of `scale`, applied to products.
    pub(crate) back: f64,
    /// The largest precision that this thread saw.
    pub(crate) narrow: f32,
    /// With hi parts only, the mean loss of log density over the component's rows.
    pub(crate) left_over: f64,
}

impl Columns {
    /// Scale of feature `f`: a power of two.
    #[inline(always)]
    unsafe fn scale(&self, f: u32) -> f64 {
        let square = self.kind == kind::DIAG && f >= 8 * self.place.steps;
        let j = if square { f - 8 * self.place.steps } else { f };
        if j > self.d {
            return 1.0;
        }
        // SAFETY: `j ≤ d`.
        let s = unsafe { device::load(self.scales, j as u64) }.to_f64();
        if square { s * s } else { s }
    }

    /// Coefficient of the scaled feature `f`.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, f: u32) -> f64 {
        // SAFETY: `f < 16*steps`, so it is a feature.
        unsafe { device::load(self.coefficients, self.place.column_coefficient(f, self.k)) / self.scale(f) }
    }

    /// Expectation of feature `f` over the component's rows, given its `coefficient`.
    #[inline(always)]
    unsafe fn expected(&self, f: u32, coefficient: f64) -> f64 {
        // SAFETY: `j < d` and the component is below `k`.
        let mean = |j: u32| unsafe { device::load(self.means, self.k as u64 * self.d as u64 + j as u64) };
        // The coefficient of a square is −½ precision.
        let variance = || -0.5 * reciprocal(coefficient);
        let first_square = 8 * self.place.steps;
        match self.kind {
            kind::DIAG if f >= first_square && f - first_square < self.d => {
                let mean = mean(f - first_square);
                Real::fma(mean, mean, variance())
            }
            kind::SPHERICAL if f == self.d => {
                let mut sum = self.d as f64 * variance();
                let mut j = 0;
                while j < self.d {
                    sum = Real::fma(mean(j), mean(j), sum);
                    j += 1;
                }
                sum
            }
            _ if f < self.d => mean(f),
            _ => 0.0,
        }
    }

    /// Scans all coefficients; with `one`, for hi parts only.
    #[inline(always)]
    pub(crate) unsafe fn scaled(&self, one: bool) -> Scaled {
        let features = 16 * self.place.steps;
        let (mut most, mut narrow) = (0.0_f32, 0.0_f32);
        let mut f = thread::thread_idx_x();
        while f < features {
            // SAFETY: `f < 16*steps`.
            let v = unsafe { self.at(f) } as f32;
            let v = if v < 0.0 { -v } else { v };
            most = if v > most { v } else { most };
            // The coefficient of a square is half a precision; that of the norm, which has `d` squares, is taken as
            // their mean.
            let precision = match self.kind {
                kind::DIAG if f >= 8 * self.place.steps => 2.0 * v,
                kind::SPHERICAL if f == self.d => 2.0 * v / self.d as f32,
                _ => 0.0,
            };
            narrow = if precision <= narrow { narrow } else { precision };
            f += THREADS;
        }
        let (scale, back) = scale_for(block_max(most, Shared::at(0)));
        // The rounding error of the coefficients is proportional to a row's distance from the shift. Subtracting its
        // mean makes it proportional to the distance from the component's mean.
        let mut left_over = 0.0;
        let mut f = if one { thread::thread_idx_x() } else { features };
        while f < features {
            // SAFETY: `f < 16*steps`.
            let v = unsafe { self.at(f) };
            if v != 0.0 {
                let head = head((v * scale) as f32).to_f64() * back;
                // SAFETY: `f < 16*steps`, and the component is below `k`.
                unsafe {
                    let by = self.scale(f);
                    left_over += (v - head) * by * self.expected(f, v * by);
                }
            }
            f += THREADS;
        }
        Scaled { scale, back, narrow, left_over: block_sum(left_over, Shared::at(0)) }
    }
}
