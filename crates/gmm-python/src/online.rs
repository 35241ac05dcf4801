//! Online EM: one step from the state of the last one, which Python keeps and pickles.

use gmm_data::{ModelFile, model_to_json, read_model_bytes};
use gmm_host::{Error, FitOptions, Init, OnlineFit, OnlineOptions, Work};
use gmm_model::Statistics;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};

use crate::engines;
use crate::errors::{raise, raise_file};
use crate::fit::{arrays, start, told};
use crate::options::{Execution, Fitting};
use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::supervise;

/// The mixture as the text of a model file, the statistics in their byte form, and the number of steps.
type State = (String, Vec<u8>, u64);

/// Makes a step with a batch of rows from `state`; without one, begins from `init` (see [`fit`](crate::fit::fit)), or
/// from a fitted mixture if that is `Parameters`.
///
/// Returns the arrays of the mixture, `state`, `steps`, `mean_log_likelihood` of the batch before the step, `engine`,
/// `warnings` of the initialisation, and the indices of `empty` components.
#[pyfunction]
#[pyo3(signature = (rows, options, place, init, state=None, weights=None))]
pub(crate) fn partial_fit<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    options: Fitting,
    place: Execution,
    init: &Bound<'py, PyAny>,
    state: Option<State>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
) -> PyResult<Bound<'py, PyDict>> {
    let Fitting { options } = options;
    let online = OnlineOptions { reg_covar: options.reg_covar, precision: place.precision, ..OnlineOptions::default() };
    let is_fitted = !init.is_instance_of::<PyString>() && init.len()? == 4;
    let init = start(init, options.covariance_type)?;
    let options = FitOptions { init, precision: place.precision, max_iter: 0, ..options };
    let earlier = state.map(|state| resumed(py, state, online)).transpose()?;
    let rows = Rows::new(rows, weights)?;
    let (shape, precision, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, None, move |line| -> Result<_, Error> {
        let work = Work::fit(shape, precision, &FitOptions { max_iter: 1, ..options.clone() });
        let opened = engines::open_for(&place, &work, is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        let mut warnings = Vec::new();
        let mut fit = match (earlier, options.init.clone()) {
            (Some(earlier), _) => earlier,
            (None, Init::Given(mixture)) if is_fitted => OnlineFit::from_fitted(*mixture, online)?,
            (None, Init::Given(mixture)) => OnlineFit::new(*mixture, online)?,
            (None, _) => {
                let begun = gmm_host::fit(&engine, rows.data(), &options)?;
                warnings = begun.warnings;
                OnlineFit::new(begun.mixture, online)?
            }
        };
        let step = fit.partial_fit(&engine, rows.data())?;
        Ok((fit, step, warnings, opened.engine.name()))
    })?;
    let (fit, step, warnings, engine) = done.map_err(|error| raise(py, error))?;
    let out = arrays(py, fit.mixture())?;
    let text = model_to_json(&ModelFile::from(fit.mixture().clone())).map_err(|error| raise_file(py, &error))?;
    let statistics = fit.statistics().map(Statistics::to_bytes).unwrap_or_default();
    out.set_item("state", (text, PyBytes::new(py, &statistics), fit.steps()))?;
    out.set_item("steps", fit.steps())?;
    out.set_item("mean_log_likelihood", step.mean_log_likelihood)?;
    out.set_item("engine", engine)?;
    out.set_item("warnings", told(&warnings, 0.0))?;
    out.set_item("empty", fit.empty())?;
    Ok(out)
}

fn resumed(py: Python<'_>, (text, statistics, steps): State, options: OnlineOptions) -> PyResult<OnlineFit> {
    let mixture = read_model_bytes(text.as_bytes(), "the state").map_err(|error| raise_file(py, &error))?.mixture;
    let statistics = Statistics::from_bytes(&statistics).map_err(|error| raise(py, Error::from(error)))?;
    OnlineFit::resume(mixture, Some(statistics), steps, options).map_err(|error| raise(py, error))
}
