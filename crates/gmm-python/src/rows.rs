//! NumPy arrays as rows, without a copy where they are in row-major order.

use gmm_host::Error;
use gmm_model::{Dataset, Matrix};
use ndarray::ArrayView2;
use numpy::{Element, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// Rows, `(n, d)`, in memory that `owner` keeps.
pub(crate) struct Rows {
    matrix: Matrix,
    weights: Option<Vec<f64>>,
    owner: Py<PyAny>,
}

impl Rows {
    /// Borrows an array of float32 or float64, aligned and of native byte order; copies it where it is not in row-major
    /// order.
    ///
    /// # Errors
    /// `TypeError` for anything else: the callers in Python convert.
    pub(crate) fn new(array: &Bound<'_, PyAny>, weights: Option<PyReadonlyArray1<'_, f64>>) -> PyResult<Self> {
        let matrix = if let Ok(array) = array.cast::<PyArray2<f64>>() {
            Matrix::from(borrowed(array)?)
        } else if let Ok(array) = array.cast::<PyArray2<f32>>() {
            Matrix::from(borrowed(array)?)
        } else {
            let what = "rows must be an aligned two-dimensional array of float32 or float64 in native byte order";
            return Err(PyTypeError::new_err(what));
        };
        let weights = weights.map(|weights| weights.as_array().to_vec());
        Ok(Self { matrix, weights, owner: array.clone().unbind() })
    }

    /// `(n, d)`.
    pub(crate) fn dim(&self) -> (usize, usize) {
        self.matrix.dim()
    }

    /// The numbers as they are, for who takes any, and what keeps their memory and `other`'s: it must outlive them.
    pub(crate) fn into_matrix(self, py: Python<'_>, other: &Py<PyAny>) -> PyResult<(Matrix, Py<PyAny>)> {
        let both = (self.owner, other.clone_ref(py)).into_pyobject(py)?;
        Ok((self.matrix, both.into_any().unbind()))
    }

    /// The rows still to be checked, and what keeps their memory: it must outlive them.
    pub(crate) fn split(self) -> (Unchecked, Py<PyAny>) {
        (Unchecked { matrix: self.matrix, weights: self.weights }, self.owner)
    }
}

/// Rows and weights as they came.
pub(crate) struct Unchecked {
    matrix: Matrix,
    weights: Option<Vec<f64>>,
}

impl Unchecked {
    /// The checked data set. Cost: one pass over the rows, so not while Python waits.
    ///
    /// # Errors
    /// [`Error::Data`] with row and column.
    pub(crate) fn check(self) -> Result<Dataset, Error> {
        let data = Dataset::new(self.matrix)?;
        Ok(match self.weights {
            Some(weights) => data.with_weights(weights)?,
            None => data,
        })
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
