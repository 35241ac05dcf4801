//! Evaluation of a fitted mixture on rows: log densities, total log-likelihood, responsibilities, labels.

use gmm_model::{Dataset, Mixture, Precision, PrecisionMixture};
use ndarray::{Array1, Array2};

use crate::{Data, DeviceData, DeviceOutputs, Engine, Error, EvaluateOptions, Evaluation, Resident, memory, shift};

/// Log density of each row, `(n,)`, and the totals.
///
/// The shift subtracted from the rows is a median of the mixture's means, so a row's value does not depend on the other
/// rows.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Memory`].
pub fn log_densities(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: &Dataset,
    precision: Precision,
) -> Result<(Array1<f64>, Evaluation), Error> {
    log_densities_of(load(engine, mixture, data, precision)?.as_mut(), mixture)
}

/// [`log_densities`] of rows that are already loaded.
///
/// # Errors
/// As for [`log_densities`].
pub fn log_densities_of(rows: &mut dyn Resident, mixture: &Mixture) -> Result<(Array1<f64>, Evaluation), Error> {
    let mut out = vec![0.0; rows.dim().0];
    let totals =
        rows.evaluate(mixture, EvaluateOptions { log_densities: Some(&mut out), ..EvaluateOptions::default() })?;
    Ok((Array1::from_vec(out), totals))
}

/// Only the totals: log-likelihood, entropy of the assignments, and total weight.
///
/// # Errors
/// As for [`log_densities`].
pub fn score<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<Evaluation, Error> {
    let data = data.into();
    check(engine, mixture.n_features(), data, precision)?;
    let (at, precision) = place(mixture, precision);
    data.evaluate(engine, precision, &at, &mut |rows| rows.evaluate(mixture, EvaluateOptions::default()))
}

/// Responsibilities, `(n, k)`; each row sums to 1.
///
/// # Errors
/// As for [`log_densities`]; [`Error::Memory`], checked before `n*k` values are allocated.
pub fn responsibilities(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: &Dataset,
    precision: Precision,
) -> Result<Array2<f64>, Error> {
    // Checked before the rows are loaded.
    check_room(data.n_rows(), mixture.n_components())?;
    responsibilities_of(load(engine, mixture, data, precision)?.as_mut(), mixture)
}

/// [`responsibilities`] of rows that are already loaded.
///
/// # Errors
/// As for [`responsibilities`].
pub fn responsibilities_of(rows: &mut dyn Resident, mixture: &Mixture) -> Result<Array2<f64>, Error> {
    let shape = (rows.dim().0, mixture.n_components());
    check_room(shape.0, shape.1)?;
    let mut out = memory::zeros::<f64>(shape.0 * shape.1);
    rows.evaluate(
        mixture,
        EvaluateOptions { responsibilities: Some((&mut out).into()), ..EvaluateOptions::default() },
    )?;
    Ok(Array2::from_shape_vec(shape, out).expect("n*k numbers"))
}

fn check_room(n: usize, k: usize) -> Result<(), Error> {
    memory::check("the responsibilities", 8 * n as u128 * k as u128)
}

/// The component of largest responsibility of each row, `(n,)`; the first among equals.
///
/// # Errors
/// As for [`log_densities`].
pub fn labels(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: &Dataset,
    precision: Precision,
) -> Result<Array1<u32>, Error> {
    labels_of(load(engine, mixture, data, precision)?.as_mut(), mixture)
}

/// [`labels`] of rows that are already loaded.
///
/// # Errors
/// As for [`labels`].
pub fn labels_of(rows: &mut dyn Resident, mixture: &Mixture) -> Result<Array1<u32>, Error> {
    let mut out = vec![0; rows.dim().0];
    rows.evaluate(mixture, EvaluateOptions { labels: Some(&mut out), ..EvaluateOptions::default() })?;
    Ok(Array1::from_vec(out))
}

/// Evaluates a mixture given by factors of its precisions: writes the outputs requested in `want` and returns the
/// totals.
///
/// Nothing is inverted or factored. For a few rows on the host the cost is little more than one read of the factors.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Model`] if a factor is invalid;
/// [`Error::Memory`].
pub fn precisions<'a>(
    engine: &dyn Engine,
    mixture: &PrecisionMixture<'_>,
    data: impl Into<Data<'a>>,
    precision: Precision,
    mut want: EvaluateOptions<'_>,
) -> Result<Evaluation, Error> {
    let data = data.into();
    check(engine, mixture.n_features(), data, precision)?;
    let shift = shift::of_precisions(mixture, data.precision(), precision);
    if let Data::Host(rows) = data
        && !rows.has_missing()
        && !rows.is_indirect()
        && let Some(found) = engine.evaluate_few(rows, precision, &shift, mixture, &mut want)?
    {
        return Ok(found);
    }
    let mut want = Some(want);
    data.evaluate(engine, precision, &shift, &mut |rows| {
        rows.evaluate_precisions(mixture, want.take().expect("one evaluation"))
    })
}

/// As [`precisions`], of rows on a GPU, with results that stay there.
///
/// # Safety
/// As for [`Evaluate::evaluate_there`](crate::Evaluate::evaluate_there).
///
/// # Errors
/// As for [`precisions`].
pub unsafe fn precisions_there(
    engine: &dyn Engine,
    mixture: &PrecisionMixture<'_>,
    data: &DeviceData,
    precision: Precision,
    out: &DeviceOutputs,
) -> Result<Evaluation, Error> {
    let data = Data::from(data);
    crate::engine::check_features(data.dim().1, mixture.n_features())?;
    let shift = shift::of_precisions(mixture, data.precision(), precision);
    // SAFETY: the caller upholds `# Safety`.
    data.evaluate(engine, precision, &shift, &mut |rows| unsafe { rows.evaluate_there(mixture, out) })
}

/// Errors if the data's columns differ in name or order from those that the mixture was fitted to. Passes if either has
/// no names.
///
/// # Errors
/// [`Error::FeatureNames`] with the first column that differs.
pub fn check_names(found: Option<&[String]>, expected: Option<&[String]>) -> Result<(), Error> {
    let (Some(found), Some(expected)) = (found, expected) else { return Ok(()) };
    match found.iter().zip(expected).position(|(f, e)| f != e) {
        Some(index) => {
            Err(Error::FeatureNames { index, found: found[index].clone(), expected: expected[index].clone() })
        }
        None => Ok(()),
    }
}

/// Loads rows for evaluation under `mixture`: shifted by a median of its means, and in `f64` if a component is so
/// narrow and so far from that point that its rows would lose precision in `f32` ([`shift::is_felt`]).
///
/// # Errors
/// As for [`log_densities`].
pub fn load<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<Box<dyn Resident>, Error> {
    let data = data.into();
    check(engine, mixture.n_features(), data, precision)?;
    let (at, precision) = place(mixture, precision);
    data.load(engine, precision, &at, None)
}

fn check(engine: &dyn Engine, columns: usize, data: Data<'_>, precision: Precision) -> Result<(), Error> {
    crate::engine::check_features(data.dim().1, columns)?;
    shift::check_weights(data, engine.precision(precision))
}

/// The shift and the precision for evaluations of rows under `mixture`: see [`load`].
pub(crate) fn place(mixture: &Mixture, precision: Precision) -> (Vec<f64>, Precision) {
    let at = shift::of_mixture(mixture);
    let precision = if shift::is_felt(mixture, &at, precision) { Precision::F64 } else { precision };
    (at, precision)
}
