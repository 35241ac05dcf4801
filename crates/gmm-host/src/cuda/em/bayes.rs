//! Variational Bayes in the loop: the launches beside the M-step.

use gmm_kernels::Kernel;
use gmm_kernels::em::m_step;
use gmm_kernels::em::m_step::bayes::Bayes;

use super::path::{BayesBuffers, LoopBuffers, LoopPlan};
use super::prior::{PriorNumbers, prior_len};
use crate::Error;
use crate::cuda::launch::{Launcher, at_least, or_null, pointer};

/// Enqueues `bayes_posterior`, after a pass and before the M-step, or `bayes_expectation`, after the M-step has made
/// coefficients of the posterior's means and covariances.
///
/// # Errors
/// [`Error::Device`].
pub(super) fn enqueue(
    launcher: Launcher<'_>,
    kernel: Kernel<Bayes>,
    plan: &LoopPlan,
    b: &LoopBuffers,
    (prior, own): (&PriorNumbers, &BayesBuffers),
    iteration: u32,
) -> Result<(), Error> {
    let a = arguments(plan, b, (prior, own), iteration);
    // SAFETY: `arguments` compared every buffer's length with the formula of its field.
    unsafe { launcher.launch(kernel, (plan.shape.k, 1), a) }
}

/// The arguments; panics unless the buffers are at least as long as the formulas of their fields. Those that the M-step
/// takes too are compared there.
fn arguments(plan: &LoopPlan, b: &LoopBuffers, (prior, own): (&PriorNumbers, &BayesBuffers), iteration: u32) -> Bayes {
    let (shape, layout) = (&plan.shape, plan.layout);
    let k = u64::from(shape.k);
    for (slice, what) in [(&own.counts, "counts"), (&own.after, "counts after"), (&own.divergences, "divergences")] {
        at_least(slice, k, what);
    }
    at_least(&own.prior, prior_len(shape) as u64, "the prior");
    Bayes {
        state: pointer(&b.state),
        iteration,
        max_iter: plan.max_iter,
        tol: plan.tol,
        kind: m_step::number(shape.kernel_kind()),
        process: prior.is_process.into(),
        k: shape.k,
        d: shape.d,
        steps: layout.steps,
        groups: layout.groups,
        classes: layout.classes,
        sums: pointer(&b.sums),
        scatter: or_null(b.scatter.as_ref()),
        total_weight: plan.total_weight,
        reg_covar: plan.reg_covar,
        least_left: plan.bounds.least_left,
        concentration: prior.concentration,
        mean_precision: prior.mean_precision,
        degrees_of_freedom: prior.degrees_of_freedom,
        constant: prior.constant,
        prior: pointer(&own.prior),
        counts: pointer(&own.counts),
        after: pointer(&own.after),
        means: pointer(&b.means),
        covariances: pointer(&b.covariances),
        coefficients: pointer(&b.coefficients),
        constants: pointer(&b.constants),
        roots: or_null(b.roots.as_ref()),
        carry: pointer(&b.carry),
        trace: pointer(&b.trace),
        divergences: pointer(&own.divergences),
    }
}
