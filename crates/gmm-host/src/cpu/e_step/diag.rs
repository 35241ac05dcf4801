//! Distances in units of each component's own standard deviations.

use std::ops::Range;

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;

/// `joint[c] = constant[c] − ½ Σ_j ((x_j − mean[c,j]) scale[c,j])²` for `G` vectors of rows; `scales` is `(k, d)`.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    components: Range<usize>,
    x: &[T],
    joint: &mut [T],
) {
    let d = terms.d;
    assert!(x.len() >= (d - 1) * STRIDE + G * W::LANES);
    for c in components {
        let (means, scales) = (&terms.means[c * d..][..d], &scales[c * d..][..d]);
        let mut distance = [w.splat(T::ZERO); G];
        for (j, (&mean, &scale)) in means.iter().zip(scales).enumerate() {
            let (mean, scale) = (w.splat(mean), w.splat(scale));
            for (g, q) in distance.iter_mut().enumerate() {
                // SAFETY: inside x, as asserted.
                let value = unsafe { w.load(x.as_ptr().add(j * STRIDE + g * W::LANES)) };
                let t = w.mul(w.sub(value, mean), scale);
                *q = w.fma(t, t, *q);
            }
        }
        super::store(w, c, distance, super::LogJoint { constants: &terms.constants }, &mut joint[c * STRIDE..]);
    }
}
