//! The two types that a matrix may have.

use gmm_model::Matrix;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, LinalgScalar};

use crate::cpu::products::multiply;
use crate::cuda::Number;

/// `f32` or `f64`: the type of a [`ResidentMatrix`](super::ResidentMatrix), of the questions to it and of its answers.
pub trait Scalar: Element {}

/// What this library needs to know of either; sealed thereby.
pub trait Element: LinalgScalar + PartialOrd + Send + Sync {
    /// The distance of 1 to the next number.
    const EPSILON: f64;
    /// Rounded once.
    fn of(value: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
    /// The matrix itself, where it is in f64.
    fn as_f64(matrix: ArrayView2<'_, Self>) -> Option<ArrayView2<'_, f64>>;
    /// The same type, as a device knows it.
    type Number: Number;
    /// The same matrix.
    fn on_device(matrix: ArrayView2<'_, Self>) -> ArrayView2<'_, Self::Number>;
    /// The same matrix.
    fn on_device_mut(matrix: ArrayViewMut2<'_, Self>) -> ArrayViewMut2<'_, Self::Number>;
    /// The same number.
    fn from_device(number: Self::Number) -> Self;
    /// Numbers of either precision, rounded once or exactly.
    fn from_matrix(matrix: Matrix) -> Array2<Self>;
    /// `a b` where these are f64; whether they are.
    fn multiply_in_f64(a: ArrayView2<'_, Self>, b: ArrayView2<'_, Self>, to: &mut ArrayViewMut2<'_, Self>) -> bool;
    /// `a b` with sums in f32, for f32 alone.
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
