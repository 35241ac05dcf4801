//! The point about which rows are held: within the bulk of the data, so that a common offset costs no digits.

use gmm_model::{Covariances, Dataset, Factors, Mixture, Precision, PrecisionMixture};
use ndarray::{Array2, ArrayView1, ArrayView2};

use crate::{Data, Error};

/// Rows looked at; more would not place the median better than it needs to be.
const SAMPLE: usize = 1023;

/// Per column, the median of up to 1023 evenly strided rows, rounded to few bits, `(d,)`.
///
/// Any point within the bulk serves. The median is one even where a few rows are at 1e200, which would drag a mean
/// along and cost all other rows their digits. It is rounded to a multiple of a power of two of about the bulk's spread
/// (0 where it is smaller): then `x − shift` is exact for rows far outside of the bulk too, such as a sentinel -9999 in
/// `f32`. A constant column keeps its value, and becomes exact zeros.
pub fn of_data(data: &Dataset) -> Vec<f64> {
    match Sample::of(data.into()) {
        Ok(sample) => sample.shift(),
        Err(_) => unreachable!("rows on the host are at hand"),
    }
}

/// Evenly strided rows of so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    pub(crate) of: usize,
}

impl Strided {
    /// How many: 1023 at most.
    pub(crate) fn len(self) -> usize {
        self.of.min(SAMPLE)
    }

    /// From one to the next, or one more.
    pub(crate) fn pitch(self) -> usize {
        self.of / self.len()
    }

    /// Row `i*of/1023` for each `i`, without the product, which might not fit.
    pub(crate) fn rows(self) -> impl Iterator<Item = usize> {
        let (take, whole) = (self.len(), self.pitch());
        let rest = self.of % take;
        (0..take).map(move |i| i * whole + i * rest / take)
    }
}

/// Some rows, by which a fit judges where all are.
pub(crate) struct Sample<'a> {
    /// `(at most 1023, d)`.
    rows: Array2<f64>,
    /// Of each column.
    quantiles: Vec<Quantiles>,
    data: Data<'a>,
}

impl<'a> Sample<'a> {
    /// Evenly strided rows.
    ///
    /// # Errors
    /// [`Error::Device`] where they cannot be brought from a GPU.
    pub(crate) fn of(data: Data<'a>) -> Result<Self, Error> {
        let rows: Vec<usize> = Strided { of: data.dim().0 }.rows().collect();
        let rows = match data {
            Data::Host(_) => data.pick(&rows),
            Data::Device(data) => data.sample(&rows),
        };
        let rows = rows?;
        let quantiles = rows.columns().into_iter().map(Quantiles::of).collect();
        Ok(Self { rows, quantiles, data })
    }

    /// What [`of_data`] gives.
    pub(crate) fn shift(&self) -> Vec<f64> {
        let of = |of: &Quantiles| {
            // The outer pair only where most of the rows are equal, since sentinels may be among them.
            let spreads = [of.third_quartile - of.first_quartile, of.spread()];
            few_bits(of.median, spreads.into_iter().find(|s| *s > 0.0).unwrap_or(0.0))
        };
        self.quantiles.iter().map(of).collect()
    }

    /// Per column, the distance of the 5th and the 95th percentile, `(d,)`.
    pub(crate) fn spreads(&self) -> Vec<f64> {
        self.quantiles.iter().map(Quantiles::spread).collect()
    }

    /// Per column, a number that the variance of the rows is no smaller than, `(d,)`; `at` is what [`of_data`] found.
    ///
    /// All rows' weighted squares about their mean are no fewer than the sample's about it, and these no fewer than the
    /// sample's about its own mean.
    pub(crate) fn variances_at_least(&self, at: &[f64]) -> Vec<f64> {
        let weights = self.data.weights();
        let (mut weight, mut sums) = (0.0, vec![(0.0, 0.0); at.len()]);
        for (row, values) in (Strided { of: self.data.dim().0 }).rows().zip(self.rows.outer_iter()) {
            let w = weights.map_or(1.0, |weights| weights[row]);
            weight += w;
            for (((first, second), &v), at) in sums.iter_mut().zip(values).zip(at) {
                let z = v - at;
                *first += w * z;
                *second += w * z * z;
            }
        }
        // Less than what rounding may have added. 0, of which nothing follows, where it overflowed.
        let least = |(first, second): (f64, f64)| ((1.0 - 1e-9) * second - first * first / weight).max(0.0);
        let total = self.data.total_weight();
        sums.into_iter().map(|sums| least(sums) / total).collect()
    }
}

/// Quantiles of a column.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Quantiles {
    /// The 5th percentile.
    low: f64,
    first_quartile: f64,
    median: f64,
    third_quartile: f64,
    /// The 95th percentile.
    high: f64,
}

impl Quantiles {
    /// Each is one of the values, which are finite, at least one.
    ///
    /// Integers of the same order are selected, outer quantiles among those beyond the inner: a small fit waits for this.
    fn of(column: ArrayView1<'_, f64>) -> Self {
        let mut keys: Vec<i64> = column.iter().map(|v| ordered(*v)).collect();
        let index = |share: f64| (share * (keys.len() - 1) as f64).round() as usize;
        let [low, first, middle, third, high] = [0.05, 0.25, 0.5, 0.75, 0.95].map(index);
        // The one at `index` of what begins at `from`, or the inner quantile, if that is the same one.
        let select = |keys: &mut [i64], from: usize, index: usize, inner: i64| {
            if (from..from + keys.len()).contains(&index) { *keys.select_nth_unstable(index - from).1 } else { inner }
        };
        let median = *keys.select_nth_unstable(middle).1;
        let first_quartile = select(&mut keys[..middle], 0, first, median);
        let third_quartile = select(&mut keys[middle + 1..], middle + 1, third, median);
        Self {
            low: number(select(&mut keys[..first], 0, low, first_quartile)),
            first_quartile: number(first_quartile),
            median: number(median),
            third_quartile: number(third_quartile),
            high: number(select(&mut keys[third + 1..], third + 1, high, third_quartile)),
        }
    }

    /// The distance of the 5th and the 95th percentile.
    fn spread(&self) -> f64 {
        self.high - self.low
    }
}

/// An integer for each number, in the order of [`f64::total_cmp`].
fn ordered(v: f64) -> i64 {
    let bits = v.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The number of an [`ordered`] integer.
fn number(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

/// `value` as a multiple of the largest power of two that is no larger than `spread / 2`; unchanged where `spread` is 0 or
/// `value` has no digits beyond that.
fn few_bits(value: f64, spread: f64) -> f64 {
    let unit = (0.5 * spread).log2().floor().exp2();
    let multiple = (value / unit).round_ties_even();
    // From 2^53 on every number is a multiple; and a unit that underflowed divides nothing.
    if unit > 0.0 && multiple.abs() < 2f64.powi(53) { multiple * unit } else { value }
}

/// Per column, the weighted median of the components' means, rounded to few bits, `(d,)`: for evaluation, so that a row's
/// result does not depend on the rows beside it. A median, and rounded, for the same reasons as in [`of_data`]: a
/// component far out must neither cost the others their digits nor lose its own.
pub fn of_mixture(mixture: &Mixture) -> Vec<f64> {
    weighted_medians(mixture.means(), mixture.weights(), |c, j| deviation(mixture.covariances(), c, j))
}

/// As [`of_mixture`], for evaluation from factors of the precisions in `precision`, of rows that came in `rows`.
///
/// 0 where `precision` holds rows and means as they are: their difference is then rounded once, and a shift would only round
/// both before it.
pub fn of_precisions(mixture: &PrecisionMixture<'_>, rows: Precision, precision: Precision) -> Vec<f64> {
    let is_exact = precision == Precision::F64 || (rows, mixture.precision()) == (Precision::F32, Precision::F32);
    if is_exact {
        return vec![0.0; mixture.n_features()];
    }
    // The deviations are not at hand: all bits are kept.
    weighted_medians(mixture.means(), mixture.weights(), |_, _| 0.0)
}

/// `spread(c, j)` says to how many bits the mean of component `c` in column `j` is rounded, if it is the median.
fn weighted_medians(
    means: ArrayView2<'_, f64>,
    weights: ArrayView1<'_, f64>,
    spread: impl Fn(usize, usize) -> f64,
) -> Vec<f64> {
    let half = weights.sum() / 2.0;
    let median = |(j, column): (usize, ArrayView1<'_, f64>)| {
        let mut order: Vec<usize> = (0..column.len()).collect();
        order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
        let mut below = 0.0;
        let found = order.iter().find(|&&c| {
            below += weights[c];
            below >= half
        });
        let c = *found.unwrap_or(&order[0]);
        few_bits(column[c], spread(c, j))
    };
    means.columns().into_iter().enumerate().map(median).collect()
}

/// The standard deviation of component `c` in column `j`.
fn deviation(covariances: &Covariances, c: usize, j: usize) -> f64 {
    match covariances {
        Covariances::Full(a) => a[[c, j, j]],
        Covariances::Tied(a) => a[[j, j]],
        Covariances::Diag(a) => a[[c, j]],
        Covariances::Spherical(a) => a[c],
    }
    .sqrt()
}

/// Whether rounding to `precision` at the components' distance from the shift is felt in their standard deviations: then a
/// row's difference to a mean must be formed before it is scaled, and from numbers that have its digits.
///
/// Felt from 2⁻¹³ (`f32`) and 2⁻³² (`f64`) of a deviation on, the smallest of each component in each column given those
/// before it. Cost `k*d`.
pub fn is_felt(mixture: &Mixture, shift: &[f64], precision: Precision) -> bool {
    let most = match precision {
        Precision::F32 => 2f64.powi(24 - 13),
        Precision::F64 => 2f64.powi(53 - 32),
    };
    let scale = |c: usize, j: usize| match mixture.factors() {
        Factors::Full(all) => all[c].at(j, j),
        Factors::Tied(one) => one.at(j, j),
        Factors::Diag(sd) => sd[[c, j]],
        Factors::Spherical(sd) => sd[c],
    };
    mixture.means().indexed_iter().any(|((c, j), mean)| (mean - shift[j]).abs() > most * scale(c, j))
}

/// Refuses row weights whose products with squares would leave the range of `precision`.
///
/// # Errors
/// [`Error::Option`] with the offending size.
pub(crate) fn check_weights(data: Data<'_>, precision: Precision) -> Result<(), Error> {
    let Some(weights) = data.weights() else { return Ok(()) };
    // Far from both ends of the range, with room for the squares of scaled rows.
    let limit: f64 = match precision {
        Precision::F32 => 1e15,
        Precision::F64 => 1e300,
    };
    let most = weights.iter().fold(0.0f64, |m, w| m.max(*w));
    let mean = data.total_weight() / weights.len() as f64;
    match [most, mean].into_iter().find(|w| !(limit.recip()..=limit).contains(w)) {
        None => Ok(()),
        Some(value) => {
            let must = format!("between {:e} and {limit:e} in {precision}: divide them by their mean", limit.recip());
            Err(Error::Option { option: "the size of row weights", value: format!("{value:e}"), must })
        }
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array1, Array2, array};

    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_column() {
        for n in [1, 2, 3, 4, 5, 7, 10, 11, 50, 1023] {
            for seed in 0..20u64 {
                // Many are equal, some are negative.
                let column: Array1<f64> =
                    (0..n as u64).map(|i| ((i * 7919 + seed * 104_729) % 1013 % (seed + 2)) as f64 - 3.0).collect();
                let mut sorted = column.to_vec();
                sorted.sort_by(f64::total_cmp);
                let at = |share: f64| sorted[(share * (n - 1) as f64).round() as usize];
                let found = Quantiles::of(column.view());
                let wanted = Quantiles {
                    low: at(0.05),
                    first_quartile: at(0.25),
                    median: at(0.5),
                    third_quartile: at(0.75),
                    high: at(0.95),
                };
                assert_eq!(found, wanted, "{n} {seed}");
            }
        }
        for v in [0.0, -0.0, 1.5, -1e300, 5e-324, f64::MAX] {
            assert_eq!(number(ordered(v)).to_bits(), v.to_bits());
        }
    }

    #[test]
    fn a_sample_is_strided_evenly() {
        assert_eq!(Strided { of: 5 }.rows().collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        for n in [1023, 1024, 2000, 123_457, usize::MAX] {
            let wanted = (0..1023).map(|i| (i as u128 * n as u128 / 1023) as usize);
            assert!(Strided { of: n }.rows().eq(wanted), "{n}");
        }
    }

    #[test]
    fn no_column_varies_less_than_is_said() {
        let value = |i: usize, j: usize| ((i * 7919 + j * 104_729) % 1013) as f64 * [1.0, 1e-9, 0.0, 1e5][j] + 3e3;
        for n in [2, 1000, 5000] {
            let rows = Array2::from_shape_fn((n, 4), |(i, j)| value(i, j));
            for weights in [vec![1.0; n], (0..n).map(|i| 1.0 + (i % 9) as f64).collect()] {
                let data = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
                let least = Sample::of((&data).into()).unwrap().variances_at_least(&of_data(&data));
                for (column, &least) in least.iter().enumerate() {
                    let all: f64 = weights.iter().sum();
                    let column = rows.column(column);
                    let mean = column.iter().zip(&weights).map(|(v, w)| w * v).sum::<f64>() / all;
                    let variance = column.iter().zip(&weights).map(|(v, w)| w * (v - mean).powi(2)).sum::<f64>() / all;
                    // Exact where the sample is all there is.
                    let share = if n > SAMPLE { 0.01 } else { 1.0 - 1e-6 };
                    assert!(
                        least >= share * variance && least <= variance * (1.0 + 1e-9),
                        "{n}: {least} of {variance}"
                    );
                }
            }
        }
        let huge = Dataset::new(array![[1e300], [-1e300], [1e300]]).unwrap();
        assert_eq!(Sample::of((&huge).into()).unwrap().variances_at_least(&[1e300]), [0.0]);
    }
}
