//! Variational Bayes in the loop on the device: the M-step gives a posterior in place of a mixture.
//!
//! The expected log density of a row under a component is a Gaussian log density plus a constant, so the passes and
//! [`update`](super::update) stay as they are. An iteration is
//!
//! ```text
//! pass, reduction     sums, and Σ w ln p(x) under the expectations of the posterior
//! bayes_posterior     lower bound of the log evidence, convergence; the next posterior from the sums
//! update              at iteration 0 and with weights of 1: coefficients and constants of the means and covariances
//! bayes_expectation   adds E ln π + ½ (E ln |Λ| − ln |E Λ| − d/β) to the constants; the divergence from the prior
//! ```
//! One block per component. With N = Σ r and x̄ of a component's rows, a prior of mean m worth β rows, and of scale C
//! worth ν rows, the posterior is worth β + N and ν + N rows, and
//!
//! ```text
//! mean          (β m + N x̄) / (β + N)
//! covariance    (C + Σ r (x − x̄)(x − x̄)ᵀ + N reg + βN/(β + N) (x̄ − m)(x̄ − m)ᵀ) / (ν + N)
//! ```
//! The two launches take some 3 µs each on an H100, which is much only beside passes over a few thousand rows.
//!
//! The covariance is the inverse of the expected precision. `gmm_model::bayes` has the distributions of each kind, the
//! sources, and the same formulas on the host.

mod expectation;
mod posterior;

use crate::device::Shared;
use crate::em::layout::FeatureLayout;
use crate::em::m_step::{SUMS, kind};
use crate::layout::packed_len;

kernels! {
    /// The grid is `k` blocks: one per component.
    Bayes {
        /// State of the loop.
        state: *mut u32,
        /// The iteration that this ends, from 1. At 0, before the first pass, only [`bayes_expectation`] runs.
        iteration: u32,
        /// The loop's last iteration.
        max_iter: u32,
        /// The loop stops if the bound, over the total weight, changes by less.
        tol: f64,
        /// One of [`kind`].
        kind: u32,
        /// Whether the prior of the weights is a Dirichlet process (1) or a symmetric Dirichlet distribution (0).
        process: u32,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`].
        groups: u32,
        /// [`FeatureLayout::classes`].
        classes: u32,
        /// [`FeatureLayout::sums`] elements; not read at iteration 0.
        sums: *const f64,
        /// Packed Σ w x xᵀ + k (C + β m mᵀ), `(d*(d+1)/2,)`, for a tied covariance; else null.
        scatter: *const f64,
        /// Σ w.
        total_weight: f64,
        /// Added to the variances of each component's rows.
        reg_covar: f64,
        /// Lower bound of what must remain of a moment after the mean's square is subtracted, with the prior, as a
        /// fraction of the moment.
        least_left: f64,
        /// α of the weights' prior.
        concentration: f64,
        /// β of the prior.
        mean_precision: f64,
        /// ν of the prior of a precision: for a tied covariance `k` times that of a component.
        degrees_of_freedom: f64,
        /// The part of the divergence that depends only on the prior, of all components.
        constant: f64,
        /// `(d + scale_len,)`: m less the shift, then C, packed as a covariance of the kind.
        prior: *const f64,
        /// `(k,)`: Σ r of the pass from which the posterior was made.
        counts: *mut f64,
        /// `(k,)`: Σ r of the components after each.
        after: *mut f64,
        /// `(k, d)`: posterior means less the shift.
        means: *mut f64,
        /// Packed inverses of the expected precisions.
        covariances: *mut f64,
        /// As written by [`update`](super::update); not read if there are roots.
        coefficients: *const f64,
        /// `(8*groups,)`, as written by [`update`](super::update).
        constants: *mut f64,
        /// As written by [`update`](super::update), or null.
        roots: *const f64,
        /// `(2,)`, for a tied covariance: [`update`](super::update) leaves half the trace of the precision times
        /// `scatter` in the first.
        carry: *const f64,
        /// `(TRACE,)`, written: the bound over the total weight at iteration `i` at `(i − 1) % TRACE`.
        trace: *mut f64,
        /// `(k,)`: each component's part of the divergence of the posterior from the prior, without `constant` and,
        /// for a tied covariance, without what is in `carry`.
        divergences: *mut f64,
    }
    /// The posterior from the sums of a pass, and the bound at the posterior before it.
    bayes_posterior => posterior::body, shared_bytes, threads;
    /// The expected log weights and determinants of the posterior, and its divergence from the prior.
    bayes_expectation => expectation::body, shared_bytes, threads;
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Bayes) -> u32 {
    super::OWN_THREADS
}

/// Bytes of shared memory: scratch for sums, and two vectors.
#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Bayes) -> u64 {
    8 * (SUMS as u64 + 2 * a.d as u64)
}

/// Length of C: a packed matrix for full and tied, `d` for diag, 1 for spherical.
pub const fn scale_len(kind: u32, d: u32) -> u64 {
    match kind {
        kind::FULL | kind::TIED => packed_len(d),
        kind::DIAG => d as u64,
        _ => 1,
    }
}

/// A component's block.
#[derive(Clone, Copy)]
struct Block<'a> {
    a: &'a Bayes,
    place: FeatureLayout,
    /// The component.
    c: u32,
    scratch: Shared<f64>,
    /// Two vectors of length `d`.
    vectors: [Shared<f64>; 2],
}

impl<'a> Block<'a> {
    #[inline(always)]
    fn new(a: &'a Bayes, c: u32) -> Self {
        let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
        let vectors = [Shared::at(8 * SUMS), Shared::at(8 * (SUMS + a.d))];
        Self { a, place, c, scratch: Shared::at(0), vectors }
    }

    #[inline(always)]
    fn mean_at(&self, j: u32) -> u64 {
        self.c as u64 * self.a.d as u64 + j as u64
    }

    /// Position of the component's first covariance entry.
    #[inline(always)]
    fn covariance_at(&self) -> u64 {
        match self.a.kind {
            kind::TIED => 0,
            of => self.c as u64 * scale_len(of, self.a.d),
        }
    }
}
