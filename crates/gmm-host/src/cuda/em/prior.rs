//! The prior of variational Bayes on the device: its numbers, and how its vectors are packed.

use gmm_kernels::em::m_step;
use gmm_kernels::em::m_step::bayes::scale_len;
use gmm_model::bayes::{BayesPrior, Posterior, WeightPrior};
use gmm_model::{CovarianceType, PriorScale, packed_index};

use crate::cuda::shape::Shape;

/// The numbers of a prior that are arguments of the kernels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PriorNumbers {
    pub(super) is_process: bool,
    pub(super) concentration: f64,
    pub(super) mean_precision: f64,
    /// Of the prior of a precision: for tied `k` times that of a component.
    pub(super) degrees_of_freedom: f64,
    /// See [`BayesPrior::divergence_constant`].
    pub(super) constant: f64,
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
pub(super) fn prior_len(shape: &Shape) -> usize {
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
