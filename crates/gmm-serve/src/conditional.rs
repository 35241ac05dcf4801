//! The density of each column of a row given its others, as the parameters of a mixture in that column.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::http::StatusCode;
use gmm_data::ModelFile;
use gmm_model::{Covariances, Mixture, ModelError, Noise, NoiseRegion, reference};
use ndarray::aview1;

use crate::Refusal;

/// Most columns of a row with conditional densities: each needs a factorisation of all others, `k*d⁴/3` flops together.
const MOST_COLUMNS: usize = 32;

/// The density of a column given others: a mixture, and the noise beside it.
struct Density {
    mixture: Mixture,
    noise: Option<Uniform>,
}

/// Noise in one column: a uniform density between two ends.
struct Uniform {
    weight: f64,
    ends: [f64; 2],
}

/// Appends a JSON array with the conditional density of each column, as its components' weights, means and variances, and
/// the weight and the ends of the noise if the row is in its region. Missing values, NaN, are not among those
/// that are given.
///
/// # Errors
/// 400 for more than [`MOST_COLUMNS`] columns, and for values so far away that a mean overflows; 408 once `stop` is set,
/// which is looked at before each column.
pub(crate) fn write(out: &mut Vec<u8>, file: &ModelFile, row: &[f64], stop: &AtomicBool) -> Result<(), Refusal> {
    if row.len() > MOST_COLUMNS {
        let d = row.len();
        let why =
            format!("conditional densities are computed for at most {MOST_COLUMNS} columns, and the model has {d}");
        return Err(Refusal::bad(why));
    }
    let of = |column| {
        if stop.load(Ordering::Relaxed) {
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "nobody waits for the answer any more"));
        }
        let found = of_column(&file.mixture, file.noise.as_ref(), row, column);
        found.map_err(|error| Refusal::bad(format!("a conditional density: {error}")))
    };
    let all = (0..row.len()).map(of).collect::<Result<Vec<_>, _>>()?;
    crate::tensor::array(out, &all, |out, Density { mixture, noise }| {
        let rest = noise.as_ref().map_or(1.0, |noise| 1.0 - noise.weight);
        let weights: Vec<f64> = mixture.weights().iter().map(|w| w * rest).collect();
        let variances: Vec<f64> = (0..mixture.n_components()).map(|c| variance(mixture, c)).collect();
        let means = mixture.means();
        for (key, values) in [
            ("{\"weights\":", &weights[..]),
            (",\"means\":", means.to_slice().expect("row-major")),
            (",\"variances\":", &variances),
        ] {
            out.extend_from_slice(key.as_bytes());
            crate::tensor::array(out, values, |out, v| crate::tensor::number(out, *v));
        }
        if let Some(Uniform { weight, ends: [lower, upper] }) = noise {
            for (key, value) in [(",\"noise\":{\"weight\":", weight), (",\"lower\":", lower), (",\"upper\":", upper)] {
                out.extend_from_slice(key.as_bytes());
                crate::tensor::number(out, *value);
            }
            out.push(b'}');
        }
        out.push(b'}');
    });
    Ok(())
}

/// The density of one column given the values of the others.
fn of_column(mixture: &Mixture, noise: Option<&Noise>, row: &[f64], column: usize) -> Result<Density, ModelError> {
    let given: Vec<usize> = (0..row.len()).filter(|&j| j != column && !row[j].is_nan()).collect();
    let values: Vec<f64> = given.iter().map(|&j| row[j]).collect();
    let conditional = match given.is_empty() {
        true => mixture.marginal(&[column])?,
        false => gmm_model::Conditional::new(mixture, &given, &[column])?.at(&values)?,
    };
    let known = noise.filter(|noise| noise.weight > 0.0);
    let known = known.and_then(|noise| Some((noise, part(noise.region.as_ref()?, row, column)?)));
    let Some((noise, part)) = known else {
        return Ok(Density { mixture: conditional, noise: None });
    };
    // p(given) of the mixture, and of the noise: its density in the region times the length of what it has of the column.
    let log_density = match given.is_empty() {
        true => 0.0,
        false => reference::posterior(&mixture.marginal(&given)?, aview1(&values)).0,
    };
    let joint = [noise.log_rest() + log_density, noise.weight.ln() + part.log_share];
    let weight = (joint[1] - reference::log_sum_exp(&joint)).exp();
    Ok(Density { mixture: conditional, noise: Some(Uniform { weight, ends: part.ends }) })
}

/// What the region of the noise has of a column, given the values of others.
struct Part {
    ends: [f64; 2],
    /// The logarithm of the density of the given values under the noise.
    log_share: f64,
}

/// The part of a region on the line along a column through the given values; `None` if the line is outside, or values are
/// missing, which models with noise do not take.
fn part(region: &NoiseRegion, row: &[f64], column: usize) -> Option<Part> {
    let NoiseRegion { lower, upper, rotation } = region;
    let others = || (0..row.len()).filter(|&j| j != column);
    if others().any(|j| row[j].is_nan()) {
        return None;
    }
    let Some(rotation) = rotation else {
        let is_inside = others().all(|j| (lower[j]..=upper[j]).contains(&row[j]));
        let log_share = others().map(|j| -(upper[j] - lower[j]).ln()).sum();
        return is_inside.then_some(Part { ends: [lower[column], upper[column]], log_share });
    };
    // Each axis has a coordinate `start + x * slope` on the line, which is between two ends for x between two others.
    let mut ends = [f64::NEG_INFINITY, f64::INFINITY];
    for ((axis, low), high) in rotation.axes.iter().zip(lower).zip(upper) {
        let start = others().map(|j| axis[j] * (row[j] - rotation.centre[j])).sum::<f64>()
            - axis[column] * rotation.centre[column];
        let slope = axis[column];
        if slope == 0.0 {
            if !(*low..=*high).contains(&start) {
                return None;
            }
            continue;
        }
        let (a, b) = ((low - start) / slope, (high - start) / slope);
        ends = [ends[0].max(a.min(b)), ends[1].min(a.max(b))];
    }
    let length = ends[1] - ends[0];
    (length > 0.0).then(|| Part { ends, log_share: length.ln() - region.log_volume() })
}

/// The variance of component `c` of a mixture in one column.
fn variance(mixture: &Mixture, c: usize) -> f64 {
    match mixture.covariances() {
        Covariances::Full(a) => a[[c, 0, 0]],
        Covariances::Tied(a) => a[[0, 0]],
        Covariances::Diag(a) => a[[c, 0]],
        Covariances::Spherical(a) => a[c],
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, SyntheticOptions, synthetic};

    use super::*;

    #[test]
    fn nothing_is_computed_once_nobody_waits() {
        let file = synthetic(2, 3, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap().into();
        let write = |stop| {
            let mut out = Vec::new();
            (write(&mut out, &file, &[0.0; 3], &AtomicBool::new(stop)), out)
        };
        let (found, out) = write(true);
        assert_eq!((found.unwrap_err().status, out.len()), (StatusCode::REQUEST_TIMEOUT, 0));
        assert!(write(false).0.is_ok());
    }
}
