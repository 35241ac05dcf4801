//! Launches of the M-step.

use gmm_kernels::em::m_step::{self, Matrices, TRACE, Update, wide_matrix};
use gmm_kernels::em::state::STATE_LEN;
use gmm_kernels::layout::{Kind, packed_len, second_len};

use super::path::{LoopBuffers, LoopPlan};
use super::prior::{PriorNumbers, prior_len};
use crate::Error;
use crate::cuda::launch::{Launcher, at_least, or_null, pointer};

/// Enqueues the M-step that ends an iteration and encodes the next iteration's operands. At iteration 0, only encodes
/// operands from the starting parameters. With a prior the next parameters are those of a posterior.
///
/// # Errors
/// [`Error::Device`].
pub(super) fn enqueue(launcher: Launcher<'_>, plan: &LoopPlan, b: &LoopBuffers, iteration: u32) -> Result<(), Error> {
    let (shape, layout) = (&plan.shape, plan.layout);
    let kind = shape.kernel_kind();
    check(plan, b);
    if iteration > 0 {
        plan.path.pool(launcher, plan, b, iteration)?;
    }
    let (prior, own) = (plan.prior.as_ref(), b.bayes.as_ref());
    let number = |of: fn(&PriorNumbers) -> f64| prior.map_or(0.0, of);
    let a = Update {
        state: pointer(&b.state),
        iteration,
        max_iter: plan.max_iter,
        tol: plan.tol,
        kind: m_step::number(kind),
        k: shape.k,
        d: shape.d,
        steps: layout.steps,
        groups: layout.groups,
        classes: layout.classes,
        sums: pointer(&b.sums),
        scatter: or_null(b.scatter.as_ref()),
        total_weight: plan.total_weight,
        reg_covar: plan.reg_covar,
        most_terms: plan.bounds.most_terms,
        least_left: plan.bounds.least_left,
        about_means: plan.path.sums_are_about_means().into(),
        weights: pointer(&b.weights),
        means: pointer(&b.means),
        covariances: pointer(&b.covariances),
        empty: pointer(&b.empty),
        coefficients: pointer(&b.coefficients),
        constants: pointer(&b.constants),
        roots: or_null(b.roots.as_ref()),
        carry: pointer(&b.carry),
        trace: pointer(&b.trace),
        matrices: or_null(b.matrices.as_ref()),
        prior: or_null(own.map(|own| &own.prior)),
        process: prior.is_some_and(|prior| prior.is_process).into(),
        concentration: number(|prior| prior.concentration),
        mean_precision: number(|prior| prior.mean_precision),
        degrees_of_freedom: number(|prior| prior.degrees_of_freedom),
        divergence_constant: number(|prior| prior.constant),
        counts: or_null(own.map(|own| &own.counts)),
        divergences: or_null(own.map(|own| &own.divergences)),
    };
    let kernel = match (plan.matrices, prior.is_some()) {
        (Matrices::Shared, false) => m_step::update(),
        (Matrices::Device, false) => m_step::update_wide(),
        (Matrices::Shared, true) => m_step::bayes_update(),
        (Matrices::Device, true) => m_step::bayes_update_wide(),
    };
    // SAFETY: `check` compared every buffer's length with the formula of its field.
    unsafe { launcher.launch(kernel, (8 * layout.groups, 1), a)? };
    plan.path.encode(launcher, plan, b, iteration)
}

/// Panics unless every buffer is at least as long as the formula of its field.
fn check(plan: &LoopPlan, b: &LoopBuffers) {
    let (shape, layout) = (&plan.shape, plan.layout);
    let (kind, k, d) = (shape.kernel_kind(), u64::from(shape.k), u64::from(shape.d));
    at_least(&b.state, STATE_LEN as u64, "state");
    at_least(&b.empty, k, "empty");
    at_least(&b.trace, TRACE, "trace");
    at_least(&b.weights, k, "weights");
    at_least(&b.means, k * d, "means");
    at_least(&b.covariances, second_len(kind, shape.k, shape.d), "covariances");
    at_least(&b.carry, 2, "carry");
    at_least(&b.constants, 8 * u64::from(layout.groups), "constants");
    at_least(&b.coefficients, plan.coefficients(), "coefficients");
    at_least(&b.sums, layout.sums(), "sums");
    at_least(&b.partials, u64::from(plan.grid.partials) * layout.sums(), "partial sums");
    assert_eq!(plan.prior.is_some(), b.bayes.is_some(), "buffers of variational Bayes");
    if let Some(own) = &b.bayes {
        at_least(&own.counts, k, "counts");
        at_least(&own.prior, prior_len(shape) as u64, "the prior");
        at_least(&own.divergences, 2 * k, "divergences");
    }
    let optional = [
        (&b.roots, plan.takes_roots(), k * packed_len(shape.d), "roots"),
        (&b.scatter, kind == Kind::Tied, packed_len(shape.d), "scatter"),
        (&b.matrices, plan.matrices == Matrices::Device, k * wide_matrix(shape.d), "matrices"),
    ];
    for (have, wanted, len, what) in optional {
        assert_eq!(have.is_some(), wanted, "{what}");
        have.iter().for_each(|slice| at_least(slice, len, what));
    }
    let (lengths, own) = (plan.path.workspace(shape, &plan.grid), b.own.map(|slice| slice.len() as u64));
    let good = lengths.all().iter().zip(own.all()).all(|(wanted, have)| have >= *wanted);
    assert!(good, "the buffers of {:?}", plan.path);
}
