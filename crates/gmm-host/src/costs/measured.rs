//! Measures what the estimates depend on most.

use std::time::Instant;

use gmm_model::{CovarianceType, Dataset, Precision, SyntheticOptions, synthetic};
use ndarray::Array2;

use super::{per_row, stored};
use crate::{CpuEngine, Engine, Error};

/// Measures the CPU engine by passes over made-up rows, which take a few milliseconds, unless its speed is stored.
///
/// # Errors
/// As for [`Engine::load`].
pub(crate) fn measure_cpu(engine: &CpuEngine) -> Result<(), Error> {
    let threads = engine.threads();
    if stored::read(threads).0.is_none() {
        stored::keep(threads, Some(cpu_speed(engine, threads)?), None);
    }
    Ok(())
}

/// Stores how long the first GPU took to open.
pub(crate) fn keep_open_seconds(seconds: f64) {
    stored::keep(0, None, Some(seconds));
}

/// `f64` multiply-adds per second and thread of the CPU engine.
fn cpu_speed(engine: &CpuEngine, threads: usize) -> Result<f64, Error> {
    /// Enough rows for each thread that starting the threads does not count.
    const ROWS: usize = 4096;
    const SHAPE: (usize, usize) = (8, 8);
    const PASSES: usize = 4;
    let (n, (d, k)) = (ROWS * threads, SHAPE);
    let mixture = synthetic(k, d, CovarianceType::Full, 0, &SyntheticOptions::default())?;
    // Any rows near the means will do: the time does not depend on the values.
    let rows = Array2::from_shape_fn((n, d), |(i, j)| mixture.means()[[i % k, j]] + ((i * 7 + j) % 13) as f64 / 13.0);
    let mut rows = engine.load(&Dataset::new(rows)?, Precision::F64, &vec![0.0; d])?;
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let started = Instant::now();
        rows.pass(&mixture)?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(n as f64 * per_row(CovarianceType::Full, k, d) / best.max(1e-9) / threads as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_engine_is_measured() {
        let speed = cpu_speed(&CpuEngine::new(1).unwrap(), 1).unwrap();
        assert!(speed > 1e6 && speed.is_finite(), "{speed}");
    }
}
