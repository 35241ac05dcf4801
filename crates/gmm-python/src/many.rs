//! Many fits in one call: takes rows group by group, returns stacked arrays.

use std::ops::{ControlFlow, Range};

use gmm_host::many::{Groups, fit_many_watched, map_groups};
use gmm_host::{Data, Error, EvaluateOptions, Fit, FitOptions, Work, evaluate};
use gmm_model::{CovarianceType, Covariances, PrecisionMixture};
use ndarray::{Array1, ArrayD};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use rayon::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::evaluate::wider;
use crate::fit::{as_dict, start};
use crate::options::{Execution, Fitting};
use crate::parameters::{Parameters, precision_factors};
use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::supervise;

/// The rows of each group, from where each ends.
fn ranges(ends: &[usize]) -> Vec<Range<usize>> {
    let starts = std::iter::once(0).chain(ends.iter().copied());
    starts.zip(ends.iter().copied()).map(|(start, end)| start..end).collect()
}

/// The fits of [`fit_many`], for the whole result of each.
#[pyclass(frozen, module = "gmm_rs._core")]
pub(crate) struct ManyFits {
    /// `None` for a group that failed.
    fits: Vec<Option<Fit>>,
}

impl Drop for ManyFits {
    /// On another thread: a hundred thousand fits have two million allocations.
    fn drop(&mut self) {
        const MANY: usize = 1000;
        if self.fits.len() >= MANY {
            let fits = std::mem::take(&mut self.fits);
            // If no thread can be started, the closure is dropped here.
            let _ = std::thread::Builder::new().spawn(move || drop(fits));
        }
    }
}

#[pymethods]
impl ManyFits {
    /// The result of one fit, as returned by `fit`; `None` if it failed.
    fn fit<'py>(&self, py: Python<'py>, group: usize) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.fits.get(group).and_then(Clone::clone).map(|fit| as_dict(py, fit)).transpose()
    }
}

/// Fits a mixture to each group of `rows`, `(n, d)` on the host; group `i` ends before row `ends[i]`. `init` is as for
/// `fit`.
///
/// The returned dictionary has arrays whose first axis is the group, NaN where a group failed or has fewer components:
/// `weights`, `means`, `covariances`, `precision_factors`, `n_components`, `converged`, `iterations`, `lower_bound`,
/// `log_likelihood`; and `engine`, `errors`, a list of exceptions or None, and `fits`, [`ManyFits`].
#[pyfunction]
#[pyo3(signature = (rows, ends, options, place, init, weights=None))]
pub(crate) fn fit_many<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    ends: Vec<usize>,
    options: Fitting,
    place: Execution,
    init: &Bound<'py, PyAny>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyDict>> {
    let Fitting { options } = options;
    let init = start(init, options.covariance_type)?;
    let options = FitOptions { init, precision: place.precision, fast: place.fast, ..options };
    let rows = Rows::new(rows, weights)?;
    let (shape, precision) = (rows.dim(), rows.precision());
    let (unchecked, owner) = rows.split();
    let (sent, place) = (options.clone(), place.clone());
    let done = supervise(py, owner, None, move |line| -> Result<_, Error> {
        sent.validate()?;
        let opened = engines::open_for(&place, &Work::fit(shape, precision, &sent), false)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else { unreachable!("rows on the host") };
        let stop = line.stop();
        let engine = stoppable(opened.engine.as_ref(), stop.clone());
        let fits = fit_many_watched(&engine, &Groups::new(data, &ranges(&ends)), &sent, &|_| match stop
            .load(std::sync::atomic::Ordering::Relaxed)
        {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        });
        let stacked = Stacked::new(&fits, &sent, shape.1);
        Ok((fits, stacked, opened.engine.name()))
    })?;
    let (fits, stacked, engine) = done.map_err(|error| raise(py, error))?;
    let out = stacked.into_dict(py)?;
    let mut errors: Vec<Option<PyErr>> = Vec::with_capacity(fits.len());
    let fits = fits.into_iter().map(|fit| {
        let (fit, error) = match fit {
            Ok(fit) => (Some(fit), None),
            Err(error) => (None, Some(raise(py, error))),
        };
        errors.push(error);
        fit
    });
    let fits = fits.collect();
    out.set_item("errors", PyList::new(py, errors.into_iter().map(|error| error.map(|error| error.into_value(py))))?)?;
    out.set_item("fits", ManyFits { fits })?;
    out.set_item("engine", engine)?;
    Ok(out)
}

/// Arrays of many fits; the first axis is the group.
struct Stacked {
    arrays: [(&'static str, ArrayD<f64>); 4],
    n_components: Array1<i64>,
    converged: Array1<bool>,
    iterations: Array1<i64>,
    lower_bound: Array1<f64>,
    log_likelihood: Array1<f64>,
}

impl Stacked {
    fn new(fits: &[Result<Fit, Error>], options: &FitOptions, d: usize) -> Self {
        let (b, k, kind) = (fits.len(), options.n_components, options.covariance_type);
        let of_kind: &[usize] = match kind {
            CovarianceType::Full => &[k, d, d],
            CovarianceType::Tied => &[d, d],
            CovarianceType::Diag => &[k, d],
            CovarianceType::Spherical => &[k],
        };
        let shapes = [&[k][..], &[k, d], of_kind, of_kind];
        let [mut weights, mut means, mut covariances, mut factors] =
            shapes.map(|shape| vec![f64::NAN; b * shape.iter().product::<usize>()]);
        let own = |shape: &[usize]| shape.iter().product::<usize>();
        (fits, weights.par_chunks_mut(k), means.par_chunks_mut(k * d))
            .into_par_iter()
            .zip((covariances.par_chunks_mut(own(of_kind)), factors.par_chunks_mut(own(of_kind))))
            .for_each(|((fit, weights, means), (covariances, factors))| {
                let Ok(Fit { mixture, .. }) = fit else { return };
                // A fit may have dropped components.
                fill(weights, mixture.weights().iter());
                fill(means, mixture.means().iter());
                fill(covariances, dynamic(mixture.covariances().clone()).iter());
                fill(factors, dynamic(precision_factors(mixture)).iter());
            });
        let found = |of: &dyn Fn(&Fit) -> f64, none: f64| -> Array1<f64> {
            fits.iter().map(|fit| fit.as_ref().map_or(none, of)).collect()
        };
        let count = |of: &dyn Fn(&Fit) -> usize| -> Array1<i64> {
            fits.iter().map(|fit| fit.as_ref().map_or(0, of) as i64).collect()
        };
        let names = ["weights", "means", "covariances", "precision_factors"];
        let mut arrays =
            names.into_iter().zip(shapes).zip([weights, means, covariances, factors]).map(|((name, shape), values)| {
                let shape: Vec<usize> = std::iter::once(b).chain(shape.iter().copied()).collect();
                (name, ArrayD::from_shape_vec(shape, values).expect("as many numbers"))
            });
        let arrays = std::array::from_fn(|_| arrays.next().expect("four arrays"));
        Self {
            arrays,
            n_components: count(&|fit| fit.mixture.n_components()),
            converged: fits.iter().map(|fit| fit.as_ref().is_ok_and(|fit| fit.summary.converged)).collect(),
            iterations: count(&|fit| fit.summary.iterations),
            lower_bound: found(&|fit| fit.summary.trace.last().copied().unwrap_or(f64::NEG_INFINITY), f64::NAN),
            log_likelihood: found(&|fit| fit.summary.log_likelihood, f64::NAN),
        }
    }

    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let out = PyDict::new(py);
        for (name, array) in self.arrays {
            out.set_item(name, array.into_pyarray(py))?;
        }
        out.set_item("n_components", self.n_components.into_pyarray(py))?;
        out.set_item("converged", self.converged.into_pyarray(py))?;
        out.set_item("iterations", self.iterations.into_pyarray(py))?;
        out.set_item("lower_bound", self.lower_bound.into_pyarray(py))?;
        out.set_item("log_likelihood", self.log_likelihood.into_pyarray(py))?;
        Ok(out)
    }
}

/// Writes the values to the start of `to`.
fn fill<'a>(to: &mut [f64], values: impl Iterator<Item = &'a f64>) {
    to.iter_mut().zip(values).for_each(|(to, value)| *to = *value);
}

fn dynamic(all: Covariances) -> ArrayD<f64> {
    match all {
        Covariances::Full(a) => a.into_dyn(),
        Covariances::Tied(a) | Covariances::Diag(a) => a.into_dyn(),
        Covariances::Spherical(a) => a.into_dyn(),
    }
}

/// The label of each row, `(n,)` of int64, or its log density, `(n,)` of float64, under the mixture of its group. The rows
/// are those of `fit_many`, with the parameters of each group.
#[pyfunction]
pub(crate) fn evaluate_many<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    ends: Vec<usize>,
    parameters: Vec<Parameters>,
    place: Execution,
    labels: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let rows = Rows::new(rows, None)?;
    let ((n, d), given) = (rows.dim(), rows.precision());
    let (unchecked, owner) = rows.split();
    let (parameters, factors): (Vec<_>, Vec<_>) = parameters.into_iter().map(Parameters::split).unzip();
    let owners = (owner, PyList::new(py, factors)?).into_pyobject(py)?.into_any().unbind();
    let done = supervise(py, owners, None, move |line| -> Result<(Vec<i64>, Vec<f64>), Error> {
        let mixtures: Vec<PrecisionMixture<'_>> =
            parameters.into_iter().map(|one| one.precisions()).collect::<Result<_, _>>()?;
        let Some(first) = mixtures.first() else { return Ok((Vec::new(), Vec::new())) };
        let work = Work::passes((n, d), given, first.covariance_type(), first.n_components(), 1.0);
        let opened = engines::open_for(&place, &work, false)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else { unreachable!("rows on the host") };
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        let ranges = ranges(&ends);
        let parts = map_groups(&engine, &Groups::new(data, &ranges), &|part, i, rows| {
            let mixture = &mixtures[i];
            let precision = place.precision.unwrap_or_else(|| wider(given, mixture.precision()));
            let (mut found, mut densities) = (Vec::new(), Vec::new());
            let mut want = EvaluateOptions::default();
            if labels {
                found.resize(rows.n_rows(), 0_u32);
                want.labels = Some(&mut found);
            } else {
                densities.resize(rows.n_rows(), 0.0);
                want.log_densities = Some(&mut densities);
            }
            evaluate::precisions(part, mixture, rows, precision, want)?;
            Ok((found, densities))
        });
        let mut all = (Vec::new(), Vec::new());
        for part in parts {
            let (labels, densities) = part?;
            all.0.extend(labels.into_iter().map(i64::from));
            all.1.extend(densities);
        }
        Ok(all)
    })?;
    let (found, densities) = done.map_err(|error| raise(py, error))?;
    Ok(if labels { PyArray1::from_vec(py, found).into_any() } else { PyArray1::from_vec(py, densities).into_any() })
}
