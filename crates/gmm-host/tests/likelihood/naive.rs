//! Value and gradient summed row by row from the definitions, in f64.

use gmm_host::Gradient;
use gmm_model::{CovarianceType, Dataset, Mixture, packed_index, packed_len, reference};
use ndarray::{Array1, Array2};

/// Σ w ln p(x).
pub(crate) fn value(mixture: &Mixture, data: &Dataset) -> f64 {
    let rows = data.rows().to_f64();
    let term = |i: usize| match data.weight(i) {
        0.0 => 0.0,
        w => w * reference::posterior(mixture, rows.row(i)).0,
    };
    (0..rows.nrows()).map(term).sum()
}

/// Σ w r ∂ ln(w_c N(x|c)), summed over rows and components one by one, without moments.
pub(crate) fn gradient(mixture: &Mixture, data: &Dataset) -> Gradient {
    let (k, d) = mixture.means().dim();
    let kind = mixture.covariance_type();
    let mut log_weights = Array1::zeros(k);
    let mut means = Array2::zeros((k, d));
    let mut scales = vec![0.0; kind.second_len(k, d)];
    for (i, x) in data.rows().to_f64().outer_iter().enumerate() {
        let (_, r) = reference::posterior(mixture, x);
        for c in 0..k {
            let r = data.weight(i) * r[c];
            for other in 0..k {
                log_weights[other] += r * (f64::from(other == c) - mixture.weights()[other]);
            }
            let l = mixture.factors().dense(c, d);
            // y = L⁻¹ (x − μ), u = L⁻ᵀ y.
            let mut y = Array1::zeros(d);
            for p in 0..d {
                let known: f64 = (0..p).map(|q| l[[p, q]] * y[q]).sum();
                y[p] = (x[p] - mixture.means()[[c, p]] - known) / l[[p, p]];
            }
            let mut u = Array1::zeros(d);
            for p in (0..d).rev() {
                let known: f64 = (p + 1..d).map(|q| l[[q, p]] * u[q]).sum();
                u[p] = (y[p] - known) / l[[p, p]];
            }
            for p in 0..d {
                means[[c, p]] += r * u[p];
                match kind {
                    CovarianceType::Full | CovarianceType::Tied => {
                        let first = if kind == CovarianceType::Full { c * packed_len(d) } else { 0 };
                        for q in 0..=p {
                            let own = if p == q { 1.0 / l[[p, p]] } else { 0.0 };
                            scales[first + packed_index(p, q)] += r * (u[p] * y[q] - own);
                        }
                    }
                    CovarianceType::Diag => scales[c * d + p] += r * (y[p] * y[p] - 1.0),
                    CovarianceType::Spherical => scales[c] += r * (y[p] * y[p] - 1.0),
                }
            }
        }
    }
    Gradient { log_weights, means, scales }
}
