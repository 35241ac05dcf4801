//! The kinds of queries to a matrix.

#[cfg(test)]
use gmm_kernels::products::Form;
use ndarray::{Array2, ArrayViewMut2};

use crate::cuda::number::Number;

pub(super) const WHAT: &str = "a product on the GPU";

/// What is computed for each query, and the output.
pub(super) enum Question<'a, T: Number> {
    /// Its products with the matrix's rows, `(m, n)`.
    Product(ArrayViewMut2<'a, T>),
    /// Σ 2xᵢ(Ax)ᵢ, `(n,)`, of a matrix `A` that is zero above its diagonal.
    Forms(&'a mut [f64]),
    /// |A(x − shift)|², `(n,)`, of a matrix `A` that is zero above its diagonal.
    Norms(&'a mut [f64], Option<&'a [f64]>),
    /// The `count` rows with the largest products of each segment of `segment` rows: row numbers, counted from the start of
    /// the segment, and products, unordered, `(n, candidates)`.
    Largest { count: usize, segment: usize, indices: Array2<u32>, found: Array2<T> },
}

#[cfg(test)]
thread_local! {
    /// A test's form of products, instead of the one that the shape determines.
    pub(crate) static FORM: std::cell::Cell<Option<Form>> = const { std::cell::Cell::new(None) };
}
