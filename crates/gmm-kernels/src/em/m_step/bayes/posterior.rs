//! The posterior from the sums of a pass, and the lower bound of the log evidence.

use crate::Real;
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::em::m_step::bayes::{Bayes, Block};
use crate::em::m_step::{OWN_THREADS, TRACE, kind, share, share_triangle, sums};
use crate::em::state::{DONE, FINISHED, TROUBLE, stopped};
use crate::layout::{packed_index, packed_len};
use crate::math::reciprocal;

/// A component with less than this has no rows: its reciprocal would leave the normal range.
const NO_ROWS: f64 = 1e-280;

/// Row and column of an entry of a packed triangle.
#[inline(always)]
fn unpacked(entry: u64) -> (u32, u32) {
    // The root is rounded, so the row may be off by one.
    let mut i = (0.5 * (Real::sqrt(8.0 * entry as f64 + 1.0) - 1.0)) as u32;
    if packed_len(i) > entry {
        i -= 1;
    }
    if packed_len(i + 1) <= entry {
        i += 1;
    }
    (i, (entry - packed_len(i)) as u32)
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Bayes`] document.
#[inline(always)]
pub(super) unsafe fn body(a: Bayes) {
    device::await_previous_grid();
    let block = Block::new(&a, thread::block_idx_x());
    // SAFETY: the caller upholds `# Safety`; the grid is `k` blocks; all threads take the same branches.
    unsafe {
        if stopped(a.state.cast_const(), a.iteration) {
            return;
        }
        let lost = match a.kind {
            kind::TIED => block.pooled(),
            _ => block.own(),
        };
        // The same barriers serve all three.
        let (mut after, mut divergence) = (0.0, 0.0);
        share(a.k, |c| {
            if c > block.c {
                after += device::load(a.sums, block.place.weight(c));
            }
            if block.c == 0 {
                divergence += device::load(a.divergences.cast_const(), c as u64);
            }
        });
        let [after, divergence, lost] = sums([after, divergence, lost], block.scratch);
        if thread::thread_idx_x() == 0 {
            device::store(a.counts, block.c as u64, device::load(a.sums, block.place.weight(block.c)));
            device::store(a.after, block.c as u64, after);
            if lost > 0.0 {
                device::store(a.state, TROUBLE, a.iteration);
            }
            if block.c == 0 {
                block.book(divergence);
            }
        }
    }
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn sum(&self, at: u64) -> f64 {
        // SAFETY: `at` comes from `FeatureLayout`, so it is below the length of the sums.
        unsafe { device::load(self.a.sums, at) }
    }

    /// Σ r x of column `j` of component `c`.
    #[inline(always)]
    unsafe fn first(&self, j: u32, c: u32) -> f64 {
        let p = self.place;
        // SAFETY: `j < d` and `c < k`, so the position is within the sums.
        unsafe { self.sum(if p.classes > 0 { p.entry_sum(j, c) } else { p.column_sum(j, c) }) }
    }

    /// m less the shift.
    #[inline(always)]
    unsafe fn prior_mean(&self, j: u32) -> f64 {
        // SAFETY: `j < d`.
        unsafe { device::load(self.a.prior, j as u64) }
    }

    /// Entry `at` of C.
    #[inline(always)]
    unsafe fn scale(&self, at: u64) -> f64 {
        // SAFETY: `at` is below `scale_len`, and C follows the mean.
        unsafe { device::load(self.a.prior, self.a.d as u64 + at) }
    }

    /// Writes the mean and the covariance of a component with a covariance of its own. Returns the number of moments of
    /// this thread that lost too much precision.
    #[inline(always)]
    unsafe fn own(&self) -> f64 {
        let (a, p, d, c) = (self.a, self.place, self.a.d, self.c);
        let [x, away] = self.vectors;
        let (mut lost, mut squares, mut apart) = (0.0, 0.0, 0.0);
        // SAFETY: `j ≤ i < d`, so positions are within the sums, the prior and the arrays; each entry is written by one
        // thread.
        unsafe {
            let n = self.sum(p.weight(c));
            let has_rows = n > NO_ROWS;
            let (of_rows, beta) = (if has_rows { reciprocal(n) } else { 0.0 }, a.mean_precision);
            let of_mean = reciprocal(beta + n);
            let (between, of_scale) = (beta * n * of_mean, reciprocal(a.degrees_of_freedom + n));
            share(d, |j| {
                let (first, m) = (self.first(j, c), self.prior_mean(j));
                let mean = if has_rows { first * of_rows } else { m };
                x.store(j, mean);
                away.store(j, mean - m);
                squares += mean * mean;
                apart += (mean - m) * (mean - m);
                device::store(a.means, self.mean_at(j), (beta * m + first) * of_mean);
            });
            thread::sync_threads();
            let at = self.covariance_at();
            // Entry `i`, from the rows' moment about the shift, that of their mean, and the part between mean and prior.
            let mut put = |i: u64, second: f64, moved: f64, apart: f64, is_variance: bool| {
                let regular = if is_variance { n * a.reg_covar } else { 0.0 };
                let v = self.scale(i) + (second - moved) + regular + apart;
                // Negated, so that NaN counts as lost.
                let enough = v >= a.least_left * second;
                if is_variance && !enough {
                    lost += 1.0;
                }
                device::store(a.covariances, at + i, v * of_scale);
            };
            match a.kind {
                kind::FULL => share_triangle(d, |i, j| {
                    let second = self.sum(p.product_sum(i, j, c));
                    let moved = n * x.load(i) * x.load(j);
                    put(packed_index(i, j), second, moved, between * away.load(i) * away.load(j), i == j);
                }),
                kind::DIAG => share(d, |j| {
                    let second = self.sum(p.column_sum(p.square(j), c));
                    let moved = n * x.load(j) * x.load(j);
                    put(j as u64, second, moved, between * away.load(j) * away.load(j), true);
                }),
                _ => {
                    let [squares, apart] = sums([squares, apart], self.scratch);
                    let each = reciprocal(d as f64);
                    let second = self.sum(p.column_sum(d, c)) * each;
                    share(1, |i| put(i as u64, second, n * squares * each, between * apart * each, true));
                }
            }
        }
        lost
    }

    /// Writes the mean of a component of a tied covariance, and its part of that covariance's entries: each has a thread
    /// of the grid, or, with many components, a warp whose lanes take the components. Returns the number of moments of
    /// this thread that lost too much precision.
    #[inline(always)]
    unsafe fn pooled(&self) -> f64 {
        let (a, p, d) = (self.a, self.place, self.a.d);
        let (t, beta, mut lost) = (thread::thread_idx_x(), a.mean_precision, 0.0);
        let few = a.k < WARP;
        // SAFETY: `j ≤ i < d` and `c < k`, so positions are within the sums, the prior and the arrays; each entry is
        // written by one thread.
        unsafe {
            let of_mean = |c: u32| reciprocal(beta + self.sum(p.weight(c)));
            if few {
                share(a.k, |c| self.scratch.store(c, of_mean(c)));
                thread::sync_threads();
            }
            let own = of_mean(self.c);
            share(d, |j| {
                let mean = (beta * self.prior_mean(j) + self.first(j, self.c)) * own;
                device::store(a.means, self.mean_at(j), mean);
            });
            let of_scale = reciprocal(a.degrees_of_freedom + a.total_weight);
            let lanes = if few { 1 } else { WARP };
            let (lane, groups) = (t % lanes, OWN_THREADS / lanes);
            let mut entry = (self.c * groups + t / lanes) as u64;
            while entry < packed_len(d) {
                let (i, j) = unpacked(entry);
                let (mi, mj) = (beta * self.prior_mean(i), beta * self.prior_mean(j));
                let (mut moved, mut c) = (0.0, lane);
                while c < a.k {
                    let of_mean = if few { self.scratch.load(c) } else { of_mean(c) };
                    moved += (mi + self.first(i, c)) * (mj + self.first(j, c)) * of_mean;
                    c += lanes;
                }
                // All lanes of a warp have the same entry.
                if !few {
                    each(WARP.ilog2() as usize, |by| moved += warp::shuffle_xor(moved, 1 << by));
                }
                if lane == 0 {
                    let about = device::load(a.scatter, entry);
                    let v = about - moved;
                    let enough = v >= a.least_left * about;
                    if i == j && !enough {
                        lost += 1.0;
                    }
                    let regular = if i == j { a.total_weight * a.reg_covar } else { 0.0 };
                    device::store(a.covariances, entry, (v + regular) * of_scale);
                }
                entry += (a.k * groups) as u64;
            }
        }
        lost
    }

    /// Records the bound at the posterior of the pass that this iteration ends, and whether the loop is done.
    #[inline(always)]
    unsafe fn book(&self, divergence: f64) {
        let a = self.a;
        // SAFETY: indices within the sums, `carry` (2 elements), `trace` (`TRACE` elements) and `state` (`STATE_LEN`
        // elements).
        unsafe {
            let shared = if a.kind == kind::TIED { device::load(a.carry, 0) } else { 0.0 };
            let total = self.sum(self.place.log_likelihood()) - shared - (divergence + a.constant);
            let mean = total / a.total_weight;
            let before = (a.iteration as u64 + TRACE - 2) % TRACE;
            let change =
                if a.iteration > 1 { mean - device::load(a.trace.cast_const(), before) } else { f64::INFINITY };
            let size = if change < 0.0 { -change } else { change };
            device::store(a.trace, (a.iteration - 1) as u64 % TRACE, mean);
            if !(mean > f64::NEG_INFINITY && mean < f64::INFINITY) {
                device::store(a.state, TROUBLE, a.iteration);
            }
            device::store(a.state, FINISHED, a.iteration);
            if size < a.tol || a.iteration == a.max_iter {
                device::store(a.state, DONE, a.iteration);
            }
        }
    }
}
