//! Rows with measurement errors, and linear views of rows: passes against the naive reference, and fits.

#[path = "../common/mod.rs"]
mod common;
mod fits;
mod passes;
mod problems;
#[path = "../common/simulation.rs"]
mod simulate;
mod simulation;

use gmm_host::{CpuEngine, Engine, Resident, shift};
use gmm_model::deconvolution::MeasurementErrors;
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};
use ndarray::{Array2, Array3};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// Standard deviations from 0 to 3, a tenth of which are 0.
fn deviations(n: usize, m: usize, seed: u64) -> Array2<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0xe77);
    Array2::from_shape_fn((n, m), |_| match common::uniform(rng) {
        u if u < 0.1 => 0.0,
        _ => 3.0 * common::uniform(rng).powi(2),
    })
}

/// Covariances of all ranks from 0 to `m`.
fn covariances(n: usize, m: usize, seed: u64) -> Array3<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0xc0f);
    let mut all = Array3::zeros((n, m, m));
    for (i, mut slot) in all.outer_iter_mut().enumerate() {
        let a = Array2::from_shape_fn((m, i % (m + 1)), |_| common::normal(rng) * 0.7);
        slot.assign(&a.dot(&a.t()));
    }
    all
}

fn load(engine: &dyn Engine, data: &Dataset) -> Box<dyn Resident> {
    engine.load(data, Precision::F64, &shift::of_data(data)).unwrap()
}

/// Rows around the components of `common::mixture`, with independent errors.
fn noisy(n: usize, d: usize, seed: u64) -> Dataset {
    let rows = common::rows(n, d, 0.0, 1.0, seed);
    Dataset::new(rows).unwrap().with_measurement_errors(errors(n, d, seed)).unwrap()
}

fn errors(n: usize, m: usize, seed: u64) -> MeasurementErrors {
    MeasurementErrors::from_deviations(deviations(n, m, seed)).unwrap()
}

/// A mixture of overlapping components.
fn mixture(kind: CovarianceType, k: usize, d: usize, seed: u64) -> Mixture {
    common::mixture(kind, k, d, 0.0, 1.0, seed)
}
