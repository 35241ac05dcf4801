//! Fitting: takes an array and options, returns a dictionary of arrays.

use std::ops::ControlFlow;

use gmm_host::{Error, FastLoss, Fit, FitOptions, FitState, Init, Iteration, Warning, Work, fit_resumed};
use gmm_model::{CovarianceType, Mixture, Noise};
use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict, PyString, PyTuple};

use crate::bayes::{self, Resumed};
use crate::engines;
use crate::errors::raise;
use crate::files::record;
use crate::given;
use crate::options::{Execution, Fitting, word};
use crate::parameters;
use crate::rows::{Checked, Rows};
use crate::stoppable::stoppable;
use crate::supervise::{Progress, supervise};

/// Fits a mixture to `rows`, `(n, d)` of float32 or float64, or a `DeviceArray`, on the engine named by `place`.
///
/// `init` is the name of a method, `(weights, means, covariances)`, `Parameters`, or [`Resumed`]. `weights`, `(n,)`, are row
/// weights. `follow(restart, iteration, mean_log_likelihood, change)` is called after each iteration. If `wait` is set,
/// the fit waits for each call to return, and stops with its current result once a call returns a true value; else it
/// continues during the call. The GIL is released, and signals are handled.
#[pyfunction]
#[pyo3(signature = (rows, options, place, init, weights=None, follow=None, wait=false))]
#[expect(clippy::too_many_arguments, reason = "Python passes them by name")]
pub(crate) fn fit<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    options: Fitting,
    place: Execution,
    init: &Bound<'py, PyAny>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    follow: Option<&Bound<'py, PyAny>>,
    wait: bool,
) -> PyResult<Bound<'py, PyDict>> {
    let Fitting { options } = options;
    let is_posterior = init.cast::<PyTuple>().is_ok_and(|init| init.len() == 2);
    let resumed = is_posterior.then(|| init.extract::<Resumed>()).transpose()?;
    let before = resumed.as_ref().map_or(0, Resumed::before);
    let (init, from) = match resumed.map(Resumed::state) {
        Some((mixture, state)) => (Init::Given(Box::new(mixture)), state),
        None => (start(init, options.covariance_type)?, FitState::default()),
    };
    // A call that can end the fit must see each iteration before the next one begins.
    let concurrent = !wait;
    let max_iter = options.max_iter + before;
    let options = FitOptions { init, precision: place.precision, fast: place.fast, concurrent, max_iter, ..options };
    let rows = Rows::new(rows, weights)?;
    let (shape, precision, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, follow, move |line| -> Result<Fit, Error> {
        options.validate()?;
        let opened = engines::open_for(&place, &Work::fit(shape, precision, &options), is_on_gpu)?;
        let rows = unchecked.check_in_fit(&opened)?;
        let mut observer = |seen: &Iteration<'_>| {
            let progress = Progress::Iteration {
                restart: seen.restart,
                iteration: seen.iteration - before,
                mean_log_likelihood: seen.mean_log_likelihood,
                change: seen.change,
            };
            if wait {
                match line.ask(progress) {
                    Some(true) => seen.finish(),
                    Some(false) => {}
                    None => return ControlFlow::Break(()),
                }
            } else {
                line.say(progress);
            }
            if line.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        let done = fit_resumed(&engine, rows.data(), &options, from, &mut observer);
        if let (Checked::Host(data), Err(_)) = (&rows, &done)
            && !data.has_missing()
        {
            // What failed may have come before the rows were checked.
            data.check_finite()?;
        }
        let mut fit = done?;
        bayes::forget(&mut fit, before);
        Ok(fit)
    })?;
    as_dict(py, done.map_err(|error| raise(py, error))?)
}

type Array<'py> = PyReadonlyArrayDyn<'py, f64>;

pub(crate) fn start(init: &Bound<'_, PyAny>, kind: CovarianceType) -> PyResult<Init> {
    if init.is_instance_of::<PyString>() {
        return word(init);
    }
    let mixture = if init.len()? >= 4 {
        attributes(init)?
    } else {
        let (weights, means, covariances) = init.extract::<(Array<'_>, Array<'_>, Array<'_>)>()?;
        let mixture = given::mixture(kind, weights.as_array(), means.as_array(), covariances.as_array());
        mixture.map_err(|error| raise(init.py(), error))?
    };
    Ok(Init::Given(Box::new(mixture)))
}

/// The mixture of an estimator's attributes: [`Parameters`](parameters::Parameters), and perhaps [`Factors`](given::Factors).
pub(crate) fn attributes(from: &Bound<'_, PyAny>) -> PyResult<Mixture> {
    let from = from.cast::<PyTuple>()?;
    let plain = from.get_slice(0, 4).extract::<parameters::Parameters>()?.mixture();
    let factors = (from.len() > 4).then(|| from.get_slice(4, from.len()).extract::<given::Factors>()).transpose()?;
    let mixture = match &factors {
        Some(factors) => plain.and_then(|plain| factors.of(&plain)),
        None => plain,
    };
    mixture.map_err(|error| raise(from.py(), error))
}

pub(crate) fn as_dict<'py>(py: Python<'py>, fit: Fit) -> PyResult<Bound<'py, PyDict>> {
    let Fit { mixture, posterior, noise, summary, warnings, fast, storage, .. } = fit;
    let out = arrays(py, &mixture)?;
    out.set_item("noise", noise.as_ref().map(in_json))?;
    out.set_item("posterior", posterior.map(|posterior| bayes::as_dict(py, &posterior)).transpose()?)?;
    out.set_item("record", record(&summary))?;
    out.set_item("log_likelihood", summary.log_likelihood)?;
    out.set_item("iterations", summary.iterations)?;
    out.set_item("converged", summary.converged)?;
    out.set_item("trace", summary.trace)?;
    out.set_item("engine", summary.engine)?;
    out.set_item("precision", summary.precision)?;
    let loss = fast.map(|loss| {
        let FastLoss { log_likelihood, weights, means, covariances } = loss;
        [("log_likelihood", log_likelihood), ("weights", weights), ("means", means), ("covariances", covariances)]
    });
    out.set_item("fast_loss", loss.map(|loss| loss.into_py_dict(py)).transpose()?)?;
    out.set_item("storage", (storage.precision.name(), storage.shift.into_pyarray(py)))?;
    let warnings = told(&warnings, summary.tol);
    out.set_item("warnings", warnings)?;
    Ok(out)
}

/// Noise as JSON, in the form of a model file.
pub(crate) fn in_json(noise: &Noise) -> String {
    serde_json::to_string(noise).expect("a plain structure")
}

/// Name and text of each warning. Only the largest fall of the likelihood is reported, with the number of falls. A fall
/// below `tol` counts as convergence, as in scikit-learn.
pub(crate) fn told(warnings: &[Warning], tol: f64) -> Vec<(&'static str, String)> {
    let fall = |warning: &Warning| if let Warning::LikelihoodFell { by, .. } = warning { Some(*by) } else { None };
    let falls = || warnings.iter().filter(|w| fall(w).is_some_and(|by| by >= tol));
    let largest = falls().max_by(|a, b| fall(a).unwrap_or(0.0).total_cmp(&fall(b).unwrap_or(0.0)));
    let others = warnings.iter().filter(|w| fall(w).is_none()).map(|w| (name(w), w.to_string()));
    let largest = largest.map(|w| (name(w), format!("{w} (the largest of {} falls)", falls().count())));
    others.chain(largest).collect()
}

/// A dictionary with the weights, means and covariances of a mixture, in scikit-learn's shapes.
pub(crate) fn moments<'py>(py: Python<'py>, mixture: &Mixture) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("weights", parameters::to_numpy(py, mixture.weights()))?;
    out.set_item("means", parameters::to_numpy(py, mixture.means()))?;
    out.set_item("covariances", parameters::array(py, mixture.covariances().clone()))?;
    Ok(out)
}

/// As [`moments`], with the factors of the precisions, and loadings and uniquenesses, or None.
pub(crate) fn arrays<'py>(py: Python<'py>, mixture: &Mixture) -> PyResult<Bound<'py, PyDict>> {
    let out = moments(py, mixture)?;
    out.set_item("precision_factors", parameters::array(py, parameters::precision_factors(mixture)))?;
    let factors = mixture.loadings();
    out.set_item("loadings", factors.map(|factors| parameters::to_numpy(py, factors.loadings.view())))?;
    out.set_item("uniquenesses", factors.map(|factors| parameters::to_numpy(py, factors.uniquenesses.view())))?;
    Ok(out)
}

const fn name(warning: &Warning) -> &'static str {
    match warning {
        Warning::NotConverged { .. } => "not-converged",
        Warning::FewerClusters { .. } => "fewer-clusters",
        Warning::Dropped { .. } => "dropped",
        Warning::EmptyComponents { .. } => "empty-components",
        Warning::LikelihoodFell { .. } => "likelihood-fell",
        Warning::RegularisationDominates { .. } => "regularisation",
        Warning::Spikes { .. } => "spikes",
        Warning::Unobserved { .. } => "unobserved",
    }
}
