//! One factor `U` of the precisions for all components: computes `Uᵀ(x − mean)` as `Uᵀ(x − shift) − Uᵀ(mean − shift)`,
//! so that each row is multiplied only once. This module has the part that depends only on the mixture.

use gmm_model::FactorShape;
use ndarray::ArrayView2;

use super::super::simd::{Dispatch, Kernel, Machine, Real, Words};
use super::super::terms::relative;
use super::panel::Panel;

/// Limit on the average size of the terms `|U[j,i] (mean[j] − shift[j])|` of a product.
///
/// Two products instead of one product of the difference add rounding error. The target is at most 4 steps, where a
/// step is the largest change of a log density if every input moves by one unit in its last place. Terms of this size
/// gave at most 1.4 steps in 6·10⁴ rows in `f32`: 5 to 13 columns, condition numbers of the precision from 4 to 10⁶,
/// rows drawn from a component and rows along the axes of its ellipsoid.
const MOST: f64 = 8.0;

/// With fewer columns, the products cost no more than the rest of an evaluation.
const FEWEST_COLUMNS: usize = 5;

/// `Uᵀ(mean − shift)`, `(k, d)`, summed in the same order as the rows' products; `u` is `(d, d)`.
///
/// Returns `None` if each difference of row and mean should be multiplied instead: if there is one component, if there
/// are few columns, or if the products would cancel or are not finite. The decision depends only on the mixture, so a
/// row has the same bits whichever rows are evaluated with it. Cost: `2*d²` flops for `None`, otherwise `2*k*d²` more;
/// half of that if `U` is upper triangular.
pub(crate) fn means<T: Dispatch>(
    machine: Machine,
    u: &[T],
    means: ArrayView2<'_, f64>,
    shift: &[f64],
) -> Option<Vec<T>> {
    let (k, d) = means.dim();
    if k == 1 || d < FEWEST_COLUMNS {
        return None;
    }
    let centred = relative::<T>(means, shift);
    if T::dispatch(machine, Cancels { u, centred: &centred, d }) {
        return None;
    }
    let pitch = Panel::<T>::pitch(0, d);
    let multiply = |shape| {
        let mut y = vec![T::ZERO; k * pitch];
        let seen = T::dispatch(machine, Panel { u, d, first: 0, end: d, shape, z: &centred, y: &mut y });
        (y, seen.shape())
    };
    let y = match multiply(FactorShape::Upper) {
        (y, FactorShape::Upper) => y,
        (_, other) => multiply(other).0,
    };
    Some(y.chunks_exact(pitch).flat_map(|y| &y[..d]).copied().collect())
}

/// Whether the terms of any column exceed [`MOST`] on average, taking in each coordinate the largest distance of a mean
/// from the shift; also true if they are not finite.
struct Cancels<'a, T> {
    u: &'a [T],
    /// `(k, d)`.
    centred: &'a [T],
    d: usize,
}

/// Plain loops, which the compiler vectorises with the enabled instructions.
impl<T: Real> Kernel<T> for Cancels<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<W: Words<T>>(self, _: W) -> bool {
        let Self { u, centred, d } = self;
        let most = MOST * d as f64;
        let mut sums = vec![0.0; d];
        for (j, u) in u.chunks_exact(d).enumerate() {
            let reach = centred[j..].iter().step_by(d).fold(0.0f64, |most, v| most.max(v.to_f64().abs()));
            // Most factors have only zeros before the diagonal.
            let first = if T::any_is_not_zero(&u[..j]) { 0 } else { j };
            for (sum, v) in sums[first..].iter_mut().zip(&u[first..]) {
                *sum += v.to_f64().abs() * reach;
            }
            // The sums only grow, so far means are detected early. The comparison is false for NaN.
            let is_near = sums[j] <= most;
            if !is_near {
                return true;
            }
        }
        !sums.iter().all(|sum| *sum <= most)
    }
}

#[cfg(test)]
mod tests {
    use ndarray::{Array2, array};

    use super::*;

    fn found<T: Dispatch>(u: &[T], centres: ArrayView2<'_, f64>, shift: &[f64]) -> Option<Vec<T>> {
        means(Machine::detect(), u, centres, shift)
    }

    const D: usize = 6;

    /// Small whole numbers, so that every product is exact.
    fn factor(lower: bool) -> Vec<f64> {
        let entry = |i: usize, j: usize| if i <= j || lower { (1 + (i * 5 + j * 3) % 4) as f64 } else { 0.0 };
        (0..D * D).map(|at| entry(at / D, at % D)).collect()
    }

    fn centres(offset: f64) -> Array2<f64> {
        Array2::from_shape_fn((3, D), |(c, j)| offset + (c + j) as f64 - 3.0)
    }

    #[test]
    fn near_means_are_multiplied_by_the_factor_whatever_its_shape() {
        for lower in [false, true] {
            let (u, at) = (factor(lower), vec![1.0; D]);
            let products = found(&u, centres(0.0).view(), &at).expect("near the shift");
            let wanted = (centres(0.0) - 1.0).dot(&Array2::from_shape_vec((D, D), u.clone()).unwrap());
            assert_eq!(products, wanted.into_raw_vec_and_offset().0);
            // The result depends only on the distance to the shift.
            assert_eq!(found(&u, centres(1e9).view(), &[1e9 + 1.0; D]), Some(products.clone()));
            let single: Vec<f32> = u.iter().map(|v| *v as f32).collect();
            let single_products: Vec<f32> = products.into_iter().map(|v| v as f32).collect();
            assert_eq!(found(&single, centres(0.0).view(), &at), Some(single_products));
        }
    }

    #[test]
    fn means_that_are_far_or_alone_or_not_finite_are_not_multiplied() {
        let at = vec![0.0; D];
        for lower in [false, true] {
            let u = factor(lower);
            assert!(found(&u, centres(0.0).view(), &at).is_some());
            for far in [1e2, -1e3, 1e300] {
                assert_eq!(found(&u, centres(far).view(), &at), None);
                let mut one = centres(0.0);
                one[[2, 4]] = far;
                assert_eq!(found(&u, one.view(), &at), None, "one far mean");
            }
            assert_eq!(found(&u, centres(0.0).slice(ndarray::s![..1, ..]), &at), None);
            for entry in 0..D * D {
                for bad in [f64::NAN, f64::INFINITY] {
                    let mut u = u.clone();
                    u[entry] = bad;
                    assert_eq!(found(&u, centres(0.0).view(), &at), None, "entry {entry}");
                }
            }
        }
        assert_eq!(
            found(&[1.0, 0.0, 0.0, 1.0], array![[0.0, 1.0], [1.0, 0.0]].view(), &[0.0, 0.0]),
            None,
            "few columns"
        );
    }
}
