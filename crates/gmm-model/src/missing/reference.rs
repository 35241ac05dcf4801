//! The naive form for rows with missing values: sequential, `f64`, with an inverse by elimination, and simple enough to be
//! checked by reading. The engines' passes are tested against it. NaN is a missing value.

use ndarray::{Array1, Array2, ArrayView1, ArrayView2};

use crate::reference::log_sum_exp;
use crate::{CovarianceType, Mixture, Statistics, packed_index, packed_len};

/// The columns of a row that are observed, ascending.
pub fn observed(x: ArrayView1<'_, f64>) -> Vec<usize> {
    (0..x.len()).filter(|&j| !x[j].is_nan()).collect()
}

/// Inverse and logarithm of the determinant of a symmetric positive definite matrix, by elimination.
pub(crate) fn inverse(a: &Array2<f64>) -> (Array2<f64>, f64) {
    let n = a.nrows();
    let (mut a, mut out, mut ln_det) = (a.clone(), Array2::eye(n), 0.0);
    for column in 0..n {
        let pivot = a[[column, column]];
        ln_det += pivot.ln();
        for j in 0..n {
            a[[column, j]] /= pivot;
            out[[column, j]] /= pivot;
        }
        for i in (0..n).filter(|&i| i != column) {
            let factor = a[[i, column]];
            for j in 0..n {
                a[[i, j]] -= factor * a[[column, j]];
                out[[i, j]] -= factor * out[[column, j]];
            }
        }
    }
    (out, ln_det)
}

/// `ln(w_c N(x_o | μ_o, Σ_oo))` of component `c`, with the row completed by the conditional means, `(d,)`, and the conditional
/// covariance, `(d, d)`, which is 0 where a column is observed.
pub fn component(mixture: &Mixture, c: usize, x: ArrayView1<'_, f64>) -> (f64, Array1<f64>, Array2<f64>) {
    let (d, seen) = (x.len(), observed(x));
    let sigma = mixture.covariances().matrix(c, d);
    let mean = mixture.means().row(c).to_owned();
    let oo = Array2::from_shape_fn((seen.len(), seen.len()), |(i, j)| sigma[[seen[i], seen[j]]]);
    let (inverse, ln_det) = inverse(&oo);
    let z: Array1<f64> = seen.iter().map(|&j| x[j] - mean[j]).collect();
    let solved = inverse.dot(&z);
    let ln_2pi = (2.0 * std::f64::consts::PI).ln();
    let log_joint = mixture.log_weight(c) - 0.5 * (seen.len() as f64 * ln_2pi + ln_det + z.dot(&solved));
    let (mut completed, mut rest) = (x.to_owned(), Array2::zeros((d, d)));
    for i in (0..d).filter(|&i| x[i].is_nan()) {
        let row: Array1<f64> = seen.iter().map(|&j| sigma[[i, j]]).collect();
        completed[i] = mean[i] + row.dot(&solved);
        for j in (0..d).filter(|&j| x[j].is_nan()) {
            let column: Array1<f64> = seen.iter().map(|&l| sigma[[j, l]]).collect();
            rest[[i, j]] = sigma[[i, j]] - row.dot(&inverse.dot(&column));
        }
    }
    (log_joint, completed, rest)
}

/// Log density of the observed values, and responsibilities, `(k,)`. If nothing is observed: 0, and the weights.
pub fn posterior(mixture: &Mixture, x: ArrayView1<'_, f64>) -> (f64, Array1<f64>) {
    if observed(x).is_empty() {
        return (0.0, mixture.weights().to_owned());
    }
    let joint: Vec<f64> = (0..mixture.n_components()).map(|c| component(mixture, c, x).0).collect();
    of_joint(mixture, &joint)
}

/// Log density and responsibilities from the log joint densities; the weights if every density underflows.
pub(crate) fn of_joint(mixture: &Mixture, joint: &[f64]) -> (f64, Array1<f64>) {
    let total = log_sum_exp(joint);
    if total == f64::NEG_INFINITY {
        return (total, mixture.weights().to_owned());
    }
    (total, joint.iter().map(|v| (v - total).exp()).collect())
}

/// Adds a row of weight `w`, of which each component expects a mean and a covariance, given what is known of it.
pub(crate) fn add_expected(
    out: &mut Statistics,
    (w, log_density): (f64, f64),
    responsibilities: &Array1<f64>,
    expected: impl Fn(usize) -> (Array1<f64>, Array2<f64>),
) {
    let d = out.first.ncols();
    out.log_likelihood += w * log_density;
    out.total_weight += w;
    for (c, r) in responsibilities.iter().enumerate() {
        let (mean, rest) = expected(c);
        let z = mean - out.centres.row(c);
        out.weight[c] += w * r;
        for i in 0..d {
            out.first[[c, i]] += w * r * z[i];
            for j in 0..=i {
                let product = w * r * (z[i] * z[j] + rest[[i, j]]);
                match out.kind {
                    CovarianceType::Full => out.second[c * packed_len(d) + packed_index(i, j)] += product,
                    CovarianceType::Tied => out.second[packed_index(i, j)] += product,
                    CovarianceType::Diag if i == j => out.second[c * d + i] += product,
                    CovarianceType::Spherical if i == j => out.second[c] += product,
                    _ => {}
                }
            }
        }
    }
}

/// One E-step with the expected sufficient statistics about the mixture's means; `weights` is `(n,)`. A row without observed
/// values does not count.
pub fn statistics(mixture: &Mixture, rows: ArrayView2<'_, f64>, weights: Option<&[f64]>) -> Statistics {
    let mut out = Statistics::zero(mixture.covariance_type(), mixture.means().to_owned());
    for (i, x) in rows.outer_iter().enumerate() {
        let w = weights.map_or(1.0, |w| w[i]);
        out.n_rows += 1;
        if w <= 0.0 || observed(x).is_empty() {
            continue;
        }
        let (log_density, r) = posterior(mixture, x);
        add_expected(&mut out, (w, log_density), &r, |c| {
            let (_, completed, rest) = component(mixture, c, x);
            (completed, rest)
        });
    }
    out
}

/// The conditional mean of each missing value given the observed ones, `Σ r_c E_c`; observed values stay, `(d,)`. Of a row
/// without observed values the mean of the mixture.
pub fn mean(mixture: &Mixture, x: ArrayView1<'_, f64>) -> Array1<f64> {
    let (_, r) = posterior(mixture, x);
    let mut out = x.to_owned();
    for i in (0..x.len()).filter(|&i| x[i].is_nan()) {
        out[i] = (0..r.len()).map(|c| r[c] * component(mixture, c, x).1[i]).sum();
    }
    out
}
