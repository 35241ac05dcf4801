//! Mixtures from and to scikit-learn's arrays, factors of the precisions among them.

use gmm_model::{Cholesky, CovarianceType, Covariances, Factors, Mixture, ModelError};
use ndarray::{Array1, Array2, Array3, ArrayBase, ArrayD, ArrayView2, Axis, Data, Dimension, Ix1, Ix2, Ix3};
use numpy::{IntoPyArray, PyArray, PyArrayDyn, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::{raise, with_class};
use crate::fit;
use crate::given::{Given, covariances, owned, shaped};
use crate::options::{Kind, word};

/// What an estimator's predictions rest on: `(covariance_type, weights_, means_, precisions_cholesky_)`, float64.
pub(crate) struct Parameters {
    kind: CovarianceType,
    weights: ArrayD<f64>,
    means: ArrayD<f64>,
    /// `U` of each component, in the kind's shape, with `U Uᵀ` its precision.
    factors: ArrayD<f64>,
}

impl<'py> FromPyObject<'_, 'py> for Parameters {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Array<'py> = PyReadonlyArrayDyn<'py, f64>;
        let (kind, weights, means, factors): (Bound<'py, PyAny>, Array<'py>, Array<'py>, Array<'py>) =
            from.extract()?;
        Ok(Self { kind: word(&kind)?, weights: owned(&weights), means: owned(&means), factors: owned(&factors) })
    }
}

impl Parameters {
    /// How many components the means say there are.
    pub(crate) fn n_components(&self) -> usize {
        self.means.shape().first().copied().unwrap_or(0)
    }

    /// The checked mixture. Cost: `k*d³` for full.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::new`].
    pub(crate) fn mixture(&self) -> Result<Mixture, ModelError> {
        let (weights, means) = (self.weights.clone(), self.means.clone());
        let means = shaped::<Ix2>("means_", means)?;
        let (k, d) = means.dim();
        let covariances = match self.kind {
            CovarianceType::Full => {
                let factors = shaped::<Ix3>("precisions_cholesky_", self.factors.clone())?;
                check_shape("precisions_cholesky_", factors.shape(), &[k, d, d])?;
                let mut all = Array3::zeros((k, d, d));
                for (c, factor) in factors.outer_iter().enumerate() {
                    all.index_axis_mut(Axis(0), c).assign(&covariance_of_factor(factor, c, self.kind)?);
                }
                Covariances::Full(all)
            }
            CovarianceType::Tied => {
                let factor = shaped::<Ix2>("precisions_cholesky_", self.factors.clone())?;
                check_shape("precisions_cholesky_", factor.shape(), &[d, d])?;
                Covariances::Tied(covariance_of_factor(factor.view(), 0, self.kind)?)
            }
            kind => covariances(kind, self.factors.mapv(|u| 1.0 / (u * u)))?,
        };
        Mixture::new(shaped::<Ix1>("weights_", weights)?, means, covariances)
    }
}

fn check_shape(what: &'static str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: found.to_vec(), expected: expected.to_vec() })
}

/// `U` of each component, with `U Uᵀ` its precision: upper triangular, or the reciprocal standard deviations.
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

/// `L⁻ᵀ` of a lower triangular `L`, `(d, d)`: upper triangular. Cost `d³/3` flops.
fn inverse_transposed(lower: ArrayView2<'_, f64>) -> Array2<f64> {
    let d = lower.nrows();
    let mut out = Array2::zeros((d, d));
    // Row j is column j of the inverse, by forward substitution.
    for (j, mut x) in out.outer_iter_mut().enumerate() {
        x[j] = 1.0 / lower[[j, j]];
        for i in j + 1..d {
            let known = lower.row(i).slice(ndarray::s![j..i]).dot(&x.slice(ndarray::s![j..i]));
            x[i] = -known / lower[[i, i]];
        }
    }
    out
}

/// `(U Uᵀ)⁻¹`, `(d, d)` and exactly symmetric.
///
/// `U` is upper triangular after a fit; where users set `precisions_cholesky_` themselves it is often a lower factor,
/// and any other square root of the precision serves scikit-learn as well.
fn covariance_of_factor(u: ArrayView2<'_, f64>, c: usize, kind: CovarianceType) -> Result<Array2<f64>, ModelError> {
    let zero = |below: bool| u.indexed_iter().all(|((i, j), &v)| i == j || (i > j) != below || v == 0.0);
    if let Some(&value) = u.iter().find(|v| !v.is_finite()) {
        return Err(ModelError::NotFinite { what: "precisions_cholesky_", component: c, value });
    }
    if let Some(column) = u.diag().iter().position(|&v| v == 0.0)
        && (zero(true) || zero(false))
    {
        return Err(ModelError::NotPositiveDefinite { component: c, column, pivot: 0.0, kind });
    }
    if zero(true) {
        // Uᵀ is lower triangular and its inverse is L, the factor of the covariance.
        let l = inverse_transposed(u.t()).reversed_axes();
        return Ok(product(l.as_standard_layout().view(), |i, _| 0..i + 1));
    }
    if zero(false) {
        let d = u.nrows();
        return Ok(product(inverse_transposed(u).view(), |_, j| j..d));
    }
    covariance_of_precision(u.dot(&u.t()).view()).map_err(|(column, pivot)| ModelError::NotPositiveDefinite {
        component: c,
        column,
        pivot,
        kind,
    })
}

/// `A Aᵀ`, where entry `(i, j)`, `i <= j`, needs the stated columns alone.
fn product(a: ArrayView2<'_, f64>, needed: impl Fn(usize, usize) -> std::ops::Range<usize>) -> Array2<f64> {
    let d = a.nrows();
    let mut out = Array2::zeros((d, d));
    for i in 0..d {
        for j in i..d {
            let columns = needed(i, j);
            let v = a.row(i).slice(ndarray::s![columns.clone()]).dot(&a.row(j).slice(ndarray::s![columns]));
            out[[i, j]] = v;
            out[[j, i]] = v;
        }
    }
    out
}

/// The inverse of a precision matrix; else column and pivot at which it is not positive definite.
fn covariance_of_precision(precision: ArrayView2<'_, f64>) -> Result<Array2<f64>, (usize, f64)> {
    let d = precision.nrows();
    let factor = Cholesky::new(precision).map_err(|e| (e.column, e.pivot))?;
    let lower = Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor.at(i, j) } else { 0.0 });
    Ok(product(inverse_transposed(lower.view()).view(), |_, j| j..d))
}

/// Covariances of given precisions, both in their kind's shape for `k` components in `d` dimensions.
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

/// Two triangles of a precision may differ by this much of the geometric mean of the two diagonal entries; they often
/// come from an inverse.
const SYMMETRY_TOLERANCE: f64 = 1e-5;

const fn component(kind: CovarianceType, first: usize) -> usize {
    if matches!(kind, CovarianceType::Tied) { 0 } else { first }
}

/// An array of the same shape in NumPy.
pub(crate) fn to_numpy<'py, S: Data<Elem = f64>, D: Dimension>(
    py: Python<'py>,
    array: ArrayBase<S, D>,
) -> Bound<'py, PyArray<f64, D>> {
    array.into_owned().into_pyarray(py)
}

/// Covariances, or factors of precisions, in their kind's shape.
pub(crate) fn array(py: Python<'_>, all: Covariances) -> Bound<'_, PyArrayDyn<f64>> {
    match all {
        Covariances::Full(a) => a.into_dyn(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.into_dyn(),
        Covariances::Spherical(a) => Array1::into_dyn(a),
    }
    .into_pyarray(py)
}

/// A mixture from its moments, with the factors of its precisions.
#[pyfunction]
pub(crate) fn mixture<'py>(py: Python<'py>, given: Given) -> PyResult<Bound<'py, PyDict>> {
    let mixture = given.mixture().map_err(|error| raise(py, error))?;
    fit::arrays(py, &mixture)
}
