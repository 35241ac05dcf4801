//! In which precision an engine holds rows: what was asked for, or `f64` where `f32` would lose some of them.

use std::thread;

use gmm_model::{Dataset, Matrix, Precision};

use crate::shift::Sample;
use crate::{Data, Engine, Error, Resident};

/// How far a row may be from the shift in a column: beyond, squares summed over `d` columns and some thousand rows would
/// overflow.
fn limit(d: usize, precision: Precision) -> f64 {
    let max = match precision {
        Precision::F32 => f64::from(f32::MAX),
        Precision::F64 => f64::MAX,
    };
    // A difference of two such values has a square four times as large.
    (max / (4096.0 * d as f64)).sqrt()
}

/// Loads rows for a fit, as `x − at`, and returns the precision in which they are held: `asked`, or `f64` instead of
/// `f32` in two cases. On the host: rounding to `f32` would change a value by more than a tolerance. On the host and on a
/// GPU: squares of a few rows (a sentinel of 1e20), but not of most, would overflow in `f32`.
///
/// The tolerance of a column is the larger of 2⁻¹³ √`reg_covar` (`√reg_covar` is the smallest standard deviation that a
/// component can have) and 2⁻²⁰ of the distance between the 5th and 95th percentiles. Cost: one read of the data.
///
/// # Errors
/// [`Error::Scale`] with the first column beyond the range; whatever the engine reports.
pub(crate) fn for_fit(
    data: Data<'_>,
    engine: &dyn Engine,
    asked: Precision,
    sample: &Sample<'_>,
    at: &[f64],
    reg_covar: f64,
) -> Result<(Box<dyn Resident>, Precision), Error> {
    let asked = engine.precision(asked);
    let limit_of = |precision| limit(at.len(), precision);
    match data {
        Data::Host(rows) => {
            let largest = reach(rows, at);
            let precision = match asked {
                Precision::F32 => single_or_double(rows, at, &largest, sample, reg_covar.sqrt()),
                Precision::F64 => asked,
            };
            too_far(&largest, limit_of(precision), precision)?;
            Ok((engine.load_to_move(rows, precision, at)?, precision))
        }
        Data::Device(_) => match data.load(engine, asked, at, Some(limit_of(asked))) {
            Err(Error::Scale { .. }) if asked == Precision::F32 && is_within(&sample.spreads(), limit_of(asked)) => {
                said(asked);
                Ok((data.load(engine, Precision::F64, at, Some(limit_of(Precision::F64)))?, Precision::F64))
            }
            loaded => Ok((loaded?, asked)),
        },
    }
}

/// As [`for_fit`], for rows that parameters move over: what is felt is not known beyond the bulk's rounding.
///
/// # Errors
/// Whatever the engine reports.
pub(crate) fn for_likelihood(
    data: Data<'_>,
    engine: &dyn Engine,
    asked: Precision,
    sample: &Sample<'_>,
    at: &[f64],
) -> Result<Box<dyn Resident>, Error> {
    let asked = engine.precision(asked);
    let precision = match data {
        Data::Host(rows) if asked == Precision::F32 => single_or_double(rows, at, &reach(rows, at), sample, 0.0),
        _ => asked,
    };
    data.load(engine, precision, at, None)
}

fn is_within(spreads: &[f64], limit: f64) -> bool {
    spreads.iter().all(|spread| *spread <= limit)
}

fn said(asked: Precision) {
    tracing::info!("rows are held in f64, since {asked} would lose digits of rows far from the others");
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

/// Fewer numbers than this are read sooner than a thread is started.
const SMALL: usize = 1 << 16;

/// The largest |x − shift| of each column, `(d,)`.
fn reach(data: &Dataset, shift: &[f64]) -> Vec<f64> {
    most(data, shift, f64::abs)
}

/// The most of each column, `(d,)`, that rounding to `f32` takes from `x − shift`.
fn rounding(data: &Dataset, shift: &[f64]) -> Vec<f64> {
    most(data, shift, |z| (z - f64::from(z as f32)).abs())
}

/// The largest `of(x − shift)` of each column, `(d,)`.
fn most(data: &Dataset, shift: &[f64], of: impl Fn(f64) -> f64 + Copy + Send + Sync) -> Vec<f64> {
    match data.rows() {
        Matrix::F32(a) => most_of_rows(a.as_slice().expect("row-major"), shift, of),
        Matrix::F64(a) => most_of_rows(a.as_slice().expect("row-major"), shift, of),
    }
}

/// The threads live as long as the call. A pool that all engines share would be dead in a forked process, and the first
/// fit there would wait for it for ever.
fn most_of_rows<T: Copy + Into<f64> + Sync>(
    rows: &[T],
    shift: &[f64],
    of: impl Fn(f64) -> f64 + Copy + Send + Sync,
) -> Vec<f64> {
    let d = shift.len();
    // Several rows at a time where they are short, so that there is enough for the machine's vectors.
    let width = d * (32 / d).max(1);
    let at: Vec<f64> = shift.iter().copied().cycle().take(width).collect();
    let at = &at;
    let of_chunk = move |rows: &[T]| {
        let mut out = vec![0.0f64; width];
        for rows in rows.chunks(width) {
            for ((slot, &v), s) in out.iter_mut().zip(rows).zip(at) {
                let value = of(v.into() - s);
                *slot = if value > *slot { value } else { *slot };
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

/// `f32`, or `f64` where that loses rows; `least` is the smallest standard deviation that there can be.
fn single_or_double(data: &Dataset, at: &[f64], largest: &[f64], sample: &Sample<'_>, least: f64) -> Precision {
    let limit = limit(at.len(), Precision::F32);
    let spreads = sample.spreads();
    // Data at a scale of 1e30 are refused instead: to rescale them costs nothing.
    if !is_within(&spreads, limit) {
        return Precision::F32;
    }
    let felt = |rounding: &[f64]| {
        let bound = |spread: &f64| (2f64.powi(-13) * least).max(2f64.powi(-20) * spread);
        rounding.iter().zip(&spreads).any(|(rounding, spread)| *rounding > bound(spread))
    };
    // Rounding takes 2⁻²⁴ of a number at most: of the rows of most data too little for another look at them.
    let at_most: Vec<f64> = largest.iter().map(|v| v * 2f64.powi(-24)).collect();
    if is_within(largest, limit) && !(felt(&at_most) && felt(&rounding(data, at))) {
        return Precision::F32;
    }
    said(Precision::F32);
    Precision::F64
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn the_largest_of_each_column_is_found_wherever_it_lies() {
        for d in [1, 3, 16, 31, 33, 70] {
            let n = 50;
            for row in [0, 1, 48, 49] {
                for column in [0, d / 2, d - 1] {
                    let mut rows = vec![1.0f32; n * d];
                    rows[row * d + column] = -9.0;
                    let shift: Vec<f64> = (0..d).map(|j| j as f64 / 100.0).collect();
                    let found = most_of_rows(&rows, &shift, f64::abs);
                    let wanted = (0..d).map(|j| if j == column { 9.0 + shift[j] } else { (1.0 - shift[j]).abs() });
                    assert!(found.iter().copied().eq(wanted), "{d} {row} {column}: {found:?}");
                }
            }
        }
    }

    /// 999 rows around `centre`, the last 10 of which are `sentinel` instead.
    fn held(centre: f64, spread: f64, sentinel: f64, reg_covar: f64) -> Precision {
        let rows = Array2::from_shape_fn((999, 2), |(i, j)| match i {
            0..989 => (centre + spread * (((i * 7919 + j * 31) % 1013) as f64 / 1013.0 - 0.5)) as f32,
            _ => sentinel as f32,
        });
        let data = Dataset::new(rows).unwrap();
        let sample = Sample::of((&data).into()).unwrap();
        let at = sample.shift();
        single_or_double(&data, &at, &reach(&data, &at), &sample, reg_covar.sqrt())
    }

    #[test]
    fn ordinary_rows_are_held_as_they_came() {
        for centre in [0.0, 0.3, 3.0, 100.0, 1e4, -1e7] {
            for spread in [1.0, 2.5, 300.0] {
                assert_eq!(held(centre, spread, centre, 1e-6), Precision::F32, "{centre} {spread}");
                assert_eq!(held(centre, spread, centre, 0.0), Precision::F32, "{centre} {spread}");
            }
        }
        // Exactly: the shift has few bits.
        for sentinel in [-9999.0, -999.0, 1e5, 0.0, -1.0] {
            assert_eq!(held(5.0, 4.0, sentinel, 1e-6), Precision::F32, "{sentinel}");
        }
        // Too large as a whole: to be refused.
        assert_eq!(held(0.0, 1e30, 1e30, 1e-6), Precision::F32);
    }

    #[test]
    fn rows_that_single_precision_would_lose_are_held_in_double() {
        for sentinel in [1e10, -1e14, 1e20, 1e37] {
            assert_eq!(held(5.0, 4.0, sentinel, 1e-6), Precision::F64, "{sentinel}");
        }
        // A constant column keeps its value as the shift.
        assert_eq!(held(std::f64::consts::PI, 0.0, -9999.0, 1e-6), Precision::F64);
        assert_eq!(held(1e4, 1.0, 0.123_456_7, 1e-6), Precision::F64);
    }
}
