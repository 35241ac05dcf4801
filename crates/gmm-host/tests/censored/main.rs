//! Rows within limits: passes against the naive reference, fits, and a simulation of bias and coverage.

#[path = "../common/mod.rs"]
mod common;
mod fits;
mod passes;
#[path = "../common/simulation.rs"]
mod simulate;
mod simulation;

use gmm_host::{CpuEngine, Engine, Resident, shift};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

const INF: f64 = f64::INFINITY;

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

fn load(engine: &dyn Engine, data: &Dataset) -> Box<dyn Resident> {
    engine.load(data, Precision::F64, &shift::of_data(data)).unwrap()
}

/// A mixture of overlapping components.
fn mixture(kind: CovarianceType, k: usize, d: usize, seed: u64) -> Mixture {
    common::mixture(kind, k, d, 0.0, 1.0, seed)
}

/// Rows around the components, of which some values are censored below, above or rounded, and some missing: at most `most` of
/// each row.
fn censored(n: usize, d: usize, most: usize, seed: u64) -> Dataset {
    let rows = common::rows(n, d, 0.0, 1.0, seed);
    let rng = &mut ChaCha8Rng::seed_from_u64(seed ^ 0xce2);
    let (mut lower, mut upper) = (rows.clone(), rows.clone());
    for row in 0..n {
        for _ in 0..row % (most + 1) {
            let column = (common::uniform(rng) * d as f64) as usize % d;
            let x = rows[[row, column]];
            let (low, high) = match (common::uniform(rng) * 4.0) as usize {
                0 => (-INF, x + 0.5),
                1 => (x - 0.5, INF),
                2 => (x - 0.25, x + 0.5),
                _ => (-INF, INF),
            };
            (lower[[row, column]], upper[[row, column]]) = (low, high);
        }
    }
    // A row of which nothing is known counts in no fit.
    for row in 0..n {
        if (0..d).all(|j| lower[[row, j]] == -INF && upper[[row, j]] == INF) {
            (lower[[row, 0]], upper[[row, 0]]) = (rows[[row, 0]], rows[[row, 0]]);
        }
    }
    Dataset::with_censoring(lower, upper).unwrap()
}
