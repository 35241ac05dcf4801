//! Coefficients of the next densities from a component's parameters, and what of their digits is lost in them.

use crate::Real;
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::em::m_step::{
    Component, HELD, LANES_OF_ROW, ONE, ROWS, has_matrix, kind, padded, share, share_rows, share_triangle, sums,
    symmetric,
};
use crate::layout::{packed_index, packed_len};
use crate::math::{ln_f64, reciprocal};

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// What the coefficients' constants and their use depend on, the same in all threads.
pub(crate) struct Expanded {
    /// Half the logarithm of the covariance's determinant.
    pub(crate) half_ln_det: f64,
    /// The mean's square in units of the covariance.
    pub(crate) square: f64,
    /// What the terms of a density add up to, at most, before they cancel.
    pub(crate) terms: f64,
    /// Moments without digits, variances and pivots that are not positive.
    pub(crate) bad: f64,
}

impl Component<'_> {
    /// Coefficients of the densities; whether they can be used. `weight` is the component's, and `lost` how many moments
    /// this thread found without their digits.
    #[inline(always)]
    pub(crate) unsafe fn expand<const WIDE: bool>(&self, weight: f64, lost: f64) -> bool {
        let (a, w) = (self.a, self.w);
        let one = thread::thread_idx_x() == ONE;
        // What nothing has to wait for comes before the barriers.
        let log_weight = if one { ln_f64(weight) - 0.5 * a.d as f64 * LN_2PI } else { 0.0 };
        // How far from the shift rows of the component reach.
        share(a.d, |j| {
            let v = w.variance.load(j);
            let sd = if v > 0.0 { Real::sqrt(v) } else { 0.0 };
            let mean = w.mean.load(j);
            w.reach.store(j, (if mean < 0.0 { -mean } else { mean }) + 4.0 * sd);
        });
        // SAFETY: the caller's promise; the same branch in all threads.
        let Expanded { half_ln_det, square, terms, bad } = unsafe {
            match has_matrix(a.kind) {
                _ if WIDE => self.expand_wide(lost),
                true => self.expand_matrix(lost),
                false => self.expand_variances(lost),
            }
        };
        if one {
            let log_scale = log_weight - half_ln_det;
            let at_shift = if a.roots.is_null() { 0.5 * square } else { 0.0 };
            // SAFETY: `k` is a component.
            unsafe { device::store(a.constants, self.k as u64, log_scale - at_shift) };
        }
        bad == 0.0 && terms <= a.most_terms
    }

    #[inline(always)]
    unsafe fn expand_variances(&self, lost: f64) -> Expanded {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        let (mut ln_det, mut square, mut terms, mut bad) = (0.0, 0.0, 0.0, lost);
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
        let [ln_det, square, terms, bad] = sums([ln_det, square, terms, bad], w.sum);
        Expanded { half_ln_det: 0.5 * ln_det, square, terms, bad }
    }

    #[inline(always)]
    unsafe fn expand_matrix(&self, lost: f64) -> Expanded {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        self.invert();
        let (ln_det, bad) = self.judge_pivots(lost);
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
                    log_share += 0.5 * twice * v * self.scatter(i, j);
                }
            }
        });
        let mut square = 0.0;
        share_rows(d, |i, from, step| {
            let mut v = 0.0;
            let mut j = from;
            while i < d && j < d {
                v -= w.a.load(symmetric(i, j)) * w.mean.load(j);
                j += step;
            }
            // All of a row's lanes have it.
            each(LANES_OF_ROW.ilog2() as usize, |i| v += warp::shuffle_xor(v, 1 << i));
            if i < d && from == 0 {
                square += v * w.mean.load(i);
                if a.roots.is_null() {
                    let full = a.kind == kind::FULL;
                    let at = if full { p.entry_coefficient(i, self.k) } else { p.column_coefficient(i, self.k) };
                    // SAFETY: a place within the coefficients.
                    unsafe { device::store(a.coefficients, at, v) };
                }
            }
        });
        let [ln_det, terms, square, log_share, bad] = sums([ln_det, terms, square, log_share, bad], w.sum);
        self.carry(log_share);
        Expanded { half_ln_det: 0.5 * ln_det, square, terms, bad }
    }

    /// Keeps what all components of a tied covariance share of Σ w ln p(x).
    #[inline(always)]
    pub(crate) fn carry(&self, log_share: f64) {
        let a = self.a;
        if a.kind == kind::TIED && self.k == 0 && thread::thread_idx_x() == 0 {
            // SAFETY: two numbers.
            unsafe { device::store(a.carry, (a.iteration % 2) as u64, log_share) };
        }
    }

    /// This thread's part of the logarithm of the determinant, and how many pivots it found that are of no use, beside what was
    /// `lost`.
    #[inline(always)]
    pub(crate) fn judge_pivots(&self, lost: f64) -> (f64, f64) {
        let (w, mut ln_det, mut bad) = (self.w, 0.0, lost);
        share(self.a.d, |j| {
            let pivot = w.pivot.load(j);
            // Also where it is not a number. What is that small the host judges.
            if !(pivot > 1e-9 * w.variance.load(j) && pivot > 0.0 && pivot < f64::INFINITY) {
                bad += 1.0;
            }
            ln_det += ln_f64(pivot);
        });
        (ln_det, bad)
    }

    /// The covariance's negative inverse in its place, and its pivots. Where it is not positive definite that shows in the
    /// pivots, and nothing else is of use.
    ///
    /// A sweep for each column: with `v` what is left of column `m` and `p` its pivot, the entry `(i, j)` loses `vᵢvⱼ/p`,
    /// and row and column `m` become `v/p`, the pivot `−1/p`. The pivots are those of the Cholesky factor, squared, and
    /// one barrier a column is enough: who changes an entry of the next column also writes it where all will read it.
    #[inline(always)]
    fn invert(&self) {
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

    /// Sweeps over a matrix of up to [`HELD`] columns, both triangles of which the block holds in registers: a lane has a
    /// column, a warp `R` rows. Each sweep is then `R` operations between one barrier and the next, and whatever else can
    /// wait waits for the last of them.
    #[inline(always)]
    fn sweep_held<const R: usize>(&self) {
        let (w, d, t) = (self.w, self.a.d, thread::thread_idx_x());
        let (me, j) = (t / WARP, t % WARP);
        let first = me * R as u32;
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
            let (pivot, here) = (now.load(m), now.load(j));
            // Of column `m` nothing is held any more, so that this makes `v/p` of it, and of what is not there 0.
            let share_of = reciprocal(pivot);
            let less = if j == m { share_of } else { -here * share_of };
            each(R / 2, |two| {
                let down = now.load2(first + 2 * two as u32);
                each(2, |odd| held[2 * two + odd] = Real::fma(down[odd], less, held[2 * two + odd]));
            });
            if m / R as u32 == me {
                each(R, |r| {
                    if first + r as u32 == m {
                        held[r] = -less;
                    }
                });
            }
            if j == m + 1 {
                each(R / 2, |two| {
                    next.store2(first + 2 * two as u32, [held[2 * two], held[2 * two + 1]]);
                    [held[2 * two], held[2 * two + 1]] = [0.0; 2];
                });
            }
            // What was left of row `m`, where the matrix was.
            if me == 0 && j <= m {
                if j == m {
                    w.pivot.store(m, pivot);
                } else {
                    w.a.store(packed_index(m, j) as u32, here);
                }
            }
            m += 1;
        }
        thread::sync_threads();
        if !self.a.roots.is_null() {
            share_rows(d, |i, from, step| {
                if i < d {
                    let by = Real::sqrt(reciprocal(w.pivot.load(i)));
                    let mut j = from;
                    while j <= i {
                        self.store_root(i, j, if i == j { -1.0 } else { w.a.load(packed_index(i, j) as u32) }, by);
                        j += step;
                    }
                }
            });
            thread::sync_threads();
        }
        each(R, |r| {
            let i = first + r as u32;
            if i < d && j <= i {
                w.a.store(packed_index(i, j) as u32, held[r]);
            }
        });
        thread::sync_threads();
    }

    /// An entry of the inverse of the covariance's factor: what was left of row `i` before its sweep is how its entry
    /// depends on the entries before; for its own, −1.
    #[inline(always)]
    pub(crate) fn store_root(&self, i: u32, j: u32, left: f64, by: f64) {
        let at = self.k as u64 * packed_len(self.a.d) + packed_index(i, j);
        // SAFETY: an entry of the component's own.
        unsafe { device::store(self.a.roots, at, -left * by) };
    }

    /// Sweeps over a matrix of any size, in shared memory.
    #[inline(always)]
    fn sweep(&self) {
        let (w, d) = (self.w, self.a.d);
        let mut m = 0;
        while m < d {
            let (now, next) = if m % 2 == 1 { (w.column[1], w.column[0]) } else { (w.column[0], w.column[1]) };
            thread::sync_threads();
            let pivot = now.load(m);
            let share_of = reciprocal(pivot);
            if thread::thread_idx_x() == 0 {
                w.pivot.store(m, pivot);
            }
            if !self.a.roots.is_null() {
                let by = Real::sqrt(share_of);
                share(m + 1, |j| self.store_root(m, j, if j == m { -1.0 } else { now.load(j) }, by));
            }
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
    }
}
