//! Floating-point operations of one EM iteration: the minimum that the mathematics requires.

use gmm_model::CovarianceType;

use crate::Shape;

/// Additions and multiplications of one iteration, E-step and then M-step. exp, log and work of size `k` are not
/// counted.
///
/// - full: `n*k*d*(d+1)` to whiten each row by each factor, `n*k*d*(d+1)` for the second moments;
/// - tied: `n*d*(d+1)` to whiten once and `2*n*k*d` for the distances, `n*d*(d+1)` for the moments of all rows and
///   `2*n*k*d` for the first moments;
/// - diag: `4*n*k*d` for the distances, `4*n*k*d` for first and second moments;
/// - spherical: `2*n*k*d` for the distances, `2*n*k*d` for the first moments.
pub fn per_iteration(kind: CovarianceType, Shape { n, k, d }: Shape) -> f64 {
    let (n, k, d) = (n as f64, k as f64, d as f64);
    match kind {
        CovarianceType::Full => 2.0 * n * k * d * (d + 1.0),
        CovarianceType::Tied => 2.0 * n * d * (d + 1.0) + 4.0 * n * k * d,
        CovarianceType::Diag => 8.0 * n * k * d,
        CovarianceType::Spherical => 4.0 * n * k * d,
    }
}

/// Additions and multiplications of a product of `(n, k)` and `(k, d)`.
pub fn product(Shape { n, k, d }: Shape) -> f64 {
    2.0 * n as f64 * k as f64 * d as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_row_one_component_one_dimension_counts_as_on_paper() {
        let one = Shape { n: 1, k: 1, d: 1 };
        let counts = CovarianceType::ALL.map(|kind| per_iteration(kind, one));
        assert_eq!(counts, [4.0, 8.0, 8.0, 4.0]);
    }
}
