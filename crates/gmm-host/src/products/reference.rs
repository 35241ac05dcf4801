//! Naive products: sequential sums in f64, each rounded once. The other implementations are tested against them.

use ndarray::{ArrayView2, ArrayViewMut2};

use super::Element;
use crate::Error;

/// `a b` into `out`.
pub(super) fn matmul<T: Element>(
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    mut out: ArrayViewMut2<'_, T>,
) -> Result<(), Error> {
    for ((i, j), out) in out.indexed_iter_mut() {
        *out = T::of((0..a.ncols()).map(|l| a[[i, l]].to_f64() * b[[l, j]].to_f64()).sum());
    }
    Ok(())
}

/// xᵀ A x for each row x.
pub(super) fn forms<T: Element>(a: ArrayView2<'_, T>, questions: ArrayView2<'_, T>, out: &mut [f64]) {
    for (out, x) in out.iter_mut().zip(questions.rows()) {
        *out = a.indexed_iter().map(|((i, j), a)| x[i].to_f64() * a.to_f64() * x[j].to_f64()).sum();
    }
    super::quadratic::undefined(questions, out);
}

/// |L⁻¹(x − mean)|² for each row x.
pub(super) fn distances<T: Element>(
    lower: ArrayView2<'_, f64>,
    questions: ArrayView2<'_, T>,
    mean: Option<&[f64]>,
    out: &mut [f64],
) {
    for (out, x) in out.iter_mut().zip(questions.rows()) {
        let mut z: Vec<f64> =
            x.iter().enumerate().map(|(j, x)| x.to_f64() - mean.map_or(0.0, |mean| mean[j])).collect();
        for i in 0..z.len() {
            let known: f64 = (0..i).map(|j| lower[[i, j]] * z[j]).sum();
            z[i] = (z[i] - known) / lower[[i, i]];
        }
        *out = z.iter().map(|z| z * z).sum();
    }
}
