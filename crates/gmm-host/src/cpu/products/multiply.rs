//! Products of matrices by the crate `gemm`, on the thread that calls.

use gemm::{Parallelism, gemm};
use ndarray::{ArrayView2, ArrayViewMut2};

use crate::products::Element;

/// `to = a b`, `(r, c)` from `(r, k)` and `(k, c)`.
pub(crate) fn multiply<T: Element>(a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, to: ArrayViewMut2<'_, T>) {
    product(T::one(), a, b, to, false);
}

/// `to += factor * a b`, `(r, c)` from `(r, k)` and `(k, c)`.
pub(crate) fn add_product<T: Element>(factor: T, a: ArrayView2<'_, T>, b: ArrayView2<'_, T>, to: ArrayViewMut2<'_, T>) {
    product(factor, a, b, to, true);
}

fn product<T: Element>(
    factor: T,
    a: ArrayView2<'_, T>,
    b: ArrayView2<'_, T>,
    mut to: ArrayViewMut2<'_, T>,
    is_added: bool,
) {
    let ((r, k), c) = (a.dim(), b.ncols());
    assert!(b.nrows() == k && to.dim() == (r, c), "a product of {:?} and {:?} into {:?}", a.dim(), b.dim(), to.dim());
    let [down, right] = [to.strides()[0], to.strides()[1]];
    // SAFETY: pointers, strides and shapes are those of views, the shapes fit together, and `to` is borrowed alone. `T` is
    // f32 or f64, which `gemm` knows.
    unsafe {
        gemm(
            r,
            c,
            k,
            to.as_mut_ptr(),
            right,
            down,
            is_added,
            a.as_ptr(),
            a.strides()[1],
            a.strides()[0],
            b.as_ptr(),
            b.strides()[1],
            b.strides()[0],
            T::one(),
            factor,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
