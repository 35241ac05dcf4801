//! Variational Bayes in the loop: the prior and the posterior on the device, and the launches beside the M-step.

use gmm_kernels::em::m_step;
use gmm_kernels::em::m_step::bayes::{Bayes, bayes_expectation, bayes_posterior, scale_len};
use gmm_model::bayes::{BayesPrior, Posterior, WeightPrior};
use gmm_model::{CovarianceType, PriorScale, packed_index};

use super::path::{BayesBuffers, LoopBuffers, LoopPlan};
use crate::Error;
use crate::cuda::launch::{Launcher, at_least, or_null, pointer};

/// The numbers of a prior that are arguments of the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriorNumbers {
    is_process: bool,
    concentration: f64,
    mean_precision: f64,
    /// Of the prior of a precision: for tied `k` times that of a component.
    degrees_of_freedom: f64,
    /// See [`BayesPrior::divergence_constant`].
    constant: f64,
}

impl PriorNumbers {
    pub(super) fn of(posterior: &Posterior) -> Self {
        let (prior, mixture) = (posterior.prior(), posterior.mixture());
        let (kind, k) = (mixture.covariance_type(), mixture.n_components());
        Self {
            is_process: matches!(prior.weights, WeightPrior::DirichletProcess { .. }),
            concentration: prior.weights.concentration(),
            mean_precision: prior.mean_precision,
            degrees_of_freedom: prior.degrees_of_freedom * times(kind, k),
            constant: prior.divergence_constant(kind, k),
        }
    }
}

/// How often a component's prior of the precision counts.
fn times(kind: CovarianceType, k: usize) -> f64 {
    if kind == CovarianceType::Tied { k as f64 } else { 1.0 }
}

/// Length of the packed prior: m less the shift, then C.
pub(super) fn prior_len(plan: &LoopPlan) -> usize {
    let shape = &plan.shape;
    shape.d as usize + scale_len(m_step::number(shape.kernel_kind()), shape.d) as usize
}

/// Packs m less the shift, and C.
pub(super) fn pack_prior(prior: &BayesPrior, shift: &[f64], out: &mut [f64]) {
    let d = shift.len();
    let (mean, scale) = out.split_at_mut(d);
    mean.iter_mut().zip(&prior.mean).zip(shift).for_each(|((slot, m), shift)| *slot = m - shift);
    match &prior.scale {
        PriorScale::Matrix(a) => (0..d).for_each(|i| (0..=i).for_each(|j| scale[packed_index(i, j)] = a[[i, j]])),
        PriorScale::Variances(v) => scale.iter_mut().zip(v).for_each(|(slot, v)| *slot = *v),
        PriorScale::Variance(v) => scale[0] = *v,
    }
}

/// For each component Σr of those after it.
pub(super) fn counts_after(counts: &[f64], out: &mut [f64]) {
    let mut after = 0.0;
    for (slot, n) in out.iter_mut().zip(counts).rev() {
        *slot = after;
        after += n;
    }
}

/// Adds `k (C + β m mᵀ)` to Σ w x xᵀ about the shift, packed, for a tied covariance.
pub(super) fn add_to_scatter(prior: &BayesPrior, k: usize, shift: &[f64], scatter: &mut [f64]) {
    let PriorScale::Matrix(scale) = &prior.scale else { unreachable!("a prior of a tied covariance") };
    let m: Vec<f64> = prior.mean.iter().zip(shift).map(|(m, shift)| m - shift).collect();
    for i in 0..m.len() {
        for j in 0..=i {
            scatter[packed_index(i, j)] += k as f64 * (scale[[i, j]] + prior.mean_precision * m[i] * m[j]);
        }
    }
}

/// Enqueues the posterior from the sums of the pass that this iteration ends, if it ends one.
///
/// # Errors
/// [`Error::Device`].
pub(super) fn posterior(
    launcher: Launcher<'_>,
    plan: &LoopPlan,
    b: &LoopBuffers,
    (prior, own): (&PriorNumbers, &BayesBuffers),
    iteration: u32,
) -> Result<(), Error> {
    if iteration == 0 {
        return Ok(());
    }
    let a = arguments(plan, b, (prior, own), iteration);
    // SAFETY: `arguments` compared every buffer's length with the formula of its field.
    unsafe { launcher.launch(bayes_posterior(), (plan.shape.k, 1), a) }
}

/// Enqueues the expectations under the posterior, after its means and covariances became coefficients.
///
/// # Errors
/// [`Error::Device`].
pub(super) fn expectation(
    launcher: Launcher<'_>,
    plan: &LoopPlan,
    b: &LoopBuffers,
    (prior, own): (&PriorNumbers, &BayesBuffers),
    iteration: u32,
) -> Result<(), Error> {
    let a = arguments(plan, b, (prior, own), iteration);
    // SAFETY: `arguments` compared every buffer's length with the formula of its field.
    unsafe { launcher.launch(bayes_expectation(), (plan.shape.k, 1), a) }
}

/// The arguments; panics unless the buffers are at least as long as the formulas of their fields. Those that the M-step
/// takes too are compared there.
fn arguments(plan: &LoopPlan, b: &LoopBuffers, (prior, own): (&PriorNumbers, &BayesBuffers), iteration: u32) -> Bayes {
    let (shape, layout) = (&plan.shape, plan.layout);
    let k = u64::from(shape.k);
    for (slice, what) in [(&own.counts, "counts"), (&own.after, "counts after"), (&own.divergences, "divergences")] {
        at_least(slice, k, what);
    }
    at_least(&own.prior, prior_len(plan) as u64, "the prior");
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
