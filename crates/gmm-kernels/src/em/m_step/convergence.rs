//! The log-likelihood of a pass, and the decision whether the loop continues.

use crate::device;
use crate::em::m_step::{Component, TRACE, kind};
use crate::em::state::{DONE, FINISHED, TROUBLE};

/// Inputs of an iteration's log-likelihood.
#[derive(Clone, Copy)]
pub(crate) struct Progress {
    /// Σ w ln p(x), without the part that all components share.
    total: f64,
    /// See [`Update`](crate::em::m_step::Update).
    carry: f64,
    /// Mean log-likelihood of the previous iteration.
    before: f64,
}

impl Progress {
    pub(crate) const NOTHING: Self = Self { total: 0.0, carry: 0.0, before: 0.0 };

    /// With variational Bayes the bound is the sum less the divergence of the posterior from the prior.
    #[inline(always)]
    pub(crate) fn less(self, divergence: f64) -> Self {
        Self { carry: self.carry + divergence, ..self }
    }
}

impl Component<'_> {
    /// Loads what [`book`](Self::book) needs, long before it is used.
    #[inline(always)]
    pub(crate) unsafe fn look(&self) -> Progress {
        let a = self.a;
        // SAFETY: indices within the sums, the two elements of `carry`, and the `TRACE` elements of `trace`.
        unsafe {
            let load = |from: *mut f64, at: u64| device::load(from.cast_const(), at);
            Progress {
                total: self.sum_at(self.place.log_likelihood()),
                carry: if a.kind == kind::TIED { load(a.carry, ((a.iteration - 1) % 2) as u64) } else { 0.0 },
                before: if a.iteration > 1 { load(a.trace, (a.iteration - 2) as u64 % TRACE) } else { 0.0 },
            }
        }
    }

    /// Records the log-likelihood of the pass that this iteration ends, and whether the loop is done. Called by one
    /// thread of the grid.
    #[inline(always)]
    pub(crate) unsafe fn book(&self, seen: Progress) {
        let a = self.a;
        let mean = (seen.total - seen.carry) / a.total_weight;
        let change = if a.iteration > 1 { mean - seen.before } else { f64::INFINITY };
        let size = if change < 0.0 { -change } else { change };
        // SAFETY: indices within `trace` (`TRACE` elements) and `state` (`STATE_LEN` elements).
        unsafe {
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
