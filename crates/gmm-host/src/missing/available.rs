//! Moments of the available values, for starts: means, variances and products of what is observed, under given
//! responsibilities.
//!
//! EM expects missing values under a mixture; a start has none yet. Here the mean of a cluster's column is that of its
//! observed values, which is the exact minimum of k-means over the observed values (Chi, Chi and Baraniuk 2016, "k-POD",
//! minimise the same sum). Its variance is that of its observed values, and the covariance of two columns is that of the rows
//! with their missing values at the mean: smaller than it should be, but never indefinite, as the covariances of the rows in
//! which both are observed could be.

use gmm_model::{CovarianceType, Matrix, Statistics, packed_index, packed_len};
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

use super::HoledRows;
use super::few::add_outer;

/// Rows per task; sums are taken per task and added in order.
const TASK: usize = 2048;

/// The rows, with NaN where a value is missing.
pub(super) struct Available<'a> {
    rows: &'a Matrix,
    weights: Option<&'a [f64]>,
    pool: Option<&'a rayon::ThreadPool>,
    d: usize,
}

/// Writes the responsibilities, `(m, k)`, of the `m` rows from the given one on, whose values are given.
pub(super) type Assign<'a> = dyn Fn(usize, &[f64], &mut [f64]) + Sync + 'a;

/// Sums over rows, per component and column: `(k, d)` each.
struct Sums {
    /// Σ r, `(k,)`.
    weight: Vec<f64>,
    /// Σ r over the rows in which the column is observed.
    observed: Vec<f64>,
    /// Σ r z.
    first: Vec<f64>,
    /// Σ r z².
    square: Vec<f64>,
}

impl<'a> Available<'a> {
    pub(super) fn of(rows: &'a HoledRows) -> Self {
        let pool = rows.pool.as_deref();
        Self { rows: &rows.rows, weights: rows.weights.as_deref(), pool, d: rows.shift.len() }
    }

    /// Calls `run` on each task's first row and values, `(.., d)`, perhaps in parallel, and returns the results in order.
    pub(super) fn tasks<A: Send>(&self, run: impl Fn(usize, &[f64]) -> A + Sync) -> Vec<A> {
        let n = self.rows.dim().0;
        let one = |task: usize| {
            let (first, end) = (task * TASK * self.d, n.min((task + 1) * TASK) * self.d);
            match self.rows {
                Matrix::F32(a) => {
                    let values = &a.as_slice().expect("row-major")[first..end];
                    run(task * TASK, &values.iter().map(|&v| f64::from(v)).collect::<Vec<_>>())
                }
                Matrix::F64(a) => run(task * TASK, &a.as_slice().expect("row-major")[first..end]),
            }
        };
        let tasks = n.div_ceil(TASK);
        match self.pool {
            Some(pool) if tasks > 1 => pool.install(|| (0..tasks).into_par_iter().map(one).collect()),
            _ => (0..tasks).map(one).collect(),
        }
    }

    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.map_or(1.0, |weights| weights[row])
    }

    /// Calls `add` with component, its responsibility times the row's weight, and `z`, `(d,)`: the row less the component's
    /// centre, 0 where a value is missing.
    fn each(
        &self,
        (first, values): (usize, &[f64]),
        centres: &[f64],
        assign: &Assign<'_>,
        mut add: impl FnMut(usize, f64, &[f64], &[f64]),
    ) {
        let (d, k) = (self.d, centres.len() / self.d);
        let mut r = vec![0.0; values.len() / d * k];
        assign(first, values, &mut r);
        let mut z = vec![0.0; d];
        for (i, (x, r)) in values.chunks_exact(d).zip(r.chunks_exact(k)).enumerate() {
            let w = self.weight(first + i);
            for (c, r) in r.iter().enumerate().filter(|(_, r)| w > 0.0 && **r > 0.0) {
                let centre = &centres[c * d..][..d];
                z.iter_mut()
                    .zip(x.iter().zip(centre))
                    .for_each(|(z, (x, c))| *z = if x.is_nan() { 0.0 } else { x - c });
                add(c, w * r, x, &z);
            }
        }
    }

    fn sums(&self, centres: &[f64], k: usize, assign: &Assign<'_>) -> Sums {
        let d = self.d;
        let zero = || Sums {
            weight: vec![0.0; k],
            observed: vec![0.0; k * d],
            first: vec![0.0; k * d],
            square: vec![0.0; k * d],
        };
        let all = self.tasks(|first, values| {
            let mut sums = zero();
            self.each((first, values), centres, assign, |c, wr, x, z| {
                sums.weight[c] += wr;
                for (j, (x, z)) in x.iter().zip(z).enumerate() {
                    sums.observed[c * d + j] += if x.is_nan() { 0.0 } else { wr };
                    sums.first[c * d + j] += wr * z;
                    sums.square[c * d + j] += wr * z * z;
                }
            });
            sums
        });
        all.into_iter().fold(zero(), |mut total, sums| {
            let pairs = [
                (&mut total.weight, sums.weight),
                (&mut total.observed, sums.observed),
                (&mut total.first, sums.first),
                (&mut total.square, sums.square),
            ];
            pairs.into_iter().for_each(|(total, own)| total.iter_mut().zip(own).for_each(|(t, v)| *t += v));
            total
        })
    }

    /// The statistics of the available values about `centres`, `(k, d)`, under the responsibilities that `assign` writes.
    pub(super) fn statistics(
        &self,
        kind: CovarianceType,
        centres: ArrayView2<'_, f64>,
        assign: &Assign<'_>,
    ) -> Statistics {
        let (k, d) = centres.dim();
        let flat: Vec<f64> = centres.iter().copied().collect();
        let Sums { weight, observed, first, square } = self.sums(&flat, k, assign);
        // The mean of the observed values of each cluster's column, less its centre; 0 if it has none.
        let mean: Vec<f64> = first.iter().zip(&observed).map(|(f, o)| if *o > 0.0 { f / o } else { 0.0 }).collect();
        let variance = variances(&mean, &observed, &square, d);
        let mut out = Statistics::zero(kind, centres.to_owned());
        out.first = Array2::from_shape_fn((k, d), |(c, j)| weight[c] * mean[c * d + j]);
        out.n_rows = self.rows.dim().0 as u64;
        out.total_weight = self.weights.map_or(out.n_rows as f64, |weights| weights.iter().sum());
        if matches!(kind, CovarianceType::Full | CovarianceType::Tied) {
            let moved: Vec<f64> = flat.iter().zip(&mean).map(|(centre, mean)| centre + mean).collect();
            self.add_products(kind, &moved, assign, &mut out.second);
        }
        for c in 0..k {
            for j in 0..d {
                let (at, w) = (c * d + j, weight[c]);
                // Of the rows in which the column is missing: the variance of the others.
                let rest = (w - observed[at]).max(0.0) * variance[at];
                match kind {
                    CovarianceType::Full => out.second[c * packed_len(d) + packed_index(j, j)] += rest,
                    CovarianceType::Tied => out.second[packed_index(j, j)] += rest,
                    CovarianceType::Diag => out.second[at] = w * (variance[at] + mean[at] * mean[at]),
                    CovarianceType::Spherical => out.second[c] += w * (variance[at] + mean[at] * mean[at]),
                }
            }
            // From the moments about the means to those about the centres.
            let mean = &mean[c * d..][..d];
            match kind {
                CovarianceType::Full => add_outer(weight[c], mean, &mut out.second[c * packed_len(d)..]),
                CovarianceType::Tied => add_outer(weight[c], mean, &mut out.second),
                CovarianceType::Diag | CovarianceType::Spherical => {}
            }
        }
        out.weight = weight;
        out
    }

    /// Adds the packed moments about `centres`, with missing values at the centres.
    fn add_products(&self, kind: CovarianceType, centres: &[f64], assign: &Assign<'_>, second: &mut [f64]) {
        let len = second.len();
        let all = self.tasks(|first, values| {
            let mut sums = vec![0.0; len];
            self.each((first, values), centres, assign, |c, wr, _, z| {
                let at = if kind == CovarianceType::Full { c * packed_len(self.d) } else { 0 };
                add_outer(wr, z, &mut sums[at..]);
            });
            sums
        });
        for sums in all {
            second.iter_mut().zip(sums).for_each(|(total, v)| *total += v);
        }
    }
}

/// The variance of the observed values of each cluster's column, `(k, d)`; of a column without any, that of all clusters
/// about their means.
fn variances(mean: &[f64], observed: &[f64], square: &[f64], d: usize) -> Vec<f64> {
    let central = |at: usize| (square[at] - observed[at] * mean[at] * mean[at]).max(0.0);
    let column = |j: usize| (j..mean.len()).step_by(d);
    let pooled: Vec<f64> = (0..d)
        .map(|j| {
            let total: f64 = column(j).map(|at| observed[at]).sum();
            if total > 0.0 { column(j).map(central).sum::<f64>() / total } else { 0.0 }
        })
        .collect();
    let of = |at: usize| if observed[at] > 0.0 { central(at) / observed[at] } else { pooled[at % d] };
    (0..mean.len()).map(of).collect()
}
