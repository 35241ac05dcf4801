//! Coefficients of the next densities from a component's parameters, and what of their digits is lost in them.

use super::{Component, HELD, ROWS, has_matrix, kind, padded, share, share_triangle, symmetric};
use crate::Real;
use crate::device::{self, Shared, WARP, block_sums, thread};
use crate::each::each;
use crate::layout::{packed_index, packed_len};
use crate::math::{ln_f64, reciprocal};

const LN_2PI: f64 = 1.837_877_066_409_345_5;

impl Component<'_> {
    /// Coefficients of the densities; whether they can be used.
    #[inline(always)]
    pub(super) unsafe fn expand(&self) -> bool {
        let (a, w) = (self.a, self.w);
        // How far from the shift rows of the component reach.
        share(a.d, |j| {
            let v = w.variance.load(j);
            let sd = if v > 0.0 { Real::sqrt(v) } else { 0.0 };
            let mean = w.mean.load(j);
            w.reach.store(j, (if mean < 0.0 { -mean } else { mean }) + 4.0 * sd);
        });
        thread::sync_threads();
        // SAFETY: the caller's promise; the same branch in all threads.
        let (half_ln_det, square, terms, well) =
            unsafe { if has_matrix(a.kind) { self.expand_matrix() } else { self.expand_variances() } };
        let well = well && terms <= a.most_terms;
        if thread::thread_idx_x() == 0 {
            // SAFETY: `k` is a component.
            unsafe {
                let weight = device::load(a.weights.cast_const(), self.k as u64);
                let log_scale = ln_f64(weight) - 0.5 * a.d as f64 * LN_2PI - half_ln_det;
                let at_shift = if a.roots.is_null() { 0.5 * square } else { 0.0 };
                device::store(a.constants, self.k as u64, log_scale - at_shift);
            }
        }
        well
    }

    #[inline(always)]
    unsafe fn expand_variances(&self) -> (f64, f64, f64, bool) {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        let (mut ln_det, mut square, mut terms, mut bad) = (0.0, 0.0, 0.0, 0.0);
        share(d, |j| {
            let (v, mean, reach) = (w.variance.load(j), w.mean.load(j), w.reach.load(j));
            if !(v > 0.0 && v < f64::INFINITY) {
                bad += 1.0;
            }
            ln_det += ln_f64(v);
            let precision = reciprocal(v);
            square += mean * mean * precision;
            terms += reach * reach * precision;
            // SAFETY: places within the coefficients.
            unsafe {
                device::store(a.coefficients, p.column_coefficient(j, self.k), mean * precision);
                if a.kind == kind::DIAG {
                    device::store(a.coefficients, p.column_coefficient(p.square(j), self.k), -0.5 * precision);
                } else if j == 0 {
                    device::store(a.coefficients, p.column_coefficient(d, self.k), -0.5 * precision);
                }
            }
        });
        let [ln_det, square, terms, bad] = block_sums([ln_det, square, terms, bad], w.sum);
        (0.5 * ln_det, square, terms, bad == 0.0)
    }

    #[inline(always)]
    unsafe fn expand_matrix(&self) -> (f64, f64, f64, bool) {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        if !self.invert() {
            return (0.0, 0.0, 0.0, false);
        }
        let mut ln_det = 0.0;
        share(d, |j| ln_det += ln_f64(w.pivot.load(j)));
        let (mut terms, mut log_share) = (0.0, 0.0);
        share_triangle(d, |i, j| {
            let v = -w.a.load(packed_index(i, j) as u32);
            let twice = if i == j { 1.0 } else { 2.0 };
            terms += twice * (if v < 0.0 { -v } else { v }) * w.reach.load(i) * w.reach.load(j);
            // SAFETY: places within the arrays.
            unsafe {
                if a.kind == kind::FULL {
                    if a.roots.is_null() {
                        device::store(a.coefficients, p.product_coefficient(i, j, self.k), -0.5 * twice * v);
                    }
                } else if self.k == 0 {
                    log_share += 0.5 * twice * v * device::load(a.scatter, packed_index(i, j));
                }
            }
        });
        let mut square = 0.0;
        share(d, |i| {
            let mut v = 0.0;
            let mut j = 0;
            while j < d {
                v -= w.a.load(symmetric(i, j)) * w.mean.load(j);
                j += 1;
            }
            square += v * w.mean.load(i);
            if a.roots.is_null() {
                let full = a.kind == kind::FULL;
                let at = if full { p.entry_coefficient(i, self.k) } else { p.column_coefficient(i, self.k) };
                // SAFETY: a place within the coefficients.
                unsafe { device::store(a.coefficients, at, v) };
            }
        });
        let [ln_det, terms, square, log_share] = block_sums([ln_det, terms, square, log_share], w.sum);
        if a.kind == kind::TIED && self.k == 0 && thread::thread_idx_x() == 0 {
            // SAFETY: two numbers.
            unsafe { device::store(a.carry, (a.iteration % 2) as u64, log_share) };
        }
        (0.5 * ln_det, square, terms, true)
    }

    /// The covariance's negative inverse in its place, and its pivots; whether it was positive definite, the same in all
    /// threads.
    ///
    /// A sweep for each column: with `v` what is left of column `m` and `p` its pivot, the entry `(i, j)` loses `vᵢvⱼ/p`,
    /// and row and column `m` become `v/p`, the pivot `−1/p`. The pivots are those of the Cholesky factor, squared, and
    /// one barrier a column is enough: who changes an entry of the next column also writes it where all will read it.
    #[inline(always)]
    fn invert(&self) -> bool {
        let (w, d) = (self.w, self.a.d);
        share(padded(d), |i| {
            w.column[0].store(i, if i < d { w.a.load(packed_index(i, 0) as u32) } else { 0.0 });
            w.column[1].store(i, 0.0);
        });
        match d {
            0..=16 => self.sweep_held::<{ ROWS / 2 }>(),
            17..=HELD => self.sweep_held::<ROWS>(),
            _ => self.sweep(),
        }
    }

    /// The pivot of column `m`, and one over it; none where the matrix is not positive definite. Writes what is known of
    /// the column for good: the pivot, and row `m` of the factor's inverse where that is asked for.
    #[inline(always)]
    fn pivot(&self, m: u32, now: Shared<f64>) -> Option<f64> {
        let w = self.w;
        let pivot = now.load(m);
        // Also false where it is not a number. What is that small the host judges.
        if !(pivot > 1e-9 * w.variance.load(m) && pivot > 0.0 && pivot < f64::INFINITY) {
            return None;
        }
        let share_of = reciprocal(pivot);
        if !self.a.roots.is_null() {
            // What is left of column `m` is, before it, how the row's entry depends on the entries before.
            let by = Real::sqrt(share_of);
            share(m + 1, |j| {
                let at = self.k as u64 * packed_len(self.a.d) + packed_index(m, j);
                let v = if j == m { by } else { -now.load(j) * by };
                // SAFETY: an entry of the component's own.
                unsafe { device::store(self.a.roots, at, v) };
            });
        }
        if thread::thread_idx_x() == 0 {
            w.pivot.store(m, pivot);
        }
        Some(share_of)
    }

    /// Sweeps over a matrix of up to [`HELD`] columns, both triangles of which the block holds in registers: a lane has a
    /// column, a warp `R` rows. Each sweep is then `R` operations between one barrier and the next.
    #[inline(always)]
    fn sweep_held<const R: usize>(&self) -> bool {
        let (w, d, t) = (self.w, self.a.d, thread::thread_idx_x());
        let (first, j) = (t / WARP * R as u32, t % WARP);
        let mut held = [0.0; R];
        each(R, |r| {
            let i = first + r as u32;
            // Column 0 is what the first sweep reads.
            if i < d && j < d && j > 0 {
                held[r] = w.a.load(symmetric(i, j));
            }
        });
        let mut m = 0;
        while m < d {
            let (now, next) = if m % 2 == 1 { (w.column[1], w.column[0]) } else { (w.column[0], w.column[1]) };
            thread::sync_threads();
            let Some(share_of) = self.pivot(m, now) else { return false };
            // Of column `m` nothing is held any more, so that this makes `v/p` of it, and of what is not there 0.
            let across = if j == m { -share_of } else { now.load(j) * share_of };
            each(R / 2, |two| {
                let down = now.load2(first + 2 * two as u32);
                each(2, |odd| held[2 * two + odd] = Real::fma(-down[odd], across, held[2 * two + odd]));
            });
            if m / R as u32 == t / WARP {
                each(R, |r| {
                    if first + r as u32 == m {
                        held[r] = across;
                    }
                });
            }
            if j == m + 1 {
                each(R / 2, |two| {
                    next.store2(first + 2 * two as u32, [held[2 * two], held[2 * two + 1]]);
                    [held[2 * two], held[2 * two + 1]] = [0.0; 2];
                });
            }
            m += 1;
        }
        each(R, |r| {
            let i = first + r as u32;
            if i < d && j <= i {
                w.a.store(packed_index(i, j) as u32, held[r]);
            }
        });
        thread::sync_threads();
        true
    }

    /// Sweeps over a matrix of any size, in shared memory.
    #[inline(always)]
    fn sweep(&self) -> bool {
        let (w, d) = (self.w, self.a.d);
        let mut m = 0;
        while m < d {
            let (now, next) = if m % 2 == 1 { (w.column[1], w.column[0]) } else { (w.column[0], w.column[1]) };
            thread::sync_threads();
            let Some(share_of) = self.pivot(m, now) else { return false };
            share_triangle(d, |i, j| {
                let at = packed_index(i, j) as u32;
                let (vi, vj) = (now.load(i), now.load(j));
                let v = match (i == m, j == m) {
                    (true, true) => -share_of,
                    (true, false) => vj * share_of,
                    (false, true) => vi * share_of,
                    (false, false) => Real::fma(-vi, vj * share_of, w.a.load(at)),
                };
                w.a.store(at, v);
                if i == m + 1 {
                    next.store(j, v);
                } else if j == m + 1 {
                    next.store(i, v);
                }
            });
            m += 1;
        }
        thread::sync_threads();
        true
    }
}
