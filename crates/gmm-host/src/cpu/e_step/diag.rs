//! Distances in units of each component's standard deviations.

use super::super::layout::STRIDE;
use super::super::simd::{Real, Words};
use super::super::terms::Terms;
use super::{WIDE, store_log_joint};

/// `joint[c] = constant[c] − ½ Σ_j (x_j scale[c,j] + offset[c,j])²` for `C` components from `c` on and `WIDE` vectors
/// of rows; without offsets each term is `((x_j − mean[c,j]) scale[c,j])²`. `scales` and `offsets` are `(k, d)`. Cost:
/// `4*d` flops per row and component.
#[inline(always)]
pub(super) fn log_joint<T: Real, W: Words<T>, const C: usize>(
    w: W,
    terms: &Terms<T>,
    scales: &[T],
    offsets: Option<&[T]>,
    c: usize,
    x: &[T],
    joint: &mut [T],
) {
    match offsets {
        Some(offsets) => distances::<T, W, C, true>(w, terms, scales, offsets, c, x, joint),
        None => distances::<T, W, C, false>(w, terms, scales, &terms.means, c, x, joint),
    }
}

/// [`log_joint`] with offsets or, if not `SCALED`, with means.
#[inline(always)]
fn distances<T: Real, W: Words<T>, const C: usize, const SCALED: bool>(
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
        // SAFETY: scales and offsets have C*d entries, and the WIDE vectors of column j are within x, as asserted.
        unsafe {
            for i in 0..C {
                let scale = w.splat(*scales.get_unchecked(i * d + j));
                let offset = w.splat(*offsets.get_unchecked(i * d + j));
                for g in 0..WIDE {
                    let x = w.load(x.as_ptr().add(j * STRIDE + g * W::LANES));
                    let t = if SCALED { w.fma(x, scale, offset) } else { w.mul(w.sub(x, offset), scale) };
                    distances[i][g] = w.fma(t, t, distances[i][g]);
                }
            }
        }
    }
    for (i, distance) in distances.into_iter().enumerate() {
        store_log_joint(w, terms, c + i, distance, joint);
    }
}

#[cfg(test)]
mod tests {
    use gmm_model::{Covariances, Dataset, Mixture, Precision};
    use ndarray::{Array2, array};

    use crate::{CpuEngine, Engine, EvaluateOptions, ReferenceEngine};

    #[test]
    fn a_mean_too_many_deviations_from_the_shift_for_single_precision_keeps_its_rows() {
        let far = 66f64.exp2();
        let means = array![[far, 0.5], [-far, -0.5]];
        let variances = array![[1e-40, 1.0], [1e-40, 2.0]];
        let mixture = Mixture::new(array![0.5, 0.5], means, Covariances::Diag(variances)).unwrap();
        let rows = Array2::from_shape_fn((37, 2), |(i, j)| match j {
            0 => [far, -far][i % 2],
            _ => (i % 5) as f64 - 2.0,
        });
        let data = Dataset::new(rows).unwrap();
        let run = |engine: &dyn Engine, precision: Precision| {
            let mut r = vec![f64::NAN; 37 * 2];
            let want = EvaluateOptions { responsibilities: Some((&mut r).into()), ..EvaluateOptions::default() };
            let mut resident = engine.load(&data, precision, &[0.0, 0.0]).unwrap();
            let evaluated = resident.evaluate(&mixture, want).unwrap().log_likelihood;
            (evaluated, resident.pass(&mixture).unwrap().log_likelihood, r)
        };
        let want = run(&ReferenceEngine, Precision::F64);
        assert!(want.0.is_finite());
        for instructions in CpuEngine::instruction_sets() {
            let got = run(&CpuEngine::with_instructions(1, instructions).unwrap(), Precision::F32);
            let bound = 64.0 * f64::from(f32::EPSILON) * want.0.abs();
            assert!((got.0 - want.0).abs() <= bound, "{instructions}: {} and {}", got.0, want.0);
            assert!((got.1 - want.1).abs() <= bound, "{instructions}: {} and {}", got.1, want.1);
            assert_eq!(got.2, want.2, "{instructions}");
        }
    }
}
