//! Covariances and determinants from square roots of precision matrices.

use std::ops::Range;

use ndarray::{Array2, ArrayView2, s};

use crate::Cholesky;
use crate::precision_mixture::{FactorShape, Product};

/// Computes `(U Uᵀ)⁻¹`, `(d, d)` and exactly symmetric. On error, the column and pivot at which it is not positive
/// definite. Cost: `O(d³)` flops.
pub(crate) fn covariance(u: ArrayView2<'_, f64>, shape: FactorShape) -> Result<Array2<f64>, (usize, f64)> {
    let d = u.nrows();
    match shape {
        // Uᵀ is lower triangular, and its inverse is L, the Cholesky factor of the covariance.
        FactorShape::Upper => {
            let l = inverse_transposed(u.t()).reversed_axes();
            Ok(product(l.as_standard_layout().view(), |i, _| 0..i + 1))
        }
        FactorShape::Lower => Ok(product(inverse_transposed(u).view(), |_, j| j..d)),
        FactorShape::General => covariance_of_precision(u.dot(&u.t()).view()),
    }
}

/// Inverts a precision matrix, `(d, d)`.
///
/// # Errors
/// Column and pivot at which the precision is not positive definite.
pub fn covariance_of_precision(precision: ArrayView2<'_, f64>) -> Result<Array2<f64>, (usize, f64)> {
    let d = precision.nrows();
    let factor = Cholesky::new(precision).map_err(|e| (e.column, e.pivot))?;
    let lower = Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor.at(i, j) } else { 0.0 });
    Ok(product(inverse_transposed(lower.view()).view(), |_, j| j..d))
}

/// `L⁻ᵀ` of a lower triangular `L`, `(d, d)`: upper triangular; its rows are the columns of `L⁻¹`. Cost: `d³/3` flops.
///
/// Computes row by row `X[i] = (e_i − Σ_{j<i} L[i,j] X[j]) / L[i,i]`, with `X` the rows of `L⁻¹`, in blocks of rows:
/// the sums over the rows of finished blocks are matrix products.
pub fn inverse_transposed(lower: ArrayView2<'_, f64>) -> Array2<f64> {
    /// Rows per block: nearly all the work is then in the product of a block with the rows before it.
    const BLOCK: usize = 48;
    let d = lower.nrows();
    let mut inverse = Array2::<f64>::zeros((d, d));
    for top in (0..d).step_by(BLOCK) {
        let end = d.min(top + BLOCK);
        let (done, mut rest) = inverse.view_mut().split_at(ndarray::Axis(0), top);
        let mut block = rest.slice_mut(s![..end - top, ..]);
        if top > 0 {
            let known = lower.slice(s![top..end, ..top]).dot(&done.slice(s![.., ..top]));
            block.slice_mut(s![.., ..top]).zip_mut_with(&known, |x, v| *x = -v);
        }
        for i in top..end {
            let (above, mut row) = block.view_mut().split_at(ndarray::Axis(0), i - top);
            let mut row = row.row_mut(0);
            for (j, above) in (top..i).zip(above.outer_iter()) {
                row.slice_mut(s![..=j]).scaled_add(-lower[[i, j]], &above.slice(s![..=j]));
            }
            row[i] = 1.0;
            row.slice_mut(s![..=i]).mapv_inplace(|v| v / lower[[i, i]]);
        }
    }
    inverse.reversed_axes().as_standard_layout().into_owned()
}

/// Computes `A Aᵀ`, summing for entry `(i, j)`, `i <= j`, only over the columns `needed(i, j)`; the others are zero.
fn product(a: ArrayView2<'_, f64>, needed: impl Fn(usize, usize) -> Range<usize>) -> Array2<f64> {
    let d = a.nrows();
    let mut out = Array2::zeros((d, d));
    for i in 0..d {
        for j in i..d {
            let columns = needed(i, j);
            let v = a.row(i).slice(s![columns.clone()]).dot(&a.row(j).slice(s![columns]));
            out[[i, j]] = v;
            out[[j, i]] = v;
        }
    }
    out
}

/// `ln |det A|`, by elimination with partial pivoting. On error, a column without a nonzero finite pivot. Cost: `2d³/3`
/// flops.
pub(crate) fn ln_abs_determinant(mut a: Array2<f64>) -> Result<f64, (usize, f64)> {
    let d = a.nrows();
    let mut order: Vec<usize> = (0..d).collect();
    let mut product = Product::ONE;
    for column in 0..d {
        let size = |&at: &usize| a[[order[at], column]].abs();
        let largest = (column..d).max_by(|x, y| size(x).total_cmp(&size(y))).expect("a row is left");
        order.swap(column, largest);
        let pivot = a[[order[column], column]];
        if pivot == 0.0 || !pivot.is_finite() {
            return Err((column, pivot));
        }
        product.times(pivot.abs());
        for &row in &order[column + 1..] {
            let share = a[[row, column]] / pivot;
            if share != 0.0 {
                let range = s![column + 1..];
                let (mut row, pivots) = a.multi_slice_mut((s![row, ..], s![order[column], ..]));
                row.slice_mut(range).scaled_add(-share, &pivots.slice(range));
            }
        }
    }
    Ok(product.ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lower(d: usize) -> Array2<f64> {
        Array2::from_shape_fn((d, d), |(i, j)| match i.cmp(&j) {
            std::cmp::Ordering::Equal => 1.0 + i as f64 % 3.0,
            std::cmp::Ordering::Greater => ((i * 7 + j * 3) % 5) as f64 * 0.1 / d as f64,
            std::cmp::Ordering::Less => 0.0,
        })
    }

    #[test]
    fn an_inverse_across_blocks_is_one() {
        for d in [1, 2, 47, 48, 49, 100] {
            let l = lower(d);
            let error = l.dot(&inverse_transposed(l.view()).t()) - Array2::<f64>::eye(d);
            assert!(error.iter().all(|v| v.abs() < 1e-13), "{d}");
        }
    }

    #[test]
    fn a_determinant_does_not_depend_on_the_order_of_rows() {
        let d = 30;
        let l = lower(d);
        let want: f64 = l.diag().iter().map(|v| v.ln()).sum();
        let turned = Array2::from_shape_fn((d, d), |(i, j)| l[[(i * 7) % d, j]]);
        assert!((ln_abs_determinant(turned).unwrap() - want).abs() < 1e-12 * want);
        assert_eq!(ln_abs_determinant(Array2::zeros((3, 3))), Err((0, 0.0)));
    }

    #[test]
    fn a_product_beyond_the_range_has_a_logarithm() {
        let mut product = Product::ONE;
        for i in 0..1000 {
            product.times(if i % 3 == 0 { 5e-320 } else { 1e-300 });
        }
        let want = 334.0 * 5e-320f64.ln() + 666.0 * 1e-300f64.ln();
        let found = product.ln();
        assert!((found - want).abs() < 1e-12 * want.abs(), "{found} {want}");
    }

    #[test]
    fn a_product_by_many_at_once_is_that_by_one_after_another() {
        for scale in [1.0, 1e-300, 1e300] {
            let (mut all, mut ones) = (Product::ONE, Product::ONE);
            let values: Vec<f64> = (0..3001).map(|i| (1.999 - f64::from(i) / 4000.0) * scale).collect();
            for some in values.chunks(511) {
                all.times_normal(some);
                some.iter().for_each(|v| ones.times(*v));
            }
            let (found, want) = (all.ln(), ones.ln());
            assert!((found - want).abs() <= 1e-12 * want.abs(), "{found} {want}");
        }
    }
}
