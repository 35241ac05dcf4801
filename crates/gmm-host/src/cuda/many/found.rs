//! The runs of EM that a launch left in the device's memory.

use gmm_kernels::layout::{packed_index, packed_len};
use gmm_kernels::many::{CONVERGED, ENTROPY, ITERATIONS, LOG_LIKELIHOOD, OUTCOME, TROUBLE};
use gmm_model::{CovarianceType, Covariances, Mixture, Precision};
use ndarray::{Array1, Array2, Array3};

use super::class::Class;
use crate::cuda::launch::ManyShape;
use crate::em::{self, EmRun};
use crate::fit::em_options;
use crate::{Evaluation, Init};

/// The results of a launch.
pub(super) struct Found {
    /// `(fits, parameters_len)`.
    pub(super) parameters: Vec<f64>,
    /// `(fits, max_iter)`.
    pub(super) traces: Vec<f64>,
    /// `(fits, OUTCOME + d)`.
    pub(super) outcomes: Vec<f64>,
}

/// A run of EM.
pub(super) struct Run {
    pub(super) run: EmRun,
    /// What restarts are compared by.
    pub(super) score: f64,
    /// The totals of the rows, but for their weight.
    pub(super) evaluation: Evaluation,
    /// Of each column, `(d,)`.
    pub(super) variances: Vec<f64>,
}

impl Found {
    /// The run of a block. `None` if it is left to the ordinary way.
    pub(super) fn restart(&self, class: &Class<'_>, block: usize, shift: &[f64]) -> Option<Run> {
        let ManyShape { d, max_iter, .. } = class.shape;
        let len = (OUTCOME + d) as usize;
        let (outcome, variances) = self.outcomes[block * len..][..len].split_at(OUTCOME as usize);
        let at = |place: u32| outcome[place as usize];
        if at(TROUBLE) != 0.0 {
            return None;
        }
        let iterations = at(ITERATIONS) as usize;
        let trace = self.traces[block * max_iter as usize..][..iterations].to_vec();
        let mixture = match &class.options.init {
            // Without the rounding of the shift.
            Init::Given(start) if iterations == 0 => start.as_ref().clone(),
            _ => self.mixture(class, block, shift)?,
        };
        // As in an M-step: of a component without rows this weight is all that there is.
        let weights = mixture.weights();
        let is_empty = |&c: &usize| iterations > 0 && weights[c] <= f64::EPSILON;
        let empty = (0..weights.len()).filter(is_empty).collect();
        let options = em_options(class.options, class.options.precision.unwrap_or(Precision::F64));
        let falls = em::falls(&trace, d as usize, &options);
        let evaluation = Evaluation { log_likelihood: at(LOG_LIKELIHOOD), entropy: at(ENTROPY), ..Evaluation::NOTHING };
        let score = trace.last().copied().unwrap_or(evaluation.log_likelihood);
        let converged = at(CONVERGED) != 0.0;
        let run = EmRun { iterations, converged, trace, empty, falls, ..EmRun::new(mixture) };
        Some(Run { run, score, evaluation, variances: variances.to_vec() })
    }

    fn mixture(&self, class: &Class<'_>, block: usize, shift: &[f64]) -> Option<Mixture> {
        let (len, k, d) = (class.shape.parameters_len(), class.shape.k as usize, class.shape.d as usize);
        let (weights, rest) = self.parameters[block * len..][..len].split_at(k);
        let (means, covariances) = rest.split_at(k * d);
        let means = Array2::from_shape_fn((k, d), |(c, j)| means[c * d + j] + shift[j]);
        let entry = |c: usize, i: usize, j: usize| {
            let (i, j) = (i.max(j) as u32, i.min(j) as u32);
            covariances[c * packed_len(d as u32) as usize + packed_index(i, j) as usize]
        };
        let covariances = match class.options.covariance_type {
            CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(c, i, j)| entry(c, i, j))),
            CovarianceType::Tied => Covariances::Tied(Array2::from_shape_fn((d, d), |(i, j)| entry(0, i, j))),
            CovarianceType::Diag => Covariances::Diag(Array2::from_shape_fn((k, d), |(c, j)| covariances[c * d + j])),
            CovarianceType::Spherical => Covariances::Spherical(Array1::from(covariances.to_vec())),
        };
        Mixture::new(Array1::from(weights.to_vec()), means, covariances).ok()
    }
}
