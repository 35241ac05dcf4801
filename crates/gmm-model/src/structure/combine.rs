//! Combination of components into clusters by what the rows say: a cluster is then several components, and the density
//! does not change.
//!
//! The rows enter as blocks of responsibilities, in one pass per number of clusters, so that no `n×k` array is needed.

use std::fmt;
use std::str::FromStr;

use ndarray::{Array2, ArrayView2};

use super::Tree;
use crate::ModelError;

/// Which two clusters are combined next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CombineBy {
    /// Those whose combination lowers the entropy of the assignments most (Baudry, Raftery, Celeux, Lo and Gottardo
    /// 2010; mclust's `clustCombi`).
    Entropy,
    /// Those with the largest directly estimated misclassification probability, DEMP (Hennig 2010).
    Demp,
}

impl CombineBy {
    /// The name on the command line: `entropy` or `demp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Entropy => "entropy",
            Self::Demp => "demp",
        }
    }
}

impl fmt::Display for CombineBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for CombineBy {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        [Self::Entropy, Self::Demp].into_iter().find(|by| by.name() == text).ok_or_else(|| ModelError::UnknownWord {
            what: "combination",
            word: text.to_owned(),
            choices: "entropy, demp",
        })
    }
}

/// Components combined step by step into one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Combination {
    /// The tree. By entropy, a join's value is the drop of the entropy, and its height the total drop so far; by DEMP,
    /// the misclassification probability, and the largest `1 − value` so far.
    pub tree: Tree,
    /// Entropy `−Σ w Σ t ln t` of the rows' assignments with `k`, `k − 1`, .., 1 clusters, `(k,)`.
    pub entropy: Vec<f64>,
    /// Total weight of the rows that were assigned to one of the two clusters of each join, `(k − 1,)`.
    pub joined_weight: Vec<f64>,
}

impl Combination {
    /// The number of clusters at the elbow of the entropy plot ([`change_point`]).
    pub fn elbow(&self) -> usize {
        let ascending: Vec<f64> = self.entropy.iter().rev().copied().collect();
        change_point(&ascending)
    }

    /// The smallest number of clusters all of whose misclassification probabilities are below `cutoff`, for a
    /// combination by [`CombineBy::Demp`]: joins go on while the largest is at least that (Hennig 2010).
    pub fn separated(&self, cutoff: f64) -> usize {
        let joins = self.tree.joins().iter().take_while(|join| join.value >= cutoff).count();
        self.tree.n_components() - joins
    }
}

/// A combination in progress. For each number of clusters, from `k` down to 2, the caller gives all rows' responsibilities
/// to [`add`](Self::add), in blocks, and then calls [`end_pass`](Self::end_pass).
///
/// Cost of a row: up to `k²/2` logarithms in the first pass by entropy, at most `2k` in each of the others. The combination of
/// two clusters leaves the drops of all other pairs as they are.
///
/// ```
/// use gmm_model::structure::{CombineBy, Combining};
/// use ndarray::array;
///
/// let responsibilities = array![[0.5, 0.5, 0.0], [0.4, 0.6, 0.0], [0.0, 0.0, 1.0]];
/// let mut combining = Combining::new(3, CombineBy::Entropy);
/// while !combining.is_done() {
///     combining.add(responsibilities.view(), None)?;
///     combining.end_pass()?;
/// }
/// let found = combining.finish();
/// assert_eq!(found.tree.clusters(2)?, [0, 0, 1]);
/// # Ok::<(), gmm_model::ModelError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Combining {
    by: CombineBy,
    tree: Tree,
    /// Cluster of each component.
    clusters: Vec<usize>,
    /// Sums of the pairs `(i, j)`. By entropy: the drops. By DEMP: Σ w t_j over the rows assigned to i.
    pairs: Array2<f64>,
    /// The cluster whose pairs this pass sums; all if `None`.
    fresh: Option<usize>,
    sums: Sums,
    entropy: Vec<f64>,
    joined_weight: Vec<f64>,
}

/// A responsibility far below the rounding of a sum of entropies, which are at least about eps each where they matter.
const NEGLIGIBLE: f64 = 1e-24;

/// What one pass sums besides the pairs, per cluster.
#[derive(Clone, Debug, Default)]
struct Sums {
    /// −Σ w Σ t ln t.
    entropy: f64,
    /// Σ w t.
    soft: Vec<f64>,
    /// Σ w over the rows assigned to the cluster.
    hard: Vec<f64>,
}

impl Sums {
    fn new(clusters: usize) -> Self {
        Self { entropy: 0.0, soft: vec![0.0; clusters], hard: vec![0.0; clusters] }
    }
}

impl Combining {
    /// Begins with every component as a cluster.
    pub fn new(n_components: usize, by: CombineBy) -> Self {
        let k = n_components;
        let alone = Self {
            by,
            tree: Tree::new(k),
            clusters: (0..k).collect(),
            pairs: Array2::zeros((k, k)),
            fresh: None,
            sums: Sums::new(k),
            entropy: Vec::with_capacity(k),
            joined_weight: Vec::with_capacity(k),
        };
        if k == 1 { Self { entropy: vec![0.0], ..alone } } else { alone }
    }

    /// Whether one cluster is left.
    pub const fn is_done(&self) -> bool {
        self.tree.n_clusters() <= 1
    }

    /// Adds a block of rows: responsibilities of the components, `(m, k)`, and row weights, `(m,)`.
    ///
    /// # Errors
    /// [`ModelError::Shape`] if there is not one column per component, or not one weight per row.
    pub fn add(&mut self, responsibilities: ArrayView2<'_, f64>, weights: Option<&[f64]>) -> Result<(), ModelError> {
        let (m, k) = responsibilities.dim();
        crate::error::expect_shape("responsibilities", &[m, k], &[m, self.clusters.len()])?;
        if let Some(weights) = weights {
            crate::error::expect_shape("row weights", &[weights.len()], &[m])?;
        }
        let count = self.tree.n_clusters();
        let (mut t, mut logs) = (vec![0.0; count], vec![0.0; count]);
        for (row, r) in responsibilities.outer_iter().enumerate() {
            let w = weights.map_or(1.0, |weights| weights[row]);
            if w > 0.0 {
                t.fill(0.0);
                r.iter().zip(&self.clusters).for_each(|(r, &cluster)| t[cluster] += r);
                logs.iter_mut().zip(&t).for_each(|(log, t)| *log = t.ln());
                self.add_row(w, &t, &logs);
            }
        }
        Ok(())
    }

    /// The same clusters without any rows, for some of the rows of this pass: [`merge`](Self::merge) adds them. So threads
    /// can share a pass; the order of the merges decides the bits.
    pub fn without_rows(&self) -> Self {
        let count = self.tree.n_clusters();
        Self { pairs: Array2::zeros(self.pairs.dim()), sums: Sums::new(count), ..self.clone() }
    }

    /// Adds the rows of `part`, which was made by [`without_rows`](Self::without_rows) in this pass.
    ///
    /// # Panics
    /// If it was made before another number of clusters.
    pub fn merge(&mut self, part: &Self) {
        assert_eq!(self.tree.n_clusters(), part.tree.n_clusters(), "the same pass");
        self.pairs += &part.pairs;
        self.sums.entropy += part.sums.entropy;
        for (to, from) in [(&mut self.sums.soft, &part.sums.soft), (&mut self.sums.hard, &part.sums.hard)] {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }

    fn add_row(&mut self, w: f64, t: &[f64], logs: &[f64]) {
        let count = t.len();
        let mut assigned = 0;
        for c in 0..count {
            self.sums.soft[c] += w * t[c];
            if t[c] > 0.0 {
                self.sums.entropy -= w * t[c] * logs[c];
            }
            if t[c] > t[assigned] {
                assigned = c;
            }
        }
        self.sums.hard[assigned] += w;
        match (self.by, self.fresh) {
            (CombineBy::Demp, _) => (0..count).for_each(|j| self.pairs[[assigned, j]] += w * t[j]),
            (CombineBy::Entropy, Some(i)) => {
                (0..count).filter(|&j| j != i).for_each(|j| self.add_drop(w, t, logs, (i, j)))
            }
            (CombineBy::Entropy, None) => {
                // Two clusters that are both negligible for this row add less than the rounding of the sums.
                for i in (0..count).filter(|&i| t[i] >= NEGLIGIBLE) {
                    for j in (0..count).filter(|&j| j < i || t[j] < NEGLIGIBLE) {
                        self.add_drop(w, t, logs, (i, j));
                    }
                }
            }
        }
    }

    /// Adds `(a+b) ln(a+b) − a ln a − b ln b`, written so that no terms cancel.
    fn add_drop(&mut self, w: f64, t: &[f64], logs: &[f64], (i, j): (usize, usize)) {
        let (large, small) = if t[i] >= t[j] { (i, j) } else { (j, i) };
        let (a, b) = (t[large], t[small]);
        if b > 0.0 {
            let drop = (a + b) * (b / a).ln_1p() + b * (logs[large] - logs[small]);
            self.pairs[[i.max(j), i.min(j)]] += w * drop;
        }
    }

    /// Ends the pass over all rows: combines two clusters. The first pair wins among equals.
    ///
    /// # Errors
    /// [`ModelError::Range`] if one cluster is left already.
    pub fn end_pass(&mut self) -> Result<(), ModelError> {
        let count = self.tree.n_clusters();
        let mut best: Option<(usize, usize, f64)> = None;
        // In the order (0, 1), (0, 2), .., (1, 2), ..
        for i in 0..count {
            for j in i + 1..count {
                let value = self.value(i, j);
                if best.is_none_or(|(_, _, most)| value > most) {
                    best = Some((i, j, value));
                }
            }
        }
        let Some((i, j, value)) = best else {
            let must = "at least 2";
            return Err(ModelError::Range { what: "number of clusters", value: count.to_string(), must });
        };
        self.entropy.push(self.sums.entropy);
        self.joined_weight.push(self.sums.hard[i] + self.sums.hard[j]);
        let height = match self.by {
            CombineBy::Entropy => self.entropy[0] - self.sums.entropy + value,
            CombineBy::Demp => 1.0 - value,
        };
        self.tree.join(i, j, value, height)?;
        self.clusters.iter_mut().for_each(|c| match *c {
            c0 if c0 == j => *c = i,
            c0 if c0 > j => *c -= 1,
            _ => (),
        });
        self.next_pairs(i, j);
        self.sums = Sums::new(count - 1);
        if count == 2 {
            // One cluster has every row: t is 1.
            self.entropy.push(0.0);
        }
        Ok(())
    }

    /// The criterion of a pair; larger is combined first.
    fn value(&self, i: usize, j: usize) -> f64 {
        match self.by {
            CombineBy::Entropy => self.pairs[[j, i]],
            CombineBy::Demp => {
                let wrong = |to: usize, from: usize| match self.sums.soft[from] {
                    0.0 => 0.0,
                    all => self.pairs[[to, from]] / all,
                };
                wrong(i, j).max(wrong(j, i))
            }
        }
    }

    fn next_pairs(&mut self, i: usize, j: usize) {
        let kept: Vec<usize> = (0..self.pairs.nrows()).filter(|&c| c != j).collect();
        match self.by {
            CombineBy::Demp => self.pairs = Array2::zeros((kept.len(), kept.len())),
            CombineBy::Entropy => {
                self.pairs = self.pairs.select(ndarray::Axis(0), &kept).select(ndarray::Axis(1), &kept);
                self.pairs.row_mut(i).fill(0.0);
                self.pairs.column_mut(i).fill(0.0);
                self.fresh = Some(i);
            }
        }
    }

    /// The combination so far.
    pub fn finish(self) -> Combination {
        Combination { tree: self.tree, entropy: self.entropy, joined_weight: self.joined_weight }
    }
}

/// The number of clusters at which two straight lines fit the entropies best, where `entropy[c − 1]` is that of `c`
/// clusters: each line is fitted by least squares to its side, and the change point belongs to both (Baudry et al.
/// 2010, section 4; mclust's `clustCombiOptim`). For one or two clusters, their number.
pub fn change_point(entropy: &[f64]) -> usize {
    let count = entropy.len();
    let squares = |from: usize, to: usize| {
        let n = (to - from) as f64;
        let points = || (from..to).map(|i| (i as f64, entropy[i]));
        let (x, y) = points().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x / n, sy + y / n));
        let (xx, xy) = points().fold((0.0, 0.0), |(xx, xy), (a, b)| (xx + (a - x) * (a - x), xy + (a - x) * (b - y)));
        points().map(|(a, b)| (b - y - xy / xx * (a - x)).powi(2)).sum::<f64>()
    };
    let both = |c: usize| squares(0, c) + squares(c - 1, count);
    (2..count).min_by(|&a, &b| both(a).total_cmp(&both(b))).unwrap_or(count)
}
