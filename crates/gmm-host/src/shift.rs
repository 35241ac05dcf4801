//! The point about which rows are held: within the bulk of the data, so that a common offset costs no digits.

use std::thread;

use gmm_model::{Dataset, Matrix, Mixture, Precision, PrecisionMixture};
use ndarray::{Array2, ArrayView1, ArrayView2};

use crate::{Data, Error};

/// Rows looked at; more would not place the median better than it needs to be.
const SAMPLE: usize = 1023;

/// Per column, the median of up to 1023 evenly strided rows, `(d,)`.
///
/// Any point within the bulk serves. The median is one even where a few rows are at 1e200, which would drag a mean
/// along and cost all other rows their digits; and it is a value of the data, so a constant column becomes exact zeros.
pub fn of_data(data: &Dataset) -> Vec<f64> {
    match Sample::of(data.into()) {
        Ok(sample) => sample.medians(),
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
        Ok(Self { rows: rows?, data })
    }

    /// What [`of_data`] gives.
    pub(crate) fn medians(&self) -> Vec<f64> {
        let median = |column: ArrayView1<'_, f64>| {
            let mut values = column.to_vec();
            let middle = values.len() / 2;
            let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
            *median
        };
        self.rows.columns().into_iter().map(median).collect()
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

/// Per column, the weighted median of the components' means, `(d,)`: for evaluation, so that a row's result does not
/// depend on the rows beside it. A median for the same reason as in [`of_data`]: a component far out must not cost the
/// others their digits.
pub fn of_mixture(mixture: &Mixture) -> Vec<f64> {
    weighted_medians(mixture.means(), mixture.weights())
}

/// As [`of_mixture`], for evaluation from factors of the precisions in `precision`, of rows that came in `rows`.
///
/// 0 where `precision` holds rows and means as they are: their difference is then rounded once, and a shift would only round
/// both before it.
pub fn of_precisions(mixture: &PrecisionMixture<'_>, rows: Precision, precision: Precision) -> Vec<f64> {
    let is_exact = precision == Precision::F64 || (rows, mixture.precision()) == (Precision::F32, Precision::F32);
    if is_exact { vec![0.0; mixture.n_features()] } else { weighted_medians(mixture.means(), mixture.weights()) }
}

fn weighted_medians(means: ArrayView2<'_, f64>, weights: ArrayView1<'_, f64>) -> Vec<f64> {
    let half = weights.sum() / 2.0;
    let median = |column: ArrayView1<'_, f64>| {
        let mut order: Vec<usize> = (0..column.len()).collect();
        order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
        let mut below = 0.0;
        let found = order.iter().find(|&&c| {
            below += weights[c];
            below >= half
        });
        column[*found.unwrap_or(&order[0])]
    };
    means.columns().into_iter().map(median).collect()
}

/// How far a row may be from the shift in a column: beyond, squares summed over `d` columns and some thousand rows would
/// overflow.
pub(crate) fn limit(d: usize, precision: Precision) -> f64 {
    let max = match precision {
        Precision::F32 => f64::from(f32::MAX),
        Precision::F64 => f64::MAX,
    };
    // A difference of two such values has a square four times as large.
    (max / (4096.0 * d as f64)).sqrt()
}

/// Refuses data beyond a [`limit`]. Cost: one read of the data.
///
/// # Errors
/// [`Error::Scale`] with the first such column.
pub(crate) fn check_largest(data: &Dataset, shift: &[f64], precision: Precision, limit: f64) -> Result<(), Error> {
    let largest = match data.rows() {
        Matrix::F32(a) => largest(a.as_slice().expect("row-major"), shift),
        Matrix::F64(a) => largest(a.as_slice().expect("row-major"), shift),
    };
    too_far(&largest, limit, precision)
}

/// Refuses a column whose largest distance from the shift is beyond a limit.
///
/// # Errors
/// [`Error::Scale`] with the first such column.
pub(crate) fn too_far(largest: &[f64], limit: f64, precision: Precision) -> Result<(), Error> {
    match largest.iter().position(|&v| v > limit) {
        Some(column) => Err(Error::Scale { column, value: largest[column], precision: precision.name() }),
        None => Ok(()),
    }
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

/// Fewer numbers than this are read sooner than a thread is started.
const SMALL: usize = 1 << 16;

/// The largest |x − shift| of each column.
///
/// The threads live as long as the call. A pool that all engines share would be dead in a forked process, and the first
/// fit there would wait for it for ever.
fn largest<T: Copy + Into<f64> + Sync>(rows: &[T], shift: &[f64]) -> Vec<f64> {
    let d = shift.len();
    // Several rows at a time where they are short, so that there is enough for the machine's vectors.
    let width = d * (32 / d).max(1);
    let at: Vec<f64> = shift.iter().copied().cycle().take(width).collect();
    let of_chunk = |rows: &[T]| {
        let mut out = vec![0.0f64; width];
        for rows in rows.chunks(width) {
            for ((slot, &v), s) in out.iter_mut().zip(rows).zip(&at) {
                let distance = (v.into() - s).abs();
                *slot = if distance > *slot { distance } else { *slot };
            }
        }
        (0..d).map(|column| out[column..].iter().step_by(d).fold(0.0f64, |m, v| m.max(*v))).collect()
    };
    // To ask how many there are takes as long as some thousand rows.
    let threads = if rows.len() < SMALL { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    if threads == 1 {
        return of_chunk(rows);
    }
    let share = (rows.len() / d).div_ceil(threads) * d;
    thread::scope(|scope| {
        let started: Vec<_> = rows.chunks(share).map(|rows| scope.spawn(move || of_chunk(rows))).collect();
        let found = started.into_iter().map(|one| one.join().expect("comparing numbers does not panic"));
        found.fold(vec![0.0; d], |a: Vec<f64>, b| a.iter().zip(&b).map(|(a, b)| a.max(*b)).collect())
    })
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

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

    #[test]
    fn the_largest_of_each_column_is_found_wherever_it_lies() {
        for d in [1, 3, 16, 31, 33, 70] {
            let n = 50;
            for row in [0, 1, 48, 49] {
                for column in [0, d / 2, d - 1] {
                    let mut rows = vec![1.0f32; n * d];
                    rows[row * d + column] = -9.0;
                    let shift: Vec<f64> = (0..d).map(|j| j as f64 / 100.0).collect();
                    let found = largest(&rows, &shift);
                    let wanted = (0..d).map(|j| if j == column { 9.0 + shift[j] } else { (1.0 - shift[j]).abs() });
                    assert!(found.iter().copied().eq(wanted), "{d} {row} {column}: {found:?}");
                }
            }
        }
    }
}
