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
        (_, precision, _) => limits_of_features(precision),
    }
}

/// Those of features and sums in `f64`, about the shift of rows of a precision.
pub(super) const fn limits_of_features(precision: Precision) -> (f64, f64) {
    match precision {
        Precision::F64 => (4e6, 2e-6),
        Precision::F32 => (4e9, 2e-8),
    }
}
