//! Independent errors under any covariance: a component is conditioned on one column of the row after another, in
//! registers.
//!
//! Before column `j`, the true row has mean `m + b` and covariance `P`, given the columns before. The measured value of
//! column `j` has variance `t = P_jj + s`, which is a pivot of the factor of `V + S`, and its distance from `b_j`
//! gives a term of the squared distance. With `g = P_j / t` then `b ← b + g (z_j − b_j)` and `P ← P − g P_jᵀ`. In row
//! and column `j` the latter is a multiplication by `s/t`, so that a covariance vanishes with the errors.

use crate::Real;
use crate::deconvolution::pass::NoisyRow;
use crate::deconvolution::pivots::{Density, Pivots};
use crate::deconvolution::sums::Stage;
use crate::deconvolution::{Deconvolution, Form};
use crate::device;
use crate::each::few;
use crate::layout::{TILE_ROWS, packed_len, tiled_index};
use crate::math::reciprocal;

/// A row of up to `D` columns; `P` entries of a packed triangle. Its numbers are read again for each component, which
/// takes less time than the registers that they would need.
pub(super) struct Row<const D: usize, const P: usize> {
    /// Position of the row's first number in both arrays.
    first: u64,
    measured: u32,
}

impl<const D: usize, const P: usize> Row<D, P> {
    /// Measured value and error variance of a column. Those past `d` are exact zeros with the mean 0, and a variance of 1
    /// does not change a determinant.
    #[inline(always)]
    unsafe fn of(&self, a: &Deconvolution, j: usize) -> (f64, f64) {
        if j as u32 >= a.d {
            return (0.0, 1.0);
        }
        let at = self.first + (j * TILE_ROWS as usize) as u64;
        // SAFETY: `j < d`, and the row is one of a padded tile.
        unsafe { (device::load(a.x, at), device::load(a.errors, at)) }
    }

    /// The density of the row, and the true row given it.
    ///
    /// # Safety
    /// The record is live.
    #[inline(always)]
    unsafe fn given(&self, a: &Deconvolution, record: *const f64) -> (Density, TrueRow<D, P>) {
        // SAFETY: positions within the record.
        let number = |i: usize| unsafe { device::load(record, i as u64) };
        let mut of = TrueRow { mean: [0.0; D], covariance: [0.0; P] };
        few(D, |i| few(i + 1, |j| of.covariance[packed(i, j)] = number(1 + D + packed(i, j))));
        let mut pivots = Pivots::new(a.d);
        few(D, |j| {
            let (b, p) = (&mut of.mean, &mut of.covariance);
            // SAFETY: the row that was loaded.
            let (x, error) = unsafe { self.of(a, j) };
            let own = p[packed(j, j)];
            // Of a missing value nothing changes: products with 0 and 1 instead of branches.
            let (seen, finite) = if error < f64::INFINITY { (1.0, error) } else { (0.0, 1.0) };
            let variance = Real::fma(own, seen, finite);
            pivots.multiply(j as u32, variance, Real::fma(number(1 + D + packed(j, j)), seen, finite));
            let one_of = reciprocal(variance) * seen;
            let kept = Real::fma(finite, one_of, 1.0 - seen);
            let z = x - number(1 + j);
            let rest = z - b[j];
            pivots.add_distance(rest, one_of);
            let step = rest * one_of;
            let mut gains = [0.0; D];
            few(D, |i| {
                if i != j {
                    gains[i] = p[packed(i, j)] * one_of;
                    b[i] = Real::fma(p[packed(i, j)], step, b[i]);
                }
            });
            // Of two forms, that in which less cancels.
            b[j] = if error < own { Real::fma(-kept, rest, z) } else { Real::fma(own, step, b[j]) };
            few(D, |i| {
                few(i + 1, |l| {
                    if i != j && l != j {
                        p[packed(i, l)] = Real::fma(-gains[i], p[packed(l, j)], p[packed(i, l)]);
                    }
                });
            });
            few(D, |i| p[packed(i, j)] *= kept);
        });
        (pivots.finish(), of)
    }
}

/// The true row in a component: mean, less the component's, and covariance, packed.
pub(super) struct TrueRow<const D: usize, const P: usize> {
    mean: [f64; D],
    covariance: [f64; P],
}

/// Position of entry `(i, j)` or `(j, i)` in a packed lower triangle.
#[inline(always)]
const fn packed(i: usize, j: usize) -> usize {
    let (i, j) = if i > j { (i, j) } else { (j, i) };
    i * (i + 1) / 2 + j
}

impl<const D: usize, const P: usize> NoisyRow for Row<D, P> {
    #[inline(always)]
    fn record(_: &Deconvolution) -> u32 {
        const { assert!(P as u64 == packed_len(D as u32)) };
        const { Form::Small(D as u32).record(D as u32) }
    }

    #[inline(always)]
    unsafe fn load(a: &Deconvolution, row: u64, _last: u64) -> Self {
        let mut own = Self { first: tiled_index(row, 0, a.d), measured: 0 };
        few(D, |j| {
            // SAFETY: as the caller guarantees.
            let error = unsafe { own.of(a, j).1 };
            own.measured += ((j as u32) < a.d && error < f64::INFINITY) as u32;
        });
        own
    }

    #[inline(always)]
    fn measured(&self) -> u32 {
        self.measured
    }

    #[inline(always)]
    unsafe fn condition(&self, a: &Deconvolution, _: u32, record: *const f64) -> Density {
        // SAFETY: as the caller guarantees.
        unsafe { self.given(a, record).0 }
    }

    #[inline(always)]
    unsafe fn add(&self, a: &Deconvolution, _: u32, record: *const f64, stage: Stage, sums: *mut f64) {
        // Again, since most of it is not part of the density: what is would take registers until here. The compiler cannot
        // know that this is the same record.
        let again = record.wrapping_add(device::unknown(0) as usize);
        // SAFETY: as the caller guarantees.
        let of = unsafe { self.given(a, again).1 };
        stage.put(0, 1.0);
        few(D, |i| stage.put((1 + i) as u32, of.mean[i]));
        few(D, |i| {
            few(i + 1, |j| {
                let value = Real::fma(of.mean[i], of.mean[j], of.covariance[packed(i, j)]);
                stage.put((1 + D + packed(i, j)) as u32, value);
            });
        });
        // SAFETY: the component has as many sums.
        unsafe { stage.add_up((1 + D + P) as u32, sums, 0) };
    }
}
