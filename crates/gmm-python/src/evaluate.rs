//! A mixture on rows: log densities, responsibilities, labels, totals.

use gmm_host::{DeviceRows, Error, Opened, Resident, Wanted, evaluate, shift};
use gmm_model::Mixture;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::device_array::{DeviceArray, cuda};
use crate::engines;
use crate::errors::raise;
use crate::options::Place;
use crate::parameters::Parameters;
use crate::rows::{Rows, Unchecked};
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
    let found = on(py, Source::of(rows, None)?, parameters, place, |rows, mixture| {
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
    let found = on(py, Source::of(rows, None)?, parameters, place, evaluate::responsibilities_of)?;
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
    let found = on(py, Source::of(rows, None)?, parameters, place, |rows, mixture| {
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
    on(py, Source::of(rows, weights)?, parameters, place, |rows, mixture| {
        let totals = rows.evaluate(mixture, Wanted::default())?;
        Ok((totals.log_likelihood, totals.total_weight))
    })
}

type Evaluator<R> = fn(&mut dyn Resident, &Mixture) -> Result<R, Error>;

/// Rows as they came, and what keeps their memory.
struct Source {
    at: At,
    owner: Py<PyAny>,
    /// `(n, d)`.
    dim: (usize, usize),
}

/// Where rows lie.
enum At {
    Host(Unchecked),
    Device(DeviceRows),
}

impl Source {
    fn of(rows: &Bound<'_, PyAny>, weights: Option<PyReadonlyArray1<'_, f64>>) -> PyResult<Self> {
        if let Ok(array) = rows.cast::<DeviceArray>() {
            if weights.is_some() {
                return Err(PyTypeError::new_err("rows on a GPU have no weights here: their callers fetch them"));
            }
            let array = array.get();
            let (rows, owner) = (array.rows(), array.owner(rows.py()));
            return Ok(Self { at: At::Device(rows), owner, dim: (rows.n, rows.d) });
        }
        let rows = Rows::new(rows, weights)?;
        let dim = rows.dim();
        let (unchecked, owner) = rows.split();
        Ok(Self { at: At::Host(unchecked), owner, dim })
    }
}

impl At {
    /// The rows on an engine, held as they are evaluated.
    ///
    /// # Safety
    /// What the rows belong to is kept until this returns.
    unsafe fn load(self, opened: &Opened, mixture: &Mixture, place: &Place) -> Result<Box<dyn Resident>, Error> {
        match self {
            Self::Host(unchecked) => {
                let data = unchecked.check()?;
                let precision = place.precision.unwrap_or(data.rows().precision());
                evaluate::load(opened.engine.as_ref(), mixture, &data, precision)
            }
            Self::Device(rows) => {
                let precision = place.precision.unwrap_or(rows.precision);
                // SAFETY: the caller's promise; the owner's library said where the rows are, and is not told to write
                // there while they are read.
                unsafe { cuda(opened)?.load_device_rows(&rows, precision, &shift::of_mixture(mixture)) }
            }
        }
    }
}

fn on<R: Send + 'static>(
    py: Python<'_>,
    source: Source,
    parameters: Parameters,
    place: Place,
    evaluator: Evaluator<R>,
) -> PyResult<R> {
    let Source { at, owner, dim: (n, d) } = source;
    let is_short = n.saturating_mul(d).saturating_mul(parameters.n_components()) < SHORT;
    let work = move || {
        let mixture = parameters.mixture()?;
        let opened = engines::open(&place)?;
        // SAFETY: `owner` lives to the end of this function, past the short work, and goes with the long one.
        let mut rows = unsafe { at.load(&opened, &mixture, &place) }?;
        evaluator(rows.as_mut(), &mixture)
    };
    let done = if is_short { py.detach(work) } else { supervise(py, owner.clone_ref(py), None, move |_| work())? };
    drop(owner);
    done.map_err(|error| raise(py, error))
}
