//! Conversion of NumPy arrays and GPU arrays to rows, without a copy if they are in row-major order.

use gmm_host::{Data, DeviceData, DeviceRows, Error, Opened};
use gmm_model::{Dataset, Matrix, Precision};
use ndarray::ArrayView2;
use numpy::{Element, PyArray2, PyArrayMethods, PyReadonlyArray1, PyUntypedArrayMethods};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

use crate::deconvolve::Measurement;
use crate::device_array::{DeviceArray, cuda};
use crate::sources::is_spilled;

/// The class of arrays in which NaN is a missing value (`gmm_rs._inputs`).
const HOLED: &str = "Holed";

/// Rows, `(n, d)`, in memory that is valid while `owner` is alive.
pub(crate) struct Rows {
    at: At,
    weights: Option<Vec<f64>>,
    owner: Py<PyAny>,
    in_place: bool,
    /// Whether NaN is a missing value.
    holed: bool,
    measurement: Option<Measurement>,
}

/// Rows in host or device memory.
pub(crate) enum At {
    Host(Matrix),
    Device(DeviceRows),
}

impl Rows {
    /// Borrows an aligned array of float32 or float64 in native byte order, or a `DeviceArray`. An array that is not in
    /// row-major order is copied.
    ///
    /// # Errors
    /// `TypeError` for anything else; the Python callers convert their input first.
    pub(crate) fn new(array: &Bound<'_, PyAny>, weights: Option<PyReadonlyArray1<'_, f64>>) -> PyResult<Self> {
        let weights = weights.map(|weights| weights.as_array().to_vec());
        if let Ok(array) = array.cast::<DeviceArray>() {
            let (there, py) = (array.get(), array.py());
            return Ok(Self {
                at: At::Device(there.rows()),
                weights,
                owner: there.owner(py),
                in_place: false,
                holed: false,
                measurement: None,
            });
        }
        let matrix = if let Ok(array) = array.cast::<PyArray2<f64>>() {
            Matrix::from(borrowed(array)?)
        } else if let Ok(array) = array.cast::<PyArray2<f32>>() {
            Matrix::from(borrowed(array)?)
        } else {
            let what = "rows must be an aligned two-dimensional array of float32 or float64 in native byte order";
            return Err(PyTypeError::new_err(what));
        };
        let measurement = Measurement::of(array)?;
        let holed = measurement.as_ref().map_or(array.get_type().name()? == HOLED, |measurement| measurement.holed);
        let in_place = is_spilled(array);
        Ok(Self { at: At::Host(matrix), weights, owner: array.clone().unbind(), in_place, holed, measurement })
    }

    /// `(n, d)`.
    pub(crate) fn dim(&self) -> (usize, usize) {
        match &self.at {
            At::Host(matrix) => matrix.dim(),
            At::Device(rows) => (rows.n, rows.d),
        }
    }

    /// The precision of the values.
    pub(crate) fn precision(&self) -> Precision {
        match &self.at {
            At::Host(matrix) => matrix.precision(),
            At::Device(rows) => rows.precision,
        }
    }

    /// Whether the rows are on a GPU.
    pub(crate) const fn is_on_gpu(&self) -> bool {
        matches!(self.at, At::Device(_))
    }

    /// The numbers without checks, and an owner of their memory and of `other`'s, which must outlive them.
    ///
    /// # Errors
    /// Errors if Python cannot create a tuple.
    pub(crate) fn into_numbers(self, py: Python<'_>, other: &Py<PyAny>) -> PyResult<(At, Py<PyAny>)> {
        let both = (self.owner, other.clone_ref(py)).into_pyobject(py)?;
        Ok((self.at, both.into_any().unbind()))
    }

    /// The unchecked rows and the owner of their memory, which must outlive them and the [`Checked`] rows.
    pub(crate) fn split(self) -> (Unchecked, Py<PyAny>) {
        let Self { at, weights, owner, in_place, holed, measurement } = self;
        (Unchecked { at, weights, in_place, holed, measurement }, owner)
    }
}

/// Rows and weights before validation.
pub(crate) struct Unchecked {
    at: At,
    weights: Option<Vec<f64>>,
    in_place: bool,
    holed: bool,
    measurement: Option<Measurement>,
}

impl Unchecked {
    /// The checked rows. Cost: one pass over rows on the host, so call it without the GIL; rows on a GPU are checked
    /// when they are loaded.
    ///
    /// # Errors
    /// [`Error::Data`] with row and column; [`Error::Device`] and [`Error::Option`] if rows on a GPU are not on the
    /// engine's GPU.
    pub(crate) fn check(self, opened: &Opened) -> Result<Checked, Error> {
        let rows = self.unread(opened)?;
        if let Checked::Host(data) = &rows
            && !data.has_missing()
        {
            data.check_finite()?;
        }
        Ok(rows)
    }

    /// As [`check`](Self::check), for a fit, which reads many rows on the host anyway and checks them then.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn check_in_fit(self, opened: &Opened) -> Result<Checked, Error> {
        /// A pass over fewer numbers takes less than a millisecond.
        const FEW: usize = 1 << 20;
        let is_plain = self.weights.is_none() && self.measurement.is_none() && !self.holed;
        let (n, d) = match &self.at {
            At::Host(matrix) => matrix.dim(),
            At::Device(rows) => (rows.n, rows.d),
        };
        if is_plain && n * d > FEW { self.unread(opened) } else { self.check(opened) }
    }

    /// As [`check`](Self::check), but rows on the host are not read: the caller calls
    /// [`check_finite`](Dataset::check_finite) unless the result shows that they are finite.
    ///
    /// # Errors
    /// As for [`check`](Self::check).
    pub(crate) fn unread(self, opened: &Opened) -> Result<Checked, Error> {
        match self.at {
            At::Host(matrix) => {
                let data = if self.holed { Dataset::with_holes(matrix)? } else { Dataset::unread(matrix)? };
                let data = match self.measurement {
                    Some(measurement) => measurement.attach(data)?,
                    None => data,
                };
                // An engine's copy would take the memory that the file saves.
                let data = if self.in_place { data.kept_in_place() } else { data };
                Ok(Checked::Host(match self.weights {
                    Some(weights) => data.with_weights(weights)?,
                    None => data,
                }))
            }
            At::Device(rows) => Ok(Checked::Device(there(opened, rows, self.weights)?)),
        }
    }
}

/// Rows on the GPU of an engine. The caller must keep the owner of their memory alive while they are used.
///
/// # Errors
/// [`Error::Device`] and [`Error::Option`] if they are not on the engine's GPU.
pub(crate) fn there(opened: &Opened, rows: DeviceRows, weights: Option<Vec<f64>>) -> Result<DeviceData, Error> {
    // SAFETY: address and shape come from the library that owns the array, and `Rows::owner` keeps the array alive
    // until the rows are dropped, as for rows on the host. A program that writes to the array meanwhile gets a wrong
    // result, also as on the host.
    unsafe { cuda(opened)?.device_data(rows, weights) }
}

/// Checked rows in host or device memory.
pub(crate) enum Checked {
    Host(Dataset),
    Device(DeviceData),
}

impl Checked {
    /// Whether the rows are on a GPU.
    pub(crate) const fn is_on_gpu(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    pub(crate) const fn data(&self) -> Data<'_> {
        match self {
            Self::Host(data) => Data::Host(data),
            Self::Device(data) => Data::Device(data),
        }
    }
}

/// A view of the array's memory. The caller must keep the array alive while the view is used.
fn borrowed<T: Element>(array: &Bound<'_, PyArray2<T>>) -> PyResult<ArrayView2<'static, T>> {
    if !array.is_contiguous() && array.strides().iter().any(|s| s % size_of::<T>() as isize != 0) {
        return Err(PyTypeError::new_err("rows must be aligned"));
    }
    let view = array.try_readonly()?;
    // SAFETY: the memory lives as long as the array, which `Rows::owner` keeps alive; `supervise` drops the owner only
    // after the rows are gone. NumPy frees or moves an array's memory only with its last reference (`resize` fails
    // while there are others). A Python thread that writes to the array during a fit is a data race, as with every
    // extension module that releases the GIL: the fit is then wrong, but every bit pattern is a valid float.
    Ok(unsafe { view.as_array().raw_view().deref_into_view() })
}
