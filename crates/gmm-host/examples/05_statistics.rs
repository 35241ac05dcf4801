//! EM over chunks of rows: adds the sufficient statistics of all chunks, and computes the M-step from their sum.
//!
//! The chunks may be in different processes or on different machines: `Statistics` have a byte form with a checksum.
//!
//! ```sh
//! cargo run --release -p gmm-host --example 05_statistics
//! ```

use gmm_data::{ReadOptions, read_table};
use gmm_host::{CpuEngine, Engine, FitOptions, Init, fit, shift};
use gmm_model::{Covariances, Dataset, Mixture, Precision, Statistics, m_step};
use ndarray::{Axis, array};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/old_faithful.csv");
const ITERATIONS: usize = 10;
const REG_COVAR: f64 = 1e-6;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = read_table(DATA, &ReadOptions::default())?.into_dataset()?;
    let start = Mixture::new(
        array![0.5, 0.5],
        array![[2.0, 50.0], [4.0, 80.0]],
        Covariances::Diag(array![[1.0, 100.0], [1.0, 100.0]]),
    )?;

    // Three chunks of rows, each loaded by itself. A shift is subtracted from the rows
    // before anything is squared, so that nothing cancels. Chunks may have different shifts.
    let engine = CpuEngine::new(0)?;
    let mut chunks = Vec::new();
    for rows in data.rows().to_f64().axis_chunks_iter(Axis(0), 100) {
        let chunk = Dataset::new(rows.to_owned())?;
        chunks.push(engine.load(&chunk, Precision::F64, &shift::of_data(&chunk))?);
    }

    let mut mixture = start.clone();
    for iteration in 1..=ITERATIONS {
        // E-step and moments of each chunk, as bytes that could come from another machine.
        let parts = chunks
            .iter_mut()
            .map(|chunk| Ok(chunk.pass(&mixture)?.to_bytes()))
            .collect::<Result<Vec<_>, gmm_host::Error>>()?;
        let mut total = Statistics::from_bytes(&parts[0])?;
        for part in &parts[1..] {
            total.add(&Statistics::from_bytes(part)?)?;
        }
        println!("iteration {iteration}: log-likelihood per row {:.6}", total.mean_log_likelihood());
        mixture = m_step(&total, REG_COVAR, Some(&mixture))?.mixture;
    }

    // The same iterations over all rows at once.
    let options = FitOptions {
        init: Init::Given(Box::new(start)),
        tol: 0.0,
        max_iter: ITERATIONS,
        covariance_type: mixture.covariance_type(),
        reg_covar: REG_COVAR,
        ..FitOptions::new(2)
    };
    let whole = fit(&engine, &data, &options)?.mixture;
    for (a, b) in mixture.means().iter().zip(whole.means()) {
        assert!((a - b).abs() < 1e-10 * b.abs(), "{a} {b}");
    }
    println!("means\n{:.4}", mixture.means());
    Ok(())
}
