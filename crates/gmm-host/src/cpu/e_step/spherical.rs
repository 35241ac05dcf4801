//! Euclidean distances in units of each component's standard deviation.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;
use super::{WIDE, store, store_log_joint};

/// `distances[c] = |x − mean[c]|²` and `joint[c] = constant[c] − ½ distances[c] scale[c]²` for `C` components from `c`
/// on and `WIDE` vectors of rows; `scales` is `(k,)`. The moments use the distances again.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const C: usize>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    c: usize,
    x: &[T],
    joint: &mut [T],
    distances: &mut [T],
) {
    let found = squared_distances::<T, W, C>(w, &terms.means[c * terms.d..], terms.d, x);
    for (i, mut distance) in found.into_iter().enumerate() {
        store(w, distance, &mut distances[(c + i) * STRIDE..]);
        let scale = w.splat(scales[c + i]);
        for q in &mut distance {
            // Multiplied twice by the reciprocal deviation, since its square could overflow.
            *q = w.mul(w.mul(*q, scale), scale);
        }
        store_log_joint(w, terms, c + i, distance, joint);
    }
}

/// `|x − centre|²` for `WIDE` vectors of rows and the first `C` of `centres`, `(C, d)`; `x` is `(d, STRIDE)`.
#[inline(always)]
pub(crate) fn squared_distances<T: Real, W: Words<T>, const C: usize>(
    w: W,
    centres: &[T],
    d: usize,
    x: &[T],
) -> [[W::V; WIDE]; C] {
    let centres = &centres[..C * d];
    assert!(x.len() >= (d - 1) * STRIDE + WIDE * W::LANES);
    let mut distances = [[w.splat(T::ZERO); WIDE]; C];
    for j in 0..d {
        // SAFETY: `centres` has C*d coordinates, and the WIDE vectors of column j are within x, as asserted.
        unsafe {
            let mut centre = [w.splat(T::ZERO); C];
            for i in 0..C {
                centre[i] = w.splat(*centres.get_unchecked(i * d + j));
            }
            for g in 0..WIDE {
                let x = w.load(x.as_ptr().add(j * STRIDE + g * W::LANES));
                for i in 0..C {
                    let z = w.sub(x, centre[i]);
                    distances[i][g] = w.fma(z, z, distances[i][g]);
                }
            }
        }
    }
    distances
}
