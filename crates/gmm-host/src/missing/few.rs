//! The few rows of a rare pattern, in `f64` on the host: with thousands of patterns, starting a pass of an engine for each
//! would take most of the time.

use gmm_model::reference::log_sum_exp;
use gmm_model::{CovarianceType, Factors, Mixture, Statistics, packed_len};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};

use crate::{EvaluateOptions, Evaluation};

/// Complete rows, `(n, o)`, with their weights.
pub(super) struct FewRows {
    rows: Array2<f64>,
    weights: Option<Vec<f64>>,
}

/// Scratch for one row.
struct Row {
    /// Differences from the means, `(k, o)`.
    z: Vec<f64>,
    /// `(o,)`.
    y: Vec<f64>,
    /// Log joint densities, then responsibilities, `(k,)`.
    r: Vec<f64>,
}

impl FewRows {
    pub(super) const fn new(rows: Array2<f64>, weights: Option<Vec<f64>>) -> Self {
        Self { rows, weights }
    }

    pub(super) fn sample(&self, rows: &[usize], weights: Option<Vec<f64>>) -> Self {
        Self { rows: self.rows.select(Axis(0), rows), weights }
    }

    /// `(n, o)`.
    pub(super) fn rows(&self) -> ArrayView2<'_, f64> {
        self.rows.view()
    }

    pub(super) fn weight(&self, row: usize) -> f64 {
        self.weights.as_ref().map_or(1.0, |weights| weights[row])
    }

    /// Statistics about the means of a mixture of `o` columns.
    pub(super) fn pass(&self, mixture: &Mixture) -> Statistics {
        let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
        out.n_rows = self.rows.nrows() as u64;
        let constants = constants(mixture);
        let mut work = Row::new(mixture);
        for (i, x) in self.rows.outer_iter().enumerate() {
            let w = self.weight(i);
            if w > 0.0 {
                out.total_weight += w;
                out.log_likelihood += w * work.posterior(mixture, &constants, x);
                work.add(w, &mut out);
            }
        }
        out
    }

    /// As [`Evaluate::evaluate`](crate::Evaluate::evaluate), of a mixture of `o` columns.
    pub(super) fn evaluate(&self, mixture: &Mixture, mut want: EvaluateOptions<'_>) -> Evaluation {
        let mut out = Evaluation::NOTHING;
        let constants = constants(mixture);
        let mut work = Row::new(mixture);
        for (i, x) in self.rows.outer_iter().enumerate() {
            let (w, log_density) = (self.weight(i), work.posterior(mixture, &constants, x));
            out.add_row(w, log_density, ArrayView1::from(&work.r));
            want.put_row(i, log_density, ArrayView1::from(&work.r));
        }
        out
    }
}

/// Log weight and log normaliser of each component, `(k,)`.
fn constants(mixture: &Mixture) -> Vec<f64> {
    (0..mixture.n_components()).map(|c| mixture.log_weight(c) + mixture.log_normalizer(c)).collect()
}

impl Row {
    fn new(mixture: &Mixture) -> Self {
        let (k, o) = mixture.means().dim();
        Self { z: vec![0.0; k * o], y: vec![0.0; o], r: vec![0.0; k] }
    }

    /// Computes the responsibilities, and returns the log density. As in the reference, they are the weights if all
    /// densities underflow.
    fn posterior(&mut self, mixture: &Mixture, constants: &[f64], x: ArrayView1<'_, f64>) -> f64 {
        let o = x.len();
        for (c, mean) in mixture.means().outer_iter().enumerate() {
            let z = &mut self.z[c * o..][..o];
            z.iter_mut().zip(x.iter().zip(mean)).for_each(|(z, (x, mean))| *z = x - mean);
            self.y.copy_from_slice(z);
            match mixture.factors() {
                // For completeness: `lanes` has these.
                Factors::Full(all) => all[c].solve_lower(&mut self.y),
                Factors::Tied(one) => one.solve_lower(&mut self.y),
                Factors::Diag(sd) => self.y.iter_mut().zip(sd.row(c)).for_each(|(y, sd)| *y /= sd),
                Factors::Spherical(sd) => self.y.iter_mut().for_each(|y| *y /= sd[c]),
            }
            let distance: f64 = self.y.iter().map(|v| v * v).sum();
            // NaN is a difference of infinities: the squared distance overflows.
            self.r[c] = constants[c] - 0.5 * if distance.is_nan() { f64::INFINITY } else { distance };
        }
        let log_density = log_sum_exp(&self.r);
        if log_density == f64::NEG_INFINITY {
            self.r.iter_mut().zip(mixture.weights()).for_each(|(r, w)| *r = *w);
            return log_density;
        }
        let top = self.r.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        self.r.iter_mut().for_each(|r| *r = (*r - top).exp());
        let sum: f64 = self.r.iter().sum();
        self.r.iter_mut().for_each(|r| *r /= sum);
        log_density
    }

    /// Adds the moments of the row, of weight `w`, about the means.
    fn add(&self, w: f64, out: &mut Statistics) {
        let o = self.y.len();
        let first = out.first.as_slice_mut().expect("row-major");
        for (c, r) in self.r.iter().enumerate().filter(|(_, r)| **r > 0.0) {
            let (wr, z) = (w * r, &self.z[c * o..][..o]);
            out.weight[c] += wr;
            first[c * o..][..o].iter_mut().zip(z).for_each(|(sum, z)| *sum += wr * z);
            match out.kind {
                CovarianceType::Full => add_outer(wr, z, &mut out.second[c * packed_len(o)..]),
                CovarianceType::Tied => add_outer(wr, z, &mut out.second),
                CovarianceType::Diag => {
                    out.second[c * o..][..o].iter_mut().zip(z).for_each(|(sum, z)| *sum += wr * z * z);
                }
                CovarianceType::Spherical => out.second[c] += wr * z.iter().map(|z| z * z).sum::<f64>(),
            }
        }
    }
}

/// Adds `w z zᵀ` to packed moments.
pub(super) fn add_outer(w: f64, z: &[f64], packed: &mut [f64]) {
    let mut at = 0;
    for (i, v) in z.iter().enumerate() {
        let wv = w * v;
        packed[at..=at + i].iter_mut().zip(z).for_each(|(sum, z)| *sum += wv * z);
        at += i + 1;
    }
}
