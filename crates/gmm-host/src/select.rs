//! Choosing the number of components and the covariance kind by an information criterion.

use std::ops::ControlFlow;

use gmm_model::{CovarianceType, Criterion};

use crate::{Data, Engine, Error, Fit, FitOptions, Observer, fit_observed};

/// One of the fits compared, or its error.
#[derive(Debug)]
pub struct Candidate {
    /// Number of components.
    pub k: usize,
    /// Covariance kind.
    pub kind: CovarianceType,
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
pub fn select<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    options: &FitOptions,
    components: &[usize],
    kinds: &[CovarianceType],
    observer: &mut dyn FnMut(&Candidate) -> ControlFlow<()>,
    iterations: &mut Observer<'_>,
) -> Result<Vec<Candidate>, Error> {
    let data = data.into();
    // One tree for all candidates.
    let most = components.iter().copied().max().unwrap_or(1);
    let init = options.init.with_tree(data, most, options.init_rows, options.seed)?;
    let options = &FitOptions { init, ..options.clone() };
    let mut out = Vec::with_capacity(components.len() * kinds.len());
    for &kind in kinds {
        for &k in components {
            let options = FitOptions { n_components: k, covariance_type: kind, ..options.clone() };
            let outcome = match fit_observed(engine, data, &options, iterations) {
                Err(error) if !is_own(&error) => return Err(error),
                outcome => outcome,
            };
            let candidate = Candidate { k, kind, outcome };
            let stop = observer(&candidate).is_break();
            out.push(candidate);
            if stop {
                return Err(Error::Interrupted { iterations: 0 });
            }
        }
    }
    Ok(out)
}

/// Whether an error concerns only its own candidate.
const fn is_own(error: &Error) -> bool {
    use Error::{CovarianceMemory, Likelihood, Memory, NotFinite, Singular, TooFewRows};
    matches!(
        error,
        Singular { .. }
            | NotFinite { .. }
            | Likelihood { .. }
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
