//! Small fits that an engine runs in a way of its own, from the start to the last iteration: what it may be given, and
//! what it returns.

use std::time::Duration;

use gmm_model::{Dataset, RowStorage};
use rayon::prelude::*;

use super::Job;
use crate::em::EmRun;
use crate::fit::finished;
use crate::init::StartReached;
use crate::{Data, Engine, Error, Evaluation, Fit, FitOptions, FitRule, Init};

/// A restart of more iterations may take a second, in which the host could not stop it.
const MOST_ITERATIONS: usize = 10_000;

/// As [`MOST_ITERATIONS`], of all restarts of a fit, of which a device runs a hundred at a time.
const MOST_OF_ALL: usize = 1_000_000;

/// Row weights within these bounds are none that a fit refuses for their size, in either precision.
const WEIGHTS: std::ops::RangeInclusive<f64> = 1e-15..=1e15;

/// The result of a fit that an engine ran by itself. The error is that of [`fit()`](crate::fit()).
pub type SmallFit = Result<GroupRun, Error>;

/// A fit that an engine ran by itself: what its memory held at the end.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupRun {
    /// The run of the best restart: mixture, iterations, `converged`, `trace`, `empty` and `falls` are those that
    /// [`run_em`](crate::run_em) would record.
    pub run: EmRun,
    /// Index of that restart, from 0.
    pub restart: usize,
    /// Number of components that the initialisation left without rows.
    pub empty_at_start: usize,
    /// What each start reached, in the order of the restarts.
    pub starts: Vec<StartReached>,
    /// The totals of the rows under the last mixture.
    pub evaluation: Evaluation,
    /// The variance of each column, `(d,)`, weighted.
    pub variances: Vec<f64>,
    /// How the rows were stored: the shift is a point within their bulk, as that of [`shift::of_data`](crate::shift::of_data).
    pub storage: RowStorage,
    /// This fit's part of the time.
    pub elapsed: Duration,
}

/// The fits of those jobs that the engine runs by itself, `None` for the others. Without such a way ([`Engine::fit_small`])
/// or after a failure all are `None`: they then run one by one.
pub(crate) fn run(engine: &dyn Engine, data: &Dataset, jobs: &[Job<'_>]) -> Vec<Option<Result<Fit, Error>>> {
    let none = || jobs.iter().map(|_| None).collect();
    let is_given = |job: &Job<'_>| job.options.concurrent && is_simple(data, job);
    let simple: Vec<bool> = jobs.iter().map(is_given).collect();
    if !simple.contains(&true) {
        return none();
    }
    let given: Vec<Job<'_>> = jobs.iter().zip(&simple).filter(|(_, is)| **is).map(|(job, _)| job.clone()).collect();
    let runs = match engine.fit_small(data, &given) {
        Ok(Some(runs)) => runs,
        Ok(None) => return none(),
        Err(error) => {
            // The ordinary way needs less memory, and finds out whether the device still works.
            tracing::warn!(%error, "fits run one by one");
            return none();
        }
    };
    let name = engine.name();
    let finish = |(job, run): (&Job<'_>, Option<SmallFit>)| {
        let fit = run?.and_then(|run| finished(&name, job.rows.len(), job.options, run));
        Some(fit)
    };
    // Written once, in parallel: a fit takes two kilobytes, and there may be many.
    let ended = given.par_iter().zip(runs).map(finish).collect::<Vec<_>>();
    if ended.len() == jobs.len() {
        return ended;
    }
    let mut rest = ended.into_iter();
    simple.iter().map(|&is| if is { rest.next().flatten() } else { None }).collect()
}

/// As [`run`], for fits of all rows, one for each of the options. All are `None` if they have so many iterations that a caller
/// may want to stop them.
pub(crate) fn run_all_rows(
    engine: &dyn Engine,
    data: Data<'_>,
    options: &[FitOptions],
) -> Vec<Option<Result<Fit, Error>>> {
    let is_taken = |one| engine.takes_small(data.dim(), one);
    match data {
        Data::Host(host) if options.iter().all(is_short) && options.iter().any(is_taken) => {
            let jobs: Vec<Job<'_>> = options.iter().map(|options| Job { rows: 0..host.n_rows(), options }).collect();
            run(engine, host, &jobs)
        }
        _ => options.iter().map(|_| None).collect(),
    }
}

/// Whether a fit ends so soon that nobody would stop it.
pub(crate) const fn is_short(options: &FitOptions) -> bool {
    options.max_iter <= MOST_ITERATIONS && options.max_iter.saturating_mul(options.n_init) <= MOST_OF_ALL
}

/// Whether an engine may be given this job: its options have no [`refusal`] and suit the columns, and it has rows that can
/// be fitted, all of positive weight.
fn is_simple(data: &Dataset, Job { rows, options }: &Job<'_>) -> bool {
    let has_rows = rows.start <= rows.end && rows.end <= data.n_rows() && rows.len() >= options.n_components.max(2);
    let weighted = |weights: &[f64]| weights[rows.clone()].iter().all(|weight| WEIGHTS.contains(weight));
    let is_exact = !data.is_indirect();
    let has_columns = match &options.init {
        Init::Given(mixture) => mixture.n_features() == data.n_features(),
        _ => true,
    };
    has_rows && has_columns && is_exact && refusal(options).is_none() && data.weights().is_none_or(weighted)
}

/// Why a fit with these options is none that an engine is given by [`Engine::fit_small`];
/// `None` if it is. Whether the rows are few enough, the engine decides.
pub fn refusal(options: &FitOptions) -> Option<&'static str> {
    if options.rule != FitRule::none() {
        return Some("its M-step has a rule beyond maximum likelihood");
    }
    if options.validate().is_err() {
        return Some("its options are invalid");
    }
    match options.init {
        Init::KMeans | Init::KMeansPlusPlus | Init::RandomRows | Init::Stride | Init::Given(_) => None,
        Init::Random => Some("it starts from random responsibilities"),
        Init::Tree(_) | Init::Best(_) => Some("it starts from a tree of joins"),
        Init::MixUp => Some("it starts from fits with fewer components"),
    }
}
