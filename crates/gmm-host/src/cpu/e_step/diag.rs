//! Distances in units of each component's own standard deviations.

use super::super::layout::BLOCK;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;

/// `joint[c] = constant[c] − ½ Σ_j ((x_j − mean[c,j]) scale[c,j])²`; `scales` is `(k, d)`.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    x: &[T],
    rows: usize,
    joint: &mut [T],
) {
    let d = terms.d;
    for c in 0..terms.k {
        let (means, scales) = (&terms.means[c * d..][..d], &scales[c * d..][..d]);
        let out = &mut joint[c * BLOCK..][..BLOCK];
        let mut row = 0;
        while row < rows {
            if W::GROUP == 4 {
                group::<T, W, 4>(w, means, scales, &x[row..], terms.constants[c], &mut out[row..]);
            } else {
                group::<T, W, 2>(w, means, scales, &x[row..], terms.constants[c], &mut out[row..]);
            }
            row += W::GROUP * W::LANES;
        }
    }
}

#[inline(always)]
fn group<T: Real, W: Words<T>, const G: usize>(w: W, means: &[T], scales: &[T], x: &[T], constant: T, out: &mut [T]) {
    assert!(x.len() >= (means.len() - 1) * BLOCK + G * W::LANES && out.len() >= G * W::LANES);
    let mut distance = [w.splat(T::ZERO); G];
    for (j, (&mean, &scale)) in means.iter().zip(scales).enumerate() {
        let (mean, scale) = (w.splat(mean), w.splat(scale));
        for (g, q) in distance.iter_mut().enumerate() {
            // SAFETY: inside x, as asserted.
            let value = unsafe { w.load(x.as_ptr().add(j * BLOCK + g * W::LANES)) };
            let t = w.mul(w.sub(value, mean), scale);
            *q = w.fma(t, t, *q);
        }
    }
    for (g, q) in distance.into_iter().enumerate() {
        // SAFETY: inside out, as asserted.
        unsafe { w.store(out.as_mut_ptr().add(g * W::LANES), super::finish(w, q, constant)) };
    }
}
