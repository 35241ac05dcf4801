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
use crate::layout::{packed_len, tiled_index};
use crate::math::reciprocal;

/// A row of up to `D` columns; `P` entries of a packed triangle.
pub(super) struct Row<const D: usize, const P: usize> {
    x: [f64; D],
    errors: [f64; D],
    measured: u32,
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
    type True = TrueRow<D, P>;

    #[inline(always)]
    fn record(_: &Deconvolution) -> u32 {
        const { assert!(P as u64 == packed_len(D as u32)) };
        const { Form::Small(D as u32).record(D as u32) }
    }

    #[inline(always)]
    unsafe fn load(a: &Deconvolution, row: u64) -> Self {
        // Columns past `d` are exact zeros with the mean 0; their variance of 1 does not change a determinant.
        let mut own = Self { x: [0.0; D], errors: [1.0; D], measured: 0 };
        few(D, |j| {
            if (j as u32) < a.d {
                let at = tiled_index(row, j as u32, a.d);
                // SAFETY: `j < d`, and the row is one of a padded tile.
                (own.x[j], own.errors[j]) = unsafe { (device::load(a.x, at), device::load(a.errors, at)) };
                own.measured += (own.errors[j] < f64::INFINITY) as u32;
            }
        });
        own
    }

    #[inline(always)]
    fn measured(&self) -> u32 {
        self.measured
    }

    #[inline(always)]
    unsafe fn condition(&self, a: &Deconvolution, record: *const f64) -> (Density, TrueRow<D, P>) {
        // SAFETY: positions within the record.
        let number = |i: usize| unsafe { device::load(record, i as u64) };
        let mut of = TrueRow { mean: [0.0; D], covariance: [0.0; P] };
        few(D, |i| few(i + 1, |j| of.covariance[packed(i, j)] = number(1 + D + packed(i, j))));
        let mut pivots = Pivots::new(a.d);
        few(D, |j| {
            let (b, p) = (&mut of.mean, &mut of.covariance);
            let (error, own) = (self.errors[j], p[packed(j, j)]);
            let missing = error == f64::INFINITY;
            // Of a missing value, selects instead of a branch.
            let variance = if missing { 1.0 } else { own + error };
            let before = if missing { 1.0 } else { number(1 + D + packed(j, j)) + error };
            pivots.multiply(j as u32, variance, before);
            let one_of = if missing { 0.0 } else { reciprocal(variance) };
            let kept = if missing { 1.0 } else { error * one_of };
            let z = self.x[j] - number(1 + j);
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

    #[inline(always)]
    unsafe fn add(&self, _: &Deconvolution, _: *const f64, of: TrueRow<D, P>, stage: Stage, sums: *mut f64) {
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
