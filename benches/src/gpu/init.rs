//! Time of initialisation by k-means over resident rows, as a fit does it.

use std::time::Instant;

use anyhow::Result;
use gmm_host::{Resident, init};
use gmm_model::{CovarianceType, Dataset, Draws};

use super::timing::Limits;
use crate::spread::Spread;

/// What an initialisation took, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct InitTimes {
    /// From rows to the statistics of their clusters.
    pub(crate) total: Spread,
    /// How often it ran.
    pub(crate) runs: usize,
    /// The last run's parts, and how many passes Lloyd made.
    pub(crate) note: String,
}

/// Times the whole of it, several times with other draws: a sample, k-means++ and Lloyd on it, and the clusters of all rows.
///
/// # Errors
/// What the engine says.
pub(crate) fn time(
    rows: &mut dyn Resident,
    data: &Dataset,
    at: &[f64],
    k: usize,
    seed: u64,
    limits: Limits,
) -> Result<InitTimes> {
    const RUNS: usize = 5;
    let (mut total, mut note) = (Vec::new(), String::new());
    let began = Instant::now();
    while limits.more(total.len(), began) && total.len() < RUNS {
        let draws = || Draws::for_purpose("bench", seed, total.len() as u64);
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
        total.push(whole);
    }
    Ok(InitTimes { runs: total.len(), total: Spread::of(total), note })
}
