//! Fits as a caller sees them: starts, restarts, stopping, weights, degenerate data, precision.

mod bad_input;
#[path = "../common/mod.rs"]
mod common;
mod concurrent;
mod many;
mod mclust;
mod meaning;
mod online;
mod resume;
mod runs;

use std::ops::ControlFlow;

use gmm_host::{
    CpuEngine, Device, Engine, Error, FitOptions, Init, ReferenceEngine, Warning, evaluate, fit, fit_observed,
};
use gmm_model::{
    CovarianceType, Covariances, Dataset, Mixture, ModelError, Precision, SyntheticOptions, sample, synthetic,
};
use ndarray::{Array2, array, s};

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// Rows of a mixture with well-separated components, and the mixture.
fn separated(n: usize, k: usize, d: usize, kind: CovarianceType) -> (Array2<f64>, Mixture) {
    let truth = synthetic(k, d, kind, 5, &SyntheticOptions { separation: 6.0, ..SyntheticOptions::default() }).unwrap();
    let (rows, _) = sample(&truth, n, 11).unwrap();
    (rows, truth)
}

fn inits() -> [Init; 8] {
    Init::WORDS.map(|word| word.parse().unwrap())
}
