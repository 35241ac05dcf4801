//! The reference implementation: naive, sequential, `f64`, and simple enough to be checked by reading. Every fast path
//! is tested against it.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use crate::{CovarianceType, FactorShape, Mixture, ModelError, PrecisionMixture, Statistics, packed_index};

/// `ln(w_c N(x | μ_c, Σ_c))` for one row `x`, `(d,)`; −∞ if the squared distance overflows or the weight is 0.
pub fn log_joint(mixture: &Mixture, c: usize, x: ArrayView1<'_, f64>) -> f64 {
    let d = mixture.n_features();
    let lower = mixture.factors().dense(c, d);
    // Forward substitution in L y = x − μ; the squared length of y is the squared Mahalanobis distance.
    let mut y = vec![0.0; d];
    for i in 0..d {
        let mut rest = x[i] - mixture.means()[[c, i]];
        for j in 0..i {
            rest -= lower[[i, j]] * y[j];
        }
        y[i] = rest / lower[[i, i]];
    }
    let distance: f64 = y.iter().map(|v| v * v).sum();
    // NaN is a difference of infinities: the squared distance overflows, so the density is 0.
    let distance = if distance.is_nan() { f64::INFINITY } else { distance };
    mixture.log_weight(c) + mixture.log_normalizer(c) - 0.5 * distance
}

/// `ln Σ exp(v)`, computed with the maximum subtracted; −∞ if all values are −∞.
pub fn log_sum_exp(values: &[f64]) -> f64 {
    let top = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if top == f64::NEG_INFINITY {
        return top;
    }
    top + values.iter().map(|v| (v - top).exp()).sum::<f64>().ln()
}

/// Log density and responsibilities, `(k,)`, of one row.
///
/// If all densities underflow to 0, the responsibilities are the component weights: without evidence the posterior is
/// the prior.
pub fn posterior(mixture: &Mixture, x: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
    let joint: Vec<f64> = (0..mixture.n_components()).map(|c| log_joint(mixture, c, x)).collect();
    posterior_of(&joint, mixture.weights())
}

/// [`posterior`] of a mixture given by factors of its precisions: `y = Uᵀ(x − μ)`, and nothing is solved.
///
/// # Errors
/// [`ModelError`] if a factor is not finite or singular.
pub fn precision_posterior(
    mixture: &PrecisionMixture<'_>,
    x: ArrayView1<'_, f64>,
) -> Result<(f64, Array1<f64>), ModelError> {
    let (k, d) = mixture.means().dim();
    let mut joint = Vec::with_capacity(k);
    for c in 0..k {
        let z = &x - &mixture.means().row(c);
        let u = mixture.factor(c);
        let (shape, y) = match mixture.covariance_type() {
            CovarianceType::Full | CovarianceType::Tied => {
                let y = |i: usize| (0..d).map(|j| u.at(j * d + i) * z[j]).sum::<f64>();
                (mixture.factor_shape(c), (0..d).map(y).collect::<Vec<_>>())
            }
            CovarianceType::Diag => (FactorShape::Upper, (0..d).map(|i| u.at(i) * z[i]).collect()),
            CovarianceType::Spherical => (FactorShape::Upper, (0..d).map(|i| u.at(0) * z[i]).collect()),
        };
        let distance: f64 = y.iter().map(|v| v * v).sum();
        let distance = if distance.is_nan() { f64::INFINITY } else { distance };
        joint.push(mixture.log_weight(c) + mixture.log_normalizer(c, shape)? - 0.5 * distance);
    }
    Ok(posterior_of(&joint, mixture.weights()))
}

fn posterior_of(joint: &[f64], weights: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
    let total = log_sum_exp(joint);
    if total == f64::NEG_INFINITY {
        return (total, weights.to_owned());
    }
    // Not exp(v − total): far from all components `total` is large, and its rounding would make the responsibilities
    // inaccurate.
    let top = joint.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let scaled: Array1<f64> = joint.iter().map(|v| (v - top).exp()).collect();
    let sum = scaled.sum();
    (total, scaled / sum)
}

/// Log density of each row, `(n,)`.
pub fn log_densities(mixture: &Mixture, rows: ArrayView2<'_, f64>) -> Array1<f64> {
    rows.outer_iter().map(|x| posterior(mixture, x).0).collect()
}

/// Responsibilities, `(n, k)`.
pub fn responsibilities(mixture: &Mixture, rows: ArrayView2<'_, f64>) -> Array2<f64> {
    let mut out = Array2::zeros((rows.nrows(), mixture.n_components()));
    for (mut slot, x) in out.outer_iter_mut().zip(rows.outer_iter()) {
        slot.assign(&posterior(mixture, x).1);
    }
    out
}

/// Index of the largest value, the first among equals.
pub fn argmax(values: ArrayView1<'_, f64>) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Adds one row of weight `w` with responsibilities `r`, `(k,)`, to `statistics`.
pub fn accumulate(statistics: &mut Statistics, x: ArrayView1<'_, f64>, w: f64, r: ArrayView1<'_, f64>) {
    let (k, d) = statistics.dim();
    for c in 0..k {
        let z = &x - &statistics.centres.row(c);
        let wr = w * r[c];
        statistics.weight[c] += wr;
        for i in 0..d {
            statistics.first[[c, i]] += wr * z[i];
            for j in 0..=i {
                let product = wr * z[i] * z[j];
                match statistics.kind {
                    CovarianceType::Full => statistics.second[c * crate::packed_len(d) + packed_index(i, j)] += product,
                    CovarianceType::Tied => statistics.second[packed_index(i, j)] += product,
                    CovarianceType::Diag if i == j => statistics.second[c * d + i] += product,
                    CovarianceType::Spherical if i == j => statistics.second[c] += product,
                    _ => {}
                }
            }
        }
    }
    statistics.total_weight += w;
    statistics.n_rows += 1;
}

/// One E-step with sufficient statistics about the mixture's means; `weights` is `(n,)`.
pub fn statistics(mixture: &Mixture, rows: ArrayView2<'_, f64>, weights: Option<&[f64]>) -> Statistics {
    let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    for (i, x) in rows.outer_iter().enumerate() {
        let w = weights.map_or(1.0, |w| w[i]);
        // A row of weight 0 does not count, even if its log density is −∞.
        if w > 0.0 {
            let (log_density, r) = posterior(mixture, x);
            out.log_likelihood += w * log_density;
            accumulate(&mut out, x, w, r.view());
        } else {
            out.n_rows += 1;
        }
    }
    out
}
