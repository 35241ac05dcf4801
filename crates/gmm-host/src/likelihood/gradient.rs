//! The gradient of the log-likelihood, from the sufficient statistics of one pass.

use gmm_model::{Cholesky, Factors, Mixture, Statistics, packed_index, packed_len};
use ndarray::{Array1, Array2};

/// The gradient of Σ w ln p(x) at a mixture.
///
/// By Fisher's identity it is the expected gradient of the complete-data log-likelihood under the responsibilities `r`
/// (times the row weights). So it follows exactly from the statistics of one pass about the means: `N = Σr`, `f = Σrz`
/// and `S = Σrzzᵀ` with `z = x − μ` (Salakhutdinov, Roweis, Ghahramani 2003).
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient {
    /// With respect to `a`, where the weights are `w_c = exp(a_c) / Σ exp(a)`, at `a = ln w`: `N_c − w_c Σ N`, `(k,)`.
    ///
    /// The entries sum to 0. The first `k − 1` are the gradient if the last `a` is fixed at 0.
    pub log_weights: Array1<f64>,
    /// With respect to the means: `Σ_c⁻¹ f_c`, `(k, d)`, in inverse units of the data.
    pub means: Array2<f64>,
    /// With respect to the scales, in the packing of [`Statistics::second`].
    ///
    /// - full, `k*d*(d+1)/2`, and tied, `d*(d+1)/2`: the entries of the lower factor `L`, `Σ = L Lᵀ`, row by row:
    ///   the lower triangle of `L⁻ᵀ (L⁻¹ S L⁻ᵀ − N I)`, with `S` and `N` summed over components for tied;
    /// - diag, `k*d`: the log standard deviations: `S_jj / σ_j² − N`;
    /// - spherical, `k`: the log standard deviations: `tr S / σ² − d N`.
    pub scales: Vec<f64>,
}

impl Gradient {
    /// The gradient at `mixture`, from the statistics of a pass with it.
    ///
    /// Cost: `3*k*d³` flops for full covariances; no pass over the rows.
    ///
    /// # Panics
    /// If the statistics differ from the mixture in kind or shape.
    pub fn of(mixture: &Mixture, statistics: &Statistics) -> Self {
        assert_eq!((mixture.covariance_type(), mixture.means().dim()), (statistics.kind, statistics.dim()));
        let d = statistics.dim().1;
        let (weight, second) = (&statistics.weight, &statistics.second);
        let total: f64 = weight.iter().sum();
        let log_weights = weight.iter().zip(mixture.weights()).map(|(n, w)| n - w * total).collect();
        let mut means = statistics.first.clone();
        let mut scales = vec![0.0; second.len()];
        let rows = means.as_slice_mut().expect("row-major").chunks_exact_mut(d);
        match mixture.factors() {
            Factors::Full(all) => {
                let mut work = Work::new(d);
                rows.zip(all).for_each(|(f, l)| solve(l, f));
                let packed = packed_len(d);
                let moments = second.chunks_exact(packed).zip(scales.chunks_exact_mut(packed));
                for ((l, n), (s, out)) in all.iter().zip(weight).zip(moments) {
                    work.factor(l, *n, s, out);
                }
            }
            Factors::Tied(l) => {
                rows.for_each(|f| solve(l, f));
                Work::new(d).factor(l, total, second, &mut scales);
            }
            Factors::Diag(sd) => {
                for (c, f) in rows.enumerate() {
                    for (j, f) in f.iter_mut().enumerate() {
                        let sd = sd[[c, j]];
                        *f = *f / sd / sd;
                        scales[c * d + j] = second[c * d + j] / sd / sd - weight[c];
                    }
                }
            }
            Factors::Spherical(sd) => {
                rows.zip(sd).for_each(|(f, sd)| f.iter_mut().for_each(|f| *f = *f / sd / sd));
                for (c, sd) in sd.iter().enumerate() {
                    scales[c] = second[c] / sd / sd - d as f64 * weight[c];
                }
            }
        }
        Self { log_weights, means, scales }
    }

    /// The first entry that is NaN or infinite, if any.
    pub(crate) fn first_not_finite(&self) -> Option<f64> {
        self.log_weights.iter().chain(&self.means).chain(&self.scales).copied().find(|v| !v.is_finite())
    }
}

/// Computes `(L Lᵀ)⁻¹ b` in place.
fn solve(l: &Cholesky, b: &mut [f64]) {
    l.solve_lower(b);
    l.solve_lower_transposed(b);
}

/// Workspace of two `(d, d)` matrices in row-major order.
struct Work {
    d: usize,
    a: Vec<f64>,
    b: Vec<f64>,
}

impl Work {
    fn new(d: usize) -> Self {
        Self { d, a: vec![0.0; d * d], b: vec![0.0; d * d] }
    }

    /// Writes the lower triangle of `L⁻ᵀ (L⁻¹ S L⁻ᵀ − n I)`, packed, into `out`; `s` is packed too.
    ///
    /// Near a maximum the difference is one of two nearly equal matrices. It is taken inside the outer `L⁻ᵀ`, so that
    /// the cancellation happens before its rounding errors could be magnified.
    fn factor(&mut self, l: &Cholesky, n: f64, s: &[f64], out: &mut [f64]) {
        let Self { d, a, b } = self;
        let d = *d;
        for i in 0..d {
            for j in 0..d {
                a[i * d + j] = s[packed_index(i.max(j), i.min(j))];
            }
        }
        // The rows of a symmetric matrix are its columns. Solving them gives (L⁻¹S)ᵀ; transposing and solving again
        // gives L⁻¹ S L⁻ᵀ.
        a.chunks_exact_mut(d).for_each(|row| l.solve_lower(row));
        for i in 0..d {
            for j in 0..d {
                b[i * d + j] = a[j * d + i];
            }
        }
        b.chunks_exact_mut(d).for_each(|row| l.solve_lower(row));
        for (j, column) in b.chunks_exact_mut(d).enumerate() {
            column[j] -= n;
            l.solve_lower_transposed(column);
            for i in j..d {
                out[packed_index(i, j)] = column[i];
            }
        }
    }
}
