//! Comparison of statistics, with the tolerances that the project guarantees.

use gmm_kernels::Real;
use gmm_model::Statistics;

/// Relative tolerance that the project guarantees: 2e-5 in `f32`, 1e-10 in `f64`.
pub(crate) fn tolerance<T: Real>() -> f64 {
    if T::BYTES == 4 { 2e-5 } else { 1e-10 }
}

/// `|a − b| <= tolerance * scale`, or equal infinities.
pub(crate) fn close(a: f64, b: f64, scale: f64, tolerance: f64, what: &str) {
    assert!(a == b || (a - b).abs() <= tolerance * scale, "{what}: {a} is not {b} (scale {scale})");
}

fn norm<'a>(v: impl IntoIterator<Item = &'a f64>) -> f64 {
    v.into_iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// Compares each part by its Euclidean norm; first moments relative to the size of their summands.
pub(crate) fn same_statistics(a: &Statistics, b: &Statistics, tolerance: f64, what: &str) {
    let difference = |a: &[f64], b: &[f64]| norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>());
    let (weight, second) = (norm(&b.weight), norm(&b.second));
    close(difference(&a.weight, &b.weight), 0.0, weight, tolerance, &format!("{what}: weight"));
    let first = difference(a.first.as_slice().unwrap(), b.first.as_slice().unwrap());
    close(first, 0.0, (weight * second).sqrt(), tolerance, &format!("{what}: first moments"));
    close(difference(&a.second, &b.second), 0.0, second, tolerance, &format!("{what}: second moments"));
    let scale = b.total_weight + b.log_likelihood.abs();
    close(a.log_likelihood, b.log_likelihood, scale, tolerance, &format!("{what}: log-likelihood"));
    close(a.total_weight, b.total_weight, b.total_weight, 1e-14, &format!("{what}: total weight"));
    assert_eq!(a.n_rows, b.n_rows, "{what}: rows");
}
