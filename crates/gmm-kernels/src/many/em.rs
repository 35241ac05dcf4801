//! The two steps of an iteration.

use super::{Block, entries_len, has_matrix, is_finite, matrices, split, sums_of};
use crate::Real;
use crate::device::{self, thread};
use crate::layout::{Kind, packed_index};
use crate::math::reciprocal;

/// ½ ln 2π.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_7;

impl Block<'_> {
    /// Computes the responsibilities. Returns Σ w ln p(x) and the entropy −Σ w Σ r ln r.
    #[inline(always)]
    pub(super) fn expect(&self) -> [f64; 2] {
        let k = self.a.k;
        thread::sync_threads();
        let (mut log_likelihood, mut entropy) = (0.0, 0.0);
        self.share(self.n, |row| {
            let at = |c: u32| c * self.stride + row;
            let (mut top, mut c) = (f64::NEG_INFINITY, 0);
            while c < k {
                let joint = self.log_joint(c, row);
                self.responsibilities.store(at(c), joint);
                top = if joint > top { joint } else { top };
                c += 1;
            }
            let (mut sum, mut mixed) = (0.0, 0.0);
            c = 0;
            while c < k {
                let below = self.responsibilities.load(at(c)) - top;
                let share = below.exp_below();
                self.responsibilities.store(at(c), share);
                sum += share;
                mixed += if share > 0.0 { share * below } else { 0.0 };
                c += 1;
            }
            let (weight, one_of, ln) = (self.row_weights.load(row), reciprocal(sum), sum.ln());
            c = 0;
            while c < k {
                self.responsibilities.store(at(c), weight * (self.responsibilities.load(at(c)) * one_of));
                c += 1;
            }
            log_likelihood += weight * (top + ln);
            entropy += weight * (ln - mixed * one_of);
        });
        self.add_up([log_likelihood, entropy])
    }

    /// ln of a component's weight times its density.
    #[inline(always)]
    fn log_joint(&self, c: u32, row: u32) -> f64 {
        let (d, kind) = (self.a.d, self.a.kind);
        let (x, mean) = (|j: u32| self.rows.load(j * self.stride + row), self.means.skip(c * d));
        let factor = self.factors.skip(if kind == Kind::Tied as u32 { 0 } else { c * entries_len(kind, d) });
        let mut square = 0.0;
        let (mut j, mut at) = (0, 0);
        while j < d {
            let mut z = x(j) - mean.load(j);
            if has_matrix(kind) {
                let mut i = 0;
                while i < j {
                    z = Real::fma(-factor.load(at + i), self.solved.load(i * self.threads + self.t), z);
                    i += 1;
                }
                z *= factor.load(at + j);
                self.solved.store(j * self.threads + self.t, z);
                at += j + 1;
            } else {
                z *= factor.load(if kind == Kind::Diag as u32 { j } else { 0 });
            }
            square = Real::fma(z, z, square);
            j += 1;
        }
        Real::fma(-0.5, square, self.constants.load(c))
    }

    /// Computes the parameters from the sums about the current means. `is_first` if there were no parameters before.
    /// Returns whether the host has to see to it.
    #[inline(always)]
    pub(super) unsafe fn maximise(&self, is_first: bool) -> bool {
        let (a, of) = (self.a, sums_of(self.a.kind, self.a.d));
        let is_empty = |c: u32| self.sums.load(c * of) <= f64::EPSILON * self.total;
        // From first moments to the moves of the means.
        self.share(a.k * a.d, |at| {
            let (c, j) = split(at, a.d);
            let place = c * of + 1 + j;
            let moved = if is_empty(c) { 0.0 } else { self.sums.load(place) / self.sums.load(c * of) };
            self.sums.store(place, moved);
            self.means.store(at, self.means.load(at) + moved);
        });
        let mut lost = 0.0;
        self.share(a.k, |c| {
            self.weights.store(c, self.sums.load(c * of) / self.total);
            // Negated, so that NaN counts too.
            let has_rows = !is_empty(c);
            lost += if is_first && !has_rows { 1.0 } else { 0.0 };
        });
        thread::sync_threads();
        let len = entries_len(a.kind, a.d);
        self.share(matrices(a.kind, a.k) * len, |at| {
            let (c, entry) = split(at, len);
            if a.kind == Kind::Tied as u32 || !is_empty(c) {
                // SAFETY: the fields are as documented.
                let value = unsafe { self.central(c, entry) };
                self.covariances.store(at, value);
                lost += if is_finite(value) { 0.0 } else { 1.0 };
            }
        });
        let [lost] = self.add_up([lost]);
        self.flatten();
        lost > 0.0
    }

    /// An entry of a covariance; a variance that is within its rounding error counts as 0, as in the host's M-step.
    #[inline(always)]
    unsafe fn central(&self, c: u32, entry: u32) -> f64 {
        let (a, of) = (self.a, sums_of(self.a.kind, self.a.d));
        let moved = |c: u32, j: u32| self.sums.load(c * of + 1 + j);
        let second = |c: u32, at: u32| self.sums.load(c * of + 1 + a.d + at);
        let (mut i, mut j) = (entry, entry);
        if has_matrix(a.kind) {
            i = 0;
            while (i + 1) * (i + 2) / 2 <= entry {
                i += 1;
            }
            j = entry - i * (i + 1) / 2;
        }
        let (mut about, mut shifted) = (0.0, 0.0);
        if a.kind == Kind::Tied as u32 {
            let mut c = 0;
            while c < a.k {
                about += second(c, entry);
                shifted += self.sums.load(c * of) * moved(c, i) * moved(c, j);
                c += 1;
            }
            (about, shifted) = (about / self.total, shifted / self.total);
        } else if a.kind == Kind::Spherical as u32 {
            let mut j = 0;
            while j < a.d {
                about += second(c, j);
                shifted += moved(c, j) * moved(c, j);
                j += 1;
            }
            about /= self.sums.load(c * of);
        } else {
            (about, shifted) = (second(c, entry) / self.sums.load(c * of), moved(c, i) * moved(c, j));
        }
        let value = about - shifted;
        if i != j {
            return value;
        }
        // At most the rounding error of a sum, or the spacing of numbers at the mean.
        let rows = if self.n < 4 { 4.0 } else { self.n as f64 };
        // SAFETY: the fields are as documented.
        let spacing = f64::EPSILON * unsafe { self.distance_from_0(c, i) };
        let is_lost = value <= f64::EPSILON * rows * about || value <= spacing * spacing;
        let each = if a.kind == Kind::Spherical as u32 { value / a.d as f64 } else { value };
        a.reg_covar + if is_lost { 0.0 } else { each }
    }

    /// The distance from 0 of the mean that a variance is about: column `j` of component `c`; the nearest of all
    /// components if tied, the farthest of all columns if spherical.
    #[inline(always)]
    unsafe fn distance_from_0(&self, c: u32, j: u32) -> f64 {
        let a = self.a;
        let (is_tied, is_spherical) = (a.kind == Kind::Tied as u32, a.kind == Kind::Spherical as u32);
        let (first, step, count) = if is_tied {
            (j, a.d, a.k)
        } else if is_spherical {
            (c * a.d, 1, a.d)
        } else {
            (c * a.d + j, 0, 1)
        };
        let (mut found, mut i) = (if is_tied { f64::INFINITY } else { 0.0 }, 0);
        while i < count {
            let column = if is_spherical { i } else { j };
            let shift = thread::block_idx_x() as u64 * a.d as u64 + column as u64;
            // SAFETY: each fit has `d` shifts.
            let mean = self.means.load(first + i * step) + unsafe { device::load(a.shifts, shift) };
            let size = if mean < 0.0 { -mean } else { mean };
            found = if (size < found) == is_tied { size } else { found };
            i += 1;
        }
        found
    }

    /// Sets the covariances of columns without variance to 0: they are only rounding error, which could exceed a small
    /// `reg_covar`.
    #[inline(always)]
    fn flatten(&self) {
        let (d, kind) = (self.a.d, self.a.kind);
        let len = entries_len(kind, d);
        self.share(if has_matrix(kind) { matrices(kind, self.a.k) * d } else { 0 }, |at| {
            let (of, i) = split(at, d);
            let entry = |i: u32, j: u32| of * len + packed_index(i, j) as u32;
            let is_flat = |i: u32| self.covariances.load(entry(i, i)) == self.a.reg_covar;
            let mut j = 0;
            while j < i {
                if is_flat(i) || is_flat(j) {
                    self.covariances.store(entry(i, j), 0.0);
                }
                j += 1;
            }
        });
    }

    /// Computes factors and constants from covariances and weights. Returns whether a covariance is nearly singular.
    #[inline(always)]
    pub(super) fn factor(&self) -> bool {
        let (d, k, kind) = (self.a.d, self.a.k, self.a.kind);
        let (count, len) = (matrices(kind, k), entries_len(kind, d));
        let mut lost = 0.0;
        let mut root = |from: f64, left: f64| {
            // Far above the bound below which the host refuses.
            let enough = left > 1e-12 * from && left > f64::MIN_POSITIVE && left < f64::INFINITY;
            lost += if enough { 0.0 } else { 1.0 };
            reciprocal(left.sqrt())
        };
        thread::sync_threads();
        if has_matrix(kind) {
            let mut j = 0;
            while j < d {
                self.share(count * d, |at| {
                    let (of, i) = split(at, d);
                    let of = of * len;
                    if i >= j {
                        let entry = |i: u32, j: u32| of + packed_index(i, j) as u32;
                        let (diagonal, own) = (self.covariances.load(entry(j, j)), self.covariances.load(entry(i, j)));
                        let (mut pivot, mut value, mut l) = (diagonal, own, 0);
                        while l < j {
                            let across = self.factors.load(entry(j, l));
                            pivot = Real::fma(-across, across, pivot);
                            value = Real::fma(-self.factors.load(entry(i, l)), across, value);
                            l += 1;
                        }
                        let one_of = if i == j { root(diagonal, pivot) } else { reciprocal(pivot.sqrt()) };
                        self.factors.store(entry(i, j), if i == j { one_of } else { value * one_of });
                    }
                });
                thread::sync_threads();
                j += 1;
            }
        } else {
            self.share(count * len, |at| {
                let variance = self.covariances.load(at);
                self.factors.store(at, root(variance, variance));
            });
            thread::sync_threads();
        }
        self.share(k, |c| {
            let of = if kind == Kind::Tied as u32 { 0 } else { c * len };
            let (mut scale, mut j) = (self.weights.load(c).ln(), 0);
            while j < d {
                let at = if has_matrix(kind) {
                    packed_index(j, j) as u32
                } else if kind == Kind::Diag as u32 {
                    j
                } else {
                    0
                };
                scale += self.factors.load(of + at).ln() - HALF_LN_TAU;
                j += 1;
            }
            self.constants.store(c, scale);
        });
        let [lost] = self.add_up([lost]);
        lost > 0.0
    }
}
