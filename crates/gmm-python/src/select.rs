//! Model selection: takes rows and candidates, returns a record of each candidate and the best fit.

use std::ops::ControlFlow;

use gmm_host::init::StartReached;
use gmm_host::{Candidate, Choice, Chosen, Error, FitOptions, Iteration, TestOptions, Work};
use gmm_model::{CovarianceModel, ModelError, Noise};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::engines;
use crate::errors::raise;
use crate::files::record;
use crate::fit;
use crate::options::{Execution, Fitting, word};
use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::{Progress, supervise};

/// Fits each of `components` with each of `kinds`, in the order of [`gmm_host::select`]: kinds in the outer loop.
/// Neither may be empty.
///
/// The returned dictionary has `candidates`, a list of dictionaries with `n_components`, `covariance_type`,
/// `n_parameters`, and either `record` and `seconds` or `error`; `best`, the index of the chosen candidate;
/// `labels_icl`, a list of values or empty; `tests`, a list of tuples (k, statistic, p-value, replicates); and `fit`, its result as returned by `fit`. `follow(done, fits)` is called after each candidate.
#[pyfunction]
#[pyo3(signature = (rows, options, place, init, components, kinds, criterion, tests, weights=None, follow=None))]
#[expect(clippy::too_many_arguments, reason = "each is an argument in Python")]
pub(crate) fn select<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    options: Fitting,
    place: Execution,
    init: &Bound<'py, PyAny>,
    components: Vec<usize>,
    kinds: Vec<String>,
    criterion: &Bound<'py, PyAny>,
    tests: (usize, f64),
    weights: Option<PyReadonlyArray1<'py, f64>>,
    follow: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let criterion: Choice = word(criterion)?;
    let tests = TestOptions { replicates: tests.0, level: tests.1 };
    let Fitting { options } = options;
    let options = FitOptions { init: word(init)?, precision: place.precision, fast: place.fast, ..options };
    let kinds = kinds.iter().map(|kind| kind.parse()).collect::<Result<Vec<CovarianceModel>, _>>();
    let kinds = kinds.map_err(|error: ModelError| raise(py, error))?;
    let rows = Rows::new(rows, weights)?;
    let (shape, given, is_on_gpu) = (rows.dim(), rows.precision(), rows.is_on_gpu());
    let ((_, d), has_noise) = (shape, options.rule.noise.is_some());
    let (unchecked, owner) = rows.split();
    let done = supervise(py, owner, follow, move |line| -> Result<(Chosen, Vec<Candidate>), Error> {
        options.validate()?;
        criterion.check(&components, &kinds)?;
        if criterion == Choice::Blrt {
            tests.check()?;
        }
        let work = Work::select(shape, given, &options, &components, &kinds);
        let opened = engines::open_for(&place, &work, is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        let engine = stoppable(opened.engine.as_ref(), line.stop());
        let go_on = || if line.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let (mut done, fits) = (0, components.len() * kinds.len());
        let mut seen = |_: &Candidate| {
            done += 1;
            line.say(Progress::Fits { done, fits });
            go_on()
        };
        let mut iterations = |_: &Iteration<'_>| go_on();
        let found = gmm_host::select(&engine, rows.data(), &options, &components, &kinds, &mut seen, &mut iterations)?;
        let mut tested = |_, _| go_on();
        match gmm_host::choose(&engine, rows.data(), &found, criterion, &options, &tests, &mut tested)? {
            Some(chosen) => Ok((chosen, found)),
            None => {
                Err(found.into_iter().find_map(|c| c.outcome.err()).expect("a candidate without a fit has an error"))
            }
        }
    })?;
    let (Chosen { best, labels_icl, tests }, mut found) = done.map_err(|error| raise(py, error))?;
    let out = PyDict::new(py);
    let candidates = found.iter().map(|candidate| about(py, candidate, d, has_noise)).collect::<PyResult<Vec<_>>>()?;
    out.set_item("candidates", PyList::new(py, candidates)?)?;
    out.set_item("best", best)?;
    out.set_item("labels_icl", labels_icl)?;
    let tests = tests.into_iter().map(|test| (test.k, test.statistic, test.p_value, test.replicates));
    out.set_item("tests", tests.collect::<Vec<_>>())?;
    if let Ok(fit) = found.swap_remove(best).outcome {
        out.set_item("fit", fit::as_dict(py, fit)?)?;
    }
    Ok(out)
}

/// The dictionary of one candidate, for data with `d` columns.
fn about<'py>(py: Python<'py>, candidate: &Candidate, d: usize, has_noise: bool) -> PyResult<Bound<'py, PyDict>> {
    let Candidate { k, kind, outcome } = candidate;
    let out = PyDict::new(py);
    out.set_item("n_components", k)?;
    out.set_item("covariance_type", kind.to_string())?;
    // As `Mixture::n_parameters`, but also for a candidate without a mixture.
    let noise = if has_noise { Noise::N_PARAMETERS } else { 0 };
    out.set_item("n_parameters", kind.free_parameters(*k, d) + k * d + k - 1 + noise)?;
    match outcome {
        Ok(fit) => {
            out.set_item("record", record(&fit.summary))?;
            out.set_item("seconds", fit.elapsed.as_secs_f64())?;
            out.set_item("error", py.None())?;
            let one =
                |s: &StartReached| (s.restart, s.start, s.mean_log_likelihood, s.iterations, s.converged, s.short);
            out.set_item("starts", fit.starts.iter().map(one).collect::<Vec<_>>())?;
        }
        Err(error) => {
            out.set_item("starts", PyList::empty(py))?;
            out.set_item("record", py.None())?;
            out.set_item("seconds", py.None())?;
            out.set_item("error", error.to_string())?;
        }
    }
    Ok(out)
}
