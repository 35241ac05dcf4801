//! Independent errors under diagonal and spherical covariances: every column by itself.
//!
//! With `g = σ² / (σ² + s²)` the true value is `m + g z` and its variance `g s²`.

use crate::Real;
use crate::deconvolution::pass::NoisyRow;
use crate::deconvolution::pivots::{Density, Pivots};
use crate::deconvolution::sums::Stage;
use crate::deconvolution::{Deconvolution, Form};
use crate::device;
use crate::layout::tiled_index;
use crate::math::reciprocal;

/// Columns whose moments are staged at a time.
const AT_ONCE: u32 = 8;

/// Numbers of a row that are staged at a time.
pub(super) const STAGED: u32 = 2 * AT_ONCE;

/// A row, which its thread reads again for each component.
pub(super) struct Row {
    row: u64,
    measured: u32,
}

impl Row {
    /// Measured value and error variance of a column.
    #[inline(always)]
    unsafe fn of(&self, a: &Deconvolution, j: u32) -> (f64, f64) {
        let at = tiled_index(self.row, j, a.d);
        // SAFETY: `j < d`, and the row is one of a padded tile.
        unsafe {
            let x = device::load(a.x, at);
            if !a.errors.is_null() {
                return (x, device::load(a.errors, at));
            }
            (x, if x.is_nan() { f64::INFINITY } else { 0.0 })
        }
    }
}

impl NoisyRow for Row {
    #[inline(always)]
    fn record(a: &Deconvolution) -> u32 {
        Form::Columns.record(a.d)
    }

    #[inline(always)]
    unsafe fn load(a: &Deconvolution, row: u64, _last: u64) -> Self {
        let mut own = Self { row, measured: 0 };
        let mut j = 0;
        while j < a.d {
            // SAFETY: `j < d`.
            own.measured += unsafe { own.of(a, j).1 < f64::INFINITY } as u32;
            j += 1;
        }
        own
    }

    #[inline(always)]
    fn measured(&self) -> u32 {
        self.measured
    }

    #[inline(always)]
    unsafe fn condition(&self, a: &Deconvolution, _: u32, record: *const f64) -> Density {
        let mut pivots = Pivots::new(0);
        let mut j = 0;
        while j < a.d {
            // SAFETY: `j < d`.
            let (x, error, mean, variance) = unsafe {
                let (x, error) = self.of(a, j);
                (x, error, device::load(record, (1 + j) as u64), device::load(record, (1 + a.d + j) as u64))
            };
            if error < f64::INFINITY {
                let total = variance + error;
                pivots.multiply(j, total, total);
                pivots.add_distance(x - mean, reciprocal(total));
            }
            j += 1;
        }
        pivots.finish()
    }

    #[inline(always)]
    unsafe fn add(&self, a: &Deconvolution, _: u32, record: *const f64, stage: Stage, sums: *mut f64) {
        stage.put(0, 1.0);
        // SAFETY: the component has `1 + 2*d` sums.
        unsafe { stage.add_up(1, sums, 0) };
        let mut first = 0;
        while first < a.d {
            let some = if a.d - first < AT_ONCE { a.d - first } else { AT_ONCE };
            let mut j = 0;
            while j < some {
                // SAFETY: `first + j < d`.
                let (x, error, mean, variance) = unsafe {
                    let (x, error) = self.of(a, first + j);
                    let at = (1 + first + j) as u64;
                    (x, error, device::load(record, at), device::load(record, at + a.d as u64))
                };
                let (mut moved, mut rest) = (0.0, variance);
                if error < f64::INFINITY {
                    let gain = variance * reciprocal(variance + error);
                    (moved, rest) = (gain * (x - mean), gain * error);
                }
                stage.put(j, moved);
                stage.put(some + j, Real::fma(moved, moved, rest));
                j += 1;
            }
            // SAFETY: as above.
            unsafe {
                stage.add_up(some, sums, (1 + first) as u64);
                stage.skip(some).add_up(some, sums, (1 + a.d + first) as u64);
            }
            first += some;
        }
    }
}
