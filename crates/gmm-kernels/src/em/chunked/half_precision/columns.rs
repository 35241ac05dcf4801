//! Coefficients of a component's columns, as halves of what products have room for.

use crate::device::{self, Shared, block_max, block_sum, thread};
use crate::em::chunked::half_precision::encode::{head, scale_for};
use crate::em::layout::Place;
use crate::em::m_step::kind;
use crate::math::reciprocal;
use crate::{Real, THREADS};

/// A component's columns; all threads of a block of [`THREADS`] ask together.
#[derive(Clone, Copy)]
pub(crate) struct Columns {
    /// One of [`kind`].
    pub(crate) kind: u32,
    /// The component.
    pub(crate) k: u32,
    pub(crate) d: u32,
    /// Where features lie.
    pub(crate) place: Place,
    /// `(d+1,)`: of columns and norms; powers of two.
    pub(crate) scales: *const f32,
    /// [`Place::coefficients`].
    pub(crate) coefficients: *const f64,
    /// `(k, d)`: means less the shift.
    pub(crate) means: *const f64,
}

/// How a component's coefficients become halves.
pub(crate) struct Scaled {
    /// What to multiply them with: a power of two.
    pub(crate) scale: f64,
    /// What takes a product back to its size.
    pub(crate) back: f64,
    /// The largest precision of those that this thread saw.
    pub(crate) narrow: f32,
    /// For heads alone, what a component's rows lose of their log density on average.
    pub(crate) left_over: f64,
}

impl Columns {
    /// The power of two by which feature `f` is scaled.
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

    /// What multiplies feature `f` as it is scaled.
    #[inline(always)]
    pub(crate) unsafe fn at(&self, f: u32) -> f64 {
        // SAFETY: a feature that there is.
        unsafe { device::load(self.coefficients, self.place.column_coefficient(f, self.k)) / self.scale(f) }
    }

    /// The expectation of feature `f` over the component's rows, where `coefficient` is what multiplies it.
    #[inline(always)]
    unsafe fn expected(&self, f: u32, coefficient: f64) -> f64 {
        // SAFETY: `j < d`.
        let mean = |j: u32| unsafe { device::load(self.means, self.k as u64 * self.d as u64 + j as u64) };
        // What multiplies a square is half a precision, negative.
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

    /// Looks at all coefficients; with `one` of heads alone.
    #[inline(always)]
    pub(crate) unsafe fn scaled(&self, one: bool) -> Scaled {
        let features = 16 * self.place.steps;
        let (mut most, mut narrow) = (0.0_f32, 0.0_f32);
        let mut f = thread::thread_idx_x();
        while f < features {
            // SAFETY: a feature that there is, here and below.
            let v = unsafe { self.at(f) } as f32;
            let v = if v < 0.0 { -v } else { v };
            most = if v > most { v } else { most };
            // What multiplies squares is half a precision; of norms, which have so many squares, of them all.
            let precision = match self.kind {
                kind::DIAG if f >= 8 * self.place.steps => 2.0 * v,
                kind::SPHERICAL if f == self.d => 2.0 * v / self.d as f32,
                _ => 0.0,
            };
            narrow = if precision <= narrow { narrow } else { precision };
            f += THREADS;
        }
        let (scale, back) = scale_for(block_max(most, Shared::at(0)));
        // What heads leave of coefficients would be a share of the distance from the shift; less its average it is one of the
        // distance from the mean.
        let mut left_over = 0.0;
        let mut f = if one { thread::thread_idx_x() } else { features };
        while f < features {
            // SAFETY: as above.
            let v = unsafe { self.at(f) };
            if v != 0.0 {
                let head = head((v * scale) as f32).to_f64() * back;
                // SAFETY: as above; a component that there is.
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
