//! One E-step beside noise.

use gmm_model::{Mixture, Noise, Statistics};

use crate::{Error, EvaluateOptions, Resident, memory};

/// The result of an E-step beside noise.
#[derive(Clone, Debug, PartialEq)]
pub struct NoisePass {
    /// The statistics of the Gaussian components; their counts `Σr` lack those of the noise. Log-likelihood, total weight
    /// and number of rows are those of all rows.
    pub statistics: Statistics,
    /// `Σ w t`, the count of the noise.
    pub count: f64,
}

/// Numbers that are copied at a time, 32 MiB in `f64`: each copy has the weights of one E-step.
const AT_ONCE: usize = 1 << 22;

/// Rows whose log densities are added before the sums are.
const BLOCK: usize = 1 << 10;

/// One E-step over the rows, of the given `weights`, `(n,)`, if any.
///
/// Cost: a [`pass`](crate::Passes::pass) on engines that know noise; on others an evaluation, and a pass over copies of
/// the rows. Memory: 16 bytes per row, and copies of 2²² numbers at a time.
///
/// # Errors
/// As for [`pass`](crate::Passes::pass).
pub(crate) fn pass(
    rows: &mut dyn Resident,
    mixture: &Mixture,
    noise: &Noise,
    weights: Option<&[f64]>,
) -> Result<NoisePass, Error> {
    match rows.pass_beside(mixture, noise)? {
        Some(found) => Ok(found),
        None => of_copies(rows, mixture, noise, weights),
    }
}

/// [`pass`] on any engine.
pub(super) fn of_copies(
    rows: &mut dyn Resident,
    mixture: &Mixture,
    noise: &Noise,
    weights: Option<&[f64]>,
) -> Result<NoisePass, Error> {
    let (n, d) = rows.dim();
    memory::check("the probabilities of noise", 16 * n as u128)?;
    let mut rest = vec![0.0; n];
    rows.evaluate(mixture, EvaluateOptions { log_densities: Some(&mut rest), ..EvaluateOptions::default() })?;
    let weight = |row: usize| weights.map_or(1.0, |weights| weights[row]);
    let noise = noise.terms();
    let (mut log_likelihood, mut count, mut total_weight) = (0.0, 0.0, 0.0);
    for (block, some) in rest.chunks_mut(BLOCK).enumerate() {
        let mut sums = [0.0; 3];
        for (i, slot) in some.iter_mut().enumerate() {
            let w = weight(block * BLOCK + i);
            let (log_density, t, rest) = noise.posterior(*slot);
            if w > 0.0 {
                sums = [sums[0] + w * log_density, sums[1] + w * t, sums[2] + w];
            }
            let left = w * rest;
            // Below this a weight is no `f32` of full precision.
            *slot = if left < f64::from(f32::MIN_POSITIVE) { 0.0 } else { left };
        }
        log_likelihood += sums[0];
        count += sums[1];
        total_weight += sums[2];
    }
    let mut all = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    let chunk = (AT_ONCE / d).max(1);
    for (at, left) in rest.chunks(chunk).enumerate() {
        let indices: Vec<usize> = (at * chunk..at * chunk + left.len()).collect();
        all.add(&rows.sample(&indices, Some(left))?.pass(mixture)?)?;
    }
    Ok(NoisePass { statistics: Statistics { log_likelihood, total_weight, n_rows: n as u64, ..all }, count })
}
