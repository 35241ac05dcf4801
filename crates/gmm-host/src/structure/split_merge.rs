//! EM that leaves local maxima by splitting one component and merging two others (SMEM; Ueda, Nakano, Ghahramani and
//! Hinton 2000).
//!
//! At a maximum, candidates `(i, j, l)` are ranked: merge first the pair of largest `Σ_n r_ni r_nj`, and
//! for that pair split first the component of largest local divergence. The rows that make up the local density
//! of a component have `f_l(x_n) = r_nl / N_l` and `p_l(x_n) = r_nl p(x_n) / w_l`, so the divergence
//! `Σ_n f_l ln (f_l / p_l)` is `ln (w_l / N_l) − Σ_n (r_nl / N_l) ln p(x_n)`. Merge and split keep the moments, as in
//! Zhang, Chen, Sun and Chan 2003. EM then runs from each candidate in turn; the first that ends at a higher likelihood
//! is the new maximum.

use gmm_model::structure::{SplitOptions, merge_pair, split};
use gmm_model::{Mixture, Precision};
use ndarray::{Array1, Array2};

use super::blocks::Blocks;
use crate::{Data, Engine, Error, Fit, FitOptions, FitRule, Init, NoiseOptions, NoiseStart, Observer, fit_observed};

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
/// Cost: one evaluation of the rows and up to [`candidates`](SplitMergeOptions::candidates) fits per round.
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
            let options = FitOptions {
                n_components: candidate.n_components(),
                covariance_type: candidate.covariance_type(),
                init: Init::Given(Box::new(candidate)),
                n_init: 1,
                rule: FitRule { noise: kept_noise(&best, options), ..options.rule.clone() },
                ..options.clone()
            };
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

/// The noise of the best fit, from which its successor starts.
fn kept_noise(best: &Fit, options: &FitOptions) -> Option<NoiseOptions> {
    let start = NoiseStart::Given(Box::new(best.noise.clone()?));
    Some(NoiseOptions { start, ..options.rule.noise.clone()? })
}

/// The first `count` candidates, best first.
fn candidates(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: Data<'_>,
    precision: Precision,
    count: usize,
) -> Result<Vec<Mixture>, Error> {
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
        // The merge removed component j.
        split(&merged, if l > j { l - 1 } else { l }, &SplitOptions::default()).ok()
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
