//! The likelihood of rows stored on an engine, as a function of the parameters.

use std::sync::{Arc, Mutex, PoisonError};

use gmm_host::{Error, Gradient, Likelihood, Work};
use gmm_model::{CovarianceType, Mixture, ModelError, Precision, packed_index, packed_len};
use ndarray::{Array2, Array3};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayDyn, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::evaluate::SHORT;
use crate::given::{Given, GivenSets};
use crate::options::Execution;
use crate::parameters::to_numpy;
use crate::per_process::PerProcess;
use crate::rows::{Checked, Rows};
use crate::supervise::supervise;
use crate::unconstrained::Unconstrained;

/// Number of rows × components × columns between two checks of the stop flag: far less than one second of work.
const LONG: usize = 1 << 31;

/// Smallest number of mixtures per batch, so that an engine can evaluate many in one pass over the rows.
const TOGETHER: usize = 64;

/// The value, and the gradients with respect to log-weights, means and scales.
type WithGradient<'py> = (f64, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray2<f64>>, Bound<'py, PyArrayDyn<f64>>);

/// Rows loaded once for many evaluations. `gmm_rs.Likelihood` converts the arguments.
#[pyclass(frozen, name = "Likelihood")]
pub(crate) struct Held {
    rows: Arc<Mutex<Loadable>>,
    /// The Python object that owns the rows' memory.
    owner: Py<PyAny>,
    dim: (usize, usize),
}

/// The work for which `auto` chooses the engine of a likelihood or a sampler: it is evaluated many times, with a number of
/// components that is not known yet.
pub(crate) fn evaluations(dim: (usize, usize), precision: Precision) -> Work {
    Work::passes(dim, precision, CovarianceType::Diag, 8, 20_000.0)
}

/// Rows on an engine, and what is needed to load them again: a forked process has no engine yet.
pub(crate) struct Loadable {
    rows: Checked,
    place: Execution,
    loaded: PerProcess<Likelihood>,
}

impl Loadable {
    /// The likelihood, loaded by this process.
    pub(crate) fn get(&mut self) -> Result<&mut Likelihood, Error> {
        let Self { rows, place, loaded } = self;
        loaded.get(|| {
            let precision = place.precision.unwrap_or(rows.data().precision());
            let work = evaluations(rows.data().dim(), rows.data().precision());
            Likelihood::new(engines::open_for(place, &work, rows.is_on_gpu())?.engine.as_ref(), rows.data(), precision)
        })
    }

    /// Threads of the engine, 0 for all cores.
    pub(crate) fn threads(&self) -> usize {
        self.place.threads
    }
}

impl Held {
    pub(crate) const fn dim(&self) -> (usize, usize) {
        self.dim
    }

    /// Runs `work`, which evaluates `densities` densities per row, without the GIL; long work is supervised, so that
    /// signals are handled.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        py: Python<'_>,
        densities: usize,
        work: impl FnOnce(&mut Loadable, &dyn Fn() -> bool) -> Result<R, Error> + Send + 'static,
    ) -> PyResult<R> {
        let (n, d) = self.dim;
        let rows = self.rows.clone();
        // A poisoned lock can be ignored: rows are never left half loaded.
        let locked =
            move |is_cut: &dyn Fn() -> bool| work(&mut rows.lock().unwrap_or_else(PoisonError::into_inner), is_cut);
        let done = if n.saturating_mul(d).saturating_mul(densities) < SHORT {
            py.detach(|| locked(&|| false))
        } else {
            supervise(py, self.owner.clone_ref(py), None, move |line| locked(&|| line.is_cut()))?
        };
        done.map_err(|error| raise(py, error))
    }

    /// Evaluates mixtures in batches, and checks the stop flag between batches.
    fn values(&self, py: Python<'_>, mixtures: Made, count: usize, k: usize) -> PyResult<Vec<f64>> {
        let (n, d) = self.dim;
        let most = TOGETHER.max(LONG / n.saturating_mul(d).saturating_mul(k).max(1));
        self.run(py, count.saturating_mul(k), move |rows, is_cut| {
            let likelihood = rows.get()?;
            let mut values = Vec::with_capacity(count);
            for first in (0..count).step_by(most) {
                if is_cut() {
                    return Err(Error::Interrupted { iterations: 0 });
                }
                let (mut there, mut is_there) = (Vec::new(), Vec::new());
                for index in first..count.min(first + most) {
                    let mixture = mixtures(index)?;
                    is_there.push(mixture.is_some());
                    there.extend(mixture);
                }
                let mut found = likelihood.batch(&there)?.into_iter();
                let mut value = |is_there| if is_there { found.next() } else { Some(f64::NEG_INFINITY) };
                values.extend(is_there.into_iter().map(|one| value(one).expect("a value for each mixture")));
            }
            Ok(values)
        })
    }
}

/// Returns the mixture at an index; `None` if it has no density anywhere (its value is −∞).
type Made = Box<dyn Fn(usize) -> Result<Option<Mixture>, Error> + Send>;

#[pymethods]
impl Held {
    #[new]
    #[pyo3(signature = (rows, place, weights=None))]
    fn new(
        py: Python<'_>,
        rows: &Bound<'_, PyAny>,
        place: Execution,
        weights: Option<PyReadonlyArray1<'_, f64>>,
    ) -> PyResult<Self> {
        let rows = Rows::new(rows, weights)?;
        let (dim, given, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
        let (unchecked, owner) = rows.split();
        let loaded = supervise(py, owner.clone_ref(py), None, move |_| {
            let rows = unchecked.check(engines::open_for(&place, &evaluations(dim, given), is_on_gpu)?.as_ref())?;
            let mut rows = Loadable { rows, place, loaded: PerProcess::empty() };
            rows.get()?;
            Ok::<_, Error>(rows)
        })?;
        let rows = loaded.map_err(|error| raise(py, error))?;
        Ok(Self { rows: Arc::new(Mutex::new(rows)), owner, dim })
    }

    /// Σ w ln p(x).
    fn value(&self, py: Python<'_>, parameters: Given) -> PyResult<f64> {
        let k = parameters.n_components();
        self.run(py, k, move |rows, _| rows.get()?.value(&parameters.mixture()?))
    }

    /// The value of each mixture, `(B,)`.
    fn batch<'py>(&self, py: Python<'py>, parameters: GivenSets) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (count, k) = (parameters.len(), parameters.n_components());
        let made: Made = Box::new(move |index| Ok(Some(parameters.mixture(index)?)));
        Ok(self.values(py, made, count, k)?.into_pyarray(py))
    }

    /// Log density of each row, `(n,)`.
    fn log_densities<'py>(&self, py: Python<'py>, parameters: Given) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (n, k) = (self.dim.0, parameters.n_components());
        let found = self.run(py, k, move |rows, _| {
            let mixture = parameters.mixture()?;
            let mut out = vec![0.0; n];
            rows.get()?.per_row(&mixture, &mut out)?;
            Ok(out)
        })?;
        Ok(found.into_pyarray(py))
    }

    /// The value and its gradient with respect to log-weights, means and scales.
    fn value_and_gradient<'py>(&self, py: Python<'py>, parameters: Given) -> PyResult<WithGradient<'py>> {
        let (kind, k, d) = (parameters.kind, parameters.n_components(), self.dim.1);
        let (value, gradient) =
            self.run(py, k, move |rows, _| rows.get()?.value_and_gradient(&parameters.mixture()?))?;
        let Gradient { log_weights, means, scales } = gradient;
        let scales = unpacked(py, kind, (k, d), scales);
        Ok((value, to_numpy(py, log_weights), to_numpy(py, means), scales))
    }

    /// The value at each point of the unconstrained space, `(B,)` from `(B, m)`; −∞ if a scale is too large or too
    /// small for a covariance in f64.
    fn at_points<'py>(
        &self,
        py: Python<'py>,
        map: &Unconstrained,
        points: PyReadonlyArray2<'py, f64>,
    ) -> PyResult<Bound<'py, PyArray1<f64>>> {
        let (map, k, points) = (map.map, map.k, points.as_array().as_standard_layout().into_owned());
        let count = points.nrows();
        let made: Made = Box::new(move |index| match map.to_mixture(points.row(index).as_slice().expect("standard")) {
            Ok(mixture) => Ok(Some(mixture)),
            Err(Error::Model(ModelError::NotFinite { .. } | ModelError::NotPositiveDefinite { .. })) => Ok(None),
            Err(error) => Err(error),
        });
        Ok(self.values(py, made, count, k)?.into_pyarray(py))
    }

    /// The value at a point of the unconstrained space, `(m,)`, and its gradient.
    fn at_point_with_gradient<'py>(
        &self,
        py: Python<'py>,
        map: &Unconstrained,
        point: PyReadonlyArray1<'py, f64>,
    ) -> PyResult<(f64, Bound<'py, PyArray1<f64>>)> {
        let (map, k, point) = (map.map, map.k, point.as_array().to_vec());
        let (value, gradient) = self.run(py, k, move |rows, _| {
            let mut gradient = vec![0.0; map.dim()];
            let value = rows.get()?.unconstrained(&map, &point, &mut gradient)?;
            Ok((value, gradient))
        })?;
        Ok((value, gradient.into_pyarray(py)))
    }
}

/// The scales of a gradient as lower triangles, `(k, d, d)` or `(d, d)`; for diag and spherical in their own shape.
fn unpacked(
    py: Python<'_>,
    kind: CovarianceType,
    (k, d): (usize, usize),
    packed: Vec<f64>,
) -> Bound<'_, PyArrayDyn<f64>> {
    let at = |c: usize, i: usize, j: usize| if j <= i { packed[c * packed_len(d) + packed_index(i, j)] } else { 0.0 };
    match kind {
        CovarianceType::Full => Array3::from_shape_fn((k, d, d), |(c, i, j)| at(c, i, j)).into_dyn(),
        CovarianceType::Tied => Array2::from_shape_fn((d, d), |(i, j)| at(0, i, j)).into_dyn(),
        CovarianceType::Diag => Array2::from_shape_vec((k, d), packed).expect("k*d scales").into_dyn(),
        CovarianceType::Spherical => ndarray::Array1::from(packed).into_dyn(),
    }
    .into_pyarray(py)
}
