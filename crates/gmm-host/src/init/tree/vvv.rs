//! Agglomeration by the likelihood of clusters with covariances of their own: mclust's `VVV` (Banfield and Raftery 1993,
//! in the form of Fraley 1998).
//!
//! A cluster of `n` rows with scatter matrix W costs `n ln(|W/n| + (tr W + α)/n)`, with α the trace of the scatter of
//! all rows over `n p`. The determinant is that of the likelihood; the trace keeps the cost finite for clusters of few
//! rows, whose determinant is 0. Each step joins the two clusters whose union costs least above themselves.

use gmm_model::{packed_index, packed_len};
use ndarray::ArrayView2;

/// A cluster: its sums, and its cost.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    /// One of its rows.
    row: usize,
    /// Number of rows in the sample, of which no two are equal; at most this many less one columns vary.
    count: usize,
    /// Sum of the weights, `n`.
    mass: f64,
    /// `(p,)`.
    mean: Vec<f64>,
    /// W, packed: `p*(p+1)/2`.
    scatter: Vec<f64>,
    cost: f64,
}

#[cfg(test)]
impl Cluster {
    pub(super) fn cost(&self) -> f64 {
        self.cost
    }
}

/// What the costs depend on, and space for one matrix.
pub(super) struct Criterion {
    alpha: f64,
    matrix: Vec<f64>,
    step: Vec<f64>,
}

impl Criterion {
    /// The criterion for the rows of `z`, `(m, p)`, with masses `mass`, `(m,)`.
    pub(super) fn new(z: ArrayView2<'_, f64>, mass: &[f64]) -> Self {
        let p = z.ncols();
        let total: f64 = mass.iter().sum();
        let trace: f64 = z
            .columns()
            .into_iter()
            .map(|column| {
                let mean = column.iter().zip(mass).map(|(x, w)| w * x).sum::<f64>() / total;
                column.iter().zip(mass).map(|(x, w)| w * (x - mean) * (x - mean)).sum::<f64>()
            })
            .sum();
        let alpha = (trace / (total * p as f64)).max(f64::EPSILON);
        Self { alpha, matrix: vec![0.0; packed_len(p)], step: vec![0.0; p] }
    }

    /// A cluster of one row.
    pub(super) fn single(&self, row: usize, x: &[f64], mass: f64) -> Cluster {
        let scatter = vec![0.0; packed_len(x.len())];
        Cluster { row, count: 1, mass, mean: x.to_vec(), scatter, cost: mass * (self.alpha / mass).ln() }
    }

    /// The cost of the union. Its scatter is left in `self.matrix`.
    fn union_cost(&mut self, a: &Cluster, b: &Cluster) -> f64 {
        let p = a.mean.len();
        let mass = a.mass + b.mass;
        let shared = a.mass * b.mass / mass;
        let Self { alpha, matrix, step } = self;
        for ((step, x), y) in step.iter_mut().zip(&a.mean).zip(&b.mean) {
            *step = x - y;
        }
        let trace = |c: &Cluster| (0..p).map(|i| c.scatter[packed_index(i, i)]).sum::<f64>();
        let between: f64 = step.iter().map(|v| v * v).sum();
        let rest = ((trace(a) + trace(b) + shared * between + *alpha) / mass).ln();
        // With no more rows than columns the determinant is 0.
        if a.count + b.count <= p {
            return mass * rest;
        }
        for i in 0..p {
            let at = packed_index(i, 0);
            let scaled = shared * step[i];
            for j in 0..=i {
                matrix[at + j] = a.scatter[at + j] + b.scatter[at + j] + scaled * step[j];
            }
        }
        mass * log_sum(log_determinant(matrix, p) - p as f64 * mass.ln(), rest)
    }

    /// Moves the rows of `b` to `a`.
    pub(super) fn join(&mut self, a: &mut Cluster, b: &Cluster) {
        let cost = self.union_cost(a, b);
        let mass = a.mass + b.mass;
        let shared = a.mass * b.mass / mass;
        for i in 0..a.mean.len() {
            let at = packed_index(i, 0);
            for j in 0..=i {
                a.scatter[at + j] += b.scatter[at + j] + shared * self.step[i] * self.step[j];
            }
        }
        for (x, step) in a.mean.iter_mut().zip(&self.step) {
            *x -= step * (b.mass / mass);
        }
        (a.mass, a.count, a.cost) = (mass, a.count + b.count, cost);
    }
}

/// Joins the clusters until one is left. Returns the joins in order, each as one row of either cluster. Time: `m²` costs
/// of unions, each `p³/3` flops if the union has more than `p` rows; memory: `8 m²` bytes.
pub(super) fn joins(mut clusters: Vec<Cluster>, criterion: &mut Criterion) -> Vec<(usize, usize)> {
    let m = clusters.len();
    let mut alive: Vec<usize> = (0..m).collect();
    // The growth of the cost for each pair i < j, and for each i the best j > i.
    let mut growth = vec![f64::INFINITY; m * m];
    for j in 0..m {
        for i in 0..j {
            growth[i * m + j] = criterion.growth(&clusters[i], &clusters[j]);
        }
    }
    let mut partner: Vec<usize> = (0..m).map(|i| best_partner(&growth[i * m..][..m], &alive, i)).collect();
    let mut out = Vec::with_capacity(m.saturating_sub(1));
    while alive.len() > 1 {
        let value = |i: usize| growth[i * m + partner[i]];
        let open = &alive[..alive.len() - 1];
        let a = open.iter().copied().reduce(|best, i| if value(i) < value(best) { i } else { best });
        let a = a.expect("two clusters");
        let b = partner[a];
        out.push((clusters[a].row, clusters[b].row));
        let (head, tail) = clusters.split_at_mut(b);
        criterion.join(&mut head[a], &tail[0]);
        alive.remove(alive.binary_search(&b).expect("ascending"));
        for &i in alive.iter().filter(|&&i| i != a) {
            growth[i.min(a) * m + i.max(a)] = criterion.growth(&clusters[i], &clusters[a]);
        }
        for at in 0..alive.len() {
            let i = alive[at];
            let row = &growth[i * m..][..m];
            if i == a || partner[i] == a || partner[i] == b {
                partner[i] = best_partner(row, &alive, i);
            } else if i < a && row[a] < row[partner[i]] {
                partner[i] = a;
            }
        }
    }
    out
}

impl Criterion {
    fn growth(&mut self, a: &Cluster, b: &Cluster) -> f64 {
        self.union_cost(a, b) - a.cost - b.cost
    }
}

/// The cluster after `i` with the smallest growth, the first among equals; `i` itself if it is the last.
fn best_partner(growth: &[f64], alive: &[usize], i: usize) -> usize {
    let later = &alive[alive.partition_point(|&j| j <= i)..];
    later.iter().copied().reduce(|best, j| if growth[j] < growth[best] { j } else { best }).unwrap_or(i)
}

/// `ln |A|` of a packed symmetric matrix, which is overwritten by its Cholesky factor; −∞ if a pivot is within its
/// rounding error.
fn log_determinant(a: &mut [f64], p: usize) -> f64 {
    let mut log = 0.0;
    for i in 0..p {
        let (above, rest) = a.split_at_mut(packed_index(i, 0));
        let row = &mut rest[..=i];
        let diagonal = row[i];
        let mut pivot = diagonal;
        for j in 0..i {
            let other = &above[packed_index(j, 0)..][..=j];
            let dot: f64 = row[..j].iter().zip(other).map(|(x, y)| x * y).sum();
            row[j] = (row[j] - dot) / other[j];
            pivot -= row[j] * row[j];
        }
        // As in `gmm_model::Cholesky`.
        if pivot.is_nan() || pivot <= (p + 1) as f64 * f64::EPSILON * diagonal {
            return f64::NEG_INFINITY;
        }
        log += pivot.ln();
        row[i] = pivot.sqrt();
    }
    log
}

/// `ln(eᵃ + eᵇ)`.
fn log_sum(a: f64, b: f64) -> f64 {
    let (low, high) = if a < b { (a, b) } else { (b, a) };
    high + (low - high).exp().ln_1p()
}
