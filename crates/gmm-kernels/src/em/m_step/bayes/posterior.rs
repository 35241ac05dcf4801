//! The posterior of a component from the sums of a pass.

use crate::device::{self, Shared, thread};
use crate::em::m_step::{Component, has_matrix, kind, share, share_triangle, sums};
use crate::layout::packed_index;
use crate::math::reciprocal;

/// A component with less than this has no rows: its reciprocal would leave the normal range.
const NO_ROWS: f64 = 1e-280;

/// Factors of a component's posterior.
struct Factors {
    /// N.
    count: f64,
    /// 1/N, or 0 without rows.
    rows: f64,
    /// 1/(β + N).
    mean: f64,
    /// β(β + N)/N, or 0 without rows: what the square of the posterior mean's distance from m counts, which is that of
    /// the rows' mean times N/(β + N).
    apart: f64,
    /// Added to variances before they are scaled.
    regular: f64,
    /// 1/(ν + N), for a tied covariance with N of all components.
    scale: f64,
}

impl Component<'_> {
    #[inline(always)]
    fn factors(&self, count: f64) -> Factors {
        let a = self.a;
        let (beta, has_rows) = (a.mean_precision, count > NO_ROWS);
        let rows = if has_rows { reciprocal(count) } else { 0.0 };
        let weight = if a.kind == kind::TIED { a.total_weight } else { count };
        Factors {
            count,
            rows,
            mean: reciprocal(beta + count),
            apart: beta * (beta + count) * rows,
            regular: weight * a.reg_covar,
            scale: reciprocal(self.nu(count)),
        }
    }
    /// Writes the posterior mean, from Σ r x of column `j`. Returns the mean of the rows, or m if there are none, and the
    /// posterior mean less m.
    #[inline(always)]
    unsafe fn put_mean<const WIDE: bool>(&self, of: &Factors, first: f64, j: u32) -> [f64; 2] {
        // SAFETY: the caller passes `j < d`.
        unsafe {
            let (m, beta) = (self.prior_mean::<WIDE>(j), self.a.mean_precision);
            let mean = (beta * m + first) * of.mean;
            device::store(self.a.means, self.mean_at(j), mean);
            self.w.mean.store(j, mean);
            [if of.rows > 0.0 { first * of.rows } else { m }, (first - of.count * m) * of.mean]
        }
    }

    /// An entry of the posterior covariance, from the prior's, the rows' moment about the shift, and what belongs to the
    /// mean of the rows and to their distance from m. Counts a variance that lost too much precision.
    #[inline(always)]
    fn entry_of(of: &Factors, scale: f64, second: f64, moved: f64, apart: f64) -> f64 {
        scale + (second - moved) + of.apart * apart
    }

    /// Adds what belongs to a variance, and counts it in `lost` if too little of `about` remains.
    #[inline(always)]
    fn variance_of(&self, of: &Factors, v: f64, about: f64, lost: &mut f64) -> f64 {
        let v = v + of.regular;
        let enough = v >= self.a.least_left * about;
        // Negated, so that NaN counts as lost.
        if !enough {
            *lost += 1.0;
        }
        v
    }

    /// Runs the M-step of a component of Σ r = `count` after [`send`](Self::send). Returns the number of moments of this thread that lost too much
    /// precision.
    #[inline(always)]
    pub(crate) unsafe fn update_posterior(&self, count: f64) -> f64 {
        let (a, w, d, at) = (self.a, self.w, self.a.d, self.covariance_at());
        let (of, mut lost) = (self.factors(count), 0.0);
        // SAFETY: `j ≤ i < d`, so positions are within the sums, the prior and the arrays; each entry is written by one
        // thread.
        unsafe {
            if a.kind == kind::TIED {
                self.pool::<true>();
            }
            Shared::arrive();
            let (mut squares, mut apart) = (0.0, 0.0);
            share(d, |j| {
                let [rows, away] = self.put_mean::<false>(&of, w.mean.load(j), j);
                squares += rows * rows;
                apart += away * away;
                if a.kind == kind::DIAG {
                    let (scale, second) = (w.pivot.load(j), w.variance.load(j));
                    let v = Self::entry_of(&of, scale, second, of.count * rows * rows, away * away);
                    let v = self.variance_of(&of, v, second, &mut lost) * of.scale;
                    w.variance.store(j, v);
                    device::store(a.covariances, at + j as u64, v);
                    self.store_about_prior(j, scale, away);
                } else if has_matrix(a.kind) {
                    w.reach.store(j, rows);
                    w.pivot.store(j, away);
                } else {
                    w.reach.store(j, away);
                }
            });
            if has_matrix(a.kind) {
                thread::sync_threads();
                share_triangle(d, |i, j| {
                    let at = packed_index(i, j) as u32;
                    let about = if a.kind == kind::TIED { self.scatter(i, j) } else { w.a.load(at) };
                    let v = self.put_entry::<false>(&of, [i, j], about, w.a.load(at), &mut lost);
                    w.a.store(at, v);
                });
            } else if a.kind == kind::SPHERICAL {
                let second = if thread::thread_idx_x() == 0 { w.pivot.load(0) } else { 0.0 };
                let [squares, apart, second] = sums([squares, apart, second], w.sum);
                let each = reciprocal(d as f64);
                share(d, |j| {
                    let scale = w.variance.load(j);
                    let v = Self::entry_of(&of, scale, second * each, of.count * squares * each, apart * each);
                    let mut too_small = 0.0;
                    let v = self.variance_of(&of, v, second * each, &mut too_small) * of.scale;
                    w.variance.store(j, v);
                    self.store_about_prior(j, scale, w.reach.load(j));
                    if j == 0 {
                        lost += too_small;
                        device::store(a.covariances, at, v);
                    }
                });
            }
        }
        // Without a matrix, each thread goes on with its own columns.
        if has_matrix(a.kind) {
            thread::sync_threads();
        }
        lost
    }

    /// As [`update_posterior`](Self::update_posterior), for a matrix in device memory and without prefetched sums.
    #[inline(always)]
    pub(crate) unsafe fn update_posterior_wide(&self, count: f64) -> f64 {
        let (a, w, p) = (self.a, self.w, self.place);
        let full = a.kind == kind::FULL;
        let (of, mut lost) = (self.factors(count), 0.0);
        // SAFETY: `j ≤ i < d`, so positions are within the sums, the prior and the arrays; each entry is written by one
        // thread.
        unsafe {
            if !full {
                self.pool_wide::<true>();
            }
            share(a.d, |j| {
                let at = if full { p.entry_sum(j, self.k) } else { p.column_sum(j, self.k) };
                let [rows, away] = self.put_mean::<true>(&of, self.sum_at(at), j);
                w.reach.store(j, rows);
                w.pivot.store(j, away);
            });
            thread::sync_threads();
            self.replace_entries(|i, j, there| {
                let about = if full { there } else { self.scatter_there(i, j) };
                self.put_entry::<true>(&of, [i, j], about, there, &mut lost)
            });
        }
        thread::sync_threads();
        lost
    }

    /// Writes and returns an entry of a posterior covariance. `about` is the moment about the shift; for a tied
    /// covariance `moved` is what [`pool`](Self::pool) gives.
    #[inline(always)]
    unsafe fn put_entry<const WIDE: bool>(
        &self,
        of: &Factors,
        [i, j]: [u32; 2],
        about: f64,
        moved: f64,
        lost: &mut f64,
    ) -> f64 {
        let (a, w, at) = (self.a, self.w, packed_index(i, j));
        let full = a.kind == kind::FULL;
        // SAFETY: the caller passes `j ≤ i < d`.
        unsafe {
            let mut v = if full {
                let moved = of.count * w.reach.load(i) * w.reach.load(j);
                Self::entry_of(of, self.scale::<WIDE>(at), about, moved, w.pivot.load(i) * w.pivot.load(j))
            } else {
                about - moved
            };
            if i == j {
                v = self.variance_of(of, v, about, lost);
            }
            v *= of.scale;
            if i == j {
                w.variance.store(i, v);
            }
            if full || self.k == 0 {
                device::store(a.covariances, self.covariance_at() + at, v);
            }
            v
        }
    }
}
