//! Model-based agglomeration (Banfield and Raftery 1993): a tree of joins over a sample of rows, cut at any number of
//! components, as in mclust.
//!
//! Rows are whitened ([`whiten`]), so no column decides by its unit. Equal rows are joined first. Up to [`ALL`] of them
//! are then joined by the likelihood of Gaussian clusters with covariances of their own ([`vvv`]), mclust's default. Its
//! cost grows with the square of their number times `p³`, so more rows are first joined to [`LEAVES`] clusters by Ward's
//! criterion ([`ward`]), the likelihood with one variance for all clusters. The covariances of clusters of a few rows say
//! little.
//!
//! Rows with missing values are completed from their nearest neighbours first ([`complete`]). The components are then
//! those of what is observed of each cluster's rows.

mod complete;
mod vvv;
mod ward;
mod whiten;

use std::collections::HashMap;

use gmm_model::{CovarianceType, Draws, Statistics};
use ndarray::{Array2, ArrayView2, Axis};

use super::subsample::RowSample;
use crate::{Data, Error, Resident};

/// Smallest number of rows in the sample, as in mclust: the tree takes a tenth of a second.
const LEAST: usize = 2000;

/// Smallest number of sampled rows per component.
const EACH: usize = 8;

/// Largest number of rows: the time grows with its square.
const MOST: usize = 10_000;

/// Up to this many different rows, all joins are by the likelihood of clusters with covariances of their own, as in mclust.
const ALL: usize = 500;

/// Number of clusters that Ward's criterion leaves of more rows. On 54 cases with more than 500 rows of the study of starts,
/// 30, 100, 500 and 2000 clusters lead to optima that are on average 0.015, 0.013, 0.017 and 0.022 per row below the best
/// of the four, and take 51, 72, 119 and 307 ms: Ward's joins cost nothing.
const LEAVES: usize = 100;

/// The joins of a sample of rows, from single rows to one cluster. One tree serves every number of components and every
/// covariance kind.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Indices of the sampled rows among those of positive weight; `None` for all rows.
    chosen: Option<Vec<usize>>,
    /// The sampled rows, completed, `(m, d)`.
    rows: Array2<f64>,
    /// Their weights, `(m,)`, if any.
    weights: Option<Vec<f64>>,
    /// For each sampled row the first that equals it, `(m,)`.
    first_equal: Vec<usize>,
    /// Joins of different rows, in order, each as one row of either cluster.
    joins: Vec<(usize, usize)>,
}

/// The number of rows of a tree of `n` rows for up to `k` components, if `asked` is `None`.
pub(super) fn sample_size(n: usize, k: usize, asked: Option<usize>) -> usize {
    asked.unwrap_or(LEAST.max(EACH.saturating_mul(k))).min(MOST.max(k)).min(n)
}

impl Tree {
    /// The tree of `most` rows of `data`, one from each of equal ranges, or of all rows if there are no more than that.
    /// `most: None` is the larger of 2000 and `8 k`, and 10000 is the limit; `k` is the largest number of components at which the tree will be
    /// cut. `data` has only rows of positive weight.
    ///
    /// Whole weights stand for repeated rows; others are divided by their mean.
    ///
    /// In place of each missing value stands that of the sampled row which is nearest over the observed columns, scaled
    /// to unit variance (Troyanskaya et al. 2001).
    ///
    /// Cost: with `m` rows, `O(m² d)`, and determinants of at most the larger of 500 and `2 k` clusters, squared. 5000
    /// rows of 30 columns take less than a second. Memory: `16 m d` bytes and 2 MB. Missing values take another
    /// `3 m² d` flops and `24 m d` bytes.
    ///
    /// # Errors
    /// [`Error::Data`] with the first column that has no observed value; [`Error::MeasurementErrors`] and
    /// [`Error::Limited`], since the rows must be exact; [`Error::Device`] if rows on a GPU cannot be copied.
    pub fn new<'a>(data: impl Into<Data<'a>>, k: usize, most: Option<usize>, draws: &mut Draws) -> Result<Self, Error> {
        let data = data.into();
        data.refuse_indirect("a start by a tree")?;
        if let Data::Host(data) = data {
            data.check_columns_observed()?;
        }
        let n = data.dim().0;
        let count = sample_size(n, k, most);
        let sample = if count < n { RowSample::some(data, count, draws) } else { RowSample::all(data) };
        let all: Vec<usize> = (0..count).collect();
        let mut rows = sample.pick(&all)?;
        let weights = sample.weights().map(<[f64]>::to_vec);
        let mass = masses(weights.as_deref(), count);
        if data.has_missing() {
            complete::complete(&mut rows, sample.pick_with_holes(&all)?.view(), &mass);
        }
        let (first_equal, joins) = {
            let (first_equal, mass) = equal_rows(rows.view(), &mass);
            let leaves: Vec<usize> = (0..count).filter(|&i| first_equal[i] == i).collect();
            let mass: Vec<f64> = leaves.iter().map(|&i| mass[i]).collect();
            let z = whiten::whitened(rows.select(Axis(0), &leaves).view(), &mass);
            let most = if leaves.len() <= ALL { ALL } else { LEAVES.max(2 * k) };
            let joins = agglomerate(z.view(), &mass, most);
            (first_equal, joins.into_iter().map(|(a, b)| (leaves[a], leaves[b])).collect())
        };
        Ok(Self { chosen: sample.chosen().map(<[usize]>::to_vec), rows, weights, first_equal, joins })
    }

    /// The cluster of each sampled row, `(m,)`, if the tree is cut at `k` clusters, which are numbered in the order of
    /// their first rows. There are fewer clusters if there are fewer different rows.
    ///
    /// ```
    /// use gmm_host::init::Tree;
    /// use gmm_model::{Dataset, Draws};
    /// use ndarray::array;
    ///
    /// let data = Dataset::new(array![[0.0], [0.1], [9.0], [0.2], [9.2]])?;
    /// let tree = Tree::new(&data, 3, None, &mut Draws::new(0, 0))?;
    /// assert_eq!(tree.cut(2), [0, 0, 1, 0, 1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cut(&self, k: usize) -> Vec<usize> {
        let mut parent = self.first_equal.clone();
        for &(a, b) in &self.joins[..(self.joins.len() + 1).saturating_sub(k)] {
            let (a, b) = (root(&mut parent, a), root(&mut parent, b));
            parent[a.max(b)] = a.min(b);
        }
        let mut number = HashMap::new();
        (0..parent.len())
            .map(|i| {
                let next = number.len();
                *number.entry(root(&mut parent, i)).or_insert(next)
            })
            .collect()
    }

    /// The statistics of the sampled rows in the `k` clusters of a cut, about the clusters' means. `rows` are all rows,
    /// on an engine.
    ///
    /// # Errors
    /// Any error of the engine.
    pub(super) fn statistics(
        &self,
        rows: &mut dyn Resident,
        kind: CovarianceType,
        k: usize,
    ) -> Result<Statistics, Error> {
        let labels = self.cut(k);
        // A cluster without rows is an empty component, whose mean is its centre: the first row.
        let mut centres = Array2::from_shape_fn((k, self.rows.ncols()), |(_, j)| self.rows[[0, j]]);
        let mut counts = vec![0.0; k];
        for (row, &c) in self.rows.outer_iter().zip(&labels) {
            // A running mean does not overflow.
            counts[c] += 1.0;
            let mut centre = centres.row_mut(c);
            centre.zip_mut_with(&row, |mean, x| *mean += (x - *mean) / counts[c]);
        }
        let fill = |first: usize, out: &mut [f64]| {
            out.fill(0.0);
            out.chunks_exact_mut(k).zip(&labels[first..]).for_each(|(row, &c)| row[c] = 1.0);
        };
        match &self.chosen {
            None => rows.given(kind, centres.view(), &fill),
            Some(chosen) => rows.sample(chosen, self.weights.as_deref())?.as_mut().given(kind, centres.view(), &fill),
        }
    }
}

/// The representative of `i`'s cluster; shortens the path to it.
fn root(parent: &mut [usize], mut i: usize) -> usize {
    while parent[i] != i {
        parent[i] = parent[parent[i]];
        i = parent[i];
    }
    i
}

/// How many rows each row stands for, `(m,)`.
fn masses(weights: Option<&[f64]>, m: usize) -> Vec<f64> {
    let Some(weights) = weights else { return vec![1.0; m] };
    if weights.iter().all(|w| w.fract() == 0.0) {
        return weights.to_vec();
    }
    let mean = weights.iter().sum::<f64>() / m as f64;
    weights.iter().map(|w| w / mean).collect()
}

/// For each row the index of the first that equals it, and the mass of all rows equal to it at that index, `(m,)` each.
fn equal_rows(rows: ArrayView2<'_, f64>, mass: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let mut seen: HashMap<Vec<u64>, usize> = HashMap::with_capacity(rows.nrows());
    let mut together = vec![0.0; rows.nrows()];
    let first = rows.outer_iter().enumerate().map(|(i, row)| {
        // Adding 0 makes −0 equal to 0.
        let first = *seen.entry(row.iter().map(|x| (x + 0.0).to_bits()).collect()).or_insert(i);
        together[first] += mass[i];
        first
    });
    (first.collect(), together)
}

/// All joins of the rows of `z`, `(m, p)`, which are all different, in order: by Ward's criterion to `most` clusters, then
/// by the likelihood with covariances of their own. With too many columns to rotate, by Ward's criterion throughout.
fn agglomerate(z: ArrayView2<'_, f64>, mass: &[f64], most: usize) -> Vec<(usize, usize)> {
    let (m, p) = z.dim();
    if p > whiten::ROTATED {
        return ward::joins(z, mass, 1);
    }
    let mut joins = if m > most { ward::joins(z, mass, most) } else { Vec::new() };
    let mut criterion = vvv::Criterion::new(z, mass);
    let mut clusters: Vec<Option<vvv::Cluster>> =
        (0..m).map(|i| Some(criterion.single(i, &z.row(i).to_vec(), mass[i]))).collect();
    let mut parent: Vec<usize> = (0..m).collect();
    for &(a, b) in &joins {
        let (a, b) = (root(&mut parent, a), root(&mut parent, b));
        parent[b] = a;
        let other = clusters[b].take().expect("a root is a cluster");
        criterion.join(clusters[a].as_mut().expect("a root is a cluster"), &other);
    }
    joins.extend(vvv::joins(clusters.into_iter().flatten().collect(), &mut criterion));
    joins
}

#[cfg(test)]
mod tests;
