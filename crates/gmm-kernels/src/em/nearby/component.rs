//! A component as the threads see it: its log density at a row, and a bound in a box.

use crate::Real;
use crate::device::{self, Shared};
use crate::each::each;
use crate::layout::packed_index;

/// Bounds rounding errors of a squared distance, relative to it, with room to spare.
pub(super) const ROUNDING: f64 = 1e-13;

/// A component's record: `D` columns, `S` entries of the inverse factor; a full one if `FULL`, else a diagonal.
pub(super) struct Component<const D: usize, const S: usize, const FULL: bool> {
    /// Log density at the mean.
    pub(super) constant: f64,
    /// Logarithm of the component's weight.
    pub(super) log_weight: f64,
    pub(super) mean: [f64; D],
    root: [f64; S],
}

impl<const D: usize, const S: usize, const FULL: bool> Component<D, S, FULL> {
    /// Reads number `i` of the record by `of(i)`.
    #[inline(always)]
    fn read(of: impl Fn(u32) -> f64) -> Self {
        let mut out = Self { constant: of(0), log_weight: of(1), mean: [0.0; D], root: [0.0; S] };
        each(D, |j| out.mean[j] = of(2 + j as u32));
        each(S, |i| out.root[i] = of(2 + (D + i) as u32));
        out
    }

    /// Reads a record of device memory.
    ///
    /// # Safety
    /// The record at `at` is live.
    #[inline(always)]
    pub(super) unsafe fn load(records: *const f64, at: u64) -> Self {
        // SAFETY: the caller upholds `# Safety`.
        Self::read(|i| unsafe { device::load(records, at + i as u64) })
    }

    /// Reads a staged record.
    #[inline(always)]
    pub(super) fn staged(at: Shared<f64>) -> Self {
        const { assert!(2 + D + S <= 36) };
        let mut pairs = [[0.0; 2]; 18];
        each((2 + D + S).div_ceil(2), |i| pairs[i] = at.load2(2 * i as u32));
        Self::read(|i| pairs[i as usize / 2][i as usize % 2])
    }

    /// `W z`.
    #[inline(always)]
    fn whitened(&self, z: &[f64; D]) -> [f64; D] {
        let mut out = [0.0; D];
        each(D, |i| {
            if FULL {
                each(i + 1, |j| out[i] = Real::fma(self.root[i * (i + 1) / 2 + j], z[j], out[i]));
            } else {
                out[i] = self.root[i] * z[i];
            }
        });
        out
    }

    /// Half the squared Mahalanobis distance of a row at `z` from the mean.
    #[inline(always)]
    pub(super) fn half_square(&self, z: &[f64; D]) -> f64 {
        let v = self.whitened(z);
        let mut sum = 0.0;
        each(D, |i| sum = Real::fma(v[i], v[i], sum));
        0.5 * sum
    }

    /// The log joint density of a row.
    #[inline(always)]
    pub(super) fn joint(&self, x: impl Fn(usize) -> f64) -> f64 {
        let mut z = [0.0; D];
        each(D, |j| z[j] = x(j) - self.mean[j]);
        self.constant + self.log_weight - self.half_square(&z)
    }

    /// An upper bound of the log density, without the component's weight, in the box from `low(j)` to `high(j)`.
    #[inline(always)]
    pub(super) fn bound(&self, low: impl Fn(usize) -> f64, high: impl Fn(usize) -> f64) -> f64 {
        let (mut from, mut to, mut z) = ([0.0; D], [0.0; D], [0.0; D]);
        each(D, |j| {
            (from[j], to[j]) = (low(j) - self.mean[j], high(j) - self.mean[j]);
            z[j] = within(0.0, from[j], to[j]);
        });
        let mut v = self.whitened(&z);
        if !FULL {
            let mut sum = 0.0;
            each(D, |i| sum = Real::fma(v[i], v[i], sum));
            return self.constant - 0.5 * sum * (1.0 - ROUNDING);
        }
        let at = |i: usize, j: usize| self.root[packed_index(i as u32, j as u32) as usize];
        // Two sweeps of coordinate descent.
        each(2, |_| {
            each(D, |j| {
                let (mut slope, mut curvature) = (0.0, 0.0);
                each(D, |i| {
                    if i >= j {
                        slope = Real::fma(at(i, j), v[i], slope);
                        curvature = Real::fma(at(i, j), at(i, j), curvature);
                    }
                });
                let next = if curvature > 0.0 { within(z[j] - slope / curvature, from[j], to[j]) } else { z[j] };
                let moved = next - z[j];
                z[j] = next;
                each(D, |i| {
                    if i >= j {
                        v[i] = Real::fma(at(i, j), moved, v[i]);
                    }
                });
            });
        });
        let (mut square, mut least) = (0.0, 0.0);
        each(D, |i| square = Real::fma(v[i], v[i], square));
        each(D, |j| {
            let mut u = 0.0;
            each(D, |i| {
                if i >= j {
                    u = Real::fma(at(i, j), v[i], u);
                }
            });
            let (a, b) = (u * from[j], u * to[j]);
            least += if a < b { a } else { b };
        });
        if least > 0.0 && square > 0.0 {
            self.constant - 0.5 * (least / square) * least * (1.0 - ROUNDING)
        } else {
            self.constant
        }
    }
}

/// The value of `[low, high]` nearest to `x`.
#[inline(always)]
fn within(x: f64, low: f64, high: f64) -> f64 {
    if x < low {
        low
    } else if x > high {
        high
    } else {
        x
    }
}
