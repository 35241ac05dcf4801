//! Log densities of rows at their selected components, under any mixture with as many.

use super::super::math;
use super::super::simd::{Kernel, Real, Words};
use super::select::extremes;
use super::{LANES, TopParameters, TopRows, TopScales, width};

/// Σ w ln Σ over the selected components.
pub(super) struct Score<'a, T> {
    pub(super) rows: &'a TopRows<T>,
    pub(super) parameters: &'a TopParameters<'a, T>,
    /// `count`, padded to a multiple of `LANES`.
    pub(super) joint: &'a mut [T],
}

impl<T: super::Dispatch> Kernel<T> for Score<'_, T> {
    type Output = f64;

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) -> f64 {
        let Self { rows, parameters, joint } = self;
        let mut sum = 0.0;
        for (row, components, weight) in rows.each() {
            densities(w, parameters, (row, rows.d), components, joint);
            let (top, total) = exponentials(w, joint);
            if weight > 0.0 {
                sum += weight * log_density(top, total);
            }
        }
        sum
    }
}

/// The log joint densities of one row; −∞ in the padding, and where a distance overflows.
#[inline(always)]
fn densities<T: Real, W: Words<T>>(
    w: W,
    parameters: &TopParameters<'_, T>,
    (row, d): (&[T], usize),
    components: &[u32],
    joint: &mut [T],
) {
    joint.fill(T::of(f64::NEG_INFINITY));
    let pitch = width(d);
    match &parameters.scales {
        TopScales::Deviations(scales) => {
            assert!(row.len() == pitch && scales.len() == parameters.means.len() && pitch.is_multiple_of(W::LANES));
            for (&c, slot) in components.iter().zip(joint) {
                let at = c as usize * pitch;
                assert!(at + pitch <= scales.len());
                let mut sum = w.splat(T::ZERO);
                for j in (0..pitch).step_by(W::LANES) {
                    // SAFETY: j + LANES <= pitch, which divides into whole vectors; the lengths were asserted.
                    let (x, mean, scale) = unsafe {
                        (
                            w.load(row.as_ptr().add(j)),
                            w.load(parameters.means.as_ptr().add(at + j)),
                            w.load(scales.as_ptr().add(at + j)),
                        )
                    };
                    let t = w.mul(w.sub(x, mean), scale);
                    sum = w.fma(t, t, sum);
                }
                let value = parameters.constants[c as usize].to_f64() - 0.5 * w.sum(sum).to_f64();
                if value.is_finite() {
                    *slot = T::of(value);
                }
            }
        }
        TopScales::Factors(factors) => {
            let mut z = vec![0.0; d];
            for (&c, slot) in components.iter().zip(joint) {
                let c = c as usize;
                let mean = &parameters.means[c * pitch..][..d];
                z.iter_mut().zip(row.iter().zip(mean)).for_each(|(z, (x, m))| *z = x.to_f64() - m.to_f64());
                factors[c.min(factors.len() - 1)].solve_lower(&mut z);
                let value = parameters.constants[c].to_f64() - 0.5 * z.iter().map(|v| v * v).sum::<f64>();
                if value.is_finite() {
                    *slot = T::of(value);
                }
            }
        }
    }
}

/// Replaces log densities by their exponentials relative to the largest. Returns the largest and the sum, which is 0 if
/// all are −∞.
#[inline(always)]
pub(super) fn exponentials<T: Real, W: Words<T>>(w: W, joint: &mut [T]) -> (f64, f64) {
    assert!(joint.len().is_multiple_of(LANES) && LANES.is_multiple_of(W::LANES));
    let (_, top) = extremes(w, joint);
    if top == f64::NEG_INFINITY {
        joint.fill(T::ZERO);
        return (top, 0.0);
    }
    let most = w.splat(T::of(top));
    let mut sum = w.splat(T::ZERO);
    for at in (0..joint.len()).step_by(W::LANES) {
        // SAFETY: at + LANES <= joint.len(), a multiple of LANES, as asserted.
        unsafe {
            let cell = joint.as_mut_ptr().add(at);
            let e = math::exp::<T, W, 1>(w, [w.sub(w.load(cell), most)]);
            sum = w.add(sum, e[0]);
            w.store(cell, e[0]);
        }
    }
    (top, w.sum(sum).to_f64())
}

pub(super) fn log_density(top: f64, total: f64) -> f64 {
    if total > 0.0 { top + total.ln() } else { f64::NEG_INFINITY }
}
