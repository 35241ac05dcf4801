//! The point about which rows are held: within the bulk of the data, so that a common offset costs no digits.

use std::thread;

use gmm_model::{Dataset, Matrix, Mixture, Precision};

use crate::Error;

/// Rows looked at; more would not place the median better than it needs to be.
const SAMPLE: usize = 1023;

/// Per column, the median of up to 1023 evenly strided rows, `(d,)`.
///
/// Any point within the bulk serves. The median is one even where a few rows are at 1e200, which would drag a mean
/// along and cost all other rows their digits; and it is a value of the data, so a constant column becomes exact zeros.
pub fn of_data(data: &Dataset) -> Vec<f64> {
    (0..data.n_features())
        .map(|column| {
            let mut values: Vec<f64> = sample(data.n_rows()).map(|row| data.rows().at(row, column)).collect();
            let middle = values.len() / 2;
            let (_, median, _) = values.select_nth_unstable_by(middle, f64::total_cmp);
            *median
        })
        .collect()
}

/// Up to 1023 rows of `n`, evenly strided.
fn sample(n: usize) -> impl Iterator<Item = usize> {
    let take = n.min(SAMPLE);
    // 128 bits, since n * SAMPLE may pass 2^64 on no machine but costs nothing here.
    (0..take).map(move |i| (i as u128 * n as u128 / take as u128) as usize)
}

/// Per column, a number that the variance of the rows is no smaller than, `(d,)`, from the sample that [`of_data`] takes;
/// `at` is what that found.
///
/// All rows' weighted squares about their mean are no fewer than the sample's about it, and these no fewer than the
/// sample's about its own mean.
pub(crate) fn variances_at_least(data: &Dataset, at: &[f64]) -> Vec<f64> {
    let all = data.total_weight();
    let column = |(column, at): (usize, &f64)| {
        let (mut weight, mut first, mut second) = (0.0, 0.0, 0.0);
        for row in sample(data.n_rows()) {
            let (w, z) = (data.weight(row), data.rows().at(row, column) - at);
            weight += w;
            first += w * z;
            second += w * z * z;
        }
        // Less than what rounding may have added. 0, of which nothing follows, where it overflowed.
        ((1.0 - 1e-9) * second - first * first / weight).max(0.0) / all
    };
    at.iter().enumerate().map(column).collect()
}

/// Per column, the weighted median of the components' means, `(d,)`: for evaluation, so that a row's result does not
/// depend on the rows beside it. A median for the same reason as in [`of_data`]: a component far out must not cost the
/// others their digits.
pub fn of_mixture(mixture: &Mixture) -> Vec<f64> {
    let weights = mixture.weights();
    let median = |column: ndarray::ArrayView1<'_, f64>| {
        let mut order: Vec<usize> = (0..column.len()).collect();
        order.sort_by(|&a, &b| column[a].total_cmp(&column[b]));
        let mut below = 0.0;
        let half = weights.sum() / 2.0;
        let found = order.iter().find(|&&c| {
            below += weights[c];
            below >= half
        });
        column[*found.unwrap_or(&order[0])]
    };
    mixture.means().columns().into_iter().map(median).collect()
}

/// Refuses data whose squares, summed over columns and some thousand rows, would overflow. Cost: one read of the data.
///
/// # Errors
/// [`Error::Scale`] with the first such column.
pub(crate) fn check_scale(data: &Dataset, shift: &[f64], precision: Precision) -> Result<(), Error> {
    let max = match precision {
        Precision::F32 => f64::from(f32::MAX),
        Precision::F64 => f64::MAX,
    };
    // A difference of two such values has a square four times as large.
    let limit = (max / (4096.0 * shift.len() as f64)).sqrt();
    let largest = match data.rows() {
        Matrix::F32(a) => largest(a.as_slice().expect("row-major"), shift),
        Matrix::F64(a) => largest(a.as_slice().expect("row-major"), shift),
    };
    match largest.iter().position(|&v| v > limit) {
        Some(column) => Err(Error::Scale { column, value: largest[column], precision: precision.name() }),
        None => Ok(()),
    }
}

/// Refuses row weights whose products with squares would leave the range of `precision`.
///
/// # Errors
/// [`Error::Option`] with the offending size.
pub(crate) fn check_weights(data: &Dataset, precision: Precision) -> Result<(), Error> {
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
    let of_chunk = |rows: &[T]| {
        let mut out = vec![0.0f64; d];
        for row in rows.chunks_exact(d) {
            for ((slot, &v), s) in out.iter_mut().zip(row).zip(shift) {
                *slot = slot.max((v.into() - s).abs());
            }
        }
        out
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
