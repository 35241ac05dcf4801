//! Pivots of the factors of a block's rows, their determinants, and log joint densities.

use super::lanes::{Pair, Rows};
use super::layout::WIDTH;
use crate::cpu::simd::Words;

/// A pivot that is not positive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failed {
    pub(super) column: usize,
    pub(super) pivot: f64,
}

/// The factored rows: `−(ln det T + zᵀ T⁻¹ z) / 2`, and the first failure.
pub(super) struct Factor<W: Words<f64>> {
    pub(super) exponent: Pair<W>,
    pub(super) failed: Option<Failed>,
}

/// The pivots so far. The determinant is a product of significands and a power of 2, whose logarithm is taken once.
pub(super) struct Pivots<W: Words<f64>> {
    rows: Rows<W>,
    /// The rounding error of a pivot, relative to its diagonal entry.
    rounding: Pair<W>,
    significand: Pair<W>,
    exponents: Pair<W>,
    failed: Option<Failed>,
}

impl<W: Words<f64>> Pivots<W> {
    #[inline(always)]
    pub(super) fn new(rows: Rows<W>, m: usize) -> Self {
        // As in `Cholesky::new`.
        let rounding = rows.splat((m + 1) as f64 * f64::EPSILON);
        Self { rows, rounding, significand: rows.splat(1.0), exponents: rows.splat(0.0), failed: None }
    }

    /// `1/√pivot`, where the diagonal entry was `diagonal`.
    #[inline(always)]
    pub(super) fn reciprocal_root(&mut self, column: usize, pivot: Pair<W>, diagonal: Pair<W>) -> Pair<W> {
        let Self { rows, .. } = *self;
        let least = rows.mul(self.rounding, diagonal);
        // Also for NaN and infinity.
        let lane = rows.first_not_lt(least, pivot).or_else(|| rows.first_not_lt(pivot, rows.splat(f64::INFINITY)));
        if let (Some(lane), None) = (lane, self.failed) {
            let mut values = [0.0; WIDTH];
            rows.store(&mut values, 0, pivot);
            self.failed = Some(Failed { column, pivot: values[lane] });
        }
        let (exponent, significand) = rows.split(rows.mul(self.significand, pivot));
        self.significand = significand;
        self.exponents = rows.add(self.exponents, exponent);
        rows.div(rows.splat(1.0), rows.sqrt(pivot))
    }

    /// With the squared distance `zᵀ T⁻¹ z`.
    #[inline(always)]
    pub(super) fn finish(self, distance: Pair<W>) -> Factor<W> {
        let Self { rows, .. } = self;
        let ln_det = rows.fma(self.exponents, rows.splat(std::f64::consts::LN_2), rows.ln(self.significand));
        // Also if it is NaN, a difference of infinities: the squared distance overflows, and the density is 0.
        let infinite = rows.splat(f64::INFINITY);
        let distance = rows.select_lt(distance, infinite, distance, infinite);
        let exponent = rows.mul(rows.splat(-0.5), rows.add(ln_det, distance));
        Factor { exponent, failed: self.failed }
    }
}
