//! The EM loop, the same for every engine: [`Passes::pass`](crate::Passes::pass) gives statistics, [`m_step_with`](gmm_model::m_step_with) a
//! mixture.

use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::time::Duration;

use gmm_model::bayes::Posterior;
use gmm_model::{Mixture, ModelError, Noise, Precision, Statistics};

use crate::restarts::{FitState, Restart};
use crate::rule::{Expectation, Rule};
use crate::{Error, Resident, Search, Tuning};

/// Options of the EM loop: stopping rule, regularisation, precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EmOptions {
    /// Stop when the mean log-likelihood changes by strictly less than this; 0 never stops early.
    pub tol: f64,
    /// Stop after this many iterations.
    pub max_iter: usize,
    /// Added to the covariances' diagonals, an absolute amount.
    pub reg_covar: f64,
    /// Precision of the rows on the engine. It determines which falls of the likelihood count as rounding.
    pub precision: Precision,
    /// Whether an engine with several EM paths times them and runs the fastest.
    pub autotune: bool,
    /// Whether an engine may iterate in lower precision where that is faster: see
    /// [`FitOptions::fast`](crate::FitOptions::fast).
    pub fast: bool,
}

/// One finished iteration, as passed to an [`Observer`].
#[derive(Clone, Copy, Debug)]
pub struct Iteration<'a> {
    /// Index of the restart, from 0.
    pub restart: usize,
    /// Number of the iteration, from 1.
    pub iteration: usize,
    /// Mean log-likelihood at this iteration's E-step, before its M-step. With a prior the logarithm of its density,
    /// over the total row weight, is added.
    pub mean_log_likelihood: f64,
    /// Change since the previous iteration; infinite for the first.
    pub change: f64,
    /// The mixture after this iteration's M-step. `None` if an engine made several iterations between two host
    /// synchronisations and this is not the last of them, or if several fits run at the same time
    /// ([`FitOptions::concurrent`](crate::FitOptions::concurrent)).
    pub mixture: Option<&'a Mixture>,
    finish: &'a Cell<bool>,
    /// The run up to this iteration, if its mixture is known.
    run: Option<(&'a EmRun, RestartProgress<'a>)>,
}

/// Which restart of a fit a run of EM belongs to, and the result of those before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartProgress<'a> {
    /// Index of the restart, from 0.
    pub(crate) index: usize,
    /// Number of restarts begun.
    pub(crate) begun: usize,
    /// Number of components that the initialisation left without rows.
    pub(crate) empty_at_start: usize,
    /// The best of the completed restarts.
    pub(crate) best: Option<&'a Restart>,
}

impl<'a> Iteration<'a> {
    /// An iteration of the restart and number `at`, whose mixture is not known.
    pub(crate) const fn bare(
        at: (usize, usize),
        mean_log_likelihood: f64,
        change: f64,
        finish: &'a Cell<bool>,
    ) -> Self {
        let (restart, iteration) = at;
        Self { restart, iteration, mean_log_likelihood, change, mixture: None, finish, run: None }
    }

    /// Brings `state` up to this iteration: [`fit_resumed`](crate::fit_resumed) continues from there. Does nothing if
    /// [`mixture`](Self::mixture) is `None`. `state` is an earlier one of the same fit, or [`FitState::default`].
    ///
    /// Cost: a copy of the mixture and of the part of the trace that `state` lacks.
    pub fn save(&self, state: &mut FitState) {
        let Some((run, RestartProgress { index, begun, empty_at_start, best })) = self.run else { return };
        match &mut state.running {
            Some(running) if state.begun == begun && running.index == index && running.run.is_before(run) => {
                running.run.catch_up(run);
            }
            running => {
                *running = Some(Restart { index, empty_at_start, run: run.clone() });
                state.best = best.cloned();
                state.begun = begun;
            }
        }
    }

    /// Ends the fit at the next iteration whose [`mixture`](Self::mixture) is known. The result is the best mixture so
    /// far; the remaining restarts do not run.
    pub fn finish(&self) {
        self.finish.set(true);
    }
}

/// Called after every iteration; [`ControlFlow::Break`] ends the fit with [`Error::Interrupted`].
pub type Observer<'a> = dyn FnMut(&Iteration<'_>) -> ControlFlow<()> + 'a;

/// The result of one run of EM.
#[derive(Clone, Debug, PartialEq)]
pub struct EmRun {
    /// The mixture after the last M-step.
    pub mixture: Mixture,
    /// The posterior after the last M-step, of a fit by variational Bayes; the mixture is that of its means.
    pub posterior: Option<Posterior>,
    /// Iterations done.
    pub iterations: usize,
    /// Whether the change fell below `tol`.
    pub converged: bool,
    /// Whether the observer ended the run by [`Iteration::finish`].
    pub finished: bool,
    /// Mean log-likelihood at each E-step. With a prior the logarithm of its density, over the total row weight, is
    /// added: EM maximises this sum. With variational Bayes the lower bound of the log evidence.
    pub trace: Vec<f64>,
    /// Components that were empty at the last M-step.
    pub empty: Vec<usize>,
    /// Iterations (from 1) at which the log-likelihood fell by more than rounding, with the fall.
    pub falls: Vec<(usize, f64)>,
    /// Iterations (from 1) whose M-step dropped components for lack of rows.
    pub drops: Vec<usize>,
    /// The noise component, if the fit has one.
    pub noise: Option<Noise>,
    /// The components of each row, if the fit is truncated.
    pub search: Option<Search>,
    /// Iterations that the engine made without the host ([`Passes::iterate`](crate::Passes::iterate)), and their time.
    pub on_device: Option<OnDevice>,
    /// [`Passes::near_components`](crate::Passes::near_components) after the last pass.
    pub near_components: Option<f64>,
    /// How the engine chose its EM path, if [`EmOptions::autotune`] is set and it has several.
    pub tuning: Option<Tuning>,
}

impl EmRun {
    /// A run before its first iteration.
    pub const fn new(start: Mixture) -> Self {
        Self {
            mixture: start,
            posterior: None,
            iterations: 0,
            converged: false,
            finished: false,
            trace: Vec::new(),
            empty: Vec::new(),
            falls: Vec::new(),
            drops: Vec::new(),
            noise: None,
            search: None,
            on_device: None,
            near_components: None,
            tuning: None,
        }
    }

    /// The change of the mean log-likelihood at the last iteration; infinite before the second.
    pub(crate) fn last_change(&self) -> f64 {
        match self.trace.as_slice() {
            [.., before, last] => last - before,
            _ => f64::INFINITY,
        }
    }

    /// Whether the last iteration was one of a converged run.
    pub(crate) fn is_converged(&self, tol: f64, rule: &Rule) -> bool {
        let change = if rule.has_unrecorded { self.distance_to_limit() } else { self.last_change().abs() };
        change < tol && !self.has_dropped_lately()
    }

    /// How far the mean log-likelihood was from its limit before the last iteration, if its changes go on to shrink as the last
    /// two did; infinite before the third, or if they grow. Changes of slow EM are far smaller than what is left to gain.
    ///
    /// Source: Böhning et al. 1994, "The distribution of the likelihood ratio for mixtures of densities from the
    /// one-parameter exponential family" (Aitken's acceleration).
    fn distance_to_limit(&self) -> f64 {
        let [.., first, before, last] = self.trace[..] else { return f64::INFINITY };
        let (change, rate) = (last - before, (last - before) / (before - first));
        // A change of 0 is the limit itself.
        if change == 0.0 {
            0.0
        } else if rate < 1.0 {
            (change / (1.0 - rate)).abs()
        } else {
            f64::INFINITY
        }
    }

    /// Whether the last iteration or the one before dropped components: the last change is then not that of EM.
    fn has_dropped_lately(&self) -> bool {
        self.drops.last().is_some_and(|&at| at + 1 >= self.iterations)
    }

    /// Whether this can be an earlier moment of `later`, by the lengths of their records.
    fn is_before(&self, later: &Self) -> bool {
        self.trace.len() <= later.trace.len()
            && self.falls.len() <= later.falls.len()
            && self.drops.len() <= later.drops.len()
    }

    /// Copies from a later moment of the same run what has changed.
    fn catch_up(&mut self, later: &Self) {
        self.mixture.clone_from(&later.mixture);
        self.posterior.clone_from(&later.posterior);
        self.trace.extend_from_slice(&later.trace[self.trace.len()..]);
        self.falls.extend_from_slice(&later.falls[self.falls.len()..]);
        self.drops.extend_from_slice(&later.drops[self.drops.len()..]);
        self.empty.clone_from(&later.empty);
        self.tuning.clone_from(&later.tuning);
        self.noise.clone_from(&later.noise);
        self.search.clone_from(&later.search);
        let Self { iterations, converged, finished, on_device, near_components, .. } = *later;
        self.near_components = near_components;
        (self.iterations, self.converged, self.finished, self.on_device) = (iterations, converged, finished, on_device);
    }
}

/// Iterations that an engine made without the host.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OnDevice {
    /// Number of iterations.
    pub iterations: usize,
    /// The EM path of the last iteration, by its name in [`loop_candidates`](crate::loop_candidates).
    pub path: &'static str,
    /// Device time from the first kernel to the last, without the host synchronisations.
    pub time: Duration,
}

impl fmt::Display for OnDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} iterations on the device, path {}, {:.1} ms",
            self.iterations,
            self.path,
            1e3 * self.time.as_secs_f64()
        )
    }
}

/// Runs EM from `start` until it converges, reaches `max_iter`, or the observer ends it.
///
/// # Errors
/// [`Error::NotFinite`] and [`Error::Singular`], which name iteration and component; [`Error::Likelihood`];
/// [`Error::Interrupted`] if the observer breaks; any error of the engine. A new run can continue from the last mixture
/// that the observer received.
pub fn run(
    rows: &mut dyn Resident,
    start: Mixture,
    options: &EmOptions,
    restart: usize,
    observer: &mut Observer<'_>,
) -> Result<EmRun, Error> {
    let progress = RestartProgress { index: restart, begun: restart + 1, empty_at_start: 0, best: None };
    go_on(rows, EmRun::new(start), options, &Rule::default(), progress, observer)
}

/// As [`run`], from a run that may have made iterations already. Each pass depends only on the mixture before it, so a
/// run that was stopped and goes on gives the bits of an undisturbed one. For loops on a device see [`iterate`].
///
/// # Errors
/// As for [`run`].
pub(crate) fn go_on(
    rows: &mut dyn Resident,
    mut run: EmRun,
    options: &EmOptions,
    rule: &Rule,
    progress: RestartProgress<'_>,
    observer: &mut Observer<'_>,
) -> Result<EmRun, Error> {
    let mut see = |run: &mut EmRun, from: usize| note(run, from, options, progress, observer);
    rule.prepare(&mut run).map_err(|source| singular(source, run.iterations))?;
    if rule.is_plain() || rule.is_plain_bayes() {
        iterate(rows, &mut run, options, &mut see)?;
    }
    while run.iterations < options.max_iter && !run.converged && !run.finished {
        let iteration = run.iterations + 1;
        let Expectation { statistics, objective, noise_weight, search } = rule.expectation(rows, &run, options)?;
        check(&statistics, iteration)?;
        if let Some(noise) = &mut run.noise {
            if statistics.weight.iter().sum::<f64>() <= f64::EPSILON * statistics.total_weight {
                return Err(Error::AllNoise { iteration });
            }
            noise.weight = noise_weight;
        }
        let (step, posterior) =
            rule.maximise(&statistics, options.reg_covar, &run).map_err(|source| singular(source, iteration))?;
        run.mixture = step.mixture;
        run.posterior = posterior;
        run.empty = step.empty;
        run.search = search;
        run.trace.push(objective);
        run.iterations = iteration;
        run.near_components = rows.near_components();
        if !step.dropped.is_empty() {
            run.drops.push(iteration);
        }
        run.converged = run.is_converged(options.tol, rule);
        see(&mut run, iteration - 1)?;
    }
    Ok(run)
}

/// Called with the run at each host synchronisation, and with the number of iterations known before it.
type See<'a> = dyn FnMut(&mut EmRun, usize) -> Result<(), Error> + 'a;

/// [`Passes::iterate`](crate::Passes::iterate), also for a run that has iterations already. Engines begin their loops
/// with iteration 1, whose change they cannot judge. So a loop of one iteration comes first, and is judged here; if the
/// run goes on, the next loop repeats that iteration.
///
/// The loop begins with parameters that were copied to the host. If an engine holds them in another form, the copy is
/// rounded, and so the bits are not those of an undisturbed run.
fn iterate(rows: &mut dyn Resident, run: &mut EmRun, options: &EmOptions, see: &mut See<'_>) -> Result<(), Error> {
    let (before, earlier) = (run.iterations, run.on_device.unwrap_or_default());
    if before == 0 {
        return rows.iterate(run, options, see);
    }
    if before >= options.max_iter || run.converged || run.finished {
        return Ok(());
    }
    let mut start = EmRun { posterior: run.posterior.clone(), ..EmRun::new(run.mixture.clone()) };
    let one = EmOptions { max_iter: 1, ..*options };
    let mut first = start.clone();
    rows.iterate(&mut first, &one, &mut |_, _| Ok(()))?;
    // The engine has no loop, or none for this shape.
    let (Some(&mean), Some(&last)) = (first.trace.first(), run.trace.last()) else { return Ok(()) };
    let ends = (mean - last).abs() < options.tol;
    let most = if ends { 1 } else { options.max_iter - before };
    rows.iterate(&mut start, &EmOptions { max_iter: most, ..*options }, &mut |part, from| {
        run.mixture.clone_from(&part.mixture);
        run.posterior.clone_from(&part.posterior);
        run.trace.extend_from_slice(&part.trace[from..]);
        run.iterations = before + part.iterations;
        run.empty.clone_from(&part.empty);
        run.tuning.clone_from(&part.tuning);
        run.on_device = part.on_device.map(|on| OnDevice {
            iterations: earlier.iterations + on.iterations,
            time: earlier.time + on.time,
            ..on
        });
        run.converged = ends || part.converged;
        see(run, before + from)?;
        part.finished = run.finished;
        Ok(())
    })
}

/// Records falls of the likelihood in the iterations after the first `from`, and calls the observer for each.
pub(crate) fn note(
    run: &mut EmRun,
    from: usize,
    options: &EmOptions,
    progress: RestartProgress<'_>,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    let finish = Cell::new(false);
    for at in from..run.iterations {
        let mean = run.trace[at];
        let change = if at == 0 { f64::INFINITY } else { mean - run.trace[at - 1] };
        if let Some(fall) = fall(&run.trace, at, run.mixture.n_features(), options)
            && !run.drops.contains(&at)
        {
            run.falls.push((at + 1, fall));
        }
        let is_last = at + 1 == run.iterations;
        let seen = Iteration {
            restart: progress.index,
            iteration: at + 1,
            mean_log_likelihood: mean,
            change,
            mixture: is_last.then_some(&run.mixture),
            finish: &finish,
            run: is_last.then_some((&*run, progress)),
        };
        if !finish.get() && observer(&seen).is_break() {
            return Err(Error::Interrupted { iterations: at + 1 });
        }
    }
    run.finished = finish.get();
    Ok(())
}

/// The fall of the mean log-likelihood at iteration `at`, from 0, if it is larger than rounding.
fn fall(trace: &[f64], at: usize, d: usize, options: &EmOptions) -> Option<f64> {
    let before = *trace.get(at.checked_sub(1)?)?;
    let fall = before - trace[at];
    (fall > rounding(trace[at], d, options)).then_some(fall)
}

/// [`EmRun::falls`] of a run whose iterations an engine made by itself.
pub(crate) fn falls(trace: &[f64], d: usize, options: &EmOptions) -> Vec<(usize, f64)> {
    (0..trace.len()).filter_map(|at| Some((at + 1, fall(trace, at, d, options)?))).collect()
}

/// The largest fall of the mean log-likelihood that counts as rounding: a few eps times `|mean| + d`. A row's log
/// density is a sum of squares, of size about `d`, and of logarithms, of about the size of the mean. Each has an error
/// of a few eps times its size, and so has the mean over the rows.
fn rounding(mean: f64, d: usize, options: &EmOptions) -> f64 {
    let (ulps, eps) = match options.precision {
        // Half the fp16 epsilon: the rounding error of a value with 11 significant bits.
        Precision::F32 if options.fast => (32.0, 1.0 / 2048.0),
        // Only the rows are f32: their errors differ in sign, and sums are f64.
        Precision::F32 => (32.0, f64::from(f32::EPSILON)),
        // Fits of synthetic rows fall by at most 5 eps, long past convergence; more if the terms of a row cancel.
        Precision::F64 => (256.0, f64::EPSILON),
    };
    ulps * eps * (mean.abs() + d as f64)
}

/// Errors if any statistic is NaN or infinite; iteration 0 is the initialisation.
pub(crate) fn check(statistics: &Statistics, iteration: usize) -> Result<(), Error> {
    if let Some(component) = statistics.first_not_finite_component() {
        return Err(Error::NotFinite { iteration, component });
    }
    match statistics.log_likelihood {
        value if value.is_finite() => Ok(()),
        value => Err(Error::Likelihood { iteration, value }),
    }
}

pub(crate) fn singular(source: ModelError, iteration: usize) -> Error {
    match source {
        ModelError::NotPositiveDefinite { .. } | ModelError::Underflow { .. } => Error::Singular { iteration, source },
        ModelError::NotFinite { component, .. } => Error::NotFinite { iteration, component },
        other => Error::Model(other),
    }
}

#[cfg(test)]
mod tests;
