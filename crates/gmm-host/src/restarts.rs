//! The restarts of a fit, and the state from which an interrupted fit continues.

use gmm_model::{Draws, Precision};

use crate::em::{self, EmRun, Observer, RestartProgress};
use crate::fit::em_options;
use crate::init::{self, Start};
use crate::{Error, EvaluateOptions, FitOptions, Resident};

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
    fn adapted(mut self, options: &FitOptions, d: usize, restarts: usize) -> Result<Self, Error> {
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
        if self.begun > restarts {
            return refuse("n_init", &options.n_init, format!("at least {}", self.begun));
        }
        for Restart { run, .. } in self.running.iter_mut().chain(&mut self.best) {
            run.converged = run.last_change().abs() < tol && !run.has_dropped_lately();
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
/// one with the highest log-likelihood at its last E-step.
///
/// # Errors
/// As for [`fit_observed`](crate::fit_observed); [`Error::Option`] if `from` does not agree with the options.
pub(crate) fn run_all(
    rows: &mut dyn Resident,
    start: Start<'_>,
    options: &FitOptions,
    precision: Precision,
    from: FitState,
    observer: &mut Observer<'_>,
) -> Result<FitState, Error> {
    let em = em_options(options, precision);
    let restarts = if options.init.is_deterministic() { 1 } else { options.n_init };
    let FitState { mut begun, mut running, best } = from.adapted(options, rows.dim().1, restarts)?;
    let mut best = match best {
        Some(best) => Some((score(rows, &best.run, restarts)?, best)),
        None => None,
    };
    let mut failure = None;
    while running.is_some() || begun < restarts {
        let attempt = running.take().map_or_else(
            || {
                begun += 1;
                begin(rows, start, options, begun - 1)
            },
            Ok,
        );
        let attempt = attempt.and_then(|Restart { index, empty_at_start, run }| {
            let progress = RestartProgress { index, begun, empty_at_start, best: best.as_ref().map(|(_, best)| best) };
            Ok(Restart { index, empty_at_start, run: em::go_on(rows, run, &em, start.rule, progress, observer)? })
        });
        let restart = match attempt {
            Ok(restart) => restart,
            // A numerical failure of one restart does not end the others.
            Err(error @ (Error::Singular { .. } | Error::NotFinite { .. } | Error::Likelihood { .. })) => {
                failure.get_or_insert(error);
                continue;
            }
            Err(error) => return Err(error),
        };
        let score = score(rows, &restart.run, restarts)?;
        let finished = restart.run.finished;
        if best.as_ref().is_none_or(|(s, _)| score > *s) {
            best = Some((score, restart));
        }
        if finished {
            break;
        }
    }
    match (best, failure) {
        (Some((_, best)), _) => Ok(FitState { begun, running: None, best: Some(best) }),
        (None, failure) => Err(failure.expect("at least one restart ran")),
    }
}

/// The first mixture of a restart.
///
/// # Errors
/// As for [`init::start`].
fn begin(rows: &mut dyn Resident, start: Start<'_>, options: &FitOptions, index: usize) -> Result<Restart, Error> {
    let mut draws = Draws::for_purpose("fit", options.seed, index as u64);
    let (mixture, empty_at_start) = init::start(rows, start, &options.init, &mut draws)?;
    Ok(Restart { index, empty_at_start, run: EmRun::new(mixture) })
}

/// By what restarts are compared: the log-likelihood at the last E-step.
///
/// # Errors
/// As for [`Evaluate::evaluate`](crate::Evaluate::evaluate).
fn score(rows: &mut dyn Resident, run: &EmRun, restarts: usize) -> Result<f64, Error> {
    match run.trace.last() {
        Some(&mean) => Ok(mean),
        None if restarts == 1 => Ok(0.0),
        // No iterations: compare the initial mixtures.
        None => Ok(rows.evaluate(&run.mixture, EvaluateOptions::default())?.log_likelihood),
    }
}
