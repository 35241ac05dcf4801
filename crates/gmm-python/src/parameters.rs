//! Conversion of mixtures from and to scikit-learn's arrays, including the factors of the precisions.

use gmm_model::{
    CovarianceType, Covariances, Factors, Mixture, ModelError, Numbers, Precision, PrecisionMixture,
    covariance_of_precision, inverse_transposed,
};
use ndarray::{Array1, Array3, ArrayBase, ArrayD, ArrayView2, Axis, Data, Dimension, Ix1, Ix2, Ix3};
use numpy::{Element, IntoPyArray, PyArray, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::Borrowed as Borrow;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{raise, with_class};
use crate::fit;
use crate::given::{Given, shaped};
use crate::options::{Kind, word};

/// The attributes that predictions use, `(covariance_type, weights_, means_, precisions_cholesky_)`; arrays are float32
/// or float64 and row-major. The factors are not copied.
pub(crate) struct Parameters {
    borrowed: Borrowed,
    /// The array that owns the factors' memory.
    owner: Py<PyAny>,
}

/// The parameters without the owner of the factors' memory, which must outlive them.
pub(crate) struct Borrowed {
    kind: CovarianceType,
    weights: ArrayD<f64>,
    means: ArrayD<f64>,
    means_precision: Precision,
    /// `U` of each component, with `U Uᵀ` its precision, in the shape of the covariance type.
    factors: Numbers<'static>,
    shape: Vec<usize>,
}

impl<'py> FromPyObject<'_, 'py> for Parameters {
    type Error = PyErr;

    fn extract(from: Borrow<'_, 'py, PyAny>) -> PyResult<Self> {
        type Any<'py> = Bound<'py, PyAny>;
        let (kind, weights, means, factors): (Any<'py>, Any<'py>, Any<'py>, Any<'py>) = from.extract()?;
        let (weights, _) = copied(&weights)?;
        let (means, means_precision) = copied(&means)?;
        let (numbers, shape) = numbers(&factors)?;
        let borrowed = Borrowed { kind: word(&kind)?, weights, means, means_precision, factors: numbers, shape };
        Ok(Self { borrowed, owner: factors.unbind() })
    }
}

/// A view of the array's memory, and its shape. The caller must keep the array alive while the view is used.
fn numbers(array: &Bound<'_, PyAny>) -> PyResult<(Numbers<'static>, Vec<usize>)> {
    /// # Safety
    /// The array must outlive the returned slice.
    unsafe fn of<T: Element>(array: &Bound<'_, PyArrayDyn<T>>) -> PyResult<&'static [T]> {
        let view = array.try_readonly()?;
        let slice = view.as_slice()?;
        // SAFETY: `slice` views the array's memory, which outlives the returned slice: see `# Safety`.
        Ok(unsafe { std::slice::from_raw_parts(slice.as_ptr(), slice.len()) })
    }
    // SAFETY: the memory lives as long as the array. `copied` drops the view before the array; `Parameters::owner`
    // keeps the array of the factors alive. What `rows::borrowed` says about writes by other threads also applies here.
    unsafe {
        if let Ok(array) = array.cast::<PyArrayDyn<f64>>() {
            return Ok((Numbers::F64(of(array)?), array.shape().to_vec()));
        }
        if let Ok(array) = array.cast::<PyArrayDyn<f32>>() {
            return Ok((Numbers::F32(of(array)?), array.shape().to_vec()));
        }
    }
    Err(PyTypeError::new_err("parameters must be arrays of float32 or float64 in native byte order"))
}

/// A copy in float64, and the precision of the original.
fn copied(array: &Bound<'_, PyAny>) -> PyResult<(ArrayD<f64>, Precision)> {
    let (numbers, shape) = numbers(array)?;
    let precision = match numbers {
        Numbers::F32(_) => Precision::F32,
        Numbers::F64(_) => Precision::F64,
    };
    Ok((ArrayD::from_shape_vec(shape, numbers.to_f64()).expect("as many values as the shape says"), precision))
}

impl Parameters {
    /// The number of components, from the shape of the means.
    pub(crate) fn n_components(&self) -> usize {
        self.borrowed.means.shape().first().copied().unwrap_or(0)
    }

    /// The checked mixture with covariances. Cost: `k*d³` for full.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::new`].
    pub(crate) fn mixture(self) -> Result<Mixture, ModelError> {
        self.borrowed.precisions()?.to_mixture()
    }

    /// The parameters and the owner of their memory, which must outlive them.
    pub(crate) fn split(self) -> (Borrowed, Py<PyAny>) {
        (self.borrowed, self.owner)
    }
}

impl Borrowed {
    /// The checked mixture.
    ///
    /// # Errors
    /// [`ModelError`], as for [`PrecisionMixture::new`].
    pub(crate) fn precisions(self) -> Result<PrecisionMixture<'static>, ModelError> {
        let means = shaped::<Ix2>("means_", self.means)?;
        let weights = shaped::<Ix1>("weights_", self.weights)?;
        PrecisionMixture::new(self.kind, weights, (means, self.means_precision), self.factors, &self.shape)
    }
}

/// `U` of each component, with `U Uᵀ` its precision: upper triangular, or reciprocals of the standard deviations.
pub(crate) fn precision_factors(mixture: &Mixture) -> Covariances {
    let (k, d) = mixture.means().dim();
    let dense = |c| inverse_transposed(mixture.factors().dense(c, d).view());
    match mixture.factors() {
        Factors::Full(_) => {
            let mut all = Array3::zeros((k, d, d));
            (0..k).for_each(|c| all.index_axis_mut(Axis(0), c).assign(&dense(c)));
            Covariances::Full(all)
        }
        Factors::Tied(_) => Covariances::Tied(dense(0)),
        Factors::Diag(deviations) => Covariances::Diag(deviations.mapv(f64::recip)),
        Factors::Spherical(deviations) => Covariances::Spherical(deviations.mapv(f64::recip)),
    }
}

/// Covariances of given precisions, both in the shape of the covariance type for `k` components and `d` columns.
#[pyfunction]
pub(crate) fn covariances_of_precisions<'py>(
    py: Python<'py>,
    kind: Kind,
    precisions: PyReadonlyArrayDyn<'py, f64>,
    k: usize,
    d: usize,
) -> PyResult<Bound<'py, PyArrayDyn<f64>>> {
    let refuse = |message: String| with_class(py, "ParameterError", message);
    let given = precisions.as_array();
    let expected: &[usize] = match kind.0 {
        CovarianceType::Full => &[k, d, d],
        CovarianceType::Tied => &[d, d],
        CovarianceType::Diag => &[k, d],
        CovarianceType::Spherical => &[k],
    };
    if given.shape() != expected {
        let message = format!("precisions_init has shape {:?}, expected {expected:?} ({})", given.shape(), kind.0);
        return Err(refuse(message));
    }
    if let Some((at, value)) = given.indexed_iter().find(|(_, v)| !v.is_finite()) {
        let message = format!("precisions_init of component {} is not finite ({value})", component(kind.0, at[0]));
        return Err(refuse(message));
    }
    let matrix = |c: usize, a: ArrayView2<'_, f64>| {
        let asymmetric = a.indexed_iter().find(|((i, j), v)| {
            let scale = (a[[*i, *i]] * a[[*j, *j]]).abs().sqrt();
            (*v - a[[*j, *i]]).abs() > SYMMETRY_TOLERANCE * scale
        });
        if let Some(((i, j), _)) = asymmetric {
            let message =
                format!("precisions_init of component {c} is not symmetric: entries ({i}, {j}) and ({j}, {i})");
            return Err(refuse(message + " differ"));
        }
        covariance_of_precision(a).map_err(|(column, pivot)| {
            let what = format!("precisions_init of component {c} is not positive definite");
            refuse(format!("{what}: pivot {pivot} of column {column}"))
        })
    };
    let found = match kind.0 {
        CovarianceType::Full => {
            let given = given.into_dimensionality::<Ix3>().expect("the shape was checked");
            let mut all = Array3::zeros((k, d, d));
            for (c, a) in given.outer_iter().enumerate() {
                all.index_axis_mut(Axis(0), c).assign(&matrix(c, a)?);
            }
            all.into_dyn()
        }
        CovarianceType::Tied => {
            matrix(0, given.into_dimensionality::<Ix2>().expect("the shape was checked"))?.into_dyn()
        }
        CovarianceType::Diag | CovarianceType::Spherical => {
            if let Some((at, value)) = given.indexed_iter().find(|(_, v)| **v <= 0.0) {
                return Err(refuse(format!("precisions_init of component {} is not positive ({value})", at[0])));
            }
            given.mapv(f64::recip)
        }
    };
    Ok(found.into_pyarray(py))
}

/// Largest difference between two symmetric entries of a precision, relative to the geometric mean of the two diagonal
/// entries. Precisions are often computed as inverses, which are not exactly symmetric.
const SYMMETRY_TOLERANCE: f64 = 1e-5;

const fn component(kind: CovarianceType, first: usize) -> usize {
    if matches!(kind, CovarianceType::Tied) { 0 } else { first }
}

/// Converts an array to a NumPy array of the same shape.
pub(crate) fn to_numpy<'py, S: Data<Elem = f64>, D: Dimension>(
    py: Python<'py>,
    array: ArrayBase<S, D>,
) -> Bound<'py, PyArray<f64, D>> {
    array.into_owned().into_pyarray(py)
}

/// Covariances, or factors of precisions, in the shape of the covariance type.
pub(crate) fn array(py: Python<'_>, all: Covariances) -> Bound<'_, PyArrayDyn<f64>> {
    match all {
        Covariances::Full(a) => a.into_dyn(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.into_dyn(),
        Covariances::Spherical(a) => Array1::into_dyn(a),
    }
    .into_pyarray(py)
}

/// A mixture from weights, means and covariances, with the factors of its precisions.
#[pyfunction]
pub(crate) fn mixture<'py>(py: Python<'py>, given: Given) -> PyResult<Bound<'py, PyDict>> {
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    fit::arrays(py, &mixture)
}
