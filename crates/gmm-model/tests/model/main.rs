//! Tests of `gmm-model` as its users see it. One binary, so that it links once.

mod bad_input;
mod closed_forms;
mod draws;
mod golden;
mod marginal;
mod numerics;
mod properties;
mod sampling;
mod synthetic;

use gmm_model::{CovarianceType, Covariances, MStep, Mixture, SyntheticOptions, m_step, reference};
use ndarray::{Array2, ArrayView2};

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
    all_close(&a.weights(), &b.weights(), tolerance);
    all_close(&a.means(), &b.means(), tolerance);
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
