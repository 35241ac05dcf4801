//! How much precision an iteration on a path may lose before a more precise path takes over.

use gmm_model::{CovarianceType, Precision};

/// Bounds on the precision that a loop may lose: [`Update`](gmm_kernels::em::m_step::Update)'s `most_terms` and
/// `least_left`.
///
/// Terms of magnitude `m` cause an error of `m eps` in a log density: here at most 1e-9 in `f64`, and for `f32` rows no
/// more than the rounding of the rows does. A variance that remains as the share `s` of a second moment, after the
/// mean's square is subtracted, has a relative error of `eps/s`. In split fp16 `eps` is 2⁻²², and the terms of full
/// covariances are squares of the values that cancel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorBounds {
    /// The largest allowed magnitude of a log density's terms.
    pub(crate) most_terms: f64,
    /// The smallest allowed share of a second moment that remains as variance.
    pub(crate) least_left: f64,
}

/// Bounds for features and sums in `f64`, about the shift, for rows of `precision`. A tied covariance of `f32` rows is
/// the remainder of Σ w x xᵀ about the shift, which an `f32` pass adds up: a remaining share `s` of it has a relative
/// error of 2⁻²⁴/s.
pub(crate) const fn of_features(precision: Precision, kind: CovarianceType) -> ErrorBounds {
    let (most_terms, least_left) = match (precision, kind) {
        (Precision::F64, _) => (4e6, 2e-6),
        (Precision::F32, CovarianceType::Tied) => (4e9, 1e-3),
        (Precision::F32, _) => (4e9, 2e-8),
    };
    ErrorBounds { most_terms, least_left }
}

/// Bounds for products in fp16 and split fp16.
pub(crate) const fn of_half_precision(kind: CovarianceType) -> ErrorBounds {
    let most_terms = if matches!(kind, CovarianceType::Full) { 2e5 } else { 2e4 };
    ErrorBounds { most_terms, least_left: 5e-3 }
}

/// Bounds for `f32` differences from the means: the error of a log density grows only with the square root of the
/// terms.
pub(crate) const OF_DIFFERENCES: ErrorBounds = ErrorBounds { most_terms: 1e5, least_left: 2e-8 };

/// The largest ½ Σ w x·Σ⁻¹x per row, entry by entry, for which the value of an `f32` pass is used: rounding then
/// changes a row's log density by at most 6e-5.
pub(crate) const MOST_SHARED: f64 = 1024.0;
