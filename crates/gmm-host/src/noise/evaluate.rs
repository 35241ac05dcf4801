//! Densities, responsibilities, labels and draws of a mixture with noise.

use std::ops::Range;

use gmm_model::{Dataset, Mixture, ModelError, Noise, Precision, entropy};
use ndarray::{Array1, Array2};
use rayon::prelude::*;

use crate::{Data, Engine, Error, EvaluateOptions, Evaluation, Resident, memory};

/// The outputs per row that an evaluation writes.
#[derive(Default)]
pub(crate) struct NoiseOutputs<'a> {
    /// Log densities, `(n,)`.
    pub(crate) log_densities: Option<&'a mut [f64]>,
    /// Responsibilities, `(n, k + 1)` in row-major order; the last column is that of the noise.
    pub(crate) responsibilities: Option<&'a mut [f64]>,
    /// The component of largest responsibility, `(n,)`, the first among equals; −1 for noise.
    pub(crate) labels: Option<&'a mut [i32]>,
}

/// Responsibilities that are computed at a time, 8 MiB.
const AT_ONCE: usize = 1 << 20;

/// Evaluates a mixture with noise on rows of the given `weights`, `(n,)`, if any; writes the outputs and returns the
/// totals. The entropy is that over components and noise.
///
/// Cost: an evaluation. Memory: 8 MiB, and copies of as many rows.
///
/// # Errors
/// As for [`Evaluate::evaluate`](crate::Evaluate::evaluate).
pub(crate) fn evaluate_rows(
    rows: &mut dyn Resident,
    weights: Option<&[f64]>,
    mixture: &Mixture,
    noise: &Noise,
    mut out: NoiseOutputs<'_>,
) -> Result<Evaluation, Error> {
    let (n, k) = (rows.dim().0, mixture.n_components());
    let chunk = (AT_ONCE / k).max(1);
    let terms = noise.terms();
    let mut totals = Evaluation::NOTHING;
    for first in (0..n).step_by(chunk) {
        let len = chunk.min(n - first);
        let of_chunk = weights.map(|weights| &weights[first..][..len]);
        let (mut densities, mut gaussian) = (vec![0.0; len], vec![0.0; len * k]);
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            responsibilities: Some((&mut gaussian).into()),
            labels: None,
        };
        if len == n {
            rows.evaluate(mixture, want)?;
        } else {
            let indices: Vec<usize> = (first..first + len).collect();
            rows.sample(&indices, of_chunk)?.evaluate(mixture, want)?;
        }
        let mut sums = Evaluation::NOTHING;
        let mut r = vec![0.0; k + 1];
        for (i, (density, gaussian)) in densities.iter().zip(gaussian.chunks_exact(k)).enumerate() {
            let (log_density, t, rest) = terms.posterior(*density);
            r.iter_mut().zip(gaussian).for_each(|(r, g)| *r = g * rest);
            r[k] = t;
            let w = of_chunk.map_or(1.0, |weights| weights[i]);
            if w > 0.0 {
                sums.log_likelihood += w * log_density;
                sums.entropy += w * entropy(&r);
                sums.total_weight += w;
            }
            let row = first + i;
            if let Some(slots) = &mut out.log_densities {
                slots[row] = log_density;
            }
            if let Some(slots) = &mut out.responsibilities {
                slots[row * (k + 1)..][..k + 1].copy_from_slice(&r);
            }
            if let Some(slots) = &mut out.labels {
                let best = (1..=k).fold(0, |best, c| if r[c] > r[best] { c } else { best });
                slots[row] = if best == k { -1 } else { best as i32 };
            }
        }
        totals = totals + sums;
    }
    Ok(totals)
}

/// Loads the rows and evaluates them.
fn of_data(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: &Noise,
    data: Data<'_>,
    precision: Precision,
    out: NoiseOutputs<'_>,
) -> Result<Evaluation, Error> {
    noise.check(mixture.n_features())?;
    data.require_exact("uniform noise")?;
    let mut rows = crate::evaluate::load(engine, mixture, data, precision)?;
    evaluate_rows(rows.as_mut(), data.weights(), mixture, noise, out)
}

/// Evaluates a mixture with noise: log densities, `(n,)`, and responsibilities, `(n, k + 1)`, whose last column is the
/// noise, and the totals.
///
/// # Errors
/// As for [`responsibilities`].
pub fn evaluate(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: &Noise,
    data: &Dataset,
    precision: Precision,
) -> Result<(Array1<f64>, Array2<f64>, Evaluation), Error> {
    let (n, k) = (data.n_rows(), mixture.n_components());
    memory::check("the responsibilities", 8 * n as u128 * (k as u128 + 2))?;
    let (mut densities, mut all) = (vec![0.0; n], vec![0.0; n * (k + 1)]);
    let out = NoiseOutputs { log_densities: Some(&mut densities), responsibilities: Some(&mut all), labels: None };
    let totals = of_data(engine, mixture, noise, data.into(), precision, out)?;
    let all = Array2::from_shape_vec((n, k + 1), all).expect("n*(k + 1) numbers");
    Ok((Array1::from_vec(densities), all, totals))
}

/// As [`evaluate::log_densities`](crate::evaluate::log_densities), with noise if there is some.
///
/// # Errors
/// As there; [`Error::Model`] if the noise does not belong to the mixture.
pub fn log_densities(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: Option<&Noise>,
    data: &Dataset,
    precision: Precision,
) -> Result<(Array1<f64>, Evaluation), Error> {
    let Some(noise) = noise else { return crate::evaluate::log_densities(engine, mixture, data, precision) };
    let mut densities = vec![0.0; data.n_rows()];
    let out = NoiseOutputs { log_densities: Some(&mut densities), ..NoiseOutputs::default() };
    let totals = of_data(engine, mixture, noise, data.into(), precision, out)?;
    Ok((Array1::from_vec(densities), totals))
}

/// As [`evaluate::score`](crate::evaluate::score), with noise if there is some.
///
/// # Errors
/// As for [`log_densities`].
pub fn score<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: Option<&Noise>,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<Evaluation, Error> {
    match noise {
        None => crate::evaluate::score(engine, mixture, data, precision),
        Some(noise) => of_data(engine, mixture, noise, data.into(), precision, NoiseOutputs::default()),
    }
}

/// As [`evaluate::responsibilities`](crate::evaluate::responsibilities); with noise `(n, k + 1)`, where the last column is
/// that of the noise.
///
/// # Errors
/// As for [`log_densities`]; [`Error::Memory`], checked before the array is allocated.
pub fn responsibilities(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: Option<&Noise>,
    data: &Dataset,
    precision: Precision,
) -> Result<Array2<f64>, Error> {
    match noise {
        None => crate::evaluate::responsibilities(engine, mixture, data, precision),
        Some(noise) => Ok(evaluate(engine, mixture, noise, data, precision)?.1),
    }
}

/// The component of largest responsibility of each row, `(n,)`, the first among equals; −1 for noise.
///
/// # Errors
/// As for [`log_densities`].
pub fn labels(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: &Noise,
    data: &Dataset,
    precision: Precision,
) -> Result<Array1<i32>, Error> {
    let mut labels = vec![0; data.n_rows()];
    let out = NoiseOutputs { labels: Some(&mut labels), ..NoiseOutputs::default() };
    of_data(engine, mixture, noise, data.into(), precision, out)?;
    Ok(Array1::from_vec(labels))
}

/// As [`sample_rows`](crate::sample_rows) of a mixture with noise. Rows that are not noise are those without it.
///
/// # Errors
/// As there; [`ModelError::Range`] if the noise has no region.
pub fn sample_rows(
    mixture: &Mixture,
    noise: Option<&Noise>,
    seed: u64,
    range: Range<u64>,
    rows: &mut [f64],
) -> Result<(), ModelError> {
    crate::sample_rows(mixture, seed, range.clone(), rows)?;
    let Some(noise) = noise else { return Ok(()) };
    /// Rows that a thread draws at a time.
    const PIECE: usize = 4096;
    let (k, d) = mixture.means().dim();
    noise.check(d)?;
    rows.par_chunks_mut(PIECE * d).enumerate().try_for_each(|(piece, rows)| {
        let mut labels = vec![0; rows.len() / d];
        noise.overwrite(k, seed, range.start + (piece * PIECE) as u64, rows, &mut labels)
    })
}
