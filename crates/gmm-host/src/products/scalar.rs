//! The two number types of a resident matrix.

use gmm_model::Matrix;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, LinalgScalar};

use crate::cpu::products::multiply;
use crate::cuda::Number;

/// `f32` or `f64`: the type of a [`ResidentMatrix`](super::ResidentMatrix), of its questions and of its results.
pub trait Scalar: Element {}

/// The operations that this library needs on `f32` and `f64`. Not exported, which seals [`Scalar`].
pub trait Element: LinalgScalar + PartialOrd + Send + Sync {
    /// The distance from 1 to the next larger number.
    const EPSILON: f64;
    /// Converts from f64 with one rounding.
    fn of(value: f64) -> Self;
    /// Converts to f64, exactly.
    fn to_f64(self) -> f64;
    /// The matrix itself if its type is f64, else `None`.
    fn as_f64(matrix: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f64>>;
    /// The same type, with the trait of the device code.
    type Number: Number;
    /// The same view with the type of the device code.
    fn on_device(matrix: ArrayView2<'_, Self>) -> ArrayView2<'_, Self::Number>;
    /// The same mutable view with the type of the device code.
    fn on_device_mut(matrix: ArrayViewMut2<'_, Self>) -> ArrayViewMut2<'_, Self::Number>;
    /// The inverse of [`on_device`](Self::on_device), for one number.
    fn from_device(number: Self::Number) -> Self;
    /// Converts a matrix of either precision, exactly or with one rounding.
    fn from_matrix(matrix: Matrix) -> Array2<Self>;
    /// Computes `a b` if the type is f64. Returns whether it is.
    fn multiply_in_f64(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, to: &mut ArrayViewMut2<'_, Self>) -> bool;
    /// Computes `a b` with sums in f32; only for f32.
    fn multiply_in_f32(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, to: ArrayViewMut2<'_, f32>);
}

impl Scalar for f32 {}
impl Scalar for f64 {}

impl Element for f32 {
    type Number = Self;

    fn on_device(matrix: ArrayView2<'_, Self>) -> ArrayView2<'_, Self> {
        matrix
    }

    fn on_device_mut(matrix: ArrayViewMut2<'_, Self>) -> ArrayViewMut2<'_, Self> {
        matrix
    }

    fn from_device(number: Self) -> Self {
        number
    }

    fn from_matrix(matrix: Matrix) -> Array2<Self> {
        match matrix {
            Matrix::F32(a) => a.into_owned(),
            Matrix::F64(a) => a.mapv(|v| v as Self),
        }
    }

    const EPSILON: f64 = f32::EPSILON as f64;

    #[inline]
    fn of(value: f64) -> Self {
        value as Self
    }

    #[inline]
    fn to_f64(self) -> f64 {
        f64::from(self)
    }

    fn as_f64(_: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f64>> {
        None
    }

    fn multiply_in_f64(_: ArrayView2<'_, Self>, _: ArrayView2<'_, Self>, _: &mut ArrayViewMut2<'_, Self>) -> bool {
        false
    }

    fn multiply_in_f32(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, to: ArrayViewMut2<'_, f32>) {
        multiply(a, b, to);
    }
}

impl Element for f64 {
    type Number = Self;

    fn on_device(matrix: ArrayView2<'_, Self>) -> ArrayView2<'_, Self> {
        matrix
    }

    fn on_device_mut(matrix: ArrayViewMut2<'_, Self>) -> ArrayViewMut2<'_, Self> {
        matrix
    }

    fn from_device(number: Self) -> Self {
        number
    }

    fn from_matrix(matrix: Matrix) -> Array2<Self> {
        match matrix {
            Matrix::F32(a) => a.mapv(Self::from),
            Matrix::F64(a) => a.into_owned(),
        }
    }

    const EPSILON: f64 = Self::EPSILON;

    #[inline]
    fn of(value: f64) -> Self {
        value
    }

    #[inline]
    fn to_f64(self) -> f64 {
        self
    }

    fn as_f64(matrix: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f64>> {
        Some(matrix)
    }

    fn multiply_in_f64(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, to: &mut ArrayViewMut2<'_, Self>) -> bool {
        multiply(a, b, to.view_mut());
        true
    }

    fn multiply_in_f32(_: ArrayView2<'_, Self>, _: ArrayView2<'_, Self>, _: ArrayViewMut2<'_, f32>) {
        unreachable!("f64 is multiplied in f64");
    }
}
