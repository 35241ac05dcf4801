//! Evaluation of a mixture on rows: log densities, responsibilities, labels and totals.

use gmm_host::{Error, EvaluateOptions, Evaluation, Work, evaluate, memory};
use gmm_model::Precision;
use ndarray::{Array1, Array2};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::options::Execution;
use crate::parameters::Parameters;
use crate::rows::Rows;
use crate::supervise::supervise;

/// Work with fewer rows × components × columns than this ends before it could be interrupted, so it runs unsupervised.
pub(crate) const SHORT: usize = 1 << 22;

/// Log density of each row, `(n,)`.
#[pyfunction]
pub(crate) fn log_densities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    parameters: Parameters,
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = vec![0.0; n];
        evaluate(EvaluateOptions { log_densities: Some(&mut out), ..EvaluateOptions::default() })?;
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
    place: Execution,
) -> PyResult<Bound<'py, PyArray2<f64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, k), evaluate| {
        memory::check("the responsibilities", 8 * n as u128 * k as u128)?;
        let mut out = vec![0.0; n * k];
        evaluate(EvaluateOptions { responsibilities: Some(&mut out), ..EvaluateOptions::default() })?;
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
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let found = on(py, Rows::new(rows, None)?, parameters, place, |(n, _), evaluate| {
        let mut out = vec![0; n];
        evaluate(EvaluateOptions { labels: Some(&mut out), ..EvaluateOptions::default() })?;
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
    place: Execution,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<(f64, f64)> {
    on(py, Rows::new(rows, weights)?, parameters, place, |_, evaluate| {
        let totals = evaluate(EvaluateOptions::default())?;
        Ok((totals.log_likelihood, totals.total_weight))
    })
}

/// Evaluates once, and writes the requested outputs.
type Evaluate<'a> = dyn FnMut(EvaluateOptions<'_>) -> Result<Evaluation, Error> + 'a;

/// Computes a result from `(n, k)` and an evaluation.
type Evaluator<R> = fn((usize, usize), &mut Evaluate<'_>) -> Result<R, Error>;

fn on<R: Send + 'static>(
    py: Python<'_>,
    rows: Rows,
    parameters: Parameters,
    place: Execution,
    evaluator: Evaluator<R>,
) -> PyResult<R> {
    let ((n, d), given) = (rows.dim(), rows.precision());
    let is_short = n.saturating_mul(d).saturating_mul(parameters.n_components()) < SHORT;
    let (parameters, factors) = parameters.split();
    let (unchecked, rows) = rows.split();
    let work = move || {
        let mixture = parameters.precisions()?;
        let work = Work::passes((n, d), given, mixture.covariance_type(), mixture.n_components(), 1.0);
        let opened = engines::open_for(&place, &work)?;
        let rows = unchecked.check(&opened)?;
        // Results have the precision of the wider type of rows and parameters.
        let wider = match (rows.data().precision(), mixture.precision()) {
            (Precision::F32, Precision::F32) => Precision::F32,
            _ => Precision::F64,
        };
        let precision = place.precision.unwrap_or(wider);
        evaluator((n, mixture.n_components()), &mut |want| {
            evaluate::precisions(opened.engine.as_ref(), &mixture, rows.data(), precision, want)
        })
    };
    // The owners live until the end of this function, after the short work; for supervised work `supervise` keeps
    // clones.
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
