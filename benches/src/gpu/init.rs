//! Times initialisation by k-means over resident rows, as a fit does it.

use std::time::Instant;

use anyhow::Result;
use gmm_host::{Resident, init};
use gmm_model::{CovarianceType, Dataset, Draws};

use super::timing::Limits;

/// Times a whole initialisation several times, with different random draws: a sample of the rows, k-means++ and Lloyd
/// on it, and the cluster statistics of all rows. Returns the seconds of each, and a note on the parts of the last run.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn time(
    rows: &mut dyn Resident,
    data: &Dataset,
    at: &[f64],
    k: usize,
    seed: u64,
    limits: Limits,
) -> Result<(Vec<f64>, String)> {
    const RUNS: usize = 5;
    let (mut run, mut note) = (0, String::new());
    let limits = Limits { repeats: limits.repeats.min(RUNS), ..limits };
    let total = limits.collect(|| {
        let draws = || Draws::for_purpose("bench", seed, run);
        let begin = Instant::now();
        init::k_means(rows, data, at, k, true, None, &mut draws())?;
        let seeded = begin.elapsed().as_secs_f64();
        let begin = Instant::now();
        let clusters = init::k_means(rows, data, at, k, false, None, &mut draws())?;
        let found = begin.elapsed().as_secs_f64();
        rows.nearest(CovarianceType::Spherical, clusters.centres.view())?;
        let whole = begin.elapsed().as_secs_f64();
        note = format!(
            "last run: sample and k-means++ {:.3} ms; Lloyd {:.3} ms in {} passes; all rows {:.3} ms",
            1e3 * seeded,
            1e3 * (found - seeded),
            clusters.iterations,
            1e3 * (whole - found)
        );
        run += 1;
        Ok(whole)
    })?;
    Ok((total, note))
}
