//! Rows with missing values: passes against the naive reference, and fits.

#[path = "../common/mod.rs"]
mod common;
mod fits;
mod passes;
#[path = "../common/simulation.rs"]
mod simulate;
mod simulation;
mod starts;

use gmm_model::{CovarianceType, Dataset, Mixture, Precision, Statistics, missing::reference};
use ndarray::Array2;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// Makes each value missing with probability `share`.
fn punch(rows: &mut Array2<f64>, share: f64, seed: u64) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    rows.mapv_inplace(|v| if common::uniform(rng) < share { f64::NAN } else { v });
}

/// Rows around a random mixture of `kind`, with holes; with `weights`, some of which are 0.
fn holed(n: usize, d: usize, share: f64, seed: u64, precision: Precision) -> Array2<f64> {
    let mut rows = common::rows(n, d, 0.0, 1.0, seed);
    if precision == Precision::F32 {
        rows.mapv_inplace(|v| f64::from(v as f32));
    }
    punch(&mut rows, share, seed ^ 0xface);
    rows
}
