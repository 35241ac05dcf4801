//! A mixture on rows: log densities, responsibilities, labels, totals.

use gmm_host::{Error, Resident, Wanted, evaluate};
use gmm_model::Mixture;
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
    let found = on(py, Rows::new(rows, None)?, parameters, place, |rows, mixture| {
        Ok(evaluate::log_densities_of(rows, mixture)?.0)
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
    let found = on(py, Rows::new(rows, None)?, parameters, place, evaluate::responsibilities_of)?;
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
    let found = on(py, Rows::new(rows, None)?, parameters, place, |rows, mixture| {
        Ok(evaluate::labels_of(rows, mixture)?.mapv(i64::from))
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
    on(py, Rows::new(rows, weights)?, parameters, place, |rows, mixture| {
        let totals = rows.evaluate(mixture, Wanted::default())?;
        Ok((totals.log_likelihood, totals.total_weight))
    })
}

type Evaluator<R> = fn(&mut dyn Resident, &Mixture) -> Result<R, Error>;

fn on<R: Send + 'static>(
    py: Python<'_>,
    rows: Rows,
    parameters: Parameters,
    place: Place,
    evaluator: Evaluator<R>,
) -> PyResult<R> {
    let (n, d) = rows.dim();
    let (unchecked, owner) = rows.split();
    let is_short = n.saturating_mul(d).saturating_mul(parameters.n_components()) < SHORT;
    let work = move || {
        let mixture = parameters.mixture()?;
        let opened = engines::open(&place)?;
        let rows = unchecked.check(&opened)?;
        let precision = place.precision.unwrap_or(rows.data().precision());
        let mut rows = evaluate::load(opened.engine.as_ref(), &mixture, rows.data(), precision)?;
        evaluator(rows.as_mut(), &mixture)
    };
    // The owner lives to the end of this function, past the short work, and goes with the long one.
    let done = if is_short { py.detach(work) } else { supervise(py, owner.clone_ref(py), None, move |_| work())? };
    drop(owner);
    done.map_err(|error| raise(py, error))
}
