//! The distribution of some columns given others, and thresholds of outliers.

use gmm_host::regress::{self, DrawOptions};
use gmm_host::{Engine, Error, Work, evaluate, memory, threshold_of_region};
use gmm_model::{Conditional, Dataset, OutlierThreshold, Precision};
use ndarray::{Array1, Array2, Array3};
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArray3, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::engines;
use crate::errors::raise;
use crate::evaluate::SHORT;
use crate::given::Given;
use crate::options::Execution;
use crate::rows::Rows;
use crate::supervise::supervise;

/// A mixture, its given columns and its targets.
#[derive(FromPyObject)]
pub(crate) struct Regression {
    mixture: Given,
    given: Vec<usize>,
    targets: Vec<usize>,
}

/// Means and standard deviations.
type Moments<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray2<f64>>);

/// The means of the targets and their standard deviations, `(n, t)` each, for the rows of the given columns, `(n, g)`.
#[pyfunction]
pub(crate) fn regress_moments<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    regression: Regression,
    place: Execution,
) -> PyResult<Moments<'py>> {
    let (means, deviations) = on(py, rows, regression, place, |work| {
        let shape = (work.data.n_rows(), work.conditional.n_targets());
        memory::check("the means and deviations", 16 * shape.0 as u128 * shape.1 as u128)?;
        let (mut means, mut deviations) = (vec![0.0; shape.0 * shape.1], vec![0.0; shape.0 * shape.1]);
        let Job { engine, conditional, data, precision } = work;
        regress::moments(engine, conditional, data, precision, &mut means, &mut deviations)?;
        let shaped = |values| Array2::from_shape_vec(shape, values).expect("t of each row");
        Ok((shaped(means), shaped(deviations)))
    })?;
    Ok((means.into_pyarray(py), deviations.into_pyarray(py)))
}

/// Draws of the targets, `(n, count, t)`.
#[pyfunction]
pub(crate) fn regress_draws<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    regression: Regression,
    place: Execution,
    count: usize,
    seed: u64,
) -> PyResult<Bound<'py, PyArray3<f64>>> {
    let draws = on(py, rows, regression, place, move |work| {
        let shape = (work.data.n_rows(), count, work.conditional.n_targets());
        memory::check("the draws", 8 * shape.0 as u128 * count as u128 * shape.2 as u128)?;
        let mut out = vec![0.0; shape.0 * shape.1 * shape.2];
        let options = DrawOptions { count, seed, first_row: 0 };
        regress::draw(work.engine, work.conditional, work.data, work.precision, options, &mut out)?;
        Ok(Array3::from_shape_vec(shape, out).expect("count*t of each row"))
    })?;
    Ok(draws.into_pyarray(py))
}

/// The log densities of the targets, `(n,)`, for rows of the given columns followed by the targets, `(n, g + t)`.
#[pyfunction]
pub(crate) fn regress_log_densities<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    regression: Regression,
    place: Execution,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let found = on(py, rows, regression, place, |work| {
        regress::log_densities(work.engine, work.conditional, work.data, work.precision)
    })?;
    Ok(Array1::from_vec(found).into_pyarray(py))
}

/// Weights `(n, k)`, means `(n, k, t)` and covariances `(k, t, t)`.
type Components<'py> = (Bound<'py, PyArray2<f64>>, Bound<'py, PyArray3<f64>>, Bound<'py, PyArray3<f64>>);

/// The mixture of the targets for each row of the given columns: its weights, its means, and its covariances, which are
/// the same for all rows.
#[pyfunction]
pub(crate) fn regress_components<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    regression: Regression,
    place: Execution,
) -> PyResult<Components<'py>> {
    let (weights, means, covariances) = on(py, rows, regression, place, |work| {
        let Job { engine, conditional, data, precision } = work;
        let (n, k, t) = (data.n_rows(), conditional.n_components(), conditional.n_targets());
        memory::check("the conditional mixtures", 8 * n as u128 * k as u128 * (t as u128 + 1))?;
        let weights = evaluate::responsibilities(engine, conditional.marginal(), data, precision)?;
        let (mut means, mut difference) = (vec![0.0; n * k * t], vec![0.0; conditional.n_given()]);
        for (row, means) in means.chunks_exact_mut(k * t).enumerate() {
            let x: Vec<f64> = (0..conditional.n_given()).map(|column| data.rows().at(row, column)).collect();
            for (c, mean) in means.chunks_exact_mut(t).enumerate() {
                conditional.component_mean(c, &x, &mut difference, mean);
            }
        }
        let mut covariances = Array3::zeros((k, t, t));
        covariances.outer_iter_mut().enumerate().for_each(|(c, mut a)| a.assign(&conditional.covariance(c)));
        Ok((weights, Array3::from_shape_vec((n, k, t), means).expect("k*t of each row"), covariances))
    })?;
    Ok((weights.into_pyarray(py), means.into_pyarray(py), covariances.into_pyarray(py)))
}

/// The log density below which at most the share `contamination` of the rows lies.
#[pyfunction]
#[pyo3(signature = (log_densities, contamination, weights=None))]
pub(crate) fn outlier_threshold(
    py: Python<'_>,
    log_densities: PyReadonlyArray1<'_, f64>,
    contamination: f64,
    weights: Option<PyReadonlyArray1<'_, f64>>,
) -> PyResult<f64> {
    let densities = log_densities.as_array().to_vec();
    let weights = weights.map(|weights| weights.as_array().to_vec());
    let found = py.detach(|| OutlierThreshold::of_rows(&densities, weights.as_deref(), contamination));
    Ok(found.map_err(|error| raise(py, error))?.log_density)
}

/// The log density at the border of the highest-density region with the probability `level` under the mixture.
#[pyfunction]
pub(crate) fn region_threshold(py: Python<'_>, given: Given, level: f64, seed: u64, place: Execution) -> PyResult<f64> {
    let found = py.detach(|| -> Result<_, Error> {
        let opened = engines::open(&Execution { device: gmm_host::Device::Cpu, ..place })?;
        threshold_of_region(opened.engine.as_ref(), &given.mixture()?, None, level, seed)
    });
    Ok(found.map_err(|error| raise(py, error))?.log_density)
}

/// What a regression is computed with.
#[derive(Clone, Copy)]
struct Job<'a> {
    engine: &'a dyn Engine,
    conditional: &'a Conditional,
    data: &'a Dataset,
    precision: Precision,
}

/// Runs `work` on rows on the host, without the GIL.
fn on<R: Send + 'static>(
    py: Python<'_>,
    rows: &Bound<'_, PyAny>,
    regression: Regression,
    place: Execution,
    work: impl FnOnce(Job<'_>) -> Result<R, Error> + Send + 'static,
) -> PyResult<R> {
    let rows = Rows::new(rows, None)?;
    let ((n, d), precision) = (rows.dim(), place.precision.unwrap_or(Precision::F64));
    let k = regression.mixture.n_components();
    let is_short = n.saturating_mul(d).saturating_mul(k) < SHORT;
    let (unchecked, owner) = rows.split();
    let run = move || -> Result<R, Error> {
        let Regression { mixture, given, targets } = regression;
        let kind = mixture.kind;
        let conditional = Conditional::new(&mixture.mixture()?, &given, &targets)?;
        let opened = engines::open_for(&place, &Work::passes((n, d), precision, kind, k, 1.0), false)?;
        let rows = unchecked.check(&opened)?;
        let gmm_host::Data::Host(data) = rows.data() else {
            return Err(Error::Device("rows of a regression must be on the host".to_owned()));
        };
        let job = Job { engine: opened.engine.as_ref(), conditional: &conditional, data, precision };
        engines::pool(place.threads)?.install(|| work(job))
    };
    let done = if is_short {
        let done = py.detach(run);
        drop(owner);
        done
    } else {
        supervise(py, owner, None, move |_| run())?
    };
    done.map_err(|error| raise(py, error))
}
