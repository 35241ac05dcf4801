//! The constants of the expected log densities, and the divergence of the posterior from the prior.

use crate::device::{self, thread};
use crate::em::m_step::bayes::{Bayes, Block};
use crate::em::m_step::{has_matrix, kind, share, share_triangle, sums};
use crate::em::state::stopped;
use crate::layout::{packed_index, packed_len};
use crate::math::{ln_f64, ln_gamma_and_digamma, reciprocal};

const HALF_LN_2PI: f64 = 0.918_938_533_204_672_8;

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
        let (count, after) = (block.count(block.c), block.after(block.c));
        let mut total = 0.0;
        share(a.k, |c| total += block.count(c));
        let [total] = sums([total], block.scratch);
        let of =
            Of { count, after, total, nu: a.degrees_of_freedom + if a.kind == kind::TIED { total } else { count } };
        let own = block.gammas(&of);
        let (trace, size) = block.trace();
        let [log_weight, divergence, slopes, trace, size] =
            sums([own.log_weight, own.divergence, own.slopes, trace, size], block.scratch);
        if thread::thread_idx_x() == 0 {
            block.finish(&of, Gammas { log_weight, divergence, slopes }, trace, size);
        }
    }
}

/// What a component's posterior depends on beside mean and covariance.
struct Of {
    /// Σ r of the component.
    count: f64,
    /// Σ r of the components after it.
    after: f64,
    /// Σ r of all components.
    total: f64,
    /// ν of the posterior of its precision.
    nu: f64,
}

/// Sums of values of ln Γ and ψ.
struct Gammas {
    /// E ln π.
    log_weight: f64,
    /// The part of the divergence in which they occur.
    divergence: f64,
    /// E ln |Λ|, less logarithms of the scale.
    slopes: f64,
}

impl Block<'_> {
    #[inline(always)]
    unsafe fn count(&self, c: u32) -> f64 {
        // SAFETY: `c < k`.
        unsafe { device::load(self.a.counts.cast_const(), c as u64) }
    }

    #[inline(always)]
    unsafe fn after(&self, c: u32) -> f64 {
        // SAFETY: `c < k`.
        unsafe { device::load(self.a.after.cast_const(), c as u64) }
    }

    /// This thread's part of the sums. Arguments are numbered, first those of the precision, then those of the
    /// weight, so that the functions occur once in the code.
    #[inline(always)]
    unsafe fn gammas(&self, of: &Of) -> Gammas {
        let (a, d) = (self.a, self.a.d as f64);
        let Of { count, after, total, nu } = *of;
        let spherical = a.kind == kind::SPHERICAL;
        let of_precision = if has_matrix(a.kind) { a.d } else { 1 };
        // The precision of a tied covariance counts once.
        let counts = a.kind != kind::TIED || self.c == 0;
        let process = a.process != 0;
        let of_weight = if process { 3 + 2 * self.c } else { 2 };
        let mut out = Gammas { log_weight: 0.0, divergence: 0.0, slopes: 0.0 };
        share(of_precision + of_weight, |task| {
            let own = task < of_precision;
            let alpha = a.concentration;
            let nth = task - if own { 0 } else { of_precision };
            // The argument; then the factors of ψ in E ln π, and of ln Γ and ψ in the divergence.
            let (x, log_weight, by_ln, by_slope) = if own {
                let x = 0.5 * if spherical { d * nu } else { nu - nth as f64 };
                let times = if a.kind == kind::DIAG { d } else { 1.0 };
                let of_slopes = if spherical { d } else { times };
                (x, of_slopes, -times, 0.5 * (nu - a.degrees_of_freedom) * of_slopes)
            } else if !process {
                match nth {
                    0 => (alpha + count, 1.0, -1.0, count),
                    _ => {
                        let once = if self.c == 0 { 1.0 } else { 0.0 };
                        (a.k as f64 * alpha + total, -1.0, once, -count)
                    }
                }
            } else {
                match nth {
                    0 => (1.0 + count, 1.0, -1.0, count),
                    1 => (alpha + after, 0.0, -1.0, after),
                    2 => (1.0 + count + alpha + after, -1.0, 1.0, -(count + after)),
                    _ => {
                        let before = (nth - 3) / 2;
                        // SAFETY: `before < c`.
                        let (count, after) = unsafe { (self.count(before), self.after(before)) };
                        if nth % 2 == 1 {
                            (alpha + after, 1.0, 0.0, 0.0)
                        } else {
                            (1.0 + count + alpha + after, -1.0, 0.0, 0.0)
                        }
                    }
                }
            };
            let (ln_gamma, slope) = ln_gamma_and_digamma(x);
            if own {
                out.slopes += log_weight * slope;
            } else {
                out.log_weight += log_weight * slope;
            }
            if !own || counts {
                out.divergence += by_ln * ln_gamma + by_slope * slope;
            }
        });
        out
    }

    /// This thread's parts of the trace of (C + β (m − μ)(m − μ)ᵀ) times the expected precision, and of a number that
    /// gives the log-determinant: for full and tied the squared distance of the mean from the shift, else itself. For a
    /// tied covariance the trace lacks what is in [`carry`](Bayes::carry).
    #[inline(always)]
    unsafe fn trace(&self) -> (f64, f64) {
        let (a, p, d, c) = (self.a, self.place, self.a.d, self.c);
        let [mean, away] = self.vectors;
        let beta = a.mean_precision;
        let (mut trace, mut size) = (0.0, 0.0);
        // SAFETY: `j ≤ i < d` and `c < k`, so positions are within the prior, the parameters, the coefficients and the
        // roots.
        unsafe {
            let scale = |at: u64| device::load(a.prior, d as u64 + at);
            let covariance = |at: u64| device::load(a.covariances.cast_const(), self.covariance_at() + at);
            share(d, |j| {
                let own = device::load(a.means.cast_const(), self.mean_at(j));
                mean.store(j, own);
                away.store(j, own - device::load(a.prior, j as u64));
            });
            thread::sync_threads();
            match a.kind {
                kind::FULL if !a.roots.is_null() => trace += self.trace_of_roots(),
                kind::FULL => {
                    share_triangle(d, |i, j| {
                        // The coefficient is −½ of the precision's entry, or of both entries.
                        let coefficient = device::load(a.coefficients, p.product_coefficient(i, j, c));
                        let wanted = scale(packed_index(i, j)) + beta * away.load(i) * away.load(j);
                        trace -= 2.0 * coefficient * wanted;
                    });
                    share(d, |j| size += device::load(a.coefficients, p.entry_coefficient(j, c)) * mean.load(j));
                }
                kind::TIED => share(d, |j| {
                    let product = device::load(a.coefficients, p.column_coefficient(j, c));
                    let m = mean.load(j) - away.load(j);
                    trace += beta * product * (mean.load(j) - 2.0 * m);
                    size += product * mean.load(j);
                }),
                kind::DIAG => share(d, |j| {
                    let v = covariance(j as u64);
                    trace += (scale(j as u64) + beta * away.load(j) * away.load(j)) * reciprocal(v);
                    size += ln_f64(v);
                }),
                _ => {
                    let v = covariance(0);
                    let (each, ln) = (reciprocal(v), ln_f64(v));
                    share(d, |j| {
                        trace += (scale(0) + beta * away.load(j) * away.load(j)) * each;
                        size += ln;
                    });
                }
            }
        }
        (trace, size)
    }

    /// The same trace from the inverse L of the Cholesky factor: Σ over the rows of L of `l (C + β (m − μ)(m − μ)ᵀ) lᵀ`.
    #[inline(always)]
    unsafe fn trace_of_roots(&self) -> f64 {
        let (a, d) = (self.a, self.a.d);
        let (from, away, beta) = (self.c as u64 * packed_len(d), self.vectors[1], a.mean_precision);
        let mut trace = 0.0;
        share_triangle(d, |row, i| {
            // SAFETY: `i ≤ row < d` and `j ≤ row`, so positions are within the roots and the prior.
            unsafe {
                let root = |j: u32| device::load(a.roots, from + packed_index(row, j));
                let scale = |i: u32, j: u32| device::load(a.prior, d as u64 + packed_index(i, j));
                let mut dot = 0.0;
                let mut j = 0;
                while j <= row {
                    let entry = if j <= i { scale(i, j) } else { scale(j, i) };
                    dot += root(j) * (entry + beta * away.load(i) * away.load(j));
                    j += 1;
                }
                trace += root(i) * dot;
            }
        });
        trace
    }

    /// Completes the component's constant and its part of the divergence. Called by one thread.
    #[inline(always)]
    unsafe fn finish(&self, of: &Of, gammas: Gammas, trace: f64, size: f64) {
        let (a, d) = (self.a, self.a.d as f64);
        let Of { count, nu, .. } = *of;
        let beta = a.mean_precision + count;
        let ratio = a.mean_precision * reciprocal(beta);
        // SAFETY: `c < k`.
        unsafe {
            let constant = device::load(a.constants.cast_const(), self.c as u64);
            // `update` left ln 1 − ½ d ln 2π − ½ ln |Σ|, less ½ `size` if the density is that at the shift.
            let ln_det = match a.kind {
                kind::FULL | kind::TIED => -2.0 * (constant + d * HALF_LN_2PI) - size,
                _ => size,
            };
            let ln_nu = ln_f64(nu);
            let mut divergence = gammas.divergence + 0.5 * (d * (ratio - 1.0 - ln_f64(ratio)) + trace);
            if a.kind != kind::TIED || self.c == 0 {
                divergence += 0.5 * (a.degrees_of_freedom * (ln_det + d * ln_nu) - d * nu);
            }
            let halved = ln_nu + if a.kind == kind::SPHERICAL { ln_f64(0.5 * d) } else { -core::f64::consts::LN_2 };
            let excess = gammas.slopes - d * halved;
            device::store(
                a.constants,
                self.c as u64,
                constant + gammas.log_weight + 0.5 * (excess - d * reciprocal(beta)),
            );
            device::store(a.divergences, self.c as u64, divergence);
        }
    }
}
