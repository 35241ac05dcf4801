//! A mixture on rows: log densities, responsibilities, labels, totals.

use gmm_host::{Error, Evaluation, Wanted, evaluate, memory};
use gmm_model::Precision;
use ndarray::{Array1, Array2};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::options::Place;
use crate::parameters::Parameters;
use crate::rows::Rows;
use crate::supervise::supervise;

/// Work of fewer densities times dimensions than this is over before anybody could interrupt it.
pub(crate) const SHORT: usize = 1 << 22;

/// Log density of each row, `(n,)`.
#[pyfunction]
pub(crate) fn log_densities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Place,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = vec![0.0; n];
        evaluate(Wanted { log_densities: Some(&mut out), ..Wanted::default() })?;
        Ok(Array1::from_vec(out))
    })?;
    Ok(found.into_pyarray(py))
}

/// Responsibilities, `(n, k)`; each row sums to 1.
#[pyfunction]
pub(crate) fn responsibilities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Place,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, k), evaluate| {
        memory::check("the responsibilities", 8 * n as u128 * k as u128)?;
        let mut out = vec![0.0; n * k];
        evaluate(Wanted { responsibilities: Some(&mut out), ..Wanted::default() })?;
        Ok(Array2::from_shape_vec((n, k), out).expect("k of each row"))
    })?;
    Ok(found.into_pyarray(py))
}

/// Component of largest responsibility of each row, `(n,)` of int64.
#[pyfunction]
pub(crate) fn labels<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Place,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = vec![0; n];
        evaluate(Wanted { labels: Some(&mut out), ..Wanted::default() })?;
        Ok(out.into_iter().map(i64::from).collect::<Array1<_>>())
    })?;
    Ok(found.into_pyarray(py))
}

/// Log-likelihood Σ w ln p(x), and total weight Σ w.
#[pyfunction]
#[pyo3(signature = (rows, parameters, place, weights=None))]
pub(crate) fn score<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Place,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<(f64, f64)> {
    on(py, Rows::new(rows, weights)?, parameters, place, |_, evaluate| {
        let totals = evaluate(Wanted::default())?;
        Ok((totals.log_likelihood, totals.total_weight))
    })
}

/// Evaluates once, and writes what is wanted.
type Evaluate<'a> = dyn FnMut(Wanted<'_>) -> Result<Evaluation, Error> + 'a;

/// From `(n, k)` and an evaluation to a result.
type Evaluator<R> = fn((usize, usize), &mut Evaluate<'_>) -> Result<R, Error>;

fn on<R: Send + 'static>(
    py: Python<'_>,
    rows: Rows,
    parameters: Parameters,
    place: Place,
    evaluator: Evaluator<R>,
) -> PyResult<R> {
    let (n, d) = rows.dim();
    let is_short = n.saturating_mul(d).saturating_mul(parameters.n_components()) < SHORT;
    let (parameters, factors) = parameters.split();
    let (unchecked, rows) = rows.split();
    let work = move || {
        let mixture = parameters.precisions()?;
        let opened = engines::open(&place)?;
        let rows = unchecked.check(&opened)?;
        // Results have the wider type of rows and parameters, and its digits.
        let wider = match (rows.data().precision(), mixture.precision()) {
            (Precision::F32, Precision::F32) => Precision::F32,
            _ => Precision::F64,
        };
        let precision = place.precision.unwrap_or(wider);
        evaluator((n, mixture.n_components()), &mut |want| {
            evaluate::precisions(opened.engine.as_ref(), &mixture, rows.data(), precision, want)
        })
    };
    // The owners live to the end of this function, past the short work, and go with the long one.
    let owners = (rows, factors);
    let done = if is_short {
        py.detach(work)
    } else {
        let owners = (owners.0.clone_ref(py), owners.1.clone_ref(py)).into_pyobject(py)?;
        supervise(py, owners.into_any().unbind(), None, move |_| work())?
    };
    drop(owners);
    done.map_err(|error| raise(py, error))
}
