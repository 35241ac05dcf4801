//! Cached log densities of each component, for updates of one component at a time.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::{ComponentCache, ComponentChange, Error};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::engines;
use crate::fit::moments;
use crate::given::Given;
use crate::likelihood::{Held, Loadable};

/// A cached likelihood at one mixture, which can be updated. `gmm_rs.Components` converts the arguments.
#[pyclass(frozen)]
pub(crate) struct Components {
    likelihood: Py<Held>,
    cache: Arc<Mutex<Cached>>,
    k: usize,
}

/// A cache and the id of the process that created it: the cache belongs to the rows loaded in that process.
struct Cached {
    process: u32,
    cache: ComponentCache,
}

impl Cached {
    /// The cache, rebuilt in a forked process.
    fn get(&mut self, rows: &mut Loadable) -> Result<&mut ComponentCache, Error> {
        let process = std::process::id();
        if self.process != process {
            self.cache = ComponentCache::new(rows.get()?, self.cache.mixture().clone())?;
            self.process = process;
        }
        Ok(&mut self.cache)
    }
}

impl Components {
    /// Runs `work`, which evaluates `densities` densities per row, on the threads of this process.
    fn run<R: Send + 'static>(
        &self,
        py: Python<'_>,
        densities: usize,
        work: impl FnOnce(&mut ComponentCache, &mut Loadable) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let cache = self.cache.clone();
        self.likelihood.get().run(py, densities, move |rows, _| {
            let pool = engines::pool(rows.threads())?;
            pool.install(|| {
                let mut cached = cache.lock().unwrap_or_else(PoisonError::into_inner);
                let cache = cached.get(rows)?;
                work(cache, rows)
            })
        })
    }
}

#[pymethods]
impl Components {
    #[new]
    fn new(py: Python<'_>, likelihood: Py<Held>, parameters: Given) -> PyResult<Self> {
        let k = parameters.n_components();
        let cache = likelihood.get().run(py, k, move |rows, _| {
            let pool = engines::pool(rows.threads())?;
            pool.install(|| ComponentCache::new(rows.get()?, parameters.mixture()?))
        })?;
        let cached = Cached { process: std::process::id(), cache };
        Ok(Self { likelihood, cache: Arc::new(Mutex::new(cached)), k })
    }

    /// Σ w ln p(x) at the mixture.
    fn value(&self, py: Python<'_>) -> f64 {
        py.detach(|| self.cache.lock().unwrap_or_else(PoisonError::into_inner).cache.value())
    }

    /// Weights, means and covariances.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mixture = py.detach(|| self.cache.lock().unwrap_or_else(PoisonError::into_inner).cache.mixture().clone());
        moments(py, &mixture)
    }

    /// Log density of each row, `(n,)`.
    fn log_densities<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let n = self.likelihood.get().dim().0;
        let found = self.run(py, self.k, move |cache, rows| {
            let mut out = vec![0.0; n];
            cache.per_row(rows.get()?, &mut out)?;
            Ok(out)
        })?;
        Ok(found.into_pyarray(py))
    }

    /// Changes to another mixture of the same covariance type and shape, and returns its value.
    fn update(&self, py: Python<'_>, parameters: Given) -> PyResult<f64> {
        self.run(py, self.k, move |cache, rows| cache.update(rows.get()?, parameters.mixture()?))
    }

    /// Changes component `c`, and returns the new value.
    #[pyo3(signature = (c, weights=None, mean=None, covariance=None))]
    fn update_component<'py>(
        &self,
        py: Python<'py>,
        c: usize,
        weights: Option<PyReadonlyArray1<'py, f64>>,
        mean: Option<PyReadonlyArray1<'py, f64>>,
        covariance: Option<PyReadonlyArrayDyn<'py, f64>>,
    ) -> PyResult<f64> {
        let [weights, mean] = [weights, mean].map(|array| array.map(|array| array.as_array().to_vec()));
        let covariance: Option<Vec<f64>> = covariance.map(|array| array.as_array().iter().copied().collect());
        self.run(py, self.k, move |cache, rows| {
            let (weights, mean, covariance) = (weights.as_deref(), mean.as_deref(), covariance.as_deref());
            cache.update_component(rows.get()?, c, ComponentChange { weights, mean, covariance })
        })
    }

    /// Changes the component weights, and returns the new value.
    fn update_weights(&self, py: Python<'_>, weights: PyReadonlyArray1<'_, f64>) -> PyResult<f64> {
        let weights = weights.as_array().to_vec();
        self.run(py, self.k, move |cache, rows| cache.update_weights(rows.get()?, &weights))
    }

    /// Undoes the last update; returns whether there was one.
    fn undo(&self, py: Python<'_>) -> bool {
        py.detach(|| self.cache.lock().unwrap_or_else(PoisonError::into_inner).cache.undo())
    }
}
