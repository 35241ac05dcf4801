//! The map between mixtures and points of ℝᵐ.

use gmm_host::{Error, Unconstrained as Map};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::raise;
use crate::fit::moments;
use crate::given::Given;
use crate::options::Kind;

/// The map for `k` components in `d` dimensions. See `gmm_rs.Unconstrained`, which converts arguments.
#[pyclass(frozen)]
pub(crate) struct Unconstrained {
    pub(crate) map: Map,
    pub(crate) k: usize,
}

#[pymethods]
impl Unconstrained {
    #[new]
    fn new(py: Python<'_>, kind: Kind, k: usize, d: usize) -> PyResult<Self> {
        let map = Map::new(kind.0, k, d).map_err(|error| raise(py, error))?;
        Ok(Self { map, k })
    }

    /// Length `m` of a point.
    #[getter]
    fn n_dim(&self) -> usize {
        self.map.dim()
    }

    /// Converts a mixture to a point, `(m,)`.
    fn point<'py>(&self, py: Python<'py>, parameters: Given) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let found = py.detach(|| self.map.from_mixture(&parameters.mixture()?));
        Ok(found.map_err(|error| raise(py, error))?.into_pyarray(py))
    }

    /// Converts a point, `(m,)`, to weights, means and covariances.
    fn parameters<'py>(&self, py: Python<'py>, point: PyReadonlyArray1<'py, f64>) -> PyResult<Bound<'py, PyDict>> {
        let point = point.as_array().to_vec();
        let mixture = py.detach(|| self.map.to_mixture(&point)).map_err(|error| raise(py, error))?;
        moments(py, &mixture)
    }

    /// ln |det J| at each point, `(B,)` from `(B, m)`.
    fn log_jacobian<'py>(
        &self,
        py: Python<'py>,
        points: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let points = points.as_array();
        let of_row = |point: ndarray::ArrayView1<'_, f64>| self.map.log_jacobian(&point.to_vec());
        let found: Result<Vec<f64>, Error> = points.outer_iter().map(of_row).collect();
        Ok(found.map_err(|error| raise(py, error))?.into_pyarray(py))
    }

    /// The gradient of ln |det J| at a point, `(m,)`.
    fn log_jacobian_gradient<'py>(
        &self,
        py: Python<'py>,
        point: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let mut gradient = vec![0.0; self.map.dim()];
        let added = self.map.add_log_jacobian_gradient(&point.as_array().to_vec(), &mut gradient);
        added.map_err(|error| raise(py, error))?;
        Ok(gradient.into_pyarray(py))
    }
}
