//! How many digits kernels may lose by what they do, before others take over that keep them.

use gmm_model::{CovarianceType, Precision};

use super::shape::Shape;
use super::ways::Way;

/// Losses of digits that a loop takes: [`Update`](gmm_kernels::fused::update::Update)'s `most_terms` and `least_left`.
///
/// Terms of size `m` leave an error of `m eps` in a log density, here 1e-9 at most in `f64`, and as much as the rounding
/// of the rows does in `f32`. A variance that is the share `s` of the square that it is the rest of has an error of
/// `eps/s`. In halves `eps` is 2⁻²², and terms of full covariances are squares of what cancels.
pub(super) const fn limits(shape: &Shape, way: Way) -> (f64, f64) {
    match (way, shape.precision, shape.kind) {
        // Terms are of differences here, and a density loses the root of what is counted.
        (Way::Narrow(_), ..) => (1e5, 2e-8),
        (Way::Halves(_) | Way::Warpgroups(_), _, CovarianceType::Full) => (2e5, 5e-3),
        (Way::Halves(_) | Way::Warpgroups(_), ..) => (2e4, 5e-3),
        (_, precision, kind) => limits_of_features(precision, kind),
    }
}

/// Those of features and sums in `f64`, about the shift of rows of a precision. Tied covariances of `f32` rows are what is left
/// of Σ w x xᵀ about the shift, which a pass in `f32` adds up: the share `s` of it has an error of 2⁻²⁴/s.
pub(super) const fn limits_of_features(precision: Precision, kind: CovarianceType) -> (f64, f64) {
    match (precision, kind) {
        (Precision::F64, _) => (4e6, 2e-6),
        (Precision::F32, CovarianceType::Tied) => (4e9, 1e-3),
        (Precision::F32, _) => (4e9, 2e-8),
    }
}

/// The most that ½ Σ w x·Σ⁻¹x of `f32` rows may be for each row, entry by entry, where it comes from that pass: rounding then
/// takes 6e-5 of a row's log density.
pub(super) const MOST_SHARED: f64 = 1024.0;
