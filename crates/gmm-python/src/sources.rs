//! Tables of files, and arrays that arrive one after another, as one NumPy array, which may be in a temporary file.

use std::path::PathBuf;

use gmm_data::{FileError, ReadOptions, RowGatherer, Storage};
use gmm_model::{Matrix, RowArray};
use ndarray::ArrayView2;
use numpy::{Element, PyArray2, PyReadonlyArray2};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::errors::{raise_file, with_class};

/// An array, the column names, and the warnings of the readers.
type NamedArray<'py> = (Bound<'py, PyAny>, Option<Vec<String>>, Vec<String>);

/// The rows of files as one array, `(n, d)`, their column names or None, and the warnings of the readers. The array is
/// read-only if it views a file.
#[pyfunction]
#[pyo3(signature = (paths, columns=None, memory=None))]
pub(crate) fn read_tables(
    py: Python<'_>,
    paths: Vec<PathBuf>,
    columns: Option<Vec<String>>,
    memory: Option<u64>,
) -> PyResult<NamedArray<'_>> {
    let options = ReadOptions { columns, memory, ..ReadOptions::default() };
    // Without the GIL: reading may take long.
    let read = || gmm_data::read_tables(&gmm_data::find_inputs(&paths)?, &options);
    let table = py.detach(read).map_err(|error| raise_file(py, &error))?.table;
    let warnings = table.warnings.iter().map(ToString::to_string).collect();
    let is_spilled = table.storage == Storage::TemporaryFile;
    Ok((array(py, table.matrix, is_spilled)?, table.names, warnings))
}

/// Parses a size such as `8GiB`.
#[pyfunction]
pub(crate) fn memory_size(py: Python<'_>, text: &str) -> PyResult<u64> {
    gmm_data::parse_size(text).map_err(|why| with_class(py, "ParameterError", format!("memory is {text:?}: {why}")))
}

/// Arrays appended one after another.
#[pyclass]
pub(crate) struct Gatherer(Option<RowGatherer>);

#[pymethods]
impl Gatherer {
    #[new]
    #[pyo3(signature = (memory=None))]
    fn new(memory: Option<u64>) -> Self {
        Self(Some(RowGatherer::new(memory)))
    }

    /// Appends a copy of rows, `(n, d)`, float32 or float64.
    fn push(&mut self, py: Python<'_>, rows: &Bound<'_, PyAny>) -> PyResult<()> {
        let rows = if let Ok(rows) = rows.extract::<PyReadonlyArray2<'_, f64>>() {
            Matrix::from(rows.as_array().to_owned())
        } else if let Ok(rows) = rows.extract::<PyReadonlyArray2<'_, f32>>() {
            Matrix::from(rows.as_array().to_owned())
        } else {
            return Err(PyTypeError::new_err("rows must be a two-dimensional array of float32 or float64"));
        };
        let gathered = self.0.as_mut().ok_or_else(finished)?;
        py.detach(|| gathered.push(rows)).map_err(|problem| raised(py, problem))
    }

    /// The array of all rows; read-only if it views a file.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let gathered = self.0.take().ok_or_else(finished)?;
        let matrix = gathered.finish().map_err(|problem| raised(py, problem))?;
        // What a gatherer does not own is in its temporary file.
        array(py, matrix, true)
    }
}

fn finished() -> PyErr {
    PyTypeError::new_err("the rows were taken already")
}

fn raised(py: Python<'_>, problem: gmm_data::Problem) -> PyErr {
    raise_file(py, &FileError { path: "the rows".to_owned(), place: Box::default(), problem })
}

fn array(py: Python<'_>, matrix: Matrix, is_spilled: bool) -> PyResult<Bound<'_, PyAny>> {
    match matrix {
        Matrix::F32(rows) => shown(py, rows, is_spilled),
        Matrix::F64(rows) => shown(py, rows, is_spilled),
    }
}

/// Whether an array views a temporary file.
pub(crate) fn is_spilled(array: &Bound<'_, PyAny>) -> bool {
    let base = array.getattr("base").ok();
    base.is_some_and(|base| base.cast::<RowsKeeper>().is_ok_and(|keeper| keeper.get().is_spilled))
}

/// Owner of rows that a NumPy array views.
#[pyclass(frozen)]
struct RowsKeeper {
    _rows: Matrix,
    /// Whether the file is a temporary one, in which rows are that memory has no room for.
    is_spilled: bool,
}

/// Rows in memory as an array that owns them; rows in a file as a read-only view.
fn shown<T>(py: Python<'_>, rows: RowArray<T>, is_spilled: bool) -> PyResult<Bound<'_, PyAny>>
where
    T: Element + Clone + 'static,
    Matrix: From<RowArray<T>>,
{
    let Some(kept) = rows.is_shared().then(|| rows.clone()) else {
        return Ok(PyArray2::from_owned_array(py, rows.into_owned()).into_any());
    };
    let keeper = Bound::new(py, RowsKeeper { _rows: kept.into(), is_spilled })?.into_any();
    let view: ArrayView2<'_, T> = rows.view();
    // SAFETY: `keeper`, which becomes the array's base object, shares ownership of the map that `rows` views. The map
    // is never written to: the array is made read-only.
    let array = unsafe { PyArray2::borrow_from_array(&view, keeper) }.into_any();
    array.call_method1("setflags", (false,))?;
    Ok(array)
}
