//! Positions of the buffers in the memory of a loop on the device.

use std::ops::Range;

use gmm_kernels::em::m_step::{Matrices, TRACE, wide_matrix};
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::layout::packed_len;
use gmm_model::CovarianceType;

use super::path::{BayesBuffers, LoopBuffers, LoopPlan, PathBuffers};
use super::prior::prior_len;
use crate::cuda::driver::buffers::Slot;

/// Ranges in 8-byte words: first what the host polls, then what it only writes, then what stays on the device. Each starts on a 128-byte cache
/// line.
#[derive(Clone)]
pub(super) struct Workspace {
    pub(super) trace: Range<usize>,
    pub(super) weights: Range<usize>,
    pub(super) means: Range<usize>,
    pub(super) covariances: Range<usize>,
    /// Empty without a prior, as `prior` and `divergences`.
    pub(super) counts: Range<usize>,
    pub(super) prior: Range<usize>,
    carry: Range<usize>,
    divergences: Range<usize>,
    constants: Range<usize>,
    coefficients: Range<usize>,
    /// Empty unless the path computes densities about the means.
    roots: Range<usize>,
    sums: Range<usize>,
    scatter: Range<usize>,
    /// Empty unless the M-step's matrices are in device memory.
    matrices: Range<usize>,
    partials: Range<usize>,
    own: PathBuffers<Range<usize>>,
    k: usize,
    pub(super) len: usize,
}

impl Workspace {
    pub(super) fn of(plan: &LoopPlan) -> Self {
        let (shape, layout) = (&plan.shape, plan.layout);
        let (k, d) = (shape.k as usize, shape.d as usize);
        let mut len = 0;
        let mut take = |numbers: usize| {
            let start = len;
            len += numbers.next_multiple_of(16);
            start..start + numbers
        };
        let where_needed = |needed: bool, numbers: usize| if needed { numbers } else { 0 };
        let (packed, with_prior) = (packed_len(shape.d) as usize, plan.prior.is_some());
        Self {
            trace: take(TRACE as usize),
            weights: take(k),
            means: take(k * d),
            covariances: take(shape.kind.second_len(k, d)),
            counts: take(where_needed(with_prior, k)),
            prior: take(where_needed(with_prior, prior_len(shape))),
            carry: take(2),
            divergences: take(where_needed(with_prior, 2 * k)),
            constants: take(8 * layout.groups as usize),
            coefficients: take(plan.coefficients() as usize),
            own: plan.path.workspace(shape, &plan.grid).map(|numbers| take(numbers as usize)),
            sums: take(layout.sums() as usize),
            roots: take(where_needed(plan.takes_roots(), k * packed)),
            scatter: take(where_needed(shape.kind == CovarianceType::Tied, packed)),
            matrices: take(where_needed(plan.matrices == Matrices::Device, k * wide_matrix(shape.d) as usize)),
            partials: take(plan.grid.partials as usize * layout.sums() as usize),
            k,
            len,
        }
    }

    /// Number of `f64` values that the host polls.
    pub(super) const fn polled(&self) -> usize {
        self.prior.start
    }

    /// Number of `f64` values that the host writes before the first iteration: those that it polls, and the prior.
    pub(super) const fn written(&self) -> usize {
        self.carry.start
    }

    /// Number of `u32` flags.
    pub(super) const fn flags(&self) -> usize {
        STATE_LEN + self.k
    }

    /// The range that is zeroed before the first iteration: coefficients, and the half-precision operands made from
    /// them.
    pub(super) fn zeroed(&self) -> Range<usize> {
        self.coefficients.start..self.own.zeroed_until()
    }

    /// The buffers, as slices of the slots' memory.
    pub(super) fn buffers(&self, numbers: &Slot<f64>, flags: &Slot<u32>) -> LoopBuffers {
        let numbers = numbers.first(self.len);
        let flags = flags.first(self.flags());
        let at = |range: &Range<usize>| numbers.index(range.clone());
        let unless_empty = |range: &Range<usize>| (!range.is_empty()).then(|| at(range));
        LoopBuffers {
            state: flags.index(..STATE_LEN),
            empty: flags.index(STATE_LEN..),
            trace: at(&self.trace),
            weights: at(&self.weights),
            means: at(&self.means),
            covariances: at(&self.covariances),
            carry: at(&self.carry),
            constants: at(&self.constants),
            coefficients: at(&self.coefficients),
            roots: unless_empty(&self.roots),
            sums: at(&self.sums),
            scatter: unless_empty(&self.scatter),
            matrices: unless_empty(&self.matrices),
            partials: at(&self.partials),
            bayes: (!self.counts.is_empty()).then(|| BayesBuffers {
                counts: at(&self.counts),
                prior: at(&self.prior),
                divergences: at(&self.divergences),
            }),
            own: self.own.map(|range| at(&range)),
        }
    }
}
