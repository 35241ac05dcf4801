//! Tests of the public API of `gmm-model`, in one binary so that it links once.

mod adaptation;
mod bad_input;
mod bad_numbers;
mod bayes;
mod closed_forms;
mod conditional;
mod deconvolution;
mod draws;
mod factors;
mod golden;
mod labelled;
mod marginal;
mod missing;
mod numerics;
mod properties;
mod recentring;
mod rules;
mod sampling;
mod shared;
mod structure;
mod synthetic;

use gmm_model::{CovarianceType, Covariances, MStep, Mixture, ModelError, SyntheticOptions, m_step, reference};
use ndarray::{Array1, Array2, Array3, ArrayView2};

/// Whether `a` and `b` agree within `tolerance`, relative to the larger and to 1.
#[track_caller]
fn close(a: f64, b: f64, tolerance: f64) {
    let scale = a.abs().max(b.abs()).max(1.0);
    assert!((a - b).abs() <= tolerance * scale, "{a} and {b} differ by {:e}", (a - b).abs() / scale);
}

#[track_caller]
fn all_close<'a>(a: impl IntoIterator<Item = &'a f64>, b: impl IntoIterator<Item = &'a f64>, tolerance: f64) {
    let (a, b): (Vec<_>, Vec<_>) = (a.into_iter().collect(), b.into_iter().collect());
    assert_eq!(a.len(), b.len());
    for (a, b) in a.into_iter().zip(b) {
        close(*a, *b, tolerance);
    }
}

fn flat(covariances: &Covariances) -> Vec<f64> {
    match covariances {
        Covariances::Full(a) => a.iter().copied().collect(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.iter().copied().collect(),
        Covariances::Spherical(a) => a.to_vec(),
    }
}

#[track_caller]
fn mixtures_close(a: &Mixture, b: &Mixture, tolerance: f64) {
    all_close(a.weights(), b.weights(), tolerance);
    all_close(a.means(), b.means(), tolerance);
    all_close(&flat(a.covariances()), &flat(b.covariances()), tolerance);
}

/// A mixture of the kind with overlapping components.
fn mixture(k: usize, d: usize, kind: CovarianceType, seed: u64) -> Mixture {
    let options = SyntheticOptions { separation: 0.5, ..SyntheticOptions::default() };
    gmm_model::synthetic(k, d, kind, seed, &options).expect("the arguments are in range")
}

/// `n` rows of a mixture.
fn rows(mixture: &Mixture, n: usize, seed: u64) -> Array2<f64> {
    gmm_model::sample(mixture, n, seed).expect("n is not 0").0
}

/// One EM step of the reference.
fn em_step(mixture: &Mixture, rows: ArrayView2<'_, f64>, weights: Option<&[f64]>, reg_covar: f64) -> MStep {
    let statistics = reference::statistics(mixture, rows, weights);
    m_step(&statistics, reg_covar, Some(mixture)).expect("the data are well conditioned")
}

/// `k` components of the kind with unit covariances at the given means.
fn unit(kind: CovarianceType, means: Array2<f64>) -> Mixture {
    let (k, d) = means.dim();
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| f64::from(i == j))),
        CovarianceType::Tied => Covariances::Tied(Array2::eye(d)),
        CovarianceType::Diag => Covariances::Diag(Array2::ones((k, d))),
        CovarianceType::Spherical => Covariances::Spherical(Array1::ones(k)),
    };
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).expect("valid")
}

fn try_step(m: &Mixture, x: &Array2<f64>, reg_covar: f64) -> Result<Mixture, ModelError> {
    m_step(&reference::statistics(m, x.view(), None), reg_covar, Some(m)).map(|step| step.mixture)
}

#[track_caller]
fn not_positive_definite(found: Result<Mixture, ModelError>) -> (usize, usize) {
    match found {
        Err(ModelError::NotPositiveDefinite { component, column, .. }) => (component, column),
        other => panic!("{other:?}"),
    }
}
