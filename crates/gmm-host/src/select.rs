//! Choosing the number of components and the covariance kind by an information criterion.

use std::ops::ControlFlow;

use gmm_model::{CovarianceModel, Criterion};

use crate::concurrent::{self, Jobs};
use crate::many::small;
use crate::restarts::report;
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
    let own = options_of_each(data, options, components, kinds)?;
    let mut out = Vec::with_capacity(own.len());
    let mut failure = None;
    let mut add = |i: usize, outcome: Result<Fit, Error>| {
        let outcome = match outcome {
            Err(error) if !is_own(&error) => {
                failure = Some(error);
                return ControlFlow::Break(());
            }
            outcome => outcome,
        };
        let candidate = Candidate { k: own[i].n_components, kind: own[i].covariance(), outcome };
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
    // An engine with a way of its own for small fits makes most candidates that way, and the others one by one.
    let mut ended = small::run_all_rows(engine, data, &own);
    let ran = match data {
        Data::Host(host) if options.concurrent && ended.iter().all(Option::is_none) => {
            let run = |part: &dyn Engine, (): &mut (), i: usize, iterations: &mut Observer<'_>| {
                fit_observed(part, host, &own[i], iterations)
            };
            let jobs = Jobs { shape: host.rows().dim(), count: own.len(), run };
            concurrent::run(engine, &jobs, &mut watched, &mut add)
        }
        _ => false,
    };
    if !ran {
        let _ = (0..own.len()).try_for_each(|i| {
            let outcome = match ended[i].take() {
                Some(found) => found.and_then(|fit| report(&fit, &own[i], &mut watched).map(|()| fit)),
                None => fit_observed(engine, data, &own[i], &mut watched),
            };
            add(i, outcome)
        });
    }
    match stopped.or(failure) {
        Some(error) => Err(error),
        None => Ok(out),
    }
}

/// The options of each candidate, those of a kind together.
///
/// # Errors
/// As for [`Init::with_tree`](crate::Init::with_tree).
fn options_of_each<K: Copy + Into<CovarianceModel>>(
    data: Data<'_>,
    options: &FitOptions,
    components: &[usize],
    kinds: &[K],
) -> Result<Vec<FitOptions>, Error> {
    // One tree for all candidates.
    let most = components.iter().copied().max().unwrap_or(1);
    // With noise each candidate makes one of the rows that are not noise at the start.
    let init = match options.rule.noise {
        None => options.init.with_tree(data, most, options.init_rows, options.seed)?,
        Some(_) => options.init.clone(),
    };
    let options = &FitOptions { init, ..options.clone() };
    let of = |kind: K, k: usize| FitOptions { n_components: k, ..options.clone() }.with_covariance(kind.into());
    Ok(kinds.iter().flat_map(|&kind| components.iter().map(move |&k| of(kind, k))).collect())
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
