//! Pivots of a factor, their determinant, and the log density that they give.

use crate::Real;
use crate::math::ln_f64;

/// No column.
const NONE: u32 = u32::MAX;

/// The pivots so far. The determinant is a product of significands and a power of 2, whose logarithm is taken once.
pub(super) struct Pivots {
    /// The rounding error of a pivot, relative to its diagonal entry.
    rounding: f64,
    significand: f64,
    exponents: i32,
    distance: f64,
    /// The first column whose pivot is not positive, or [`NONE`].
    column: u32,
    pivot: f64,
}

/// What the pivots give.
pub(super) struct Density {
    /// `−(ln det T + zᵀ T⁻¹ z) / 2`.
    pub(super) exponent: f64,
    column: u32,
    pivot: f64,
}

impl Pivots {
    /// Of a matrix of `d` columns.
    #[inline(always)]
    pub(super) fn new(d: u32) -> Self {
        // As in `gmm_model::Cholesky::new`.
        let rounding = (d + 1) as f64 * f64::EPSILON;
        Self { rounding, significand: 1.0, exponents: 0, distance: 0.0, column: NONE, pivot: 0.0 }
    }

    /// Adds the pivot of a column, where the diagonal entry was `diagonal`.
    #[inline(always)]
    pub(super) fn multiply(&mut self, column: u32, pivot: f64, diagonal: f64) {
        // Negated, so that NaN fails. Without branches, which would cost more than the rest.
        let good = (pivot > self.rounding * diagonal) & (pivot < f64::INFINITY);
        let is_first = !good & (self.column == NONE);
        self.column = if is_first { column } else { self.column };
        self.pivot = if is_first { pivot } else { self.pivot };
        let bits = (self.significand * pivot).to_bits();
        self.exponents += (bits >> 52) as i32 - 1023;
        self.significand = f64::from_bits(bits & ((1 << 52) - 1) | 1.0_f64.to_bits());
    }

    /// Adds `rest²` times the pivot's reciprocal to the squared distance.
    #[inline(always)]
    pub(super) fn add_distance(&mut self, rest: f64, reciprocal: f64) {
        self.distance = Real::fma(rest * reciprocal, rest, self.distance);
    }

    #[inline(always)]
    pub(super) fn finish(self) -> Density {
        let ln_det = Real::fma(self.exponents as f64, core::f64::consts::LN_2, ln_f64(self.significand));
        // Also if it is NaN, a difference of infinities: the squared distance overflows, and the density is 0.
        let distance = if self.distance < f64::INFINITY { self.distance } else { f64::INFINITY };
        Density { exponent: -0.5 * (ln_det + distance), column: self.column, pivot: self.pivot }
    }
}

impl Density {
    #[inline(always)]
    pub(super) fn failed(&self) -> bool {
        self.column != NONE
    }

    /// What [`failure`](Self::failure) and [`exponent`](Self::exponent) were of a matrix before, with the squared distance of
    /// another row.
    #[inline(always)]
    pub(super) fn of_factor(exponent: f64, (column, pivot): (u32, f64), distance: f64) -> Self {
        // Also if it is NaN, a difference of infinities: the squared distance overflows, and the density is 0.
        let distance = if distance < f64::INFINITY { distance } else { f64::INFINITY };
        Self { exponent: Real::fma(-0.5, distance, exponent), column, pivot }
    }

    /// The column that failed, or [`NONE`], and its pivot.
    #[inline(always)]
    pub(super) fn failure(&self) -> (u32, f64) {
        (self.column, self.pivot)
    }
}
