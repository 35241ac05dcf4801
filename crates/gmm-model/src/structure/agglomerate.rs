//! Agglomeration: the two closest components are merged, again and again, until one is left.

use std::fmt;
use std::str::FromStr;

use ndarray::Array2;

use super::{Tree, bhattacharyya, distances, merge_pair, runnalls, symmetric_kl};
use crate::{Mixture, ModelError};

/// What is small between two components that may be merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PairDistance {
    /// Runnalls' bound on the divergence that the merge causes ([`runnalls`]). Takes the weights into account.
    Runnalls,
    /// Jeffreys' symmetric Kullback-Leibler divergence ([`symmetric_kl`]).
    Kl,
    /// Bhattacharyya's distance ([`bhattacharyya`]), as in Hennig 2010.
    Bhattacharyya,
}

impl PairDistance {
    /// All distances.
    pub const ALL: [Self; 3] = [Self::Runnalls, Self::Kl, Self::Bhattacharyya];

    /// The name on the command line: `runnalls`, `kl` or `bhattacharyya`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runnalls => "runnalls",
            Self::Kl => "kl",
            Self::Bhattacharyya => "bhattacharyya",
        }
    }

    /// The distance of components `i` and `j`.
    ///
    /// # Errors
    /// As for [`bhattacharyya`] and [`runnalls`].
    pub fn between(self, mixture: &Mixture, i: usize, j: usize) -> Result<f64, ModelError> {
        match self {
            Self::Runnalls => runnalls(mixture, i, j),
            Self::Kl => symmetric_kl(mixture, i, mixture, j),
            Self::Bhattacharyya => bhattacharyya(mixture, i, mixture, j),
        }
    }
}

impl fmt::Display for PairDistance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PairDistance {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Self::ALL.into_iter().find(|by| by.name() == text).ok_or_else(|| ModelError::UnknownWord {
            what: "distance",
            word: text.to_owned(),
            choices: "runnalls, kl, bhattacharyya",
        })
    }
}

/// The tree of merges of the closest two components until one is left. Each merge keeps the moments
/// ([`merge_pair`]), and distances to a merged component are those of the merged Gaussian.
///
/// Heights are the sum of the bounds so far for [`PairDistance::Runnalls`], which bounds the divergence from the first
/// mixture in the steps taken; for the other distances the largest so far, since a merged component can be closer to a
/// third than its parts were.
///
/// # Errors
/// As for [`bhattacharyya`] and [`runnalls`].
///
/// Cost: about `k²` distances, and `k` factorisations of all covariances; for tied `k³/6` distances.
pub fn agglomerate(mixture: &Mixture, by: PairDistance) -> Result<Tree, ModelError> {
    let mut tree = Tree::new(mixture.n_components());
    let mut now = mixture.clone();
    let mut table = distances(&now, by)?;
    let mut height = 0.0_f64;
    while now.n_components() > 1 {
        let (i, j, value) = closest(&table);
        height = if by == PairDistance::Runnalls { height + value } else { height.max(value) };
        tree.join(i, j, value, height)?;
        now = merge_pair(&now, i, j)?;
        table = after(&table, &now, by, (i, j))?;
    }
    Ok(tree)
}

/// The pair `(i, j, value)`, `i < j`, of smallest value, the first among equals.
fn closest(table: &Array2<f64>) -> (usize, usize, f64) {
    let pairs = table.indexed_iter().filter(|((i, j), _)| i < j);
    let ((i, j), value) = pairs.min_by(|a, b| a.1.total_cmp(b.1)).expect("two components");
    (i, j, *value)
}

/// The table after the merge of `i` and `j` into the smaller index: only distances to the merged component are new.
fn after(
    table: &Array2<f64>,
    now: &Mixture,
    by: PairDistance,
    (i, j): (usize, usize),
) -> Result<Array2<f64>, ModelError> {
    // A merge changes the tied covariance of all components.
    if now.covariance_type() == crate::CovarianceType::Tied {
        return distances(now, by);
    }
    let kept: Vec<usize> = (0..table.nrows()).filter(|&c| c != j).collect();
    let mut next = table.select(ndarray::Axis(0), &kept).select(ndarray::Axis(1), &kept);
    for c in (0..next.nrows()).filter(|&c| c != i) {
        let value = by.between(now, i, c)?;
        next[[i, c]] = value;
        next[[c, i]] = value;
    }
    Ok(next)
}

/// What a merge changes in the criteria of a fit; negative is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MergeChange {
    /// Change of the total log-likelihood; never positive at a maximum of the likelihood.
    pub log_likelihood: f64,
    /// Change of BIC, `p ln n − 2 LL`.
    pub bic: f64,
    /// Change of the description length in nats ([`description_length`]).
    pub description_length: f64,
}

impl MergeChange {
    /// The change from `before` to `after` on rows of total weight `n`, if the log-likelihood changes by this.
    pub fn new(before: &Mixture, after: &Mixture, n: f64, log_likelihood: f64) -> Self {
        let parameters = after.n_parameters() as f64 - before.n_parameters() as f64;
        let numbers = n * before.n_features() as f64;
        Self {
            log_likelihood,
            bic: parameters * n.ln() - 2.0 * log_likelihood,
            description_length: 0.5 * parameters * numbers.ln() - log_likelihood,
        }
    }
}

/// Bounds, without the data, of what merging components `i` and `j` changes for `n` rows: the log-likelihood is expected
/// to fall by at most `n` times Runnalls' bound, if the rows are distributed as the mixture.
///
/// # Errors
/// As for [`runnalls`]; [`ModelError::Range`] if `n` is not positive.
pub fn bound_of_change(mixture: &Mixture, i: usize, j: usize, n: f64) -> Result<MergeChange, ModelError> {
    if !(n > 0.0 && n.is_finite()) {
        return Err(ModelError::Range { what: "number of rows", value: n.to_string(), must: "positive" });
    }
    let loss = n * runnalls(mixture, i, j)?;
    Ok(MergeChange::new(mixture, &merge_pair(mixture, i, j)?, n, -loss))
}

/// Rissanen's description length of rows in nats, `½ p ln(n d) − LL` (Rissanen 1983): the data have `n d` numbers. The
/// form used for mixtures by Bouman's CLUSTER (1997), whose merging cost is `n` times [Runnalls' bound](runnalls).
///
/// ```
/// let length = gmm_model::structure::description_length(3, -10.0, 50.0, 2);
/// assert_eq!(length, 1.5 * 100f64.ln() + 10.0);
/// ```
pub fn description_length(n_parameters: usize, log_likelihood: f64, total_weight: f64, d: usize) -> f64 {
    0.5 * n_parameters as f64 * (total_weight * d as f64).ln() - log_likelihood
}
