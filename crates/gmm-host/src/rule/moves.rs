//! Moves of variational Bayes between local maxima of the bound: components are reordered, merged, deleted and born.
//!
//! Each move gives a start for more iterations, and is accepted if these end at a higher bound; so the bound never falls.
//! After an acceptance the search begins anew. Merges and deletions free components that births can use.
//!
//! Source: Hughes and Sudderth 2013, Memoized online variational inference for Dirichlet process mixture models (merge
//! and birth); Hughes, Kim and Sudderth 2015 (delete). There a move is judged from statistics of batches; here by
//! iterations over all rows, which are few. The order of components matters to a Dirichlet process (Kurihara, Welling
//! and Teh 2007): by falling count is best.

use gmm_model::bayes::{Posterior, WeightPrior};
use gmm_model::structure::{SplitOptions, bhattacharyya, merge_pair, split};
use gmm_model::{Mixture, ModelError};
use ndarray::Array1;

use super::Rule;
use crate::em::{EmOptions, EmRun, Observer, RestartProgress, go_on};
use crate::{Error, Resident};

/// Candidates of each kind of move that are tried between two acceptances.
const CANDIDATES: usize = 4;

/// Most accepted moves.
const ROUNDS: usize = 100;

/// Iterations after which a candidate is judged first.
const TRIAL: usize = 10;

/// A component with fewer rows than this counts as empty.
const EMPTY: f64 = 1.0;

/// Continues a run by moves until none is accepted. The trace of the result goes on with the iterations of accepted
/// moves that are above it.
///
/// # Errors
/// As for [`go_on`].
pub(crate) fn improve(
    rows: &mut dyn Resident,
    mut run: EmRun,
    options: &EmOptions,
    rule: &Rule,
    progress: RestartProgress<'_>,
    observer: &mut Observer<'_>,
) -> Result<EmRun, Error> {
    let mut rounds = 0;
    'rounds: while let Some(posterior) = run.posterior.clone()
        && rounds < ROUNDS
        && !run.finished
    {
        rounds += 1;
        let bound = run.trace.last().copied().unwrap_or(f64::NEG_INFINITY);
        for start in candidates(&posterior)? {
            let tried = attempt(rows, start, bound, options, rule, progress, observer);
            match tried {
                Ok(Some(next)) => {
                    accept(&mut run, next, bound);
                    continue 'rounds;
                }
                Ok(None) => {}
                // A candidate that fails is passed over.
                Err(Error::Singular { .. } | Error::NotFinite { .. } | Error::Likelihood { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        break;
    }
    Ok(run)
}

/// Iterates from a start. `None` if that does not end above `bound`.
fn attempt(
    rows: &mut dyn Resident,
    start: Mixture,
    bound: f64,
    options: &EmOptions,
    rule: &Rule,
    progress: RestartProgress<'_>,
    observer: &mut Observer<'_>,
) -> Result<Option<EmRun>, Error> {
    let least = bound + options.tol.max(1e-10 * bound.abs());
    let short = EmOptions { max_iter: TRIAL.min(options.max_iter), ..*options };
    let tried = go_on(rows, EmRun::new(start), &short, rule, progress, observer)?;
    let reached = tried.trace.last().copied().unwrap_or(f64::NEG_INFINITY);
    // Changes shrink from iteration to iteration: this many of the last one are more than the rest usually gives.
    let hopeless = reached + 2.0 * TRIAL as f64 * tried.last_change() < least;
    if hopeless || tried.converged || tried.finished {
        return Ok((reached > least).then_some(tried));
    }
    let ended = go_on(rows, tried, options, rule, progress, observer)?;
    Ok(ended.trace.last().is_some_and(|reached| *reached > least).then_some(ended))
}

fn accept(run: &mut EmRun, next: EmRun, bound: f64) {
    run.trace.extend(next.trace.iter().filter(|value| **value > bound));
    run.iterations = run.trace.len();
    (run.mixture, run.posterior) = (next.mixture, next.posterior);
    (run.converged, run.finished) = (next.converged, next.finished);
}

/// The starts of the moves from a posterior, the cheapest first.
fn candidates(posterior: &Posterior) -> Result<Vec<Mixture>, ModelError> {
    let counts = posterior.counts();
    let mixture = counted(posterior.mixture(), &counts)?;
    let mut by_count: Vec<usize> = (0..counts.len()).collect();
    by_count.sort_by(|&a, &b| counts[b].total_cmp(&counts[a]));
    let used: Vec<usize> = by_count.iter().copied().filter(|&c| counts[c] >= EMPTY).collect();
    let mut all = Vec::new();
    let is_sorted = counts.iter().zip(counts.iter().skip(1)).all(|(a, b)| a >= b);
    if matches!(posterior.prior().weights, WeightPrior::DirichletProcess { .. }) && !is_sorted {
        all.push(mixture.permuted(&by_count)?);
    }
    if used.len() > 1 {
        for (a, b) in closest(&mixture, &used)?.into_iter().take(CANDIDATES) {
            all.push(padded(&merge_pair(&mixture, a, b)?, b, &mixture)?);
        }
        for &c in used.iter().rev().take(CANDIDATES) {
            all.push(counted(&mixture, &without(&counts, c))?);
        }
    }
    if let Some(&free) = by_count.iter().find(|&&c| counts[c] < EMPTY) {
        for &c in used.iter().take(CANDIDATES) {
            let two = split(&mixture, c, &SplitOptions::default())?;
            // The new component takes the place of the empty one.
            let k = counts.len();
            let order: Vec<usize> = (0..k).map(|i| if i == free { k } else { i }).chain([free]).collect();
            all.push(first(&two.permuted(&order)?, k)?);
        }
    }
    Ok(all)
}

/// The pairs of used components, the closest first.
fn closest(mixture: &Mixture, used: &[usize]) -> Result<Vec<(usize, usize)>, ModelError> {
    let mut pairs = Vec::new();
    for (i, &a) in used.iter().enumerate() {
        for &b in &used[..i] {
            pairs.push((bhattacharyya(mixture, a, mixture, b)?, (a.min(b), a.max(b))));
        }
    }
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(pairs.into_iter().map(|(_, pair)| pair).collect())
}

/// The components with weights in proportion to counts.
fn counted(mixture: &Mixture, counts: &Array1<f64>) -> Result<Mixture, ModelError> {
    let counts = counts.mapv(|n| if n >= EMPTY { n } else { 0.0 });
    let total = counts.sum();
    if total > 0.0 { mixture.with_weights(counts / total) } else { Ok(mixture.clone()) }
}

fn without(counts: &Array1<f64>, c: usize) -> Array1<f64> {
    Array1::from_shape_fn(counts.len(), |i| if i == c { 0.0 } else { counts[i] })
}

/// A merged mixture, which lacks component `at`, with an empty component in its place.
fn padded(merged: &Mixture, at: usize, before: &Mixture) -> Result<Mixture, ModelError> {
    let k = before.n_components();
    let weights = Array1::from_shape_fn(k, |i| match i.cmp(&at) {
        std::cmp::Ordering::Less => merged.weights()[i],
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Greater => merged.weights()[i - 1],
    });
    let order: Vec<usize> = (0..k).map(|i| if i > at { i - 1 } else { i.min(k - 2) }).collect();
    merged.selected(&order, weights)
}

/// The first `k` components; the others weigh nothing.
fn first(mixture: &Mixture, k: usize) -> Result<Mixture, ModelError> {
    let mut weights = mixture.weights().slice(ndarray::s![..k]).to_owned();
    weights /= weights.sum();
    mixture.selected(&(0..k).collect::<Vec<_>>(), weights)
}
