//! How much precision a path may lose before another takes over that keeps it.

use gmm_model::{CovarianceType, Precision};

/// Losses that a loop accepts: [`Update`](gmm_kernels::em::m_step::Update)'s `most_terms` and `least_left`.
///
/// Terms of size `m` leave an error of `m eps` in a log density, here 1e-9 at most in `f64`, and as much as the rounding
/// of the rows does in `f32`. A variance that is the share `s` of the square that it is the rest of has an error of
/// `eps/s`. In split half precision `eps` is 2⁻²², and terms of full covariances are squares of what cancels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorBounds {
    /// The largest that terms of a log density may be.
    pub(crate) most_terms: f64,
    /// The least share of a second moment that may be left as variance.
    pub(crate) least_left: f64,
}

/// Those of features and sums in `f64`, about the shift of rows of a precision. Tied covariances of `f32` rows are what is left
/// of Σ w x xᵀ about the shift, which a pass in `f32` adds up: the share `s` of it has an error of 2⁻²⁴/s.
pub(crate) const fn of_features(precision: Precision, kind: CovarianceType) -> ErrorBounds {
    let (most_terms, least_left) = match (precision, kind) {
        (Precision::F64, _) => (4e6, 2e-6),
        (Precision::F32, CovarianceType::Tied) => (4e9, 1e-3),
        (Precision::F32, _) => (4e9, 2e-8),
    };
    ErrorBounds { most_terms, least_left }
}

/// Those of products in half precision, split or not.
pub(crate) const fn of_half_precision(kind: CovarianceType) -> ErrorBounds {
    let most_terms = if matches!(kind, CovarianceType::Full) { 2e5 } else { 2e4 };
    ErrorBounds { most_terms, least_left: 5e-3 }
}

/// Those of `f32` differences from the means: a density loses the root of what is counted.
pub(crate) const OF_DIFFERENCES: ErrorBounds = ErrorBounds { most_terms: 1e5, least_left: 2e-8 };

/// The most that ½ Σ w x·Σ⁻¹x of `f32` rows may be for each row, entry by entry, where it comes from that pass: rounding then
/// takes 6e-5 of a row's log density.
pub(crate) const MOST_SHARED: f64 = 1024.0;
