//! The best of several starts: each makes a few iterations of EM on the same rows, and the one with the highest
//! likelihood goes on (emEM: Biernacki, Celeux and Govaert 2003, with a tree and k-means among the starts).

use std::ops::ControlFlow;

use gmm_model::{Draws, Mixture, Precision};

use super::subsample::{self, RowSample};
use super::{Init, Start, Tree};
use crate::em::{self, EmOptions, EmRun, RestartProgress};
use crate::{Error, Resident};

/// Number of starts from rows drawn at random.
const RANDOM: usize = 8;

/// Iterations of EM that each start makes before they are compared.
const ITERATIONS: usize = 10;

/// What one start reached.
#[derive(Clone, Debug, PartialEq)]
pub struct StartReached {
    /// Index of the restart that it belongs to, from 0.
    pub restart: usize,
    /// Its name, one of [`Init::WORDS`], or `given`.
    pub start: &'static str,
    /// Mean log-likelihood at its last E-step; NaN if it ended with an error or made no E-step.
    pub mean_log_likelihood: f64,
    /// Iterations of EM made.
    pub iterations: usize,
    /// Whether it converged. A short run, which is compared with others and may then go on, does not.
    pub converged: bool,
    /// Whether this is a short run.
    pub short: bool,
}

impl StartReached {
    /// What a run of EM reached.
    pub(crate) fn of(run: &EmRun, restart: usize, start: &'static str) -> Self {
        let mean_log_likelihood = run.trace.last().copied().unwrap_or(f64::NAN);
        let (iterations, converged) = (run.iterations, run.converged);
        Self { restart, start, mean_log_likelihood, iterations, converged, short: false }
    }
}

/// The mixture of the start with the highest likelihood after a few iterations on `rows`, or on a sample of them as
/// k-means uses, and the number of components that its initialisation left without rows. Each start is added to
/// `reached`. Cost: ten starts, and ten iterations of each on the sample.
///
/// # Errors
/// The error of the first start if all fail; any error of the device.
pub(super) fn best(
    rows: &mut dyn Resident,
    start: Start<'_>,
    tree: Option<&Tree>,
    draws: &mut Draws,
    reached: &mut Vec<StartReached>,
) -> Result<(Mixture, usize), Error> {
    let (n, k) = (rows.dim().0, start.k);
    let count = start.init_rows.unwrap_or_else(|| subsample::rows_for(n, k));
    let mut found: Option<(f64, Mixture, usize)> = None;
    let mut failure = None;
    let built = match tree {
        Some(_) => None,
        // A copy of the draws, so that the others do not depend on who made the tree.
        None => Some(Tree::new(start.data, k, start.init_rows, &mut draws.clone())?),
    };
    let tree = tree.or(built.as_ref()).expect("one of them");
    let sample = if count < n { Some(RowSample::some(start.data, count, draws)) } else { None };
    let mut sampled = match &sample {
        Some(some) => Some(rows.sample(some.chosen().expect("some rows"), some.weights())?),
        None => None,
    };
    let options = EmOptions {
        tol: 0.0,
        max_iter: ITERATIONS,
        reg_covar: start.reg_covar,
        precision: Precision::F64,
        autotune: false,
        fast: false,
    };
    let inits = [Init::Tree(None), Init::KMeans].into_iter().chain(std::iter::repeat_n(Init::RandomRows, RANDOM));
    for init in inits {
        let first = match &init {
            Init::Tree(_) => super::of_tree(rows, start, tree),
            init => super::start(rows, start, init, draws),
        };
        let run = first.and_then(|(mixture, empty)| {
            let resident = sampled.as_mut().map_or(&mut *rows, |some| &mut **some);
            let progress = RestartProgress { index: 0, begun: 1, empty_at_start: empty, best: None };
            let run = EmRun::new(mixture);
            let run = em::go_on(resident, run, &options, start.rule, progress, &mut |_| ControlFlow::Continue(()))?;
            Ok((run, empty))
        });
        let mut seen = StartReached {
            restart: 0,
            start: init.name(),
            mean_log_likelihood: f64::NAN,
            iterations: 0,
            converged: false,
            short: true,
        };
        match run {
            Ok((run, empty)) => {
                let value = *run.trace.last().expect("iterations");
                (seen.mean_log_likelihood, seen.iterations) = (value, run.iterations);
                if found.as_ref().is_none_or(|(best, ..)| value > *best) {
                    found = Some((value, run.mixture, empty));
                }
            }
            Err(error) if error.is_numerical() => {
                failure.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
        reached.push(seen);
    }
    match (found, failure) {
        (Some((_, mixture, empty)), _) => Ok((mixture, empty)),
        (None, failure) => Err(failure.expect("a start ran")),
    }
}
