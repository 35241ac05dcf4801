//! One factor for all components: rows are solved once, then distances are Euclidean.

use super::super::layout::BLOCK;
use super::super::simd::{Real, Words};
use super::super::terms::{Terms, Triangle};
use super::{solve, squared_distance};

/// `joint[c] = constant[c] − ½ |L⁻¹x − means[c]|²`, where `means`, `(k, d)`, are solved by `L` already.
/// Cost `d² + 3*k*d` flops a row.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the family's arguments and the solved means")]
pub(super) fn log_joint<T: Real, W: Words<T>>(
    w: W,
    terms: &Terms<T>,
    factor: &Triangle<T>,
    means: &[T],
    x: &[T],
    rows: usize,
    joint: &mut [T],
    scratch: &mut [T],
) {
    let d = terms.d;
    let (zero, solved) = scratch.split_at_mut(d * BLOCK);
    let zero = &mut zero[..d];
    zero.fill(T::ZERO);
    for row in (0..rows).step_by(W::GROUP * W::LANES) {
        if W::GROUP == 4 {
            solve::<T, W, 4>(w, factor, zero, &x[row..], &mut solved[row..], BLOCK);
        } else {
            solve::<T, W, 2>(w, factor, zero, &x[row..], &mut solved[row..], BLOCK);
        }
    }
    for c in 0..terms.k {
        let out = &mut joint[c * BLOCK..][..BLOCK];
        squared_distance(w, &means[c * d..][..d], solved, rows, out, |w, q| super::finish(w, q, terms.constants[c]));
    }
}
