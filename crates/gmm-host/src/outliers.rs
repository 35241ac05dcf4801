//! Thresholds on the log density of a mixture, below which rows are outliers.

use gmm_model::{Dataset, Mixture, ModelError, Noise, OutlierThreshold, Precision};
use ndarray::Array2;

use crate::{Engine, Error, noise};

/// Rows drawn from the mixture: a probability of 0.01 beyond the threshold has a standard error of 0.0003.
const DRAWN: usize = 1 << 17;

/// The threshold of the highest-density region that has the probability `level` under the mixture itself, with its noise
/// if there is some: the smallest
/// region of that probability.
///
/// It is a quantile of the log densities of rows drawn from the mixture (Hyndman 1996, "Computing and graphing highest
/// density regions", section 3.2), so it does not depend on rows that may be outliers themselves. The same mixture and
/// seed give the same rows on every machine. Cost: an evaluation of 131,072 rows.
///
/// # Errors
/// [`ModelError::Range`] if `level` is not at least 0.5 and below 1; errors of the engine.
pub fn threshold_of_region(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: Option<&Noise>,
    level: f64,
    seed: u64,
) -> Result<OutlierThreshold, Error> {
    if !(0.5..1.0).contains(&level) {
        let must = "at least 0.5 and below 1";
        return Err(ModelError::Range { what: "level", value: level.to_string(), must }.into());
    }
    let mut rows = Array2::zeros((DRAWN, mixture.n_features()));
    noise::sample_rows(mixture, noise, seed, 0..DRAWN as u64, rows.as_slice_mut().expect("row-major"))?;
    let (densities, _) = noise::log_densities(engine, mixture, noise, &Dataset::new(rows)?, Precision::F64)?;
    let densities = densities.as_slice().expect("contiguous");
    let found = OutlierThreshold::of_rows(densities, None, 1.0 - level)?;
    Ok(OutlierThreshold { contamination: None, level: Some(level), ..found })
}
