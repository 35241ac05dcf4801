//! Moments under a hard assignment: each row contributes only to its own cluster.

use super::super::layout::STRIDE;
use super::super::simd::Real;
use super::Sums;

/// Adds rows to the clusters of their labels: weights, first moments, and inertias (the second moments of the spherical
/// kind). `centres` is `(k, d)`; `distances` holds each row's squared distance to its own centre. Cost: `d` per row,
/// independent of `k`.
pub(crate) fn scatter<T: Real>(
    centres: &[T],
    d: usize,
    x: &[T],
    labels: &[u32],
    distances: &[T],
    weights: &[T],
    sums: &mut Sums,
) {
    for ((&label, &distance), &weight) in labels.iter().zip(distances).zip(weights) {
        sums.weight[label as usize] += weight.to_f64();
        sums.second[label as usize] += weight.to_f64() * distance.to_f64();
    }
    for (j, column) in x.chunks_exact(STRIDE).take(d).enumerate() {
        for ((&label, &value), &weight) in labels.iter().zip(column).zip(weights) {
            let cell = label as usize * d + j;
            sums.first[cell] += weight.to_f64() * (value.to_f64() - centres[cell].to_f64());
        }
    }
}
