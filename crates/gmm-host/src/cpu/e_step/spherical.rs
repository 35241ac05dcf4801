//! Euclidean distances, in units of each component's one standard deviation.

use std::ops::Range;

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;
use super::{Finish, LogJoint};

/// `distances[c] = |x − mean[c]|²` and `joint[c] = constant[c] − ½ distances[c] scale[c]²` for `G` vectors of rows;
/// `scales` is `(k,)`. The moments need the distances once more.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const G: usize>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    components: Range<usize>,
    x: &[T],
    joint: &mut [T],
    distances: &mut [T],
) {
    squared_distances::<T, W, G>(w, &terms.means, terms.d, components.clone(), x, distances, Plain);
    let finish = LogJoint { constants: &terms.constants };
    for c in components {
        let (from, to) = (&distances[c * STRIDE..][..G * W::LANES], &mut joint[c * STRIDE..][..G * W::LANES]);
        let scale = w.splat(scales[c]);
        for g in 0..G {
            // SAFETY: both hold G vectors.
            unsafe {
                let distance = w.load(from.as_ptr().add(g * W::LANES));
                // Scaled twice by the reciprocal deviation: its square could overflow alone.
                let value = finish.apply(w, c, w.mul(w.mul(distance, scale), scale));
                w.store(to.as_mut_ptr().add(g * W::LANES), value);
            }
        }
    }
}

/// Squared distances as they are.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

impl<T: Real, W: Words<T>> Finish<T, W> for Plain {
    #[inline(always)]
    fn apply(self, _: W, _: usize, distance: W::V) -> W::V {
        distance
    }
}

/// `out[c] = finish(|x − centre[c]|²)` for `G` vectors of rows and one or two of the `centres`, `(k, d)`; `x` is
/// `(d, STRIDE)`, `out` `(k, STRIDE)`.
#[inline(always)]
pub(crate) fn squared_distances<T: Real, W: Words<T>, const G: usize>(
    w: W,
    centres: &[T],
    d: usize,
    components: Range<usize>,
    x: &[T],
    out: &mut [T],
    finish: impl Finish<T, W>,
) {
    let (c, last) = (components.start, components.end - 1);
    let (a, b) = (&centres[c * d..][..d], &centres[last * d..][..d]);
    assert!(x.len() >= (d - 1) * STRIDE + G * W::LANES);
    let mut to_a = [w.splat(T::ZERO); G];
    let mut to_b = to_a;
    if c == last {
        for (j, &a) in a.iter().enumerate() {
            let a = w.splat(a);
            for (g, q) in to_a.iter_mut().enumerate() {
                // SAFETY: inside x, as asserted.
                let z = w.sub(unsafe { w.load(x.as_ptr().add(j * STRIDE + g * W::LANES)) }, a);
                *q = w.fma(z, z, *q);
            }
        }
    } else {
        for (j, (&a, &b)) in a.iter().zip(b).enumerate() {
            let (a, b) = (w.splat(a), w.splat(b));
            for (g, (qa, qb)) in to_a.iter_mut().zip(&mut to_b).enumerate() {
                // SAFETY: inside x, as asserted.
                let value = unsafe { w.load(x.as_ptr().add(j * STRIDE + g * W::LANES)) };
                let (za, zb) = (w.sub(value, a), w.sub(value, b));
                *qa = w.fma(za, za, *qa);
                *qb = w.fma(zb, zb, *qb);
            }
        }
        super::store(w, last, to_b, finish, &mut out[last * STRIDE..]);
    }
    super::store(w, c, to_a, finish, &mut out[c * STRIDE..]);
}
