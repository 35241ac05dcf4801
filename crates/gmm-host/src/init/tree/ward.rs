//! Ward's agglomeration by chains of nearest neighbours (Murtagh 1983): `O(m² p)` time, `O(m p)` memory.

use ndarray::ArrayView2;

/// Number of distances summed at a time, so that they stay in the L1 cache.
const TILE: usize = 512;

/// Two clusters that were joined, each named by one of its rows, and the growth of the sum of squares.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Join {
    rows: (usize, usize),
    cost: f64,
}

/// Clusters that are not joined yet. Column `j` of the means is `means[j*room..][..mass.len()]`.
struct Clusters {
    means: Vec<f64>,
    room: usize,
    mass: Vec<f64>,
    /// One row of each cluster.
    row: Vec<usize>,
    /// Σ (m_i − m_j)² from the cluster in question.
    distance: Vec<f64>,
}

/// Joins the rows of `z`, `(m, p)`, with masses `mass`, `(m,)`, to `left` clusters, by the smallest growth
/// `n_i n_j / (n_i + n_j) |m_i − m_j|²` of the sum of squares. Returns the `m − left` joins in ascending order of the
/// growth, each as one row of either cluster.
pub(super) fn joins(z: ArrayView2<'_, f64>, mass: &[f64], left: usize) -> Vec<(usize, usize)> {
    let m = z.nrows();
    let mut clusters = Clusters::new(z, mass);
    let mut all = Vec::with_capacity(m.saturating_sub(1));
    let mut chain: Vec<usize> = Vec::new();
    while all.len() + 1 < m {
        if chain.is_empty() {
            chain.push(0);
        }
        let top = chain[chain.len() - 1];
        // The cluster before wins among equals: otherwise a chain could go round in circles.
        let before = chain.len().checked_sub(2).map(|at| chain[at]);
        let (near, cost) = clusters.nearest(top, before);
        if before == Some(near) {
            chain.truncate(chain.len() - 2);
            all.push(Join { rows: (clusters.row[near], clusters.row[top]), cost });
            let (last, kept) = clusters.join(near, top);
            chain.iter_mut().filter(|at| **at == last).for_each(|at| *at = kept);
        } else {
            chain.push(near);
        }
    }
    // Chains find joins in another order than by cost. Ward's criterion never falls along a branch, so sorting gives
    // the order of the greedy algorithm.
    all.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    all.truncate(m.saturating_sub(left));
    all.into_iter().map(|join| join.rows).collect()
}

impl Clusters {
    fn new(z: ArrayView2<'_, f64>, mass: &[f64]) -> Self {
        let m = z.nrows();
        let means = z.columns().into_iter().flat_map(|column| column.to_vec()).collect();
        Self { means, room: m, mass: mass.to_vec(), row: (0..m).collect(), distance: vec![0.0; m] }
    }

    /// The cluster whose union with `at` grows the sum of squares least, and the growth; `preferred` among equals, else
    /// the first.
    fn nearest(&mut self, at: usize, preferred: Option<usize>) -> (usize, f64) {
        let m = self.mass.len();
        let distance = &mut self.distance[..m];
        distance.fill(0.0);
        for (tile, sums) in distance.chunks_mut(TILE).enumerate() {
            for column in self.means.chunks_exact(self.room) {
                let x = column[at];
                sums.iter_mut().zip(&column[tile * TILE..]).for_each(|(sum, y)| *sum += (x - y) * (x - y));
            }
        }
        let own = self.mass[at];
        distance.iter_mut().zip(&self.mass).for_each(|(sum, mass)| *sum *= own * mass / (own + mass));
        distance[at] = f64::INFINITY;
        let first = preferred.unwrap_or(usize::from(at == 0));
        (0..m).fold((first, distance[first]), |best, i| if distance[i] < best.1 { (i, distance[i]) } else { best })
    }

    /// Joins two clusters into one of the two places and fills the other with the last cluster. Returns the former and
    /// the new place of the last cluster.
    fn join(&mut self, a: usize, b: usize) -> (usize, usize) {
        let (kept, free, last) = (a.min(b), a.max(b), self.mass.len() - 1);
        let (n, other) = (self.mass[kept], self.mass[free]);
        for column in self.means.chunks_exact_mut(self.room) {
            column[kept] += (column[free] - column[kept]) * (other / (n + other));
            column[free] = column[last];
        }
        self.mass[kept] = n + other;
        self.mass.swap_remove(free);
        self.row.swap_remove(free);
        (last, free)
    }
}
