//! The restarts of a fit, and the state from which an interrupted fit continues.

use std::ops::ControlFlow;

use gmm_model::{Dataset, Draws, Mixture, Precision};

use crate::concurrent::{self, Jobs};
use crate::em::{self, EmRun, Iteration, Observer, RestartProgress};
use crate::fit::em_options;
use crate::init::{self, Start, StartReached};
use crate::many::small;
use crate::noise::{self, NoiseOutputs, NoiseRule};
use crate::rule::Rule;
use crate::{Data, Engine, Error, EvaluateOptions, Fit, FitOptions, Init, Resident};

/// One restart of a fit: a run of EM from a start of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct Restart {
    /// Index, from 0.
    pub index: usize,
    /// Number of components that the initialisation left without rows.
    pub empty_at_start: usize,
    /// The run, as far as it has come.
    pub run: EmRun,
}

/// The state of a fit between two iterations: with data, options and engine all that the rest of the fit depends on.
///
/// Random draws need no state: those of a restart depend only on the seed and the restart's index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FitState {
    /// Number of restarts begun.
    pub begun: usize,
    /// The restart that is running; `None` before the first iteration and at the end of the fit.
    pub running: Option<Restart>,
    /// The best of the completed restarts, if any ended without an error.
    pub best: Option<Restart>,
}

impl FitState {
    /// Adapts the state to options that may have other limits than before, and checks that it fits them.
    ///
    /// # Errors
    /// [`Error::Option`] with the first option that the state contradicts.
    fn adapted(mut self, options: &FitOptions, rule: &Rule, d: usize, restarts: usize) -> Result<Self, Error> {
        let refuse = |option, value: &dyn ToString, must: String| {
            Err(Error::Option { option, value: value.to_string(), must: format!("{must}, as in the state to resume") })
        };
        let FitOptions { n_components: k, covariance_type: kind, tol, max_iter, .. } = *options;
        for Restart { run, .. } in self.running.iter().chain(&self.best) {
            let (m, found) = (&run.mixture, run.mixture.n_features());
            if found != d {
                return Err(Error::Features { found: d, expected: found });
            }
            // Starved components may have been dropped.
            if m.n_components() > k || (m.n_components() < k && options.rule.starved.is_none()) {
                return refuse("n_components", &k, m.n_components().to_string());
            }
            if m.covariance_type() != kind {
                return refuse("covariance_type", &kind, m.covariance_type().to_string());
            }
        }
        if self.running.iter().chain(&self.best).any(|r| r.run.noise.is_some() != options.rule.noise.is_some()) {
            let has = |is: bool| if is { "some" } else { "none" };
            let is = options.rule.noise.is_some();
            return refuse("noise", &has(is), has(!is).to_owned());
        }
        if self.begun > restarts {
            return refuse("n_init", &options.n_init, format!("at least {}", self.begun));
        }
        for Restart { run, .. } in self.running.iter_mut().chain(&mut self.best) {
            run.converged = run.is_converged(tol, rule);
            run.finished = false;
        }
        if self.running.is_none() {
            // The end of a fit: more iterations continue the best restart.
            self.running = self.best.take_if(|best| !best.run.converged && best.run.iterations < max_iter);
        }
        Ok(self)
    }
}

/// Makes all restarts that `from` has not completed. The result is the state at the end, which has a best restart: the
/// one with the highest log-likelihood at its last E-step. Adds to `starts` what each start reached.
///
/// # Errors
/// As for [`fit_observed`](crate::fit_observed); [`Error::Option`] if `from` does not agree with the options.
pub(crate) fn run_all(
    rows: &mut dyn Resident,
    start: Start<'_>,
    options: &FitOptions,
    precision: Precision,
    (from, starts): (FitState, &mut Vec<StartReached>),
    observer: &mut Observer<'_>,
) -> Result<FitState, Error> {
    let em = em_options(options, precision);
    let fixed = options.init.is_deterministic(rows.dim().0, options.n_components, options.init_rows);
    let restarts = if fixed { 1 } else { options.n_init };
    let FitState { mut begun, mut running, best } = from.adapted(options, start.rule, rows.dim().1, restarts)?;
    let mut ended = Ended::default();
    if let Some(best) = best {
        ended.best = Some((score(rows, &best.run, start.rule, restarts)?, best));
    }
    while running.is_some() || begun < restarts {
        let attempt = running.take().map_or_else(
            || {
                begun += 1;
                begin(rows, start, options, begun - 1, starts)
            },
            Ok,
        );
        let attempt = attempt.and_then(|Restart { index, empty_at_start, run }| {
            let best = ended.best.as_ref().map(|(_, best)| best);
            let progress = RestartProgress { index, begun, empty_at_start, best };
            let run = em::go_on(rows, run, &em, start.rule, progress, observer)?;
            Ok((score(rows, &run, start.rule, restarts)?, Restart { index, empty_at_start, run }))
        });
        if let Ok((_, Restart { index, run, .. })) = &attempt {
            starts.push(StartReached::of(run, *index, options.init.name()));
        }
        if ended.add(attempt)?.is_break() {
            break;
        }
    }
    ended.into_state(begun)
}

/// The restarts that have ended.
#[derive(Default)]
struct Ended {
    /// The best of them, with its score.
    best: Option<(f64, Restart)>,
    /// The first error.
    failure: Option<Error>,
}

impl Ended {
    /// Adds the next restart. Breaks if its observer ended the fit.
    ///
    /// # Errors
    /// An error that is not only this restart's.
    fn add(&mut self, attempt: Result<(f64, Restart), Error>) -> Result<ControlFlow<()>, Error> {
        let (score, restart) = match attempt {
            Ok(ended) => ended,
            // A numerical failure of one restart does not end the others.
            Err(error) if error.is_numerical() => {
                self.failure.get_or_insert(error);
                return Ok(ControlFlow::Continue(()));
            }
            Err(error) => return Err(error),
        };
        let finished = restart.run.finished;
        if self.best.as_ref().is_none_or(|(best, _)| score > *best) {
            self.best = Some((score, restart));
        }
        Ok(if finished { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    /// The state at the end of a fit.
    ///
    /// # Errors
    /// The first error, if no restart succeeded.
    fn into_state(self, begun: usize) -> Result<FitState, Error> {
        match self.best {
            Some((_, best)) => Ok(FitState { begun, running: None, best: Some(best) }),
            None => Err(self.failure.expect("at least one restart ran")),
        }
    }
}

/// As [`run_all`] from the beginning, with restarts that run at the same time, each on a part of the engine. `None` if
/// the engine does not do that for these rows, or there is a single restart.
///
/// # Errors
/// As for [`run_all`].
pub(crate) fn run_concurrently(
    engine: &dyn Engine,
    data: &Dataset,
    start: Start<'_>,
    options: &FitOptions,
    precision: Precision,
    starts: &mut Vec<StartReached>,
    observer: &mut Observer<'_>,
) -> Result<Option<FitState>, Error> {
    let em = em_options(options, precision);
    let fixed = options.init.is_deterministic(data.n_rows(), options.n_components, options.init_rows);
    let count = if fixed { 1 } else { options.n_init };
    let Start { shift, kind, k, reg_covar, init_rows, rule, .. } = start;
    let jobs = Jobs {
        shape: data.rows().dim(),
        count,
        run: |part: &dyn Engine, loaded: &mut Option<Box<dyn Resident>>, index, observer: &mut Observer<'_>| {
            let mut reached = Vec::new();
            let mut attempt = || {
                let rows = match loaded {
                    Some(rows) => rows,
                    None => loaded.insert(Data::Host(data).load(part, precision, shift, None)?),
                };
                let start = Start { data: Data::Host(data), shift, kind, k, reg_covar, init_rows, rule };
                let Restart { empty_at_start, run, .. } = begin(rows.as_mut(), start, options, index, &mut reached)?;
                let progress = RestartProgress { index, begun: index + 1, empty_at_start, best: None };
                let run = em::go_on(rows.as_mut(), run, &em, rule, progress, observer)?;
                reached.push(StartReached::of(&run, index, options.init.name()));
                Ok((score(rows.as_mut(), &run, rule, count)?, Restart { index, empty_at_start, run }))
            };
            (attempt(), reached)
        },
    };
    let (mut ended, mut begun, mut outcome) = (Ended::default(), 0, Ok(()));
    let mut interrupted = None;
    let mut watched = |seen: &Iteration<'_>| {
        let go_on = observer(seen);
        if go_on.is_break() {
            interrupted = Some(Error::Interrupted { iterations: seen.iteration });
        }
        go_on
    };
    let ran = concurrent::run(engine, &jobs, &mut watched, &mut |index, (attempt, reached)| {
        begun = index + 1;
        starts.extend(reached);
        ended.add(attempt).unwrap_or_else(|error| {
            outcome = Err(error);
            ControlFlow::Break(())
        })
    });
    match interrupted {
        Some(error) => Err(error),
        None if ran => outcome.and_then(|()| ended.into_state(begun)).map(Some),
        None => Ok(None),
    }
}

/// The fit of an engine that makes all restarts of few rows by itself ([`Engine::fit_small`]), which `observer` sees at its
/// end. `None` if the engine does not do that for these rows, or there is a single restart.
///
/// # Errors
/// As for [`fit_observed`](crate::fit_observed).
pub(crate) fn run_by_engine(
    engine: &dyn Engine,
    data: Data<'_>,
    options: &FitOptions,
    observer: &mut Observer<'_>,
) -> Result<Option<Fit>, Error> {
    let fixed = options.init.is_deterministic(data.dim().0, options.n_components, options.init_rows);
    if fixed || options.n_init < 2 {
        return Ok(None);
    }
    let found = small::run_all_rows(engine, data, std::slice::from_ref(options)).pop().flatten().transpose()?;
    found.iter().try_for_each(|fit| report(fit, options, observer))?;
    Ok(found)
}

/// Calls `observer` for the iterations of the best restart of a fit that an engine made by itself.
///
/// # Errors
/// [`Error::Interrupted`] if it breaks.
pub(crate) fn report(fit: &Fit, options: &FitOptions, observer: &mut Observer<'_>) -> Result<(), Error> {
    let FitState { begun, best: Some(best), .. } = &fit.state else { return Ok(()) };
    let progress =
        RestartProgress { index: best.index, begun: *begun, empty_at_start: best.empty_at_start, best: None };
    let em = em_options(options, options.precision.unwrap_or(Precision::F64));
    // The falls are found again.
    em::note(&mut EmRun { falls: Vec::new(), ..best.run.clone() }, 0, &em, progress, observer)
}

/// The first mixture of a restart.
///
/// # Errors
/// As for [`init::start`].
fn begin(
    rows: &mut dyn Resident,
    start: Start<'_>,
    options: &FitOptions,
    index: usize,
    starts: &mut Vec<StartReached>,
) -> Result<Restart, Error> {
    let mut draws = Draws::for_purpose("fit", options.seed, index as u64);
    let before = starts.len();
    let begun = match &start.rule.noise {
        None => init::reached(rows, start, &options.init, &mut draws, starts),
        Some(noise) => beside(rows, start, noise, &options.init, (&mut draws, &mut *starts)),
    };
    starts[before..].iter_mut().for_each(|one| one.restart = index);
    let (mixture, empty_at_start) = begun?;
    let noise = start.rule.noise.as_ref().map(|noise| noise.start.clone());
    Ok(Restart { index, empty_at_start, run: EmRun { noise, ..EmRun::new(mixture) } })
}

/// The first mixture of a restart with noise, found on the rows that are not noise at the start.
///
/// # Errors
/// As for [`init::start`].
fn beside(
    rows: &mut dyn Resident,
    start: Start<'_>,
    noise: &NoiseRule,
    init: &Init,
    (draws, starts): (&mut Draws, &mut Vec<StartReached>),
) -> Result<(Mixture, usize), Error> {
    let rule = &Rule { noise: None, ..start.rule.clone() };
    let Some(clear) = noise.clear.as_deref().filter(|_| !matches!(init, Init::Given(_))) else {
        return init::reached(rows, Start { rule, ..start }, init, draws, starts);
    };
    let data = noise.clear_rows(clear, start.data)?;
    let mut some = rows.sample(clear, data.weights())?;
    init::reached(some.as_mut(), Start { data: Data::Host(&data), rule, ..start }, init, draws, starts)
}

/// By what restarts are compared: the log-likelihood at the last E-step.
///
/// # Errors
/// As for [`Evaluate::evaluate`](crate::Evaluate::evaluate).
fn score(rows: &mut dyn Resident, run: &EmRun, rule: &Rule, restarts: usize) -> Result<f64, Error> {
    match run.trace.last() {
        Some(&mean) => Ok(mean),
        None if restarts == 1 => Ok(0.0),
        // No iterations: compare the initial mixtures.
        None => Ok(match &run.noise {
            None => rows.evaluate(&run.mixture, EvaluateOptions::default())?.log_likelihood,
            Some(noise) => {
                let weights = rule.noise.as_ref().and_then(|noise| noise.weights.as_deref());
                noise::evaluate_rows(rows, weights, &run.mixture, noise, NoiseOutputs::default())?.log_likelihood
            }
        }),
    }
}
