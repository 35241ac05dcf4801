//! Matrix products with the crate `gemm`, on the calling thread.
//!
//! The bits depend only on the shapes, not on the memory layout of operands and result.

use gemm::{Parallelism, gemm};
use gemm_common::cache::CACHE_INFO;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2};

use crate::products::Element;

/// Up to this many entries, as for a single row or column, `gemm` adds terms in an order that depends on the operands'
/// layout. For larger results it adds along each sum, some hundred terms at a time.
const FEW: usize = 256;

/// Whether the processor has all features that `gemm` assumes; without them, `gemm` panics.
fn supported() -> bool {
    let (whole, wide) = instructions();
    whole && has_room(CACHE_INFO[1].cache_bytes, wide)
}

/// Returns whether each detected instruction set is complete, and whether 512-bit instructions exist.
fn instructions() -> (bool, bool) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt");
        let avx512 = has!("avx512bw") && has!("avx512cd") && has!("avx512dq") && has!("avx512vl");
        ((!has!("fma") || avx2) && (!has!("avx512f") || (has!("fma") && avx2 && avx512)), has!("avx512f"))
    }
    #[cfg(not(target_arch = "x86_64"))]
    (true, false)
}

/// Whether `gemm`'s internal block, some hundred terms of a register tile's rows, fits into each processor's share
/// `cache_bytes` of the L2 cache. No real processor is too small, but virtual machines may report one cache shared by
/// all.
const fn has_room(cache_bytes: usize, wide: bool) -> bool {
    cache_bytes >= if wide { 256 << 10 } else { 128 << 10 }
}

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
    if r == 1 || c == 1 || r * c <= FEW || !supported() {
        return general_mat_mul(factor, &a, &b, if is_added { T::one() } else { T::zero() }, &mut to);
    }
    let [down, right] = [to.strides()[0], to.strides()[1]];
    // SAFETY: pointers, strides and shapes come from views, the shapes fit together as asserted, and `to` is borrowed
    // exclusively. `T` is f32 or f64, which `gemm` supports.
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
