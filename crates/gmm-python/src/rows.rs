//! Arrays as rows, without a copy where they are in row-major order: NumPy's, and those that lie on a GPU.

use gmm_host::{Data, DeviceData, DeviceRows, Error, Opened};
use gmm_model::{Dataset, Matrix};
use ndarray::ArrayView2;
use numpy::{Element, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::device_array::{DeviceArray, cuda};

/// Rows, `(n, d)`, in memory that `owner` keeps.
pub(crate) struct Rows {
    at: At,
    weights: Option<Vec<f64>>,
    owner: Py<PyAny>,
}

/// Where rows lie.
pub(crate) enum At {
    Host(Matrix),
    Device(DeviceRows),
}

impl Rows {
    /// Borrows an array of float32 or float64, aligned and of native byte order, which is copied where it is not in
    /// row-major order; or one on a GPU.
    ///
    /// # Errors
    /// `TypeError` for anything else: the callers in Python convert.
    pub(crate) fn new(array: &Bound<'_, PyAny>, weights: Option<PyReadonlyArray1<'_, f64>>) -> PyResult<Self> {
        let weights = weights.map(|weights| weights.as_array().to_vec());
        if let Ok(array) = array.cast::<DeviceArray>() {
            let (there, py) = (array.get(), array.py());
            return Ok(Self { at: At::Device(there.rows()), weights, owner: there.owner(py) });
        }
        let matrix = if let Ok(array) = array.cast::<PyArray2<f64>>() {
            Matrix::from(borrowed(array)?)
        } else if let Ok(array) = array.cast::<PyArray2<f32>>() {
            Matrix::from(borrowed(array)?)
        } else {
            let what = "rows must be an aligned two-dimensional array of float32 or float64 in native byte order";
            return Err(PyTypeError::new_err(what));
        };
        Ok(Self { at: At::Host(matrix), weights, owner: array.clone().unbind() })
    }

    /// `(n, d)`.
    pub(crate) fn dim(&self) -> (usize, usize) {
        match &self.at {
            At::Host(matrix) => matrix.dim(),
            At::Device(rows) => (rows.n, rows.d),
        }
    }

    /// The numbers as they are, for who takes any, and what keeps their memory and `other`'s: it must outlive them.
    ///
    /// # Errors
    /// Whatever Python says of a tuple.
    pub(crate) fn into_numbers(self, py: Python<'_>, other: &Py<PyAny>) -> PyResult<(At, Py<PyAny>)> {
        let both = (self.owner, other.clone_ref(py)).into_pyobject(py)?;
        Ok((self.at, both.into_any().unbind()))
    }

    /// The rows still to be checked, and what keeps their memory: it must outlive them, and what they are checked into.
    pub(crate) fn split(self) -> (Unchecked, Py<PyAny>) {
        (Unchecked { at: self.at, weights: self.weights }, self.owner)
    }
}

/// Rows and weights as they came.
pub(crate) struct Unchecked {
    at: At,
    weights: Option<Vec<f64>>,
}

impl Unchecked {
    /// The checked rows, wherever they lie. Cost: one pass over rows on the host, so not while Python waits; those on a GPU
    /// are looked at when they are loaded.
    ///
    /// # Errors
    /// [`Error::Data`] with row and column; [`Error::Device`] and [`Error::Option`] where rows on a GPU lie on another than
    /// the engine's.
    pub(crate) fn check(self, opened: &Opened) -> Result<Checked, Error> {
        match self.at {
            At::Host(matrix) => {
                let data = Dataset::new(matrix)?;
                Ok(Checked::Host(match self.weights {
                    Some(weights) => data.with_weights(weights)?,
                    None => data,
                }))
            }
            At::Device(rows) => Ok(Checked::Device(there(opened, rows, self.weights)?)),
        }
    }
}

/// Rows on the GPU of an engine, for as long as what keeps their memory.
///
/// # Errors
/// [`Error::Device`] and [`Error::Option`] where they lie on another than the engine's.
pub(crate) fn there(opened: &Opened, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
    // SAFETY: the owner's library said where the rows are, and the owner is kept as for rows on the host. A program that
    // writes there meanwhile gets a wrong fit, as it does there.
    unsafe { cuda(opened)?.device_data(rows, weights) }
}

/// Checked rows, wherever they lie.
pub(crate) enum Checked {
    Host(Dataset),
    Device(DeviceData),
}

impl Checked {
    pub(crate) const fn data(&self) -> Data<'_> {
        match self {
            Self::Host(data) => Data::Host(data),
            Self::Device(data) => Data::Device(data),
        }
    }
}

/// The array's own memory, for as long as the caller keeps the array.
fn borrowed<T: Element>(array: &Bound<'_, PyArray2<T>>) -> PyResult<ArrayView2<'static, T>> {
    if !array.is_contiguous() && array.strides().iter().any(|s| s % size_of::<T>() as isize != 0) {
        return Err(PyTypeError::new_err("rows must be aligned"));
    }
    let view = array.try_readonly()?;
    // SAFETY: the memory lives as long as the array, which `Rows::owner` keeps; `supervise` lets go of it only after the
    // rows are gone. NumPy frees or moves an array's memory only with its last reference (`resize` refuses while there
    // are others). A Python thread that writes to the array meanwhile changes numbers under a running fit, as it does
    // for every extension module that lets other threads run: such a program gets a wrong fit, from numbers that are
    // still numbers.
    Ok(unsafe { view.as_array().raw_view().deref_into_view() })
}
