//! Arrays in GPU memory.

use gmm_host::{DeviceInput, DeviceRows, Error, Opened};
use gmm_model::{Matrix, Precision};
use numpy::PyArray2;
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::options::{Execution, word};
use crate::supervise::supervise;

/// Rows in GPU memory, `(n, d)` in row-major order, and the Python object that owns them. `gmm_rs._gpu` checks the
/// description that another library gives of them.
#[pyclass(frozen)]
pub(crate) struct DeviceArray {
    rows: DeviceRows,
    owner: Py<PyAny>,
}

impl DeviceArray {
    pub(crate) const fn rows(&self) -> DeviceRows {
        self.rows
    }

    pub(crate) fn owner(&self, py: Python<'_>) -> Py<PyAny> {
        self.owner.clone_ref(py)
    }
}

/// The interface of the engine for rows on a GPU.
///
/// # Errors
/// [`Error::Device`] if the engine is not a GPU, with the reason why it was selected.
pub(crate) fn cuda(opened: &Opened) -> Result<&dyn DeviceInput, Error> {
    opened.engine.device_input().ok_or_else(|| {
        let (name, reason) = (opened.engine.name(), &opened.reason);
        Error::Device(format!("the rows are on a GPU, but the engine is '{name}' ({reason})"))
    })
}

#[pymethods]
impl DeviceArray {
    #[new]
    fn new(
        owner: Py<PyAny>,
        address: u64,
        shape: (usize, usize),
        precision: &Bound<'_, PyAny>,
        stream: Option<u64>,
    ) -> PyResult<Self> {
        let precision: Precision = word(precision)?;
        let (n, d) = shape;
        Ok(Self { rows: DeviceRows { address, n, d, precision, stream }, owner })
    }

    /// Copies the rows to a new array on the host.
    fn fetch<'py>(&self, py: Python<'py>, place: Execution) -> PyResult<Bound<'py, PyAny>> {
        let rows = self.rows;
        let fetched = supervise(py, self.owner(py), None, move |_| {
            let opened = engines::open(&place)?;
            // SAFETY: address and shape come from the library of `owner`, which `supervise` keeps alive until this
            // ends.
            unsafe { cuda(&opened)?.device_data(rows, None) }?.fetch()
        })?;
        Ok(match fetched.map_err(|error| raise(py, error))? {
            Matrix::F32(rows) => PyArray2::from_owned_array(py, rows.into_owned()).into_any(),
            Matrix::F64(rows) => PyArray2::from_owned_array(py, rows.into_owned()).into_any(),
        })
    }
}
