//! Evaluates the likelihood of one data set under many parameters. The rows are loaded once.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 03_likelihood                # 10,000 evaluations
//! cargo run --release -p gmm-host --example 03_likelihood -- 1000000     # a million
//! ```

use std::time::Instant;

use gmm_data::{ReadOptions, read_table};
use gmm_host::{Device, Likelihood};
use gmm_model::{Covariances, Mixture, ModelError, Precision, reference};
use ndarray::array;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");

/// Number of mixtures per call: the rows are read once for all of them.
const BATCH: usize = 1000;

fn mixture(short: f64, long: f64) -> Result<Mixture, ModelError> {
    let variances = Covariances::Diag(array![[0.07, 34.0], [0.17, 36.0]]);
    Mixture::new(array![0.36, 0.64], array![[short, 54.5], [long, 80.0]], variances)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let count: usize = std::env::args().nth(1).map_or(Ok(10_000), |text| text.parse())?;
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;
    let mut likelihood = Likelihood::new(Device::Auto.open(0)?.engine.as_ref(), &data, Precision::F64)?;

    // A square grid of mean eruption times: short ones from 1.5, long ones from 3.8 minutes, one minute wide.
    let side = count.isqrt().max(1);
    let step = 1.0 / side as f64;
    let at = |i: usize| (1.5 + step * (i / side) as f64, 3.8 + step * (i % side) as f64);
    let (started, mut best) = (Instant::now(), (f64::NEG_INFINITY, 0));
    for first in (0..side * side).step_by(BATCH) {
        let some = first..(first + BATCH).min(side * side);
        let mixtures = some.clone().map(|i| mixture(at(i).0, at(i).1)).collect::<Result<Vec<_>, _>>()?;
        for (i, value) in some.zip(likelihood.batch(&mixtures)?) {
            if value > best.0 {
                best = (value, i);
            }
        }
    }
    let (value, (short, long)) = (best.0, at(best.1));
    println!("{} evaluations in {:.2} s", side * side, started.elapsed().as_secs_f64());
    println!("best: {short:.3} and {long:.3} minutes, log-likelihood {value:.3}");

    // Check the best value against the naive reference.
    let expected = reference::log_densities(&mixture(short, long)?, data.rows().to_f64().view()).sum();
    assert!((value - expected).abs() < 1e-9 * expected.abs(), "{value} {expected}");
    Ok(())
}
