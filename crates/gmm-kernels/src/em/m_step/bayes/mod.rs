//! The M-step of variational Bayes: it gives a posterior in place of a mixture.
//!
//! The expected log density of a row under a component is a Gaussian log density plus a constant, so the passes stay as
//! they are, and so does the expansion of a component's densities. With N = Σ r and x̄ of a component's rows, a prior of
//! mean m worth β rows, and of scale C worth ν rows, the posterior is worth β + N and ν + N rows, and
//!
//! ```text
//! mean          (β m + N x̄) / (β + N)
//! covariance    (C + Σ r (x − x̄)(x − x̄)ᵀ + N reg + βN/(β + N) (x̄ − m)(x̄ − m)ᵀ) / (ν + N)
//! constant      that of a weight of 1, + E ln π + ½ (E ln |Λ| − ln |E Λ| − d/(β + N))
//! ```
//! The covariance is the inverse of the expected precision E Λ. The expectations and the divergence of the posterior from
//! the prior need values of ln Γ and its derivative ψ at numbers that depend on Σ r alone; each has a thread.
//!
//! With a Dirichlet process of concentration α, E ln π of component `c` is a sum over the components before it. With
//! `Sᵢ` = Σ r of the components from `i` on, and ψ(x + 1) = ψ(x) + 1/x, all but two values of ψ cancel:
//!
//! ```text
//! E ln π = ψ(1 + N) − ψ(α + S₀) − Σ over i ≤ c of 1/(α + Sᵢ)
//! ```
//! `gmm_model::bayes` has the distributions of each kind, the sources, and the same formulas on the host.

mod of_counts;
mod posterior;

use crate::device::{self, WARP, warp};
use crate::em::m_step::work::HELD;
use crate::em::m_step::{Component, has_matrix, kind, share, share_triangle};
use crate::layout::{packed_index, packed_len};

/// Length of C: a packed matrix for full and tied, `d` for diag, 1 for spherical.
pub const fn scale_len(kind: u32, d: u32) -> u64 {
    match kind {
        kind::FULL | kind::TIED => packed_len(d),
        kind::DIAG => d as u64,
        _ => 1,
    }
}

/// Whether the block prefetches C into shared memory.
pub(super) const fn brings_scale(kind: u32, d: u32) -> bool {
    kind == kind::FULL && d <= HELD
}

/// What is read long before it is used, so that nothing waits for it.
#[derive(Clone, Copy)]
pub(crate) struct Counts {
    /// Σ r of the component.
    pub(crate) own: f64,
    /// That of the component whose number is the lane's, where there is one.
    of_lane: f64,
}

impl Counts {
    pub(crate) const NONE: Self = Self { own: 0.0, of_lane: 0.0 };
}

impl Component<'_> {
    /// m less the shift; without a matrix, only before the expansion and for a column of this thread.
    #[inline(always)]
    unsafe fn prior_mean<const WIDE: bool>(&self, j: u32) -> f64 {
        match (WIDE, has_matrix(self.a.kind)) {
            // SAFETY: the caller passes `j < d`.
            (true, _) => unsafe { self.prior_mean_there(j) },
            (_, true) => self.w.centre.load(j),
            (_, false) => self.w.reach.load(j),
        }
    }

    /// m less the shift, from device memory.
    #[inline(always)]
    pub(crate) unsafe fn prior_mean_there(&self, j: u32) -> f64 {
        // SAFETY: the caller passes `j < d`.
        unsafe { device::load(self.a.prior, j as u64) }
    }

    /// Entry `at` of C, packed.
    #[inline(always)]
    unsafe fn scale_there(&self, at: u64) -> f64 {
        // SAFETY: the caller passes a position below `scale_len`, and C follows the mean.
        unsafe { device::load(self.a.prior, self.a.d as u64 + at) }
    }

    /// Entry `at` of C of a full covariance; one that this thread prefetched.
    #[inline(always)]
    unsafe fn scale<const WIDE: bool>(&self, at: u64) -> f64 {
        if !WIDE && brings_scale(self.a.kind, self.a.d) {
            self.w.scatter.load(at as u32)
        } else {
            // SAFETY: as the caller's.
            unsafe { self.scale_there(at) }
        }
    }

    /// Starts the copies of the prior: each thread copies what it will use itself. Without a matrix, m goes where the reach
    /// will be, and C where the pivots would be; for a spherical covariance, whose sum of squares is there, to the variances.
    #[inline(always)]
    pub(crate) unsafe fn send_prior(&self) {
        let (a, w) = (self.a, self.w);
        let from = |at: u32| a.prior.wrapping_add(at as usize);
        // SAFETY: `j ≤ i < d`, so positions are within the prior and the vectors.
        unsafe {
            if has_matrix(a.kind) {
                share(a.d, |j| w.centre.send(j, from(j)));
                if brings_scale(a.kind, a.d) {
                    share_triangle(a.d, |i, j| {
                        let at = packed_index(i, j) as u32;
                        w.scatter.send(at, from(a.d + at));
                    });
                }
            } else {
                share(a.d, |j| {
                    w.reach.send(j, from(j));
                    if a.kind == kind::DIAG {
                        w.pivot.send(j, from(a.d + j));
                    } else {
                        w.variance.send(j, from(a.d));
                    }
                });
            }
        }
    }

    /// Without a matrix, stores what [`about_prior`](Self::about_prior) is for the parameters that were given.
    #[inline(always)]
    pub(crate) unsafe fn recall_prior(&self) {
        let (a, w) = (self.a, self.w);
        if !has_matrix(a.kind) {
            share(a.d, |j| {
                // SAFETY: `j < d`.
                let (m, scale) = unsafe {
                    (self.prior_mean_there(j), self.scale_there(if a.kind == kind::DIAG { j as u64 } else { 0 }))
                };
                self.store_about_prior(j, scale, w.mean.load(j) - m);
            });
        }
    }

    /// Without a matrix, stores entry `j` of C + β (E μ − m)(E μ − m)ᵀ where the pivots would be, for the same thread.
    #[inline(always)]
    fn store_about_prior(&self, j: u32, scale: f64, away: f64) {
        self.w.pivot.store(j, scale + self.a.mean_precision * away * away);
    }

    /// Σ r of component `c`.
    #[inline(always)]
    unsafe fn count(&self, c: u32) -> f64 {
        // SAFETY: the caller passes `c < k`.
        unsafe {
            if self.a.iteration == 0 {
                device::load(self.a.counts.cast_const(), c as u64)
            } else {
                self.sum_at(self.place.weight(c))
            }
        }
    }

    #[inline(always)]
    pub(crate) unsafe fn counts(&self) -> Counts {
        let (a, lane) = (self.a, warp::lane_id());
        // SAFETY: both are below `k`.
        let (own, of_lane) = unsafe { (self.count(self.k), if lane < a.k { self.count(lane) } else { 0.0 }) };
        Counts { own, of_lane }
    }

    /// This lane's part of all components' divergences before this M-step.
    #[inline(always)]
    pub(crate) unsafe fn divergences_before(&self) -> f64 {
        let (a, mut c, mut before) = (self.a, warp::lane_id(), 0.0);
        let from = ((a.iteration - 1) % 2) as u64 * a.k as u64;
        while c < a.k {
            // SAFETY: `c < k`, and the buffer holds the numbers of two iterations.
            before += unsafe { device::load(a.divergences.cast_const(), from + c as u64) };
            c += WARP;
        }
        before
    }

    /// Returns ν of the posterior of the component's precision, of which Σ r is `own`.
    #[inline(always)]
    fn nu(&self, own: f64) -> f64 {
        self.a.degrees_of_freedom + if self.a.kind == kind::TIED { self.a.total_weight } else { own }
    }

    /// Entry `(i, j)` of C + β (E μ − m)(E μ − m)ᵀ, of a full covariance.
    #[inline(always)]
    pub(crate) unsafe fn about_prior<const WIDE: bool>(&self, i: u32, j: u32) -> f64 {
        // SAFETY: the caller passes `j ≤ i < d`.
        unsafe {
            let away = |j: u32| self.w.mean.load(j) - self.prior_mean::<WIDE>(j);
            self.scale::<WIDE>(packed_index(i, j)) + self.a.mean_precision * away(i) * away(j)
        }
    }

    /// For a tied covariance, with column `j` of precision times mean: this thread's part of half the trace that
    /// [`carry`](super::Update::carry) lacks.
    #[inline(always)]
    pub(crate) unsafe fn about_tied<const WIDE: bool>(&self, product: f64, j: u32) -> f64 {
        // SAFETY: the caller passes `j < d`.
        let m = unsafe { self.prior_mean::<WIDE>(j) };
        0.5 * self.a.mean_precision * product * (self.w.mean.load(j) - 2.0 * m)
    }

    /// What half the logarithm of the covariance's determinant adds to the divergence.
    #[inline(always)]
    pub(crate) fn of_half_ln_det(&self, half_ln_det: f64) -> f64 {
        if self.has_precision() { self.a.degrees_of_freedom * half_ln_det } else { 0.0 }
    }

    /// Stores the component's part of the divergence. Called by one thread.
    #[inline(always)]
    pub(crate) fn put_divergence(&self, divergence: f64) {
        let a = self.a;
        let at = (a.iteration % 2) as u64 * a.k as u64 + self.k as u64;
        // SAFETY: `self.k < a.k`, and the buffer holds the numbers of two iterations.
        unsafe { device::store(a.divergences, at, divergence) };
    }
}
