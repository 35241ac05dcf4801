//! Parameters as flat arrays, so that answers of different programs can be compared.

use gmm_model::{Covariances, Mixture};
use serde::Deserialize;

/// Weights `k`, means `k*d`, covariances in their kind's shape, all flat in row-major order.
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
    /// Those of a mixture.
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
        let pairs =
            [(&self.weights, &truth.weights), (&self.means, &truth.means), (&self.covariances, &truth.covariances)];
        pairs.into_iter().map(|(found, truth)| relative(found, truth)).fold(0.0, f64::max)
    }
}

fn relative(found: &[f64], truth: &[f64]) -> f64 {
    if found.len() != truth.len() || found.iter().any(|v| !v.is_finite()) {
        return f64::INFINITY;
    }
    let difference = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    difference / truth.iter().map(|v| v.abs()).fold(f64::MIN_POSITIVE, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_relative_to_the_largest_entry_of_the_array() {
        assert_eq!(relative(&[1.0, 200.0], &[2.0, 200.0]), 0.005);
    }

    #[test]
    fn what_is_not_a_number_is_infinitely_wrong() {
        assert_eq!(relative(&[f64::NAN], &[1.0]), f64::INFINITY);
    }
}
