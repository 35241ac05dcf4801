//! Rows that count as much as they are not noise, for what knows only Gaussian components.

use gmm_model::{Dataset, Mixture, Noise, Precision, Statistics};

use crate::{Data, Engine, Error, evaluate};

/// The rows, with the weight of each times the probability that it is not noise, `1 − t`.
///
/// Sums over these rows that weight by the responsibilities of the Gaussian mixture alone are those of the mixture with
/// noise, whose responsibilities are `(1 − t) r`. So adaptation and combination, which use only such sums, take noise into
/// account. A log-likelihood over these rows is the part of the expected complete-data log-likelihood that the components
/// have: where it rises by some amount, the log-likelihood with noise rises by at least as much (Dempster, Laird and Rubin
/// 1977).
///
/// Cost: an evaluation. Memory: 8 bytes per row.
///
/// # Errors
/// [`Error::Model`] if the noise does not belong to the mixture; [`Error::Features`] if data and mixture differ in the
/// number of columns; [`Error::Missing`]; [`Error::Data`] if every row is noise; any error of the device.
pub fn discounted(
    engine: &dyn Engine,
    mixture: &Mixture,
    noise: &Noise,
    data: Dataset,
    precision: Precision,
) -> Result<Dataset, Error> {
    noise.check(mixture.n_features())?;
    Data::from(&data).require_exact("uniform noise")?;
    let (densities, _) = evaluate::log_densities(engine, mixture, &data, precision)?;
    let terms = noise.terms();
    let of_row = |(row, density): (usize, &f64)| {
        let weight = data.weight(row) * terms.posterior(*density).2;
        // Below this a weight is no `f32` of full precision.
        if weight < f64::from(f32::MIN_POSITIVE) { 0.0 } else { weight }
    };
    let weights = densities.iter().enumerate().map(of_row).collect();
    Ok(data.with_weights(weights)?)
}

/// The weight of the noise after an M-step: the share of the row weight that no component has. The statistics are those of
/// [`pass_beside`](crate::pass_beside) over all rows.
pub fn weight_after(statistics: &Statistics) -> f64 {
    (1.0 - statistics.weight.iter().sum::<f64>() / statistics.total_weight).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use gmm_model::{CovarianceType, SyntheticOptions, sample, synthetic};

    use super::*;
    use crate::CpuEngine;

    #[test]
    fn a_row_counts_as_much_as_it_is_not_noise() {
        let mixture = synthetic(3, 2, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap();
        let rows = sample(&mixture, 50, 1).unwrap().0;
        let weights: Vec<f64> = (0..50).map(|i| f64::from(i % 4)).collect();
        let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
        let noise = Noise { weight: 0.3, log_volume: 4.0, region: None };
        let found = discounted(&CpuEngine::new(1).unwrap(), &mixture, &noise, data, Precision::F64).unwrap();
        for (i, (row, weight)) in rows.outer_iter().zip(weights).enumerate() {
            let (_, all) = noise.reference(&mixture, row);
            let expected = weight * all[..3].iter().sum::<f64>();
            assert!((found.weight(i) - expected).abs() < 1e-12 * expected.max(1.0), "row {i}");
        }
    }

    #[test]
    fn noise_of_other_columns_is_refused() {
        let mixture = synthetic(2, 2, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap();
        let data = Dataset::new(sample(&mixture, 5, 1).unwrap().0).unwrap();
        let noise = Noise { weight: 2.0, log_volume: 4.0, region: None };
        assert!(discounted(&CpuEngine::new(1).unwrap(), &mixture, &noise, data, Precision::F64).is_err());
    }
}
