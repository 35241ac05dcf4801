//! Posterior sampling: takes rows and options, returns arrays of draws.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gmm_data::DrawsFile;
use gmm_host::{Data, Error, Likelihood, Opened, memory};
use gmm_mcmc::starts::{self, Centre};
use gmm_mcmc::{
    Basis, Checkpoint, Event, Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Stat, Target,
};
use gmm_mcmc::{Concern, SummaryRow};
use gmm_model::{CovarianceType, DrawStat, ParameterDraws};
use ndarray::{ArrayD, IxDyn};
use numpy::{IntoPyArray, PyReadonlyArray1, PyReadonlyArrayDyn};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::engines;
use crate::errors::{raise, raise_file, with_class};
use crate::likelihood::evaluations;
use crate::options::{Execution, Kind, word};
use crate::rows::Rows;
use crate::stoppable::stoppable;
use crate::supervise::{Line, Progress, supervise};

/// Interval between progress reports.
const TELL: Duration = Duration::from_millis(200);

/// The options of a sampling run, passed from Python.
pub(crate) struct SampleRequest {
    options: Options,
    kind: CovarianceType,
    k: usize,
    centre: Centre,
    relabel: Relabel,
    /// Whether no seed was given: a resumed run then keeps its own.
    any_seed: bool,
    /// Whether the prior is JSON (else TOML), and its text.
    prior: Option<(bool, String)>,
}

impl<'py> FromPyObject<'_, 'py> for SampleRequest {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let text = |name: &str| -> PyResult<String> { from.get_item(name)?.extract() };
        let number = |name: &str| -> PyResult<usize> { from.get_item(name)?.extract() };
        let sampler = if text("sampler")? == "nuts" { Sampler::Nuts } else { Sampler::Rwm };
        let seed: Option<u64> = from.get_item("seed")?.extract()?;
        let options = Options {
            chains: number("chains")?,
            draws: number("draws")?,
            warmup: number("warmup")?,
            thin: number("thin")?,
            seed: seed.unwrap_or(0),
            target_accept: from.get_item("target_accept")?.extract()?,
            ..Options::new(sampler)
        };
        let relabel = text("relabel")?.parse();
        Ok(Self {
            options,
            any_seed: seed.is_none(),
            kind: word(&from.get_item("covariance_type")?)?,
            k: number("n_components")?,
            centre: if text("start")? == "each" { Centre::Each } else { Centre::Fit },
            relabel: relabel.map_err(|why| with_class(from.py(), "ParameterError", format!("relabel: {why}")))?,
            prior: from.get_item("prior")?.extract()?,
        })
    }
}

/// Draws from the posterior of `rows`, `(n, d)` or a `DeviceArray`. `checkpoint` is the checkpoint of a run to
/// continue; `follow(done, steps, diverging)` is called a few times per second.
///
/// The returned dictionary has the parameters, `stats`, `checkpoint` (bytes), `improper` (the rows at which the
/// posterior is improper, or None), and `moved` (a warning if the checkpoint comes from another engine, or None). If
/// interrupted, the exception carries a checkpoint with the draws so far.
#[pyfunction]
#[pyo3(signature = (rows, asked, place, weights=None, checkpoint=None, follow=None))]
pub(crate) fn mcmc<'py>(
    py: Python<'py>,
    rows: &Bound<'py, PyAny>,
    asked: SampleRequest,
    place: Execution,
    weights: Option<PyReadonlyArray1<'py, f64>>,
    checkpoint: Option<Vec<u8>>,
    follow: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let rows = Rows::new(rows, weights)?;
    let (work, is_on_gpu) = (evaluations(rows.dim(), rows.precision()), rows.is_on_gpu());
    let (unchecked, owner) = rows.split();
    // Receives the checkpoint of interrupted work.
    let kept = Arc::new(Mutex::new(None));
    let keep = kept.clone();
    let done = supervise(py, owner, follow, move |line| {
        asked.options.validate()?;
        let opened = engines::open_for(&place, &work, is_on_gpu)?;
        let rows = unchecked.check(&opened)?;
        draw(&asked, (&opened, &place), rows.data(), checkpoint, line, &keep)
    });
    let done = done.map_err(|error| match kept.lock().unwrap_or_else(PoisonError::into_inner).take() {
        Some(bytes) => interrupted(py, error, &bytes),
        None => error,
    })?;
    let Drawn { posterior, checkpoint, improper, moved } = done.map_err(|error| raise_mcmc(py, error))?;
    let out = arrays(py, &posterior)?;
    out.set_item("checkpoint", PyBytes::new(py, &checkpoint))?;
    out.set_item("improper", improper)?;
    out.set_item("moved", moved)?;
    Ok(out)
}

/// The result of a run.
struct Drawn {
    posterior: Posterior,
    checkpoint: Vec<u8>,
    /// The rows at which the posterior is improper.
    improper: Option<String>,
    /// A warning if the checkpoint comes from another engine.
    moved: Option<String>,
}

fn draw(
    asked: &SampleRequest,
    (opened, place): (&Opened, &Execution),
    data: Data<'_>,
    checkpoint: Option<Vec<u8>>,
    line: &Line,
    keep: &Mutex<Option<Vec<u8>>>,
) -> Result<Drawn, gmm_mcmc::Error> {
    let prior = match &asked.prior {
        None => PriorOptions::default(),
        Some((true, text)) => PriorOptions::from_json(text)?,
        Some((false, text)) => PriorOptions::from_toml(text)?,
    };
    let prior = Prior::new(&prior, asked.kind, asked.k, data)?;
    let improper = prior.improper_at(data)?;
    let target = Target::new(prior)?;
    let Options { chains, .. } = asked.options;
    asked.options.check_memory(&target)?;
    let engine = stoppable(opened.engine.as_ref(), line.stop());
    let precision = place.precision.unwrap_or(data.precision());
    let mut likelihood = Likelihood::new(&engine, data, precision)?;
    let basis = Basis::new(&engine, data, precision)?;
    let mut moved = None;
    let mut run = match checkpoint {
        Some(bytes) => {
            let checkpoint = Checkpoint::from_bytes(&bytes)?;
            moved = checkpoint.moved(&basis);
            let seed = if asked.any_seed { checkpoint.run.options.seed } else { asked.options.seed };
            checkpoint.resume(&Options { seed, ..asked.options.clone() }, &target, &basis)?
        }
        None => {
            let centre = asked.centre;
            let starts =
                starts::about_fits(centre, &engine, data, precision, &asked.options, &target, &mut likelihood)?;
            Run::new(asked.options.clone(), starts)?
        }
    };
    let bytes = |run: &Run| Checkpoint::new(run.clone(), target.prior(), basis.clone()).to_bytes();
    let before: u64 = run.chains.iter().map(|chain| chain.steps).sum();
    let steps = asked.options.warmup + asked.options.draws * asked.options.thin;
    let (mut done, mut diverging, mut told) = (before as usize, 0, Instant::now());
    let mut observer = |event: Event, run: &Run| {
        match event {
            Event::Step { warmup, diverging: diverged, .. } => {
                done += 1;
                diverging += usize::from(diverged && !warmup);
            }
            // After its warm-up, random-walk Metropolis reports only kept draws.
            Event::Kept { .. } => done = done.max(run.chains.iter().map(|chain| chain.steps as usize).sum()),
        }
        if told.elapsed() > TELL {
            told = Instant::now();
            line.say(Progress::Steps { done, steps: steps * chains, diverging });
        }
        if line.is_cut() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let went = run.go_on(&mut likelihood, &target, &mut observer);
    if let Err(error) = went {
        if line.is_cut() && run.chains.iter().any(|chain| chain.steps > 0) {
            *keep.lock().unwrap_or_else(PoisonError::into_inner) = Some(bytes(&run));
        }
        return Err(error);
    }
    let checkpoint = bytes(&run);
    Ok(Drawn { posterior: Posterior::new(&run, &target, asked.relabel)?, checkpoint, improper, moved })
}

/// For `KeyboardInterrupt`, a `SamplingInterrupted` with the checkpoint; other exceptions are returned unchanged.
fn interrupted(py: Python<'_>, error: PyErr, checkpoint: &[u8]) -> PyErr {
    if !error.is_instance_of::<pyo3::exceptions::PyKeyboardInterrupt>(py) {
        return error;
    }
    let made = || -> PyResult<PyErr> {
        let class = py.import("gmm_rs.exceptions")?.getattr("SamplingInterrupted")?;
        Ok(PyErr::from_value(class.call1((PyBytes::new(py, checkpoint),))?))
    };
    made().unwrap_or_else(|other| other)
}

/// The Python exception for an error of sampling.
fn raise_mcmc(py: Python<'_>, error: gmm_mcmc::Error) -> PyErr {
    use gmm_mcmc::Error as Mcmc;
    let class = match &error {
        Mcmc::Host(_) => {
            let Mcmc::Host(error) = error else { unreachable!("matched above") };
            return raise(py, error);
        }
        Mcmc::Start { .. } | Mcmc::Sampler { .. } => "NumericalError",
        Mcmc::Memory { .. } => "OutOfMemoryError",
        Mcmc::Stopped => return raise(py, Error::Interrupted { iterations: 0 }),
        Mcmc::Option { .. } | Mcmc::Prior(_) | Mcmc::Checkpoint(_) => "ParameterError",
    };
    with_class(py, class, error.to_string())
}

fn shaped<T>(shape: &[usize], values: Vec<T>) -> ArrayD<T> {
    ArrayD::from_shape_vec(IxDyn(shape), values).expect("a posterior's shapes")
}

fn arrays<'py>(py: Python<'py>, posterior: &Posterior) -> PyResult<Bound<'py, PyDict>> {
    let each = [posterior.draws.chains, posterior.draws.draws];
    let out = PyDict::new(py);
    for (name, shape, values) in posterior.draws.parameters() {
        out.set_item(name, shaped(&[&each[..], &shape].concat(), values.to_vec()).into_pyarray(py))?;
    }
    let stats = PyDict::new(py);
    for (name, stat) in posterior.sample_stats() {
        match stat {
            DrawStat::Values(values) => stats.set_item(name, shaped(&each, values).into_pyarray(py))?,
            DrawStat::Counts(values) => stats.set_item(name, shaped(&each, values).into_pyarray(py))?,
            DrawStat::Flags(values) => stats.set_item(name, shaped(&each, values).into_pyarray(py))?,
        }
    }
    out.set_item("stats", stats)?;
    Ok(out)
}

/// Draws passed from Python: covariance type, weights (C, N, k), means (C, N, k, d), covariances, and `lp` (C, N).
pub(crate) struct GivenDraws(Posterior);

impl<'py> FromPyObject<'_, 'py> for GivenDraws {
    type Error = PyErr;

    fn extract(from: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        type Array<'py> = PyReadonlyArrayDyn<'py, f64>;
        let (kind, weights, means, covariances, lp): (Kind, Array<'py>, Array<'py>, Array<'py>, Array<'py>) =
            from.extract()?;
        let flat = |array: &Array<'py>| array.as_array().iter().copied().collect::<Vec<f64>>();
        let shape = means.as_array().shape().to_vec();
        let wrong = || {
            with_class(
                from.py(),
                "ParameterError",
                format!("draws of means have shape {shape:?}, expected (C, N, k, d)"),
            )
        };
        let [chains, draws, k, d] = shape[..] else { return Err(wrong()) };
        let stats = flat(&lp).into_iter().map(|lp| Stat { lp, ..Stat::default() }).collect();
        let (weights, means, covariances) = (flat(&weights), flat(&means), flat(&covariances));
        let parameters = ParameterDraws { kind: kind.0, chains, draws, k, d, weights, means, covariances };
        let given = Posterior { sampler: Sampler::Rwm, draws: parameters, stats };
        let fit = given.draws.is_whole() && given.stats.len() == chains * draws;
        if fit { Ok(Self(given)) } else { Err(wrong()) }
    }
}

/// One line of the summary.
type Line8 = (String, f64, f64, f64, f64, f64, f64, f64);

/// Name, mean, sd, 5 % and 95 % quantiles, ess_bulk, ess_tail and r_hat of each parameter, and of `lp`.
#[pyfunction]
pub(crate) fn summary(py: Python<'_>, draws: GivenDraws) -> Vec<Line8> {
    let rows = py.detach(|| draws.0.summary());
    let line = |r: SummaryRow| (r.name, r.mean, r.sd, r.q5, r.q95, r.ess_bulk, r.ess_tail, r.r_hat);
    rows.into_iter().map(line).collect()
}

/// Warnings about the quality of draws, of which `diverging` come from divergent steps: a name ('unjudged', 'apart',
/// 'few' or 'diverging') and a text each.
#[pyfunction]
pub(crate) fn concerns(py: Python<'_>, draws: GivenDraws, diverging: usize) -> Vec<(&'static str, String)> {
    let found = py.detach(|| gmm_mcmc::concerns(&draws.0, &draws.0.summary(), diverging));
    let named = |concern: Concern| {
        let name = match concern {
            Concern::Unjudged { .. } => "unjudged",
            Concern::Apart { .. } => "apart",
            Concern::Few { .. } => "few",
            Concern::Diverging { .. } => "diverging",
        };
        (name, concern.to_string())
    };
    found.into_iter().map(named).collect()
}

/// Writes draws as `gmm mcmc` does: npz, parquet or arrow, depending on the extension. `stats` are arrays of shape (C,
/// N).
#[pyfunction]
pub(crate) fn write_draws(py: Python<'_>, path: PathBuf, draws: GivenDraws, stats: &Bound<'_, PyDict>) -> PyResult<()> {
    let mut all = Vec::new();
    for (name, values) in stats {
        let stat = if let Ok(values) = values.extract::<PyReadonlyArrayDyn<'_, bool>>() {
            DrawStat::Flags(values.as_array().iter().copied().collect())
        } else if let Ok(values) = values.extract::<PyReadonlyArrayDyn<'_, i64>>() {
            DrawStat::Counts(values.as_array().iter().copied().collect())
        } else {
            DrawStat::Values(values.extract::<PyReadonlyArrayDyn<'_, f64>>()?.as_array().iter().copied().collect())
        };
        let name: String = name.extract()?;
        if stat.len() != draws.0.stats.len() {
            return Err(with_class(
                py,
                "ParameterError",
                format!("{name} has {} numbers, expected one per draw", stat.len()),
            ));
        }
        all.push((name, stat));
    }
    let file = DrawsFile { parameters: draws.0.draws, stats: all };
    py.detach(|| gmm_data::write_draws(&path, &file)).map_err(|error| raise_file(py, &error))
}

/// Errors if there is not enough memory for the log-likelihood of each row under each draw, `bytes` in total.
#[pyfunction]
pub(crate) fn check_pointwise_memory(py: Python<'_>, bytes: u64) -> PyResult<()> {
    memory::check("the log-likelihood of each row at each draw", bytes.into()).map_err(|error| raise(py, error))
}
