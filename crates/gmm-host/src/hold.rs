//! The precision in which an engine stores rows: the requested one, or `f64` if `f32` would lose too much of some rows.

use std::thread;

use gmm_model::{Dataset, Matrix, Precision};

use crate::shift::Sample;
use crate::{Data, Engine, Error, FitOptions, Resident};

/// The largest distance allowed between a row and the shift in any column. Beyond it, squares summed over `d` columns
/// and about a thousand rows could overflow.
fn limit(d: usize, precision: Precision) -> f64 {
    let max = match precision {
        Precision::F32 => f64::from(f32::MAX),
        Precision::F64 => f64::MAX,
    };
    // 4096 is 1024 rows times 4: the square of the difference of two such values is four times as large.
    (max / (4096.0 * d as f64)).sqrt()
}

/// Loads rows for a fit, as `x − at`, and returns the precision in which they are stored: `asked`, or `f64` instead of
/// `f32` in two cases. First, for rows on the host: rounding to `f32` would change a value by more than a tolerance.
/// Second, for rows on the host or a GPU: squares of a few rows (such as a sentinel of 1e20), but not of most, would
/// overflow in `f32`.
///
/// The tolerance of a column is the larger of 2⁻¹³ √`reg_covar` (`√reg_covar` is the smallest standard deviation that a
/// component can have) and 2⁻²⁰ of the distance between the 5th and 95th percentiles. Cost: one read of the data, while
/// the engine copies them if it can.
///
/// # Errors
/// [`Error::Data`] if rows that nobody has read before ([`Dataset::unread`]) are not finite;
/// [`Error::Scale`] with the first column beyond the range; any error of the engine.
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
            let is_plain = !rows.has_missing() && !rows.is_indirect();
            let loaded = if is_plain { engine.load_with_reach(rows, asked, at)? } else { None };
            let (loaded, largest) = match loaded {
                Some((loaded, largest)) => (Some(loaded), largest),
                None => (None, reach(rows, at)),
            };
            if is_plain && largest.iter().any(|v| !v.is_finite()) {
                // Rows that nobody has read before; or the differences overflow, which `too_far` says.
                rows.check_finite()?;
            }
            let precision = match asked {
                Precision::F32 => single_or_double(rows, at, &largest, sample, reg_covar.sqrt()),
                Precision::F64 => asked,
            };
            too_far(&largest, limit_of(precision), precision)?;
            match loaded {
                Some(loaded) if precision == asked => return Ok((loaded, precision)),
                // Freed first: the rows are never on the engine twice.
                other => drop(other),
            }
            let loaded = match is_plain {
                true => engine.load_to_move(rows, precision, at),
                false => data.load(engine, precision, at, None),
            };
            Ok((loaded?, precision))
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

/// As [`for_fit`]; if the rule of the fit is one that never fails, rows whose squares overflow `f32` are stored in `f64`
/// instead of refused. Returns the precision for evaluating the rows, and that in which they are stored.
///
/// # Errors
/// As for [`for_fit`].
pub(crate) fn for_rule(
    data: Data<'_>,
    engine: &dyn Engine,
    asked: Precision,
    sample: &Sample<'_>,
    at: &[f64],
    options: &FitOptions,
) -> Result<(Box<dyn Resident>, Precision, Precision), Error> {
    match for_fit(data, engine, asked, sample, at, options.reg_covar) {
        Err(Error::Scale { .. }) if asked == Precision::F32 && options.rule.never_fails() => {
            said(asked);
            let (rows, precision) = for_fit(data, engine, Precision::F64, sample, at, options.reg_covar)?;
            Ok((rows, Precision::F64, precision))
        }
        // Rows that need f64 for the fit need it for their densities too, or these could vanish.
        held => held.map(|(rows, held)| (rows, if options.rule.never_fails() { held } else { asked }, held)),
    }
}

/// As [`for_fit`], for a likelihood, whose parameters are not known yet: the tolerance depends only on the distance
/// between the percentiles.
///
/// # Errors
/// Any error of the engine.
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
    match data {
        Data::Host(rows) if !rows.has_missing() && !rows.is_indirect() => engine.load_to_keep(rows, precision, at),
        _ => data.load(engine, precision, at, None),
    }
}

fn is_within(spreads: &[f64], limit: f64) -> bool {
    spreads.iter().all(|spread| *spread <= limit)
}

fn said(asked: Precision) {
    tracing::info!("rows are stored in f64: {asked} would lose precision for rows far from the others");
}

/// Errors if the largest distance from the shift in some column exceeds `limit`.
///
/// # Errors
/// [`Error::Scale`] with the first such column.
pub(crate) fn too_far(largest: &[f64], limit: f64, precision: Precision) -> Result<(), Error> {
    match largest.iter().position(|&v| v > limit) {
        Some(column) => Err(Error::Scale { column, value: largest[column], precision: precision.name() }),
        None => Ok(()),
    }
}

/// Arrays of fewer numbers are read by one thread: starting another would take longer.
const SMALL: usize = 1 << 16;

/// The largest |x − shift| of each column, `(d,)`; NaN if a value of the column is NaN or infinite, unless it is a missing one.
fn reach(data: &Dataset, shift: &[f64]) -> Vec<f64> {
    let (d, holed) = (shift.len(), data.has_missing());
    match data.rows() {
        Matrix::F32(a) => of_shares(a.as_slice().expect("row-major"), d, |rows| reach_of(rows, shift, holed)),
        Matrix::F64(a) => of_shares(a.as_slice().expect("row-major"), d, |rows| reach_of(rows, shift, holed)),
    }
}

/// The largest error that rounding `x − shift` to `f32` makes in each column, `(d,)`.
fn rounding(data: &Dataset, shift: &[f64]) -> Vec<f64> {
    match data.rows() {
        Matrix::F32(a) => of_shares(a.as_slice().expect("row-major"), shift.len(), |rows| rounding_of(rows, shift)),
        Matrix::F64(a) => of_shares(a.as_slice().expect("row-major"), shift.len(), |rows| rounding_of(rows, shift)),
    }
}

/// The largest of what `of` finds in shares of the rows, one per thread, for each of `d` columns.
///
/// The threads live only during the call. The threads of a shared pool would not exist in a forked process, and the
/// first fit there would wait for them for ever.
fn of_shares<T: Sync>(rows: &[T], d: usize, of: impl Fn(&[T]) -> Vec<f64> + Sync) -> Vec<f64> {
    // `available_parallelism` takes as long as reading a few thousand rows.
    let threads = if rows.len() < SMALL { 1 } else { thread::available_parallelism().map_or(1, usize::from) };
    if threads == 1 {
        return of(rows);
    }
    let (share, of) = ((rows.len() / d).div_ceil(threads) * d, &of);
    thread::scope(|scope| {
        let started: Vec<_> = rows.chunks(share).map(|rows| scope.spawn(move || of(rows))).collect();
        let found = started.into_iter().map(|one| one.join().expect("comparing numbers does not panic"));
        found.fold(vec![0.0; d], |a: Vec<f64>, b| a.iter().zip(&b).map(|(a, b)| larger(*a, *b)).collect())
    })
}

/// A multiple of the number of columns. Short rows are processed several at a time, so that the inner loop is long enough to
/// vectorise.
fn width(d: usize) -> usize {
    d * (64 / d).max(1)
}

/// The largest |x − shift| of each column of some rows, `(d,)`; NaN if a value of the column is NaN or infinite, unless these are
/// `holed` rows, of which NaN is left out.
pub(crate) fn reach_of<T: Real>(rows: &[T], shift: &[f64], holed: bool) -> Vec<f64> {
    let d = shift.len();
    let infinity = T::one() / T::zero();
    let mut least = vec![infinity; width(d)];
    let (mut most, mut zeros) = (vec![T::zero() - infinity; width(d)], vec![T::zero(); width(d)]);
    for rows in rows.chunks(width(d)) {
        for (((least, most), zero), &v) in least.iter_mut().zip(&mut most).zip(&mut zeros).zip(rows) {
            *least = if v < *least { v } else { *least };
            *most = if v > *most { v } else { *most };
            // Of a number that is not finite, NaN.
            *zero = *zero + v * T::zero();
        }
    }
    let of = |i: usize| {
        let away = |v: T| (v.into() - shift[i % d]).abs();
        match (zeros[i].is_nan() && !holed, least[i] > most[i]) {
            (true, _) => f64::NAN,
            // No value.
            (false, true) => 0.0,
            (false, false) => away(least[i]).max(away(most[i])),
        }
    };
    (0..d).map(|column| (column..width(d)).step_by(d).map(of).fold(0.0, larger)).collect()
}

/// The largest error that rounding `x − shift` to `f32` makes in each column of some rows, `(d,)`.
fn rounding_of<T: Real>(rows: &[T], shift: &[f64]) -> Vec<f64> {
    let d = shift.len();
    let at: Vec<f64> = shift.iter().copied().cycle().take(width(d)).collect();
    let mut out = vec![0.0f64; width(d)];
    for rows in rows.chunks(width(d)) {
        for ((slot, &v), s) in out.iter_mut().zip(rows).zip(&at) {
            let z = v.into() - s;
            let error = (z - f64::from(z as f32)).abs();
            *slot = if error > *slot { error } else { *slot };
        }
    }
    (0..d).map(|column| out[column..].iter().step_by(d).fold(0.0f64, |m, v| m.max(*v))).collect()
}

/// `f32` or `f64`.
pub(crate) trait Real: ndarray::LinalgScalar + Into<f64> + PartialOrd + Sync {
    fn is_nan(self) -> bool;
}

impl Real for f32 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

impl Real for f64 {
    fn is_nan(self) -> bool {
        self.is_nan()
    }
}

/// The larger of two numbers, or NaN if one is: `f64::max` would ignore it.
pub(crate) fn larger(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

/// `f32`, or `f64` if `f32` would lose too much of some rows (see [`for_fit`]). `least` is the smallest standard
/// deviation that a component can have.
fn single_or_double(data: &Dataset, at: &[f64], largest: &[f64], sample: &Sample<'_>, least: f64) -> Precision {
    let limit = limit(at.len(), Precision::F32);
    let spreads = sample.spreads();
    // If most rows are too large, as at a scale of 1e30, the fit is refused: the user can rescale the data at no cost.
    if !is_within(&spreads, limit) {
        return Precision::F32;
    }
    let felt = |rounding: &[f64]| {
        let bound = |spread: &f64| (2f64.powi(-13) * least).max(2f64.powi(-20) * spread);
        rounding.iter().zip(&spreads).any(|(rounding, spread)| *rounding > bound(spread))
    };
    // Rounding changes a number by at most 2⁻²⁴ of it. For most data this bound suffices, without a second read.
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
                    let found = of_shares(&rows, d, |rows| reach_of(rows, &shift, false));
                    let wanted = (0..d).map(|j| if j == column { 9.0 + shift[j] } else { (1.0 - shift[j]).abs() });
                    assert!(found.iter().copied().eq(wanted), "{d} {row} {column}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn a_value_that_is_not_finite_is_seen_wherever_it_lies_and_a_missing_one_is_left_out() {
        for d in [1, 3, 16, 70] {
            for at in [0, d, 41 * d + d / 2, 50 * d - 1] {
                for odd in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut rows = vec![2.0f32; 50 * d];
                    rows[at] = odd;
                    let found = reach_of(&rows, &vec![0.5; d], false);
                    assert!(found.iter().enumerate().all(|(j, v)| v.is_nan() == (j == at % d)), "{d} {at}: {found:?}");
                }
                let mut rows = vec![2.0f32; 50 * d];
                rows[at] = f32::NAN;
                assert_eq!(reach_of(&rows, &vec![0.5; d], true), vec![1.5; d], "{d} {at}");
            }
        }
        assert_eq!(reach_of(&[f32::NAN; 3], &[7.0], true), [0.0], "a column without values");
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
        // `x − shift` is exact, because the shift has few significant bits.
        for sentinel in [-9999.0, -999.0, 1e5, 0.0, -1.0] {
            assert_eq!(held(5.0, 4.0, sentinel, 1e-6), Precision::F32, "{sentinel}");
        }
        // All rows are too large: `for_fit` refuses them later.
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
