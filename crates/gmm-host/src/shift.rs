//! The shift: a point within the bulk of the data that is subtracted from all rows, so that a common offset does not
//! reduce their precision.

use std::ops::Range;

use gmm_model::{Covariances, Dataset, Factors, Mixture, Precision, PrecisionMixture};
use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use crate::{Data, Error};

/// Largest number of rows that the medians are taken from. The shift need not be more accurate than that.
const SAMPLE: usize = 1023;

/// The shift for a data set, `(d,)`: per column, the median of up to 1023 evenly strided rows, rounded to few
/// significant bits.
///
/// Any point within the bulk of the data would do. The mean would not: a few rows at 1e200 would move it far from all
/// other rows, which would then lose all precision. The median is rounded to a multiple of a power of two near the
/// spread of the bulk (to 0 if it is smaller). So `x − shift` is exact even for rows far outside the bulk, such as a
/// sentinel -9999 in `f32`. The shift of a constant column is its value, so that the column becomes exact zeros.
pub fn of_data(data: &Dataset) -> Vec<f64> {
    match Sample::of(data.into()) {
        Ok(sample) => sample.shift(),
        Err(_) => unreachable!("rows on the host are at hand"),
    }
}

/// As [`of_data`] for some rows, without missing values, from up to 63 of them: for many small fits in `f64`.
pub(crate) fn of_few(data: &Dataset, rows: &Range<usize>) -> Vec<f64> {
    const FEW: usize = 63;
    let (n, take) = (rows.len(), rows.len().min(FEW));
    let of = |j: usize| {
        let column: Array1<f64> = (0..take).map(|i| data.rows().at(rows.start + i * n / take, j)).collect();
        Quantiles::of(column.view()).shift()
    };
    (0..data.n_features()).map(of).collect()
}

/// Up to 1023 evenly strided rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Strided {
    /// The total number of rows.
    pub(crate) of: usize,
}

impl Strided {
    /// The number of strided rows: at most 1023.
    pub(crate) fn len(self) -> usize {
        self.of.min(SAMPLE)
    }

    /// The smaller of the two distances between neighbouring strided rows; the larger is one more.
    pub(crate) fn pitch(self) -> usize {
        self.of / self.len()
    }

    /// Row `⌊i*of/1023⌋` for each `i`, computed without the product `i*of`, which could overflow.
    pub(crate) fn rows(self) -> impl Iterator<Item = usize> {
        let (take, whole) = (self.len(), self.pitch());
        let rest = self.of % take;
        (0..take).map(move |i| i * whole + i * rest / take)
    }
}

/// A sample of the rows, from which the location and spread of all rows are estimated.
pub(crate) struct Sample<'a> {
    /// `(at most 1023, d)`.
    rows: Array2<f64>,
    /// One per column.
    quantiles: Vec<Quantiles>,
    data: Data<'a>,
}

impl<'a> Sample<'a> {
    /// Takes the evenly strided rows of `data`.
    ///
    /// # Errors
    /// [`Error::Device`] if the copy from a GPU fails.
    pub(crate) fn of(data: Data<'a>) -> Result<Self, Error> {
        let rows: Vec<usize> = Strided { of: data.dim().0 }.rows().collect();
        let rows = match data {
            Data::Host(_) => data.pick(&rows),
            Data::Device(data) => data.sample(&rows),
        };
        let rows = rows?;
        let quantiles = match data {
            Data::Host(holed) if holed.has_missing() => {
                (0..rows.ncols()).map(|j| Quantiles::of(observed(holed, rows.column(j), j).view())).collect()
            }
            _ => rows.columns().into_iter().map(Quantiles::of).collect(),
        };
        Ok(Self { rows, quantiles, data })
    }

    /// The shift: see [`of_data`].
    pub(crate) fn shift(&self) -> Vec<f64> {
        self.quantiles.iter().map(Quantiles::shift).collect()
    }

    /// Per column, the distance between the 5th and 95th percentiles, `(d,)`.
    pub(crate) fn spreads(&self) -> Vec<f64> {
        self.quantiles.iter().map(Quantiles::spread).collect()
    }

    /// Per column, a lower bound of the weighted variance of all rows, `(d,)`; `at` is the shift.
    ///
    /// The weighted sum of squares of all rows about their mean is at least the sum over the sample's rows about that
    /// mean, which is at least the sample's sum about its own mean.
    pub(crate) fn variances_at_least(&self, at: &[f64]) -> Vec<f64> {
        let weights = self.data.weights();
        let mut sums = vec![(0.0, 0.0, 0.0); at.len()];
        for (row, values) in (Strided { of: self.data.dim().0 }).rows().zip(self.rows.outer_iter()) {
            let w = weights.map_or(1.0, |weights| weights[row]);
            // Of a column with missing values, the sample is that of the rows in which it is observed.
            for (((weight, first, second), &v), at) in
                sums.iter_mut().zip(values).zip(at).filter(|((_, v), _)| !v.is_nan())
            {
                let z = v - at;
                *weight += w;
                *first += w * z;
                *second += w * z * z;
            }
        }
        // The factor 1 − 1e-9 outweighs rounding. 0, a bound that always holds, if a sum overflowed.
        let least =
            |(weight, first, second): (f64, f64, f64)| ((1.0 - 1e-9) * second - first * first / weight).max(0.0);
        let total = self.data.total_weight();
        sums.into_iter().map(|sums| least(sums) / total).collect()
    }
}

/// The observed values of a column's sample; if there are none, the first ones of the column, or 0 if it has none either.
fn observed(data: &Dataset, sample: ArrayView1<'_, f64>, column: usize) -> Array1<f64> {
    let found: Array1<f64> = sample.iter().copied().filter(|v| !v.is_nan()).collect();
    if !found.is_empty() {
        return found;
    }
    let all = (0..data.n_rows()).map(|row| data.rows().at(row, column));
    let found: Array1<f64> = all.filter(|v| !v.is_nan()).take(SAMPLE).collect();
    if found.is_empty() { Array1::zeros(1) } else { found }
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
    /// The quantiles of a column of at least one value, all finite. Each quantile is one of the values.
    ///
    /// For speed, as a small fit waits for this: values are compared as integers of the same order, and an outer
    /// quantile is selected only among the values beyond the next inner one.
    fn of(column: ArrayView1<'_, f64>) -> Self {
        let mut keys: Vec<i64> = column.iter().map(|v| ordered(*v)).collect();
        let index = |share: f64| (share * (keys.len() - 1) as f64).round() as usize;
        let [low, first, middle, third, high] = [0.05, 0.25, 0.5, 0.75, 0.95].map(index);
        // The value at `index` of the sorted column, from `keys`, which begin at `from`; `inner` if that is the inner
        // quantile.
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

    /// The distance between the 5th and 95th percentiles.
    fn spread(&self) -> f64 {
        self.high - self.low
    }

    /// The median, rounded to few bits.
    fn shift(&self) -> f64 {
        // The outer percentiles, among which sentinels may be, are used only if the quartiles are equal.
        let spreads = [self.third_quartile - self.first_quartile, self.spread()];
        few_bits(self.median, spreads.into_iter().find(|s| *s > 0.0).unwrap_or(0.0))
    }
}

/// Maps a number to an integer, preserving the order of [`f64::total_cmp`].
fn ordered(v: f64) -> i64 {
    let bits = v.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The inverse of [`ordered`].
fn number(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

/// Rounds `value` to a multiple of the largest power of two that is at most `spread / 2`. Unchanged if `spread` is 0 or
/// `value` is a multiple already.
fn few_bits(value: f64, spread: f64) -> f64 {
    let unit = (0.5 * spread).log2().floor().exp2();
    let multiple = (value / unit).round_ties_even();
    // From 2^53 on every number is a multiple. The unit may have underflowed to 0.
    if unit > 0.0 && multiple.abs() < 2f64.powi(53) { multiple * unit } else { value }
}

/// The shift for evaluating a mixture, `(d,)`: per column, the weighted median of the components' means, rounded to few
/// significant bits. It does not depend on the data, so that a row's result does not depend on the other rows. A
/// rounded median for the same reasons as in [`of_data`]: a component far out must neither reduce the precision of the
/// others nor lose its own.
pub fn of_mixture(mixture: &Mixture) -> Vec<f64> {
    weighted_medians(mixture.means(), mixture.weights(), |c, j| deviation(mixture.covariances(), c, j))
}

/// As [`of_mixture`], for a mixture given by factors of its precisions; `rows` is the precision of the input rows and
/// `precision` that of the evaluation.
///
/// The shift is 0 if `precision` represents rows and means exactly: their difference is then rounded only once, and a
/// shift would add a rounding of each.
pub fn of_precisions(mixture: &PrecisionMixture<'_>, rows: Precision, precision: Precision) -> Vec<f64> {
    let is_exact = precision == Precision::F64 || (rows, mixture.precision()) == (Precision::F32, Precision::F32);
    if is_exact {
        return vec![0.0; mixture.n_features()];
    }
    // The standard deviations are unknown: the median is not rounded.
    weighted_medians(mixture.means(), mixture.weights(), |_, _| 0.0)
}

/// Per column, the weighted median of the means. The mean of component `c` in column `j`, if it is the median, is
/// rounded by [`few_bits`] with `spread(c, j)`.
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

/// Whether some component is so far from the shift that rounding to `precision` at that distance is large against its
/// standard deviation. A row's difference from the mean must then be formed before it is scaled, from values that are
/// more precise.
///
/// The threshold is 2⁻¹³ (`f32`) or 2⁻³² (`f64`) of the standard deviation of the column given those before it (the
/// diagonal of the component's Cholesky factor). Cost: `O(k*d)`.
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

/// Errors if the products of row weights with squares could leave the range of `precision`.
///
/// # Errors
/// [`Error::Option`] with the offending weight: the largest or the mean.
pub(crate) fn check_weights(data: Data<'_>, precision: Precision) -> Result<(), Error> {
    let Some(weights) = data.weights() else { return Ok(()) };
    // Far from both ends of the range, to leave room for the squares of scaled rows.
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
    use ndarray::array;

    use super::*;

    #[test]
    fn quantiles_are_those_of_the_sorted_column() {
        for n in [1, 2, 3, 4, 5, 7, 10, 11, 50, 1023] {
            for seed in 0..20u64 {
                // With many equal and some negative values.
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
                    // Exact, up to the factor, if the sample holds all rows.
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
