//! Choosing the number of components and the covariance kind by an information criterion.

use std::ops::ControlFlow;

use gmm_model::{CovarianceModel, Criterion};

use crate::concurrent::{self, Jobs};
use crate::{Data, Engine, Error, Fit, FitOptions, Iteration, Observer, fit_observed};

/// One of the fits compared, or its error.
#[derive(Debug)]
pub struct Candidate {
    /// Number of components.
    pub k: usize,
    /// Covariance kind, and the number of factors if there are some.
    pub kind: CovarianceModel,
    /// The fit, or its error. An error of one candidate, such as more components than rows, does not end the others.
    pub outcome: Result<Fit, Error>,
}

impl Candidate {
    /// The criterion's value; infinite if the fit failed.
    pub fn value(&self, criterion: Criterion) -> f64 {
        let Ok(fit) = &self.outcome else { return f64::INFINITY };
        match criterion {
            Criterion::Aic => fit.summary.aic,
            Criterion::Bic => fit.summary.bic,
            Criterion::Icl => fit.summary.icl,
        }
    }
}

/// Fits every combination of `components` and `kinds`, with the other `options` unchanged; `kinds` is the outer loop.
/// `observer` is called after each candidate, `iterations` after each EM iteration.
///
/// # Errors
/// [`Error::Interrupted`] if an observer breaks; errors of the data or device, which every candidate would meet.
pub fn select<'a, K: Copy + Into<CovarianceModel>>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    options: &FitOptions,
    components: &[usize],
    kinds: &[K],
    observer: &mut dyn FnMut(&Candidate) -> ControlFlow<()>,
    iterations: &mut Observer<'_>,
) -> Result<Vec<Candidate>, Error> {
    let data = data.into();
    // One tree for all candidates.
    let most = components.iter().copied().max().unwrap_or(1);
    // With noise each candidate makes one of the rows that are not noise at the start.
    let init = match options.rule.noise {
        None => options.init.with_tree(data, most, options.init_rows, options.seed)?,
        Some(_) => options.init.clone(),
    };
    let options = &FitOptions { init, ..options.clone() };
    let all: Vec<(CovarianceModel, usize)> =
        kinds.iter().flat_map(|&kind| components.iter().map(move |&k| (kind.into(), k))).collect();
    let fit_one = |engine: &dyn Engine, data: Data<'_>, i: usize, iterations: &mut Observer<'_>| {
        let (kind, n_components) = all[i];
        let options = FitOptions { n_components, ..options.clone() }.with_covariance(kind);
        fit_observed(engine, data, &options, iterations)
    };
    let mut out = Vec::with_capacity(all.len());
    let mut failure = None;
    let mut add = |i: usize, outcome: Result<Fit, Error>| {
        let outcome = match outcome {
            Err(error) if !is_own(&error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            outcome => outcome,
        };
        let (kind, k) = all[i];
        let candidate = Candidate { k, kind, outcome };
        let go_on = observer(&candidate);
        out.push(candidate);
        if go_on.is_break() {
            failure = Some(Error::Interrupted { iterations: 0 });
        }
        go_on
    };
    let mut stopped = None;
    let mut watched = |seen: &Iteration<'_>| {
        let go_on = iterations(seen);
        if go_on.is_break() {
            stopped = Some(Error::Interrupted { iterations: seen.iteration });
        }
        go_on
    };
    let ran = match data {
        Data::Host(host) if options.concurrent => {
            let run = |part: &dyn Engine, (): &mut (), i: usize, iterations: &mut Observer<'_>| {
                fit_one(part, Data::Host(host), i, iterations)
            };
            let jobs = Jobs { shape: host.rows().dim(), count: all.len(), run };
            concurrent::run(engine, &jobs, &mut watched, &mut add)
        }
        _ => false,
    };
    if !ran {
        let _ = (0..all.len()).try_for_each(|i| add(i, fit_one(engine, data, i, &mut watched)));
    }
    match stopped.or(failure) {
        Some(error) => Err(error),
        None => Ok(out),
    }
}

/// Whether an error concerns only its own candidate.
const fn is_own(error: &Error) -> bool {
    use Error::{AllNoise, CovarianceMemory, Likelihood, Memory, NotFinite, Singular, TooFewRows};
    matches!(
        error,
        Singular { .. }
            | NotFinite { .. }
            | Likelihood { .. }
            | AllNoise { .. }
            | TooFewRows { .. }
            | Memory { .. }
            | CovarianceMemory { .. }
    )
}

/// The index of the candidate with the smallest criterion, the first among equals; `None` if no fit succeeded.
pub fn best(candidates: &[Candidate], criterion: Criterion) -> Option<usize> {
    let fitted = candidates.iter().enumerate().filter(|(_, c)| c.outcome.is_ok());
    fitted.min_by(|a, b| a.1.value(criterion).total_cmp(&b.1.value(criterion))).map(|(i, _)| i)
}
