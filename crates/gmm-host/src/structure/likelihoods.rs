//! Merges judged by the likelihood of rows.

use gmm_model::structure::{PairDistance, Tree, description_length, distances, merge, merge_pair};
use gmm_model::{Mixture, Precision};

use crate::{Data, Engine, Error, evaluate};

/// Log-likelihood and criteria of a mixture's merges, for each number of components from `k` down to 1. Lower is better
/// for BIC and the description length.
#[derive(Clone, Debug, PartialEq)]
pub struct Criteria {
    /// Σ w ln p(x), `(k,)`.
    pub log_likelihood: Vec<f64>,
    /// `p ln n − 2 LL`, `(k,)`.
    pub bic: Vec<f64>,
    /// Rissanen's description length in nats ([`description_length`]), `(k,)`.
    pub description_length: Vec<f64>,
}

impl Criteria {
    const fn new() -> Self {
        Self { log_likelihood: Vec::new(), bic: Vec::new(), description_length: Vec::new() }
    }

    fn push(&mut self, mixture: &Mixture, log_likelihood: f64, n: f64) {
        let p = mixture.n_parameters();
        self.log_likelihood.push(log_likelihood);
        self.bic.push(gmm_model::Criteria::new(p, log_likelihood, n, 0.0).bic);
        self.description_length.push(description_length(p, log_likelihood, n, mixture.n_features()));
    }

    /// The number of components of smallest BIC; the smaller of two equal ones.
    pub fn best(&self) -> usize {
        let k = self.bic.len();
        let counts = (1..=k).map(|count| (count, self.bic[k - count]));
        counts.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(k, |(count, _)| count)
    }
}

/// The criteria of the merges that a complete tree gives, with the moments kept ([`merge`]). The parameters are not
/// fitted again.
///
/// # Errors
/// [`Error::Features`] if data and mixture differ in the number of columns; [`Error::Model`] if the tree is that of
/// another number of components; [`Error::Memory`]; any error of the device.
///
/// Cost: about `k²/2` densities per row.
pub fn along<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    tree: &Tree,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<Criteria, Error> {
    let data = data.into();
    let mut rows = evaluate::load(engine, mixture, data, precision)?;
    let counts = (tree.n_clusters()..=mixture.n_components()).rev();
    let merged: Vec<Mixture> = counts.map(|count| merge(mixture, &tree.clusters(count)?)).collect::<Result<_, _>>()?;
    let mut criteria = Criteria::new();
    for (merged, log_likelihood) in merged.iter().zip(rows.log_likelihoods(&merged)?) {
        criteria.push(merged, log_likelihood, data.total_weight());
    }
    Ok(criteria)
}

/// Merges two components at a time until one is left: those whose merge keeps the log-likelihood of the rows highest,
/// which is the merge of smallest BIC and of shortest description.
///
/// In each step, of `c` components, the `max(c, 10)` pairs of smallest bound by Runnalls are evaluated. A join's value is
/// the change of BIC; its height is the fall of the log-likelihood since the first, or that of the node below if larger.
///
/// # Errors
/// As for [`along`].
///
/// Cost: about `k³/3` densities per row.
pub fn merge_by_likelihood<'a>(
    engine: &dyn Engine,
    mixture: &Mixture,
    data: impl Into<Data<'a>>,
    precision: Precision,
) -> Result<(Tree, Criteria), Error> {
    /// So few pairs that all of them are evaluated.
    const FEW: usize = 10;
    let data = data.into();
    let mut rows = evaluate::load(engine, mixture, data, precision)?;
    let n = data.total_weight();
    let (mut now, mut tree, mut criteria) = (mixture.clone(), Tree::new(mixture.n_components()), Criteria::new());
    criteria.push(&now, rows.log_likelihoods(std::slice::from_ref(&now))?[0], n);
    while now.n_components() > 1 {
        let bounds = distances(&now, PairDistance::Runnalls)?;
        let mut pairs: Vec<(usize, usize)> = bounds.indexed_iter().map(|(at, _)| at).filter(|(i, j)| i < j).collect();
        pairs.sort_by(|a, b| bounds[*a].total_cmp(&bounds[*b]));
        pairs.truncate(now.n_components().max(FEW));
        let merged: Vec<Mixture> = pairs.iter().map(|&(i, j)| merge_pair(&now, i, j)).collect::<Result<_, _>>()?;
        let likelihoods = rows.log_likelihoods(&merged)?;
        // The first among equals has the smaller bound.
        let best = (1..pairs.len()).fold(0, |best, c| if likelihoods[c] > likelihoods[best] { c } else { best });
        let before = *criteria.bic.last().expect("the first mixture's");
        criteria.push(&merged[best], likelihoods[best], n);
        let change = criteria.bic.last().expect("the merged mixture's") - before;
        tree.join(pairs[best].0, pairs[best].1, change, criteria.log_likelihood[0] - likelihoods[best])?;
        now = merged.into_iter().nth(best).expect("the best pair");
    }
    Ok((tree, criteria))
}
