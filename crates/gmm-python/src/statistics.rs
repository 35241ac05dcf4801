//! The steps of an EM iteration one by one: passes over rows, their statistics, the M-step.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::{Error, PassRows, Work, maximise, storage};
use gmm_model::{CovarianceType, Precision, RowStorage, Statistics, packed_index, packed_len};
use ndarray::{Array1, Array2, Array3};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayDyn, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::engines;
use crate::errors::raise;
use crate::evaluate::SHORT;
use crate::fit;
use crate::given::Given;
use crate::options::{Execution, word};
use crate::parameters::to_numpy;
use crate::per_process::PerProcess;
use crate::rows::{Checked, Rows};
use crate::supervise::supervise;

/// Sufficient statistics of rows. See `gmm_rs.Statistics`.
#[pyclass(frozen, name = "Statistics")]
pub(crate) struct Sums(pub(crate) Statistics);

#[pymethods]
impl Sums {
    /// Reads the byte form.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Statistics::from_bytes(bytes).map(Self).map_err(|error| raise(py, error))
    }

    /// Statistics of no rows under these parameters.
    #[staticmethod]
    fn zero(py: Python<'_>, parameters: Given) -> PyResult<Self> {
        let mixture = parameters.mixture().map_err(|error| raise(py, error))?;
        Ok(Self(Statistics::of_no_rows(&mixture)))
    }

    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.to_bytes())
    }

    /// The sum with the statistics of other rows.
    fn plus(&self, py: Python<'_>, other: &Self) -> PyResult<Self> {
        let mut sum = self.0.clone();
        sum.add(&other.0).map_err(|error| raise(py, error))?;
        Ok(Self(sum))
    }

    fn equals(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    /// The M-step: the arrays of the next mixture and the empty components.
    fn maximise<'py>(&self, py: Python<'py>, previous: Given, reg_covar: f64) -> PyResult<Bound<'py, PyDict>> {
        let done = py.detach(|| maximise(&self.0, reg_covar, &previous.mixture()?));
        let step = done.map_err(|error| raise(py, error))?;
        let out = fit::arrays(py, &step.mixture)?;
        out.set_item("empty", step.empty)?;
        Ok(out)
    }

    #[getter]
    fn covariance_type(&self) -> &'static str {
        self.0.kind.name()
    }

    /// `(k, d)`.
    #[getter]
    fn centres<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f64>> {
        to_numpy(py, self.0.centres.view())
    }

    /// `(k,)`.
    #[getter]
    fn weight<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.0.weight.clone().into_pyarray(py)
    }

    /// `(k, d)`.
    #[getter]
    fn first<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<f64>> {
        to_numpy(py, self.0.first.view())
    }

    /// The second moments in the shape of the covariances.
    #[getter]
    fn second<'py>(&self, py: Python<'py>) -> Bound<'py, PyArrayDyn<f64>> {
        let ((k, d), packed) = (self.0.dim(), &self.0.second);
        let at = |c: usize, i: usize, j: usize| packed[c * packed_len(d) + packed_index(i.max(j), i.min(j))];
        match self.0.kind {
            CovarianceType::Full => Array3::from_shape_fn((k, d, d), |(c, i, j)| at(c, i, j)).into_dyn(),
            CovarianceType::Tied => Array2::from_shape_fn((d, d), |(i, j)| at(0, i, j)).into_dyn(),
            CovarianceType::Diag => Array2::from_shape_vec((k, d), packed.clone()).expect("k*d moments").into_dyn(),
            CovarianceType::Spherical => Array1::from(packed.clone()).into_dyn(),
        }
        .into_pyarray(py)
    }

    #[getter]
    fn log_likelihood(&self) -> f64 {
        self.0.log_likelihood
    }

    #[getter]
    fn total_weight(&self) -> f64 {
        self.0.total_weight
    }

    #[getter]
    fn n_rows(&self) -> u64 {
        self.0.n_rows
    }
}

/// How rows are stored, `(precision, shift)`, for passes that start from these parameters.
#[pyfunction]
#[pyo3(name = "storage")]
pub(crate) fn storage_of<'py>(
    py: Python<'py>,
    parameters: Given,
    precision: &Bound<'py, PyAny>,
) -> PyResult<(&'static str, Bound<'py, PyArray1<f64>>)> {
    let precision: Precision = word(precision)?;
    let mixture = parameters.mixture().map_err(|error| raise(py, error))?;
    let RowStorage { precision, shift } = storage(&mixture, precision);
    Ok((precision.name(), shift.into_pyarray(py)))
}

/// Rows loaded once for many passes. `gmm_rs.steps` converts the arguments.
#[pyclass(frozen, name = "PassRows")]
pub(crate) struct Held {
    rows: Arc<Mutex<Loadable>>,
    /// The Python object that owns the rows' memory.
    owner: Py<PyAny>,
    dim: (usize, usize),
}

/// Rows on an engine, and what is needed to load them again: a forked process has no engine yet.
struct Loadable {
    rows: Checked,
    storage: RowStorage,
    place: Execution,
    work: Work,
    loaded: PerProcess<PassRows>,
}

impl Loadable {
    fn get(&mut self) -> Result<&mut PassRows, Error> {
        let Self { rows, storage, place, work, loaded } = self;
        loaded.get(|| {
            let opened = engines::open_for(place, work, rows.is_on_gpu())?;
            PassRows::new(opened.engine.as_ref(), rows.data(), storage)
        })
    }
}

#[pymethods]
impl Held {
    /// `storage` is `(precision, shift)`; `passes` is the expected number of passes, by which `auto` chooses the
    /// engine.
    #[new]
    #[pyo3(signature = (rows, place, storage, passes, weights=None))]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        place: Execution,
        storage: (Bound<'_, PyAny>, PyReadonlyArray1<'_, f64>),
        passes: f64,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let storage = RowStorage { precision: word(&storage.0)?, shift: storage.1.as_array().to_vec() };
        let rows = Rows::new(rows, weights)?;
        let (dim, is_on_gpu) = (rows.dim(), rows.is_on_gpu());
        // The kind and the number of components are not known yet.
        let work = Work::passes(dim, rows.precision(), CovarianceType::Diag, 8, passes);
        let (unchecked, owner) = rows.split();
        let load = move || {
            let rows = unchecked.check(engines::open_for(&place, &work, is_on_gpu)?.as_ref())?;
            let mut rows = Loadable { rows, storage, place, work, loaded: PerProcess::empty() };
            rows.get()?;
            Ok::<_, Error>(rows)
        };
        let loaded = if dim.0.saturating_mul(dim.1) < SHORT {
            py.detach(load)
        } else {
            supervise(py, owner.clone_ref(py), None, move |_| load())?
        };
        let rows = loaded.map_err(|error| raise(py, error))?;
        Ok(Self { rows: Arc::new(Mutex::new(rows)), owner, dim })
    }

    /// One E-step under these parameters.
    fn e_step(&self, py: Python<'_>, parameters: Given) -> PyResult<Sums> {
        let densities = self.dim.0.saturating_mul(self.dim.1).saturating_mul(parameters.n_components());
        let rows = self.rows.clone();
        // A poisoned lock can be ignored: rows are never left half loaded.
        let work = move || {
            let mixture = parameters.mixture()?;
            rows.lock().unwrap_or_else(PoisonError::into_inner).get()?.pass(&mixture)
        };
        let done = if densities < SHORT {
            py.detach(work)
        } else {
            supervise(py, self.owner.clone_ref(py), None, move |_| work())?
        };
        done.map(Sums).map_err(|error| raise(py, error))
    }
}
