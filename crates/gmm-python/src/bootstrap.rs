//! The bootstrap: takes rows and a fitted mixture, returns the parameters of all replicates.

use std::ops::ControlFlow;

use gmm_host::{
    Bootstrap, BootstrapOptions, Data, Error, FitOptions, Init, Resampling, Work, bootstrap as run, flat_covariances,
};
use gmm_model::Mixture;
use numpy::{PyArray1, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::engines;
use crate::errors::raise;
use crate::fit::attributes;
use crate::options::{Execution, Fitting, word};

use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::{Progress, supervise};

/// Fits the mixture of `parameters`, perhaps with factors, anew to `replicates` resamples of `rows`; `rules` are those of the
/// record of its fit, if there is one.
///
/// The returned dictionary has `weights`, `means`, `covariances` and `noise_weights`, each a flat array of all replicates, one
/// after the other, and the numbers `failed` and `not_converged`. `follow(done, replicates)` is called after each replicate.
#[pyfunction]
#[pyo3(signature = (rows, options, place, parameters, replicates, resampling, rules=None, weights=None, follow=None))]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn bootstrap<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    options: Fitting,
    place: Execution,
    parameters: &Bound<'py, PyAny>,
    replicates: usize,
    resampling: &Bound<'py, PyAny>,
    rules: Option<Vec<String>>,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    follow: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let (resampling, seed) = (word::<Resampling>(resampling)?, options.options.seed);
    let how = BootstrapOptions { replicates, resampling, seed, rules };
    let mixture = attributes(parameters)?;
    let init = Init::Given(Box::new(mixture.clone()));
    let options = FitOptions { precision: place.precision, fast: place.fast, init, ..options.options }
        .with_covariance(mixture.covariance_model());
    let rows = Rows::new(rows, weights)?;
    let (shape, precision, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, follow, move |line| -> Result<Bootstrap, Error> {
        options.validate()?;
        let opened = engines::open_for(&place, &Work::fit(shape, precision, &options), is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        let Data::Host(data) = rows.data() else {
            let why = "the bootstrap needs the rows in host memory: pass a NumPy array";
            return Err(Error::Device(why.to_owned()));
        };
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        run(&engine, &mixture, data, &options, &how, &mut |done| {
            line.say(Progress::Fits { done, fits: replicates });
            if line.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    })?;
    let found = done.map_err(|error| raise(py, error))?;
    let out = PyDict::new(py);
    let all = |parameter: &dyn Fn(&Mixture) -> Vec<f64>| {
        PyArray1::from_vec(py, found.replicates.iter().flat_map(parameter).collect())
    };
    out.set_item("weights", all(&|m| m.weights().to_vec()))?;
    out.set_item("means", all(&|m| m.means().iter().copied().collect()))?;
    out.set_item("covariances", all(&|m| flat_covariances(m.covariances())))?;
    out.set_item("noise_weights", PyArray1::from_slice(py, &found.noise_weights))?;
    out.set_item("failed", found.failed)?;
    out.set_item("not_converged", found.not_converged)?;
    Ok(out)
}
