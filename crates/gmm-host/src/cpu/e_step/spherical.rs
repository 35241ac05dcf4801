//! Euclidean distances, in units of each component's one standard deviation.

use super::super::layout::BLOCK;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;

/// `joint[c] = constant[c] − ½ |x − mean[c]|² scale[c]²`; `scales` is `(k,)`.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    x: &[T],
    rows: usize,
    joint: &mut [T],
) {
    for c in 0..terms.k {
        let scale = w.splat(scales[c]);
        let out = &mut joint[c * BLOCK..][..BLOCK];
        squared_distance(w, &terms.means[c * terms.d..][..terms.d], x, rows, out, |w, q| {
            // Scaled twice by the reciprocal deviation: its square could overflow alone.
            super::finish(w, w.mul(w.mul(q, scale), scale), terms.constants[c])
        });
    }
}

/// `out[row] = f(|x − centre|²)`; `x` is `(d, BLOCK)`, `rows` a multiple of `GROUP * LANES`.
#[inline(always)]
pub(crate) fn squared_distance<T: Real, W: Words<T>>(
    w: W,
    centre: &[T],
    x: &[T],
    rows: usize,
    out: &mut [T],
    f: impl Fn(W, W::V) -> W::V,
) {
    let mut row = 0;
    while row < rows {
        if W::GROUP == 4 {
            group::<T, W, 4>(w, centre, &x[row..], &mut out[row..], &f);
        } else {
            group::<T, W, 2>(w, centre, &x[row..], &mut out[row..], &f);
        }
        row += W::GROUP * W::LANES;
    }
}

#[inline(always)]
fn group<T: Real, W: Words<T>, const G: usize>(
    w: W,
    centre: &[T],
    x: &[T],
    out: &mut [T],
    f: &impl Fn(W, W::V) -> W::V,
) {
    assert!(x.len() >= (centre.len() - 1) * BLOCK + G * W::LANES && out.len() >= G * W::LANES);
    let mut distance = [w.splat(T::ZERO); G];
    for (j, &mean) in centre.iter().enumerate() {
        let mean = w.splat(mean);
        for (g, q) in distance.iter_mut().enumerate() {
            // SAFETY: inside x, as asserted.
            let z = w.sub(unsafe { w.load(x.as_ptr().add(j * BLOCK + g * W::LANES)) }, mean);
            *q = w.fma(z, z, *q);
        }
    }
    for (g, q) in distance.into_iter().enumerate() {
        // SAFETY: inside out, as asserted.
        unsafe { w.store(out.as_mut_ptr().add(g * W::LANES), f(w, q)) };
    }
}
