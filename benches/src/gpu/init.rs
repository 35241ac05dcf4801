//! Time of initialisation by k-means: k-means++ and Lloyd over resident rows.

use std::time::Instant;

use anyhow::Result;
use gmm_host::{Resident, init};
use gmm_model::{CovarianceType, Dataset, Draws};

use super::timing::Limits;
use crate::spread::Spread;

/// Seconds beyond which an initialisation is estimated and not run.
const LONGEST: f64 = 12.0;
/// Components with which its time is estimated.
const FEW: usize = 4;
/// Passes that Lloyd is expected to take where it is not run.
const EXPECTED_PASSES: f64 = 20.0;

/// What an initialisation took, in seconds.
#[derive(Clone, Debug)]
pub(crate) struct InitTimes {
    /// Both parts together.
    pub(crate) total: Spread,
    /// How often it ran; 0 where `total` is an estimate.
    pub(crate) runs: usize,
    /// The parts, and how many passes Lloyd made; or from what the estimate comes.
    pub(crate) note: String,
}

/// Times the whole of it, several times with other draws, or estimates where one would take too long.
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
    if let Some(estimate) = estimate(rows, data, k, seed)?.filter(|estimate| estimate.total.median > LONGEST) {
        return Ok(estimate);
    }
    let (mut total, mut parts) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while limits.more(total.len(), began) && total.len() < 5 {
        let mut draws = Draws::for_purpose("bench", seed, total.len() as u64);
        let begin = Instant::now();
        let seeds = init::seed(rows, data, k, &mut draws)?;
        let seeded = begin.elapsed().as_secs_f64();
        let clusters = init::lloyd(rows, data, at, seeds)?;
        total.push(begin.elapsed().as_secs_f64());
        parts.push((seeded, clusters.iterations));
    }
    let (seeded, passes) = parts[parts.len() - 1];
    let lloyd = total[total.len() - 1] - seeded;
    let note = format!("last run: k-means++ {:.3} ms; Lloyd {:.3} ms in {passes} passes", 1e3 * seeded, 1e3 * lloyd);
    Ok(InitTimes { runs: total.len(), total: Spread::of(total), note })
}

/// From k-means++ with few components and one pass of Lloyd; `None` where the whole has few.
fn estimate(rows: &mut dyn Resident, data: &Dataset, k: usize, seed: u64) -> Result<Option<InitTimes>> {
    if k <= FEW {
        return Ok(None);
    }
    let mut draws = Draws::for_purpose("bench", seed, u64::MAX);
    init::seed(rows, data, 1, &mut draws)?;
    let begin = Instant::now();
    init::seed(rows, data, FEW, &mut draws)?;
    // Candidates for each place: see `init::seed`.
    let candidates = |k: usize| (k * (2 + (k as f64).ln() as usize)) as f64;
    let seeded = begin.elapsed().as_secs_f64() * candidates(k) / candidates(FEW);
    let chosen: Vec<usize> = (0..k).map(|c| c * (data.n_rows() / k)).collect();
    let centres = data.rows().select_rows(&chosen).to_f64();
    rows.nearest(CovarianceType::Spherical, centres.view())?;
    let begin = Instant::now();
    rows.nearest(CovarianceType::Spherical, centres.view())?;
    let lloyd = begin.elapsed().as_secs_f64() * EXPECTED_PASSES;
    let note = format!("ESTIMATE: k-means++ {:.0} ms; Lloyd {:.0} ms in 20 passes", 1e3 * seeded, 1e3 * lloyd);
    Ok(Some(InitTimes { total: Spread::of(vec![seeded + lloyd]), runs: 0, note }))
}
