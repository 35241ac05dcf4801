//! Small fits that an engine runs in a way of its own, from the start to the last iteration: what it may be given, and
//! what it returns.

use std::time::Duration;

use gmm_model::{Dataset, RowStorage};

use super::Job;
use crate::em::EmRun;
use crate::init::StartReached;
use crate::{Error, Evaluation, FitOptions, FitRule, Init};

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

/// Whether an engine may be given this job: its options have no [`refusal`], and it has rows that can be fitted, all of
/// positive weight.
pub(super) fn is_simple(data: &Dataset, Job { rows, options }: &Job<'_>) -> bool {
    let has_rows = rows.start <= rows.end && rows.end <= data.n_rows() && rows.len() >= options.n_components.max(2);
    let weighted = |weights: &[f64]| weights[rows.clone()].iter().all(|&weight| weight > 0.0);
    let is_exact = !data.is_indirect();
    has_rows && is_exact && refusal(options).is_none() && data.weights().is_none_or(weighted)
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
