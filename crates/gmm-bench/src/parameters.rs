//! Mixture parameters as flat arrays, for comparing answers of different programs.

use gmm_model::{Covariances, Mixture};
use serde::Deserialize;

use crate::difference::largest;

/// Weights (`k`), means (`k*d`) and covariances (in their kind's shape), flattened in row-major order.
#[derive(Clone, Debug, Deserialize)]
pub struct Parameters {
    /// `k` weights.
    pub weights: Vec<f64>,
    /// `k*d` means.
    pub means: Vec<f64>,
    /// Covariances.
    pub covariances: Vec<f64>,
}

impl Parameters {
    /// The parameters of a mixture.
    pub fn of(mixture: &Mixture) -> Self {
        let covariances = match mixture.covariances() {
            Covariances::Full(a) => a.iter().copied().collect(),
            Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
            Covariances::Spherical(a) => a.to_vec(),
        };
        Self { weights: mixture.weights().to_vec(), means: mixture.means().iter().copied().collect(), covariances }
    }

    /// The largest difference from `truth`, relative to the largest entry of the same array. NaN counts as infinite.
    pub fn error(&self, truth: &Self) -> f64 {
        self.error_by(truth, largest)
    }

    /// The largest difference of an array from that of `truth`, as measured by `of`.
    pub fn error_by(&self, truth: &Self, of: impl Fn(&[f64], &[f64]) -> f64) -> f64 {
        let pairs =
            [(&self.weights, &truth.weights), (&self.means, &truth.means), (&self.covariances, &truth.covariances)];
        pairs.into_iter().map(|(found, truth)| of(found, truth)).fold(0.0, f64::max)
    }
}
