//! Initialisation: the mixture from which EM starts.

mod best;
mod drawn;
mod kmeans;
mod labelled;
mod mix_up;
mod subsample;
mod tree;
mod weighted;

use std::str::FromStr;
use std::sync::Arc;

use gmm_model::{CovarianceType, Covariances, Draws, Mixture, ModelError, Statistics};
use ndarray::{Array1, Array2, Axis};

use crate::em::{check, singular};
use crate::rule::Rule;
use crate::{Data, Error, Resident};

pub use best::StartReached;
pub use drawn::{RowDraw, WeighedRows};
pub use kmeans::{KMeans, LloydPasses, k_means, lloyd, seed};
pub use tree::Tree;

pub(crate) use drawn::rows_of;
pub(crate) use kmeans::lloyd_pass;
pub(crate) use subsample::rows_for as default_rows;

/// How the first mixture is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Init {
    /// k-means: k-means++ seeding, then Lloyd's iteration until it converges, on a sample if there are many rows
    /// ([`k_means`]). All rows are then assigned to the clusters, each of which gives a component.
    KMeans,
    /// Only k-means++ seeding, on the same kind of sample; all rows are then assigned to their nearest seed.
    KMeansPlusPlus,
    /// The means are distinct rows drawn at random; all components start with the data's covariance and equal weights.
    /// Rows are drawn in proportion to their weights. Integer weights stand for repeated rows, of which two copies
    /// count as distinct.
    RandomRows,
    /// Random responsibilities for every row. A row of weight 2 draws once and counts twice, whereas two equal rows
    /// draw twice: the two starts differ, although their means over all seeds are equal.
    Random,
    /// As [`RandomRows`](Self::RandomRows), but with evenly spaced rows: nothing is random.
    Stride,
    /// A tree of joins over a sample of rows, cut at the number of components ([`Tree`]): model-based agglomeration, as
    /// in mclust. Each cluster of the sample gives a component, that of its observed values if some are missing. `None`
    /// makes the tree from the rows of the fit; only a sample depends on the seed.
    Tree(Option<Arc<Tree>>),
    /// The best of several starts by likelihood after ten iterations each: [`Tree`](Self::Tree),
    /// [`KMeans`](Self::KMeans), and eight times [`RandomRows`](Self::RandomRows) (emEM). The iterations run on the same
    /// kind of sample as k-means.
    Best(Option<Arc<Tree>>),
    /// One component for all rows, then twice as many and a few iterations of EM, until there are enough: as background
    /// models are trained for speech (HTK's `MU`, Kaldi's `Split`). Nothing is random. Variances of kind diag and spherical
    /// are kept above a hundredth of the data's on the way.
    MixUp,
    /// The given mixture.
    Given(Box<Mixture>),
}

impl Init {
    /// The names accepted by [`FromStr`].
    pub const WORDS: [&'static str; 8] =
        ["kmeans", "kmeans++", "random-rows", "random", "stride", "tree", "best", "mix-up"];

    /// The name: one of [`WORDS`](Self::WORDS), or `given`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::KMeans => "kmeans",
            Self::KMeansPlusPlus => "kmeans++",
            Self::RandomRows => "random-rows",
            Self::Random => "random",
            Self::Stride => "stride",
            Self::Tree(_) => "tree",
            Self::Best(_) => "best",
            Self::MixUp => "mix-up",
            Self::Given(_) => "given",
        }
    }

    /// Whether the first mixture of a fit of `n` rows with `k` components does not depend on the seed. `init_rows` is
    /// that of the fit.
    pub fn is_deterministic(&self, n: usize, k: usize, init_rows: Option<usize>) -> bool {
        match self {
            Self::Stride | Self::MixUp | Self::Given(_) | Self::Tree(Some(_)) => true,
            Self::Tree(None) => tree::sample_size(n, k, init_rows) == n,
            _ => false,
        }
    }

    /// The same initialisation with a tree that serves up to `k` components, if it needs one and has none: for several
    /// fits of the same rows. `seed` is that of the fits, whose first restart would make the same tree.
    ///
    /// # Errors
    /// As for [`Tree::new`]; [`Error::Data`] if no row has an observed value.
    pub fn with_tree(&self, data: Data<'_>, k: usize, init_rows: Option<usize>, seed: u64) -> Result<Self, Error> {
        let make = || -> Result<_, Error> {
            // The rows of a fit, of which the tree keeps the indices.
            let observed = data.without_unobserved()?;
            let data = observed.as_ref().map_or(data, |(data, _)| Data::Host(data));
            let present = data.without_absent_rows();
            let data = present.as_ref().map_or(data, Data::from);
            Ok(Some(Arc::new(Tree::new(data, k, init_rows, &mut Draws::for_purpose("fit", seed, 0))?)))
        };
        Ok(match self {
            Self::Tree(None) => Self::Tree(make()?),
            Self::Best(None) => Self::Best(make()?),
            other => other.clone(),
        })
    }
}

impl FromStr for Init {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        Ok(match text {
            "kmeans" => Self::KMeans,
            "kmeans++" => Self::KMeansPlusPlus,
            "random-rows" => Self::RandomRows,
            "random" => Self::Random,
            "stride" => Self::Stride,
            "tree" => Self::Tree(None),
            "best" => Self::Best(None),
            "mix-up" => Self::MixUp,
            _ => {
                return Err(ModelError::UnknownWord {
                    what: "initialisation",
                    word: text.to_owned(),
                    choices: "kmeans, kmeans++, random-rows, random, stride, tree, best, mix-up, or given parameters",
                });
            }
        })
    }
}

/// Parameters of an initialisation.
#[derive(Clone, Copy)]
pub struct Start<'a> {
    /// The rows in their own coordinates, all of positive weight.
    pub data: Data<'a>,
    /// The shift of the rows on the engine, `(d,)`.
    pub shift: &'a [f64],
    /// Covariance kind.
    pub kind: CovarianceType,
    /// Number of components.
    pub k: usize,
    /// Added to the covariances' diagonals.
    pub reg_covar: f64,
    /// Number of rows on which [`k_means`] runs; `None` for its default. A [`Tree`] has at most 10000 of them.
    pub init_rows: Option<usize>,
    /// What the M-step does beyond maximum likelihood.
    pub(crate) rule: &'a Rule,
}

/// Returns the first mixture and the number of its components that have no rows.
///
/// # Errors
/// [`Error::Singular`] at iteration 0 if a covariance is not positive definite; any error of the engine.
pub fn start(
    rows: &mut dyn Resident,
    start: Start<'_>,
    init: &Init,
    draws: &mut Draws,
) -> Result<(Mixture, usize), Error> {
    reached(rows, start, init, draws, &mut Vec::new())
}

/// [`start()`]; adds what the starts reached that a [`Init::Best`] compares.
///
/// # Errors
/// As there.
pub(crate) fn reached(
    rows: &mut dyn Resident,
    start: Start<'_>,
    init: &Init,
    draws: &mut Draws,
    seen: &mut Vec<StartReached>,
) -> Result<(Mixture, usize), Error> {
    let Start { data, kind, k, reg_covar, .. } = start;
    let statistics = match init {
        Init::Given(mixture) => return Ok((mixture.as_ref().clone(), 0)),
        Init::RandomRows => {
            let chosen = weighted::random_rows(data.dim().0, data.weights(), k, draws);
            return Ok((around_rows(rows, start, &chosen)?, 0));
        }
        Init::Stride => {
            let n = data.dim().0;
            // The middle row of each of k equal ranges.
            let chosen: Vec<usize> =
                (0..k).map(|i| ((2 * i + 1) as u128 * n as u128 / (2 * k as u128)) as usize).collect();
            return Ok((around_rows(rows, start, &chosen)?, 0));
        }
        Init::KMeans | Init::KMeansPlusPlus => {
            let seeds_alone = *init == Init::KMeansPlusPlus;
            if let Some(labelled) = &start.rule.labelled {
                let sums = labelled::clusters(rows, start, labelled, seeds_alone, draws)?;
                let step = start.rule.first_step(&sums, reg_covar).map_err(|e| singular(e, 0))?;
                return Ok((step.mixture, step.empty.len()));
            }
            let clusters = k_means(rows, data, start.shift, k, seeds_alone, start.init_rows, draws)?;
            rows.nearest(kind, clusters.centres.view())?
        }
        Init::Random => {
            let centres = Array2::from_shape_fn((k, data.dim().1), |(_, j)| start.shift[j]);
            let draws = &*draws;
            rows.given(kind, centres.view(), &|first, out| random_responsibilities(draws, first, k, out))?
        }
        Init::Tree(Some(tree)) => return of_tree(rows, start, tree),
        Init::Tree(None) => return of_tree(rows, start, &Tree::new(data, k, start.init_rows, draws)?),
        Init::MixUp => return mix_up::mix_up(rows, start),
        Init::Best(tree) => return best::best(rows, start, tree.as_deref(), draws, seen),
    };
    first_mixture(&statistics, start)
}

/// The mixture of a tree cut at `k`, and the number of components without rows.
fn of_tree(rows: &mut dyn Resident, start: Start<'_>, tree: &Tree) -> Result<(Mixture, usize), Error> {
    first_mixture(&tree.statistics(rows, start.kind, start.k)?, start)
}

fn first_mixture(statistics: &Statistics, start: Start<'_>) -> Result<(Mixture, usize), Error> {
    check(statistics, 0)?;
    let step = start.rule.first_step(statistics, start.reg_covar).map_err(|e| singular(e, 0))?;
    Ok((step.mixture, step.empty.len()))
}

/// The mixture with equal weights, the chosen rows as means, and the covariance of all data for every component.
fn around_rows(rows: &mut dyn Resident, start: Start<'_>, chosen: &[usize]) -> Result<Mixture, Error> {
    let Start { data, shift, kind, k, reg_covar, .. } = start;
    let centre = Array2::from_shape_vec((1, shift.len()), shift.to_vec()).expect("d values");
    let statistics = rows.nearest(kind, centre.view())?;
    check(&statistics, 0)?;
    let whole = start.rule.step_towards_start(&statistics, reg_covar, None).map_err(|e| singular(e, 0))?.mixture;
    let covariances = match whole.covariances() {
        Covariances::Full(a) => {
            Covariances::Full(ndarray::concatenate(Axis(0), &vec![a.view(); k]).expect("equal shapes"))
        }
        Covariances::Tied(a) => Covariances::Tied(a.clone()),
        Covariances::Diag(a) => {
            Covariances::Diag(ndarray::concatenate(Axis(0), &vec![a.view(); k]).expect("equal shapes"))
        }
        Covariances::Spherical(a) => Covariances::Spherical(Array1::from_elem(k, a[0])),
    };
    let means = subsample::RowSample::all(data).pick(chosen)?;
    Ok(Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?)
}

/// Writes `k` uniform numbers per row, divided by their sum. Row `i` uses the uniforms from index `i*k` on, so that the
/// result does not depend on how the rows are divided into calls.
fn random_responsibilities(draws: &Draws, first: usize, k: usize, out: &mut [f64]) {
    let mut draws = draws.clone();
    draws.seek(first as u64 * k as u64);
    for row in out.chunks_exact_mut(k) {
        // Above 0, so that a row cannot be all zeros.
        row.iter_mut().for_each(|r| *r = 1.0 - draws.uniform());
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|r| *r /= sum);
    }
}
