//! Log densities of a tile: the first half of an E-step, for callers that need no responsibilities.

use std::ops::Range;

use super::super::layout::{BLOCK, STRIDE};
use super::super::math;
use super::super::simd::{Kernel, Real, Words};
use super::super::terms::Terms;
use super::{WIDE, log_joint, resident_rows};

/// Writes `top` and `rest`, `(BLOCK,)` each, of a tile of rows. A row's log density is `top + rest`, with the same bits
/// as from [`Responsibilities`](super::Responsibilities).
pub(crate) struct LogDensities<'a, T> {
    pub(crate) terms: &'a Terms<T>,
    /// `(d, STRIDE)`.
    pub(crate) x: &'a [T],
    /// Number of rows, a multiple of `WIDE * LANES`.
    pub(crate) rows: usize,
    /// `(k, STRIDE)`: receives the log joint densities.
    pub(crate) joint: &'a mut [T],
    /// `(k, STRIDE)` for the spherical kind: receives the squared distances to the means.
    pub(crate) distances: &'a mut [T],
    /// `(2*d, STRIDE)`.
    pub(crate) scratch: &'a mut [T],
    /// Receives the largest log joint density; −∞ if every density underflows.
    pub(crate) top: &'a mut [T],
    /// Receives ln of the sum of the exponentials relative to `top`.
    pub(crate) rest: &'a mut [T],
}

impl<T: Real> Kernel<T> for LogDensities<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, x, rows, joint, distances, scratch, top, rest } = self;
        let (k, d) = (terms.k, terms.d);
        assert!(x.len() >= d * STRIDE && joint.len() >= k * STRIDE && scratch.len() >= 2 * d * STRIDE);
        assert!(rows <= BLOCK && rows.is_multiple_of(WIDE * W::LANES));
        let step = resident_rows::<T, W>(d);
        for first in (0..rows).step_by(step) {
            let rows = first..rows.min(first + step);
            log_joint(w, terms, 0..k, x, rows.clone(), joint, distances, scratch);
            w.apart(LogSumExp { k, rows, joint, top, rest });
        }
    }
}

/// `ln Σ_c exp(joint[c])` of some rows, in two parts.
struct LogSumExp<'a, T> {
    k: usize,
    rows: Range<usize>,
    joint: &'a [T],
    top: &'a mut [T],
    rest: &'a mut [T],
}

impl<T: Real> Kernel<T> for LogSumExp<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        // Vectors per turn, as in `normalise`.
        const G: usize = 2;
        let Self { k, rows, joint, top, rest } = self;
        let end = rows.end;
        assert!(joint.len() >= k * STRIDE && rows.len().is_multiple_of(G * W::LANES) && end <= BLOCK);
        assert!(top.len() >= end && rest.len() >= end);
        let lowest = w.splat(T::of(-T::MAX.to_f64()));
        for row in rows.step_by(G * W::LANES) {
            // SAFETY: row + G*LANES <= end <= BLOCK, and the lengths were checked above.
            unsafe {
                let cells = joint.as_ptr().add(row);
                let mut most = [lowest; G];
                for c in 0..k {
                    for g in 0..G {
                        most[g] = w.max(w.load(cells.add(c * STRIDE + g * W::LANES)), most[g]);
                    }
                }
                let mut sum = [w.splat(T::ZERO); G];
                for c in 0..k {
                    let mut below = most;
                    for g in 0..G {
                        below[g] = w.sub(w.load(cells.add(c * STRIDE + g * W::LANES)), most[g]);
                    }
                    let e = math::exp::<T, W, G>(w, below);
                    for g in 0..G {
                        sum[g] = w.add(sum[g], e[g]);
                    }
                }
                for g in 0..G {
                    let row = row + g * W::LANES;
                    w.store(top.as_mut_ptr().add(row), most[g]);
                    w.store(rest.as_mut_ptr().add(row), math::ln(w, sum[g]));
                    // A sum below 1 means that all densities of a row are 0: otherwise the largest contributes exp(0) =
                    // 1.
                    if w.lt_bits(sum[g], w.splat(T::of(0.5))) != 0 {
                        underflow(&mut top[row..row + W::LANES], &mut rest[row..row + W::LANES]);
                    }
                }
            }
        }
    }
}

/// Sets the log density of rows whose every density is 0 to −∞.
#[cold]
fn underflow<T: Real>(top: &mut [T], rest: &mut [T]) {
    for (top, rest) in top.iter_mut().zip(rest) {
        if top.to_f64() <= -T::MAX.to_f64() {
            *top = T::of(f64::NEG_INFINITY);
            *rest = T::ZERO;
        }
    }
}
