//! Small fits that an engine runs in a way of its own, from the start to the last iteration: what it may be given, and
//! what it returns.

use std::time::Duration;

use gmm_model::{Dataset, RowStorage};

use super::Job;
use crate::em::{self, EmRun, Observer};
use crate::fit::{em_options, finished};
use crate::{Engine, Error, Evaluation, Fit, FitOptions, FitRule, Init};

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
    /// The totals of the rows under the last mixture.
    pub evaluation: Evaluation,
    /// The variance of each column, `(d,)`, weighted.
    pub variances: Vec<f64>,
    /// How the rows were stored: the shift is a point within their bulk, as that of [`shift::of_data`](crate::shift::of_data).
    pub storage: RowStorage,
    /// This fit's part of the time.
    pub elapsed: Duration,
}

/// A single fit by the engine's own way; `None` if it has none for these rows. The fit then has the same bits as one of
/// many.
pub(crate) fn alone(
    engine: &dyn Engine,
    data: &Dataset,
    options: &FitOptions,
    observer: &mut Observer<'_>,
) -> Option<Result<Fit, Error>> {
    #[cfg(test)]
    if !ALONE.get() {
        return None;
    }
    let job = Job { rows: 0..data.n_rows(), options };
    if !is_simple(data, &job) {
        return None;
    }
    // After a failure the ordinary way finds out whether the device still works.
    let runs = engine.fit_small(data, &[job]).ok()??;
    let fit = runs.into_iter().next()??.and_then(|mut found| {
        let em = em_options(options, found.storage.precision);
        em::replay(&mut found.run, &em, (found.restart, options.n_init, found.empty_at_start), observer)?;
        finished(&engine.name(), data.n_rows(), options, found)
    });
    Some(fit)
}

#[cfg(test)]
thread_local! {
    /// Whether single fits may take this way: set by its tests on their own thread, since others are about the rest of an
    /// engine.
    pub(crate) static ALONE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// Whether an engine may be given this job: its options have no [`refusal`], and it has rows that can be fitted, all of
/// positive weight.
pub(super) fn is_simple(data: &Dataset, Job { rows, options }: &Job<'_>) -> bool {
    let has_rows = rows.start <= rows.end && rows.end <= data.n_rows() && rows.len() >= options.n_components.max(2);
    let weighted = |weights: &[f64]| weights[rows.clone()].iter().all(|&weight| weight > 0.0);
    has_rows && refusal(options).is_none() && data.weights().is_none_or(weighted)
}

/// Why a fit with these options is none that an engine is given by [`Engine::fit_small`](crate::Engine::fit_small);
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
