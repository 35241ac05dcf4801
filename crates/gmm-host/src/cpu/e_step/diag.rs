//! Distances in units of each component's own standard deviations.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;
use super::{WIDE, store_log_joint};

/// `joint[c] = constant[c] − ½ Σ_j (x_j scale[c,j] + offset[c,j])²` of `C` components from `c` on for `WIDE` vectors of
/// rows; `scales` and `offsets` are `(k, d)`. Cost `4*d` flops a row and component.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const C: usize>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    offsets: &[T],
    c: usize,
    x: &[T],
    joint: &mut [T],
) {
    let d = terms.d;
    let (scales, offsets) = (&scales[c * d..][..C * d], &offsets[c * d..][..C * d]);
    assert!(x.len() >= (d - 1) * STRIDE + WIDE * W::LANES);
    let mut distances = [[w.splat(T::ZERO); WIDE]; C];
    for j in 0..d {
        // SAFETY: C*d scales and offsets are there, and the vectors are inside x, as asserted.
        unsafe {
            for i in 0..C {
                let scale = w.splat(*scales.get_unchecked(i * d + j));
                let offset = w.splat(*offsets.get_unchecked(i * d + j));
                for g in 0..WIDE {
                    let x = w.load(x.as_ptr().add(j * STRIDE + g * W::LANES));
                    let t = w.fma(x, scale, offset);
                    distances[i][g] = w.fma(t, t, distances[i][g]);
                }
            }
        }
    }
    for (i, distance) in distances.into_iter().enumerate() {
        store_log_joint(w, terms, c + i, distance, joint);
    }
}
