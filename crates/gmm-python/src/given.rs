//! Mixtures given as arrays of weights, means and covariances: one mixture, or a batch along the first axis.

use gmm_model::{CovarianceType, Covariances, FactorLoadings, Mixture, ModelError};
use ndarray::{ArrayD, ArrayViewD, Axis, Dimension, Ix1, Ix2, Ix3};
use numpy::PyReadonlyArrayDyn;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::options::word;

/// `(loadings, uniquenesses)` of a mixture of factor analysers, float64, unchecked.
pub(crate) struct Factors {
    loadings: ArrayD<f64>,
    uniquenesses: ArrayD<f64>,
}

impl<'py> FromPyObject<'_, 'py> for Factors {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Array<'py> = PyReadonlyArrayDyn<'py, f64>;
        let (loadings, uniquenesses) = from.extract::<(Array<'py>, Array<'py>)>()?;
        Ok(Self { loadings: owned(&loadings), uniquenesses: owned(&uniquenesses) })
    }
}

impl Factors {
    /// The mixture with weights and means of `m`, and covariances of these factors.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::of_loadings`].
    pub(crate) fn of(&self, m: &Mixture) -> Result<Mixture, ModelError> {
        let Self { loadings, uniquenesses } = self;
        let loadings = FactorLoadings {
            loadings: shaped::<Ix3>("loadings", loadings.clone())?,
            uniquenesses: shaped::<Ix2>("uniquenesses", uniquenesses.clone())?,
        };
        Mixture::of_loadings(m.weights().to_owned(), m.means().to_owned(), loadings)
    }
}

/// `(covariance_type, weights, means, covariances)`, float64, unchecked; perhaps with [`Factors`].
pub(crate) struct Given {
    pub(crate) kind: CovarianceType,
    weights: ArrayD<f64>,
    means: ArrayD<f64>,
    covariances: ArrayD<f64>,
    factors: Option<Factors>,
}

impl<'py> FromPyObject<'_, 'py> for Given {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Array<'py> = PyReadonlyArrayDyn<'py, f64>;
        let from = from.cast::<PyTuple>()?;
        let (kind, weights, means, covariances): (Bound<'py, PyAny>, Array<'py>, Array<'py>, Array<'py>) =
            from.get_slice(0, 4).extract()?;
        let factors = (from.len() > 4).then(|| from.get_slice(4, from.len()).extract()).transpose()?;
        Ok(Self {
            kind: word(&kind)?,
            weights: owned(&weights),
            means: owned(&means),
            covariances: owned(&covariances),
            factors,
        })
    }
}

impl Given {
    /// The number of components, from the shape of the means.
    pub(crate) fn n_components(&self) -> usize {
        self.means.shape().first().copied().unwrap_or(0)
    }

    /// The checked mixture.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::new`].
    pub(crate) fn mixture(&self) -> Result<Mixture, ModelError> {
        let plain = mixture(self.kind, self.weights.view(), self.means.view(), self.covariances.view())?;
        match &self.factors {
            Some(factors) => factors.of(&plain),
            None => Ok(plain),
        }
    }
}

/// As [`Given`], with an additional leading axis of the same length in each array.
pub(crate) struct GivenSets(Given);

impl<'py> FromPyObject<'_, 'py> for GivenSets {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let sets = Self(from.extract()?);
        let len = sets.len();
        for (what, array) in [("means", &sets.0.means), ("covariances", &sets.0.covariances)] {
            if array.shape().first() != Some(&len) {
                let mut expected = array.shape().to_vec();
                expected.first_mut().into_iter().for_each(|first| *first = len);
                let error = ModelError::Shape { what, found: array.shape().to_vec(), expected };
                return Err(crate::errors::raise(from.py(), error));
            }
        }
        Ok(sets)
    }
}

impl GivenSets {
    /// The number of mixtures, from the shape of the weights.
    pub(crate) fn len(&self) -> usize {
        self.0.weights.shape().first().copied().unwrap_or(0)
    }

    pub(crate) fn n_components(&self) -> usize {
        self.0.means.shape().get(1).copied().unwrap_or(0)
    }

    /// The checked mixture at an index.
    ///
    /// # Errors
    /// [`ModelError`], as for [`Mixture::new`].
    pub(crate) fn mixture(&self, index: usize) -> Result<Mixture, ModelError> {
        let Given { kind, weights, means, covariances, .. } = &self.0;
        let [weights, means, covariances] = [weights, means, covariances].map(|a| a.index_axis(Axis(0), index));
        mixture(*kind, weights, means, covariances)
    }
}

/// A copy in row-major order.
pub(crate) fn owned(array: &PyReadonlyArrayDyn<'_, f64>) -> ArrayD<f64> {
    let array = array.as_array();
    // Not `to_owned`, which keeps the strides: those of empty NumPy arrays are invalid in ndarray.
    ArrayD::from_shape_vec(array.shape(), array.iter().copied().collect()).expect("as many values as the shape says")
}

/// The checked mixture of these arrays.
///
/// # Errors
/// [`ModelError`], as for [`Mixture::new`].
pub(crate) fn mixture(
    kind: CovarianceType,
    weights: ArrayViewD<'_, f64>,
    means: ArrayViewD<'_, f64>,
    all: ArrayViewD<'_, f64>,
) -> Result<Mixture, ModelError> {
    let weights = shaped::<Ix1>("weights", weights.to_owned())?;
    let means = shaped::<Ix2>("means", means.to_owned())?;
    Mixture::new(weights, means, covariances(kind, all.to_owned())?)
}

pub(crate) fn covariances(kind: CovarianceType, all: ArrayD<f64>) -> Result<Covariances, ModelError> {
    Ok(match kind {
        CovarianceType::Full => Covariances::Full(shaped::<Ix3>("covariances", all)?),
        CovarianceType::Tied => Covariances::Tied(shaped::<Ix2>("covariances", all)?),
        CovarianceType::Diag => Covariances::Diag(shaped::<Ix2>("covariances", all)?),
        CovarianceType::Spherical => Covariances::Spherical(shaped::<Ix1>("covariances", all)?),
    })
}

pub(crate) fn shaped<D: Dimension>(
    what: &'static str,
    array: ArrayD<f64>,
) -> Result<ndarray::Array<f64, D>, ModelError> {
    let found = array.shape().to_vec();
    // Only the number of axes is checked here; `Mixture::new` checks the lengths.
    let axes = D::NDIM.expect("a fixed number of axes");
    let expected = (0..axes).map(|axis| found.get(axis).copied().unwrap_or(1)).collect();
    array.into_dimensionality().map_err(|_| ModelError::Shape { what, found, expected })
}
