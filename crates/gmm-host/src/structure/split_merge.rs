//! EM that leaves local maxima by splitting one component and merging two others (SMEM; Ueda, Nakano, Ghahramani and
//! Hinton 2000).
//!
//! At a maximum, candidates `(i, j, l)` are ranked: merge first the pair of largest `Σ_n r_ni r_nj`, and
//! for that pair split first the component of largest local divergence. The rows that make up the local density
//! of a component have `f_l(x_n) = r_nl / N_l` and `p_l(x_n) = r_nl p(x_n) / w_l`, so the divergence
//! `Σ_n f_l ln (f_l / p_l)` is `ln (w_l / N_l) − Σ_n (r_nl / N_l) ln p(x_n)`. Merge and split keep the moments, as in
//! Zhang, Chen, Sun and Chan 2003. EM then runs from each candidate in turn, first of the three components concerned
//! alone ([`partial_em`]), then of all; the first candidate that ends at a higher likelihood is the new maximum.

use gmm_model::structure::{SplitOptions, merge_pair, split};
use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, Precision};
use ndarray::{Array, Array1, Array2, Axis, RemoveAxis};

use super::blocks::Blocks;
use crate::{
    Data, Engine, Error, Fit, FitOptions, FitRule, Init, NoiseOptions, NoiseStart, Observer, fit_observed, memory,
};

/// Options of [`split_merge`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitMergeOptions {
    /// Number of candidates that are tried from each maximum. Default 5, as in Ueda et al. 2000.
    pub candidates: usize,
    /// Largest number of candidates that may be accepted. Default 100.
    pub rounds: usize,
}

impl Default for SplitMergeOptions {
    fn default() -> Self {
        Self { candidates: 5, rounds: 100 }
    }
}

/// Improves a fit by splits and merges: returns `fitted`, or a fit of higher log-likelihood with as many components.
///
/// `options` are those of the fit; `n_init` and `init` are ignored. A candidate is accepted if its mean log-likelihood is
/// higher by more than `tol`, so the likelihood never falls, and the search ends. Candidates whose fit fails are passed
/// over. The summary is that of the last EM run; [`Fit::elapsed`] is the time of all.
///
/// With fewer than three components there is nothing to exchange.
///
/// # Errors
/// [`Error::Interrupted`] if the observer breaks; [`Error::Memory`]; any error of the device.
///
/// Cost: one evaluation of the rows and up to [`candidates`](SplitMergeOptions::candidates) fits per round, each after an
/// evaluation and a fit of three components to the rows that belong to them.
pub fn split_merge<'a>(
    engine: &dyn Engine,
    data: impl Into<Data<'a>>,
    fitted: Fit,
    options: &FitOptions,
    how: &SplitMergeOptions,
    observer: &mut Observer<'_>,
) -> Result<Fit, Error> {
    let data = data.into();
    let precision = options.precision.unwrap_or(data.precision());
    let mut best = fitted;
    'rounds: for _ in 0..how.rounds {
        for candidate in candidates(engine, &best.mixture, data, precision, how.candidates)? {
            let start = partial_em(engine, &best.mixture, candidate, data, (precision, options), observer)?;
            let rule = FitRule { noise: kept_noise(&best, options), ..options.rule.clone() };
            let options = FitOptions { rule, ..from_start(options, start) };
            let next = match fit_observed(engine, data, &options, observer) {
                Err(error) if error.is_numerical() => continue,
                next => next?,
            };
            let elapsed = best.elapsed + next.elapsed;
            if next.summary.mean_log_likelihood > best.summary.mean_log_likelihood + options.tol {
                best = Fit { elapsed, ..next };
                continue 'rounds;
            }
            best.elapsed = elapsed;
        }
        break;
    }
    Ok(best)
}

/// The options of one fit from `start`.
fn from_start(options: &FitOptions, start: Mixture) -> FitOptions {
    FitOptions {
        n_components: start.n_components(),
        covariance_type: start.covariance_type(),
        init: Init::Given(Box::new(start)),
        n_init: 1,
        ..options.clone()
    }
}

/// The noise of the best fit, from which its successor starts.
fn kept_noise(best: &Fit, options: &FitOptions) -> Option<NoiseOptions> {
    let start = NoiseStart::Given(Box::new(best.noise.clone()?));
    Some(NoiseOptions { start, ..options.rule.noise.clone()? })
}

/// A mixture in which two components are merged and another one is split.
struct Candidate {
    mixture: Mixture,
    /// The three in the mixture before.
    before: [usize; 3],
    /// What replaces them in this one.
    after: [usize; 3],
}

/// Partial EM (Ueda et al. 2000, section 3.3): the three new components alone move, until convergence. A row belongs to
/// them with the sum of its responsibilities for the three before, so that all others keep theirs. This is a fit of three
/// components to rows of that weight.
///
/// The candidate is returned as it is where three components cannot be fitted alone: with a tied covariance, with a rule or
/// noise, if the fit fails or memory lacks, and for rows in GPU memory.
fn partial_em(
    engine: &dyn Engine,
    before: &Mixture,
    candidate: Candidate,
    data: Data<'_>,
    (precision, options): (Precision, &FitOptions),
    observer: &mut Observer<'_>,
) -> Result<Mixture, Error> {
    let Candidate { mixture, before: concerned, after } = candidate;
    let Data::Host(rows) = data else { return Ok(mixture) };
    if mixture.covariance_type() == CovarianceType::Tied || !options.rule.is_none() {
        return Ok(mixture);
    }
    let (mut which, mut weights, mut row) = (Vec::new(), Vec::new(), 0);
    Blocks::new(engine, before, data, precision)?.pass(|block| {
        for (i, r) in block.responsibilities.outer_iter().enumerate() {
            let share: f64 = concerned.iter().map(|&c| r[c]).sum();
            let weight = share * block.weights.map_or(1.0, |weights| weights[i]);
            // Rows of other components: all together weigh less than one row's rounding errors.
            if share >= f64::EPSILON && weight > 0.0 {
                which.push(row);
                weights.push(weight);
            }
            row += 1;
        }
        Ok(())
    })?;
    let bytes = 8 * which.len() as u128 * (rows.n_features() as u128 + 1);
    if which.len() < after.len() || memory::check("the rows of three components", bytes).is_err() {
        return Ok(mixture);
    }
    let share: Array1<f64> = after.iter().map(|&c| mixture.weights()[c]).collect();
    let total = share.sum();
    let some = rows.select_rows(&which).with_weights(weights)?;
    let options = from_start(options, mixture.selected(&after, share / total)?);
    match fit_observed(engine, &some, &options, observer) {
        // Some rows may lack what all rows have: a column without holes, or room for a copy.
        Err(Error::Data(_) | Error::Memory { .. } | Error::TooFewRows { .. }) => Ok(mixture),
        Err(error) if error.is_numerical() => Ok(mixture),
        fitted => Ok(replaced(&mixture, after, &fitted?.mixture, total)?),
    }
}

/// The mixture with the components of `by`, of weight `total`, in place of those at `at`; not of kind tied.
fn replaced(mixture: &Mixture, at: [usize; 3], by: &Mixture, total: f64) -> Result<Mixture, ModelError> {
    fn put<D: RemoveAxis>(to: &mut Array<f64, D>, at: [usize; 3], from: &Array<f64, D>) {
        for (&to_component, from) in at.iter().zip(from.outer_iter()) {
            to.index_axis_mut(Axis(0), to_component).assign(&from);
        }
    }
    let (mut weights, mut means) = (mixture.weights().to_owned(), mixture.means().to_owned());
    put(&mut weights, at, &(by.weights().to_owned() * total));
    put(&mut means, at, &by.means().to_owned());
    let mut covariances = mixture.covariances().clone();
    match (&mut covariances, by.covariances()) {
        (Covariances::Full(to), Covariances::Full(from)) => put(to, at, from),
        (Covariances::Diag(to), Covariances::Diag(from)) => put(to, at, from),
        (Covariances::Spherical(to), Covariances::Spherical(from)) => put(to, at, from),
        _ => panic!("components of one kind, which is not tied"),
    }
    Mixture::new(weights, means, covariances)
}

/// The first `count` candidates, best first.
fn candidates(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: Data<'_>,
    precision: Precision,
    count: usize,
) -> Result<Vec<Candidate>, Error> {
    let k = mixture.n_components();
    if k < 3 {
        return Ok(Vec::new());
    }
    let sums = Sums::of(engine, mixture, data, precision)?;
    let mut pairs: Vec<(usize, usize)> = (0..k).flat_map(|j| (0..j).map(move |i| (i, j))).collect();
    pairs.sort_by(|a, b| sums.together[*b].total_cmp(&sums.together[*a]));
    let mut to_split: Vec<usize> = (0..k).filter(|&c| sums.weight[c] > 0.0).collect();
    to_split.sort_by(|&a, &b| sums.divergence(mixture, b).total_cmp(&sums.divergence(mixture, a)));
    let ranked =
        pairs.iter().flat_map(|&(i, j)| to_split.iter().filter(move |&&l| l != i && l != j).map(move |&l| (i, j, l)));
    let made = ranked.filter_map(|(i, j, l)| {
        let merged = merge_pair(mixture, i, j).ok()?;
        // The merge removed component j, the larger.
        let moved = if l > j { l - 1 } else { l };
        let mixture = split(&merged, moved, &SplitOptions::default()).ok()?;
        Some(Candidate { mixture, before: [i, j, l], after: [i, moved, k - 1] })
    });
    Ok(made.take(count).collect())
}

/// Sums over the rows.
struct Sums {
    /// Σ w r_i r_j, `(k, k)`.
    together: Array2<f64>,
    /// Σ w r, `(k,)`.
    weight: Array1<f64>,
    /// Σ w r ln p(x), `(k,)`.
    log_density: Array1<f64>,
}

impl Sums {
    fn of(engine: &dyn Engine, mixture: &Mixture, data: Data<'_>, precision: Precision) -> Result<Self, Error> {
        let k = mixture.n_components();
        let (together, weight) = (Array2::zeros((k, k)), Array1::zeros(k));
        let mut sums = Self { together, weight: weight.clone(), log_density: weight };
        Blocks::new(engine, mixture, data, precision)?.pass(|block| {
            let r = block.responsibilities;
            let mut weighted = r.to_owned();
            if let Some(weights) = block.weights {
                weighted.outer_iter_mut().zip(weights).for_each(|(mut row, w)| row *= *w);
            }
            sums.together += &weighted.t().dot(&r);
            sums.weight += &weighted.sum_axis(ndarray::Axis(0));
            // A row of density 0 says nothing about one component more than about another.
            for (row, log) in weighted.outer_iter().zip(block.log_densities).filter(|(_, log)| log.is_finite()) {
                sums.log_density.scaled_add(*log, &row);
            }
            Ok(())
        })?;
        Ok(sums)
    }

    /// The local divergence of a component, without the rows' common `ln n`.
    fn divergence(&self, mixture: &Mixture, c: usize) -> f64 {
        mixture.log_weight(c) - self.weight[c].ln() - self.log_density[c] / self.weight[c]
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use gmm_model::{Dataset, SyntheticOptions, reference, sample, synthetic};

    use super::*;
    use crate::{CpuEngine, fit};

    #[test]
    fn partial_em_moves_three_components_alone_and_uphill() {
        let engine = CpuEngine::new(1).unwrap();
        for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
            let truth = synthetic(7, 2, kind, 5, &SyntheticOptions::default()).unwrap();
            let weights = (0..900).map(|i| f64::from(i % 3)).collect();
            let rows = sample(&truth, 900, 2).unwrap().0;
            let data = Dataset::new(rows.clone()).unwrap().with_weights(weights).unwrap();
            let options = FitOptions { covariance_type: kind, init: Init::RandomRows, seed: 3, ..FitOptions::new(7) };
            let before = fit(&engine, &data, &options).unwrap().mixture;
            let at = (Precision::F64, &options);
            let of = |mixture: &Mixture| -> f64 {
                let each = reference::log_densities(mixture, rows.view());
                each.iter().zip(data.weights().unwrap()).map(|(log, w)| log * w).sum()
            };
            for candidate in candidates(&engine, &before, (&data).into(), Precision::F64, 5).unwrap() {
                let (start, after) = (candidate.mixture.clone(), candidate.after);
                let mut observer = |_: &crate::Iteration<'_>| ControlFlow::Continue(());
                let moved = partial_em(&engine, &before, candidate, (&data).into(), at, &mut observer).unwrap();
                assert!(of(&moved) > of(&start), "{kind}: {} {}", of(&moved), of(&start));
                let of_three = |m: &Mixture| after.iter().map(|&c| m.weights()[c]).sum::<f64>();
                assert!((of_three(&moved) - of_three(&start)).abs() < 1e-14);
                for c in (0..7).filter(|c| !after.contains(c)) {
                    assert_eq!(moved.means().row(c), start.means().row(c));
                    assert!((moved.weights()[c] - start.weights()[c]).abs() < 1e-15);
                }
                assert!(after.iter().all(|&c| moved.means().row(c) != start.means().row(c)));
            }
        }
    }
}
