//! Coefficients of the next densities from a component's parameters, and how much precision they lose.

use crate::Real;
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::em::m_step::bayes::Counts;
use crate::em::m_step::work::{HELD, ROWS, padded};
use crate::em::m_step::{
    Component, LANES_OF_ROW, ONE, has_matrix, kind, share, share_rows, share_triangle, sums, symmetric,
};
use crate::layout::{packed_index, packed_len};
use crate::math::{ln_f64, reciprocal};

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// This thread's parts of the sums of an expansion.
pub(crate) struct Expanded {
    /// The logarithm of the covariance's determinant.
    pub(crate) ln_det: f64,
    /// Squared Mahalanobis distance of the mean from the shift.
    pub(crate) square: f64,
    /// Upper bound of the sum of a log density's absolute terms, before they cancel.
    pub(crate) terms: f64,
    /// For a tied covariance, the part of Σ w ln p(x) that all components share.
    pub(crate) log_share: f64,
    /// Number of moments that lost too much precision, and of variances and pivots that are not positive and finite.
    pub(crate) bad: f64,
    /// With a prior, half the trace of the expected precision times C + β (E μ − m)(E μ − m)ᵀ; for a tied covariance
    /// without what is in `log_share`.
    pub(crate) half_trace: f64,
}

impl Component<'_> {
    /// Writes the coefficients of the densities and returns whether they can be used. `weight` is the component's
    /// weight, and `lost` the number of moments of this thread that lost too much precision. With a prior the constants are
    /// those of `counts`.
    #[inline(always)]
    pub(crate) unsafe fn expand<const WIDE: bool, const BAYES: bool>(
        &self,
        weight: f64,
        lost: f64,
        counts: &Counts,
    ) -> bool {
        let (a, w) = (self.a, self.w);
        let one = thread::thread_idx_x() == ONE;
        // Computed before the barriers, since it depends on nothing computed there.
        let of_weight = if BAYES || !one { 0.0 } else { ln_f64(weight) };
        let log_weight = of_weight - 0.5 * a.d as f64 * LN_2PI;
        // Upper bound of the distance from the shift to the component's rows.
        share(a.d, |j| {
            let v = w.variance.load(j);
            let sd = if v > 0.0 { Real::sqrt(v) } else { 0.0 };
            let mean = w.mean.load(j);
            w.reach.store(j, (if mean < 0.0 { -mean } else { mean }) + 4.0 * sd);
        });
        // SAFETY: `body` upholds its `# Safety`: buffers are as `Update` documents; all threads take the same branch.
        let Expanded { ln_det, square, terms, log_share, bad, half_trace } = unsafe {
            match has_matrix(a.kind) {
                _ if WIDE => self.expand_wide::<BAYES>(lost),
                true => self.expand_matrix::<BAYES>(lost),
                false => self.expand_variances::<BAYES>(lost),
            }
        };
        let at_shift = |square: f64| if a.roots.is_null() { 0.5 * square } else { 0.0 };
        let ([terms, log_share, bad], constant) = if BAYES {
            // SAFETY: as above.
            let own = unsafe { self.count_terms(counts) };
            let divergence = half_trace + self.of_half_ln_det(0.5 * ln_det);
            // As many sums as without a prior.
            let [less, divergence, terms, log_share, bad] =
                sums([0.5 * ln_det + at_shift(square), divergence, terms, log_share, bad], w.sum);
            if one {
                let all = self.all_count_terms(own);
                self.put_divergence(all.divergence + divergence);
                ([terms, log_share, bad], log_weight - less + all.constant)
            } else {
                ([terms, log_share, bad], 0.0)
            }
        } else {
            let [ln_det, square, terms, log_share, bad] = sums([ln_det, square, terms, log_share, bad], w.sum);
            ([terms, log_share, bad], log_weight - 0.5 * ln_det - at_shift(square))
        };
        self.carry(log_share);
        if one {
            // SAFETY: `k < a.k`.
            unsafe { device::store(a.constants, self.k as u64, constant) };
        }
        bad == 0.0 && terms <= a.most_terms
    }

    #[inline(always)]
    unsafe fn expand_variances<const BAYES: bool>(&self, lost: f64) -> Expanded {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        let (mut ln_det, mut square, mut terms, mut bad, mut half_trace) = (0.0, 0.0, 0.0, lost, 0.0);
        share(d, |j| {
            let (v, mean, reach) = (w.variance.load(j), w.mean.load(j), w.reach.load(j));
            if !(v > 0.0 && v < f64::INFINITY) {
                bad += 1.0;
            }
            ln_det += ln_f64(v);
            let precision = reciprocal(v);
            square += mean * mean * precision;
            terms += reach * reach * precision;
            if BAYES {
                // Left there by `store_about_prior`.
                half_trace += 0.5 * precision * w.pivot.load(j);
            }
            if !self.has_coefficients() {
                return;
            }
            // SAFETY: `j ≤ d` and `k < a.k`, so positions from `FeatureLayout` are within the coefficients.
            unsafe {
                device::store(a.coefficients, p.column_coefficient(j, self.k), mean * precision);
                if a.kind == kind::DIAG {
                    device::store(a.coefficients, p.column_coefficient(p.square(j), self.k), -0.5 * precision);
                } else if j == 0 {
                    device::store(a.coefficients, p.column_coefficient(d, self.k), -0.5 * precision);
                }
            }
        });
        Expanded { ln_det, square, terms, log_share: 0.0, bad, half_trace }
    }

    #[inline(always)]
    unsafe fn expand_matrix<const BAYES: bool>(&self, lost: f64) -> Expanded {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        self.invert();
        let (ln_det, bad) = self.judge_pivots(lost);
        let (mut terms, mut log_share, mut half_trace) = (0.0, 0.0, 0.0);
        share_triangle(d, |i, j| {
            let v = -w.a.load(packed_index(i, j) as u32);
            let twice = if i == j { 1.0 } else { 2.0 };
            terms += twice * (if v < 0.0 { -v } else { v }) * w.reach.load(i) * w.reach.load(j);
            // SAFETY: `j ≤ i < d` and `k < a.k`, so positions are within the coefficients and the scatter matrix.
            unsafe {
                if a.kind == kind::FULL {
                    if BAYES {
                        half_trace += 0.5 * twice * v * self.about_prior::<false>(i, j);
                    }
                    if self.has_coefficients() {
                        device::store(a.coefficients, p.product_coefficient(i, j, self.k), -0.5 * twice * v);
                    }
                } else if self.k == 0 && a.about_means == 0 {
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
            // All lanes of the row get the sum.
            each(LANES_OF_ROW.ilog2() as usize, |i| v += warp::shuffle_xor(v, 1 << i));
            if i < d && from == 0 {
                square += v * w.mean.load(i);
                if BAYES && a.kind == kind::TIED {
                    // SAFETY: `i < d`.
                    half_trace += unsafe { self.about_tied::<false>(v, i) };
                }
                if self.has_coefficients() {
                    let full = a.kind == kind::FULL;
                    let at = if full { p.entry_coefficient(i, self.k) } else { p.column_coefficient(i, self.k) };
                    // SAFETY: `i < d` and `k < a.k`, so the position is within the coefficients.
                    unsafe { device::store(a.coefficients, at, v) };
                }
            }
        });
        Expanded { ln_det, square, terms, log_share, bad, half_trace }
    }

    /// Whether densities are expanded in features.
    #[inline(always)]
    fn has_coefficients(&self) -> bool {
        self.a.roots.is_null() && self.a.about_means == 0
    }

    /// For a tied covariance, stores the part of Σ w ln p(x) that all components share.
    #[inline(always)]
    fn carry(&self, log_share: f64) {
        let a = self.a;
        if a.kind == kind::TIED && self.k == 0 && thread::thread_idx_x() == 0 {
            // SAFETY: `carry` has two elements.
            unsafe { device::store(a.carry, (a.iteration % 2) as u64, log_share) };
        }
    }

    /// Returns this thread's part of the log-determinant, and the number of its unusable pivots plus `lost`.
    #[inline(always)]
    pub(crate) fn judge_pivots(&self, lost: f64) -> (f64, f64) {
        let (w, mut ln_det, mut bad) = (self.w, 0.0, lost);
        share(self.a.d, |j| {
            let pivot = w.pivot.load(j);
            // Negated, so that NaN counts as bad. The host decides what to do about pivots this small.
            if !(pivot > 1e-9 * w.variance.load(j) && pivot > 0.0 && pivot < f64::INFINITY) {
                bad += 1.0;
            }
            ln_det += ln_f64(pivot);
        });
        (ln_det, bad)
    }

    /// Replaces the covariance by its negative inverse, and stores its pivots. If the covariance is not positive
    /// definite, the pivots show that and the other results are meaningless.
    ///
    /// One sweep per column: with `v` the current column `m` and `p` its pivot, entry `(i, j)` is reduced by `vᵢvⱼ/p`,
    /// row and column `m` become `v/p`, and the pivot becomes `−1/p`. The pivots are the squared diagonal of the
    /// Cholesky factor. One barrier per column suffices: the thread that updates an entry of the next column also
    /// writes it to the buffer that all threads read.
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

    /// Sweeps over a matrix of up to [`HELD`] columns, both triangles of which are in the block's registers: a lane has
    /// a column, a warp has `R` rows. Each sweep is `R` operations between two barriers; all other work follows the
    /// last sweep.
    #[inline(always)]
    fn sweep_held<const R: usize>(&self) {
        let (w, d, t) = (self.w, self.a.d, thread::thread_idx_x());
        let (me, j) = (t / WARP, t % WARP);
        let first = me * R as u32;
        let mut held = [0.0; R];
        each(R, |r| {
            let i = first + r as u32;
            // Column 0 is already in the buffer that the first sweep reads.
            if i < d && j < d && j > 0 {
                held[r] = w.a.load(symmetric(i, j));
            }
        });
        let mut m = 0;
        while m < d {
            let (now, next) = if m % 2 == 1 { (w.column[1], w.column[0]) } else { (w.column[0], w.column[1]) };
            thread::sync_threads();
            let (pivot, here) = (now.load(m), now.load(j));
            // Column `m` of `held` is 0, so the `fma` sets it to `v/p`; padding stays 0.
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
            // Stores the current row `m`, before its sweep, in the matrix's memory.
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

    /// Stores an entry of the inverse of the Cholesky factor. `left` is entry `j` of row `i` before that row's sweep,
    /// its regression coefficient on entry `j`; −1 on the diagonal. `by` is 1/√pivot.
    #[inline(always)]
    pub(crate) fn store_root(&self, i: u32, j: u32, left: f64, by: f64) {
        let at = self.k as u64 * packed_len(self.a.d) + packed_index(i, j);
        // SAFETY: `j ≤ i < d`, so this is an entry of this component's matrix in `roots`.
        unsafe { device::store(self.a.roots, at, -left * by) };
    }

    /// Sweeps over a matrix of any size in shared memory.
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
