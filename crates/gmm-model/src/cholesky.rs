//! Cholesky factors of small symmetric matrices, packed.

use ndarray::ArrayView2;

use crate::{packed_index, packed_len};

/// Lower factor `L` with `A = L Lᵀ`, packed row by row: length `d*(d+1)/2`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cholesky {
    d: usize,
    lower: Vec<f64>,
}

/// Where a factorisation failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotPositiveDefinite {
    /// Column of the failing pivot, from 0.
    pub column: usize,
    /// The pivot: what is left of the diagonal entry after the columns before it are taken out.
    pub pivot: f64,
}

impl Cholesky {
    /// Factors the `(d, d)` matrix `a`, of which the lower triangle is read. Cost `d³/3` flops.
    ///
    /// A pivot that is not above `(d+1) * eps * a[i,i]` counts as zero: that is the size of its rounding error, so a
    /// smaller one says that the column is constant or a combination of those before it. The test does not depend on
    /// the columns' scales.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] names the column and the pivot.
    pub fn new(a: ArrayView2<'_, f64>) -> Result<Self, NotPositiveDefinite> {
        let d = a.nrows();
        let mut lower = vec![0.0; packed_len(d)];
        for i in 0..d {
            let row = packed_index(i, 0);
            for j in 0..=i {
                let other = packed_index(j, 0);
                let dot: f64 = (0..j).map(|m| lower[row + m] * lower[other + m]).sum();
                let rest = a[[i, j]] - dot;
                lower[row + j] = if j < i {
                    rest / lower[other + j]
                } else {
                    let least = (d + 1) as f64 * f64::EPSILON * a[[i, i]];
                    // Also false for NaN.
                    if !(rest > least && rest > 0.0 && rest.is_finite()) {
                        return Err(NotPositiveDefinite { column: i, pivot: rest });
                    }
                    rest.sqrt()
                };
            }
        }
        Ok(Self { d, lower })
    }

    /// Dimension `d`.
    pub const fn dim(&self) -> usize {
        self.d
    }

    /// The packed lower factor, row by row.
    pub fn packed(&self) -> &[f64] {
        &self.lower
    }

    /// Entry `(i, j)` of the factor, `j <= i`.
    pub fn at(&self, i: usize, j: usize) -> f64 {
        self.lower[packed_index(i, j)]
    }

    /// `ln det A = 2 Σ ln L[i,i]`.
    pub fn ln_det(&self) -> f64 {
        2.0 * (0..self.d).map(|i| self.at(i, i).ln()).sum::<f64>()
    }

    /// Solves `L y = b` in place.
    pub fn solve_lower(&self, b: &mut [f64]) {
        for i in 0..self.d {
            let row = &self.lower[packed_index(i, 0)..];
            let dot: f64 = (0..i).map(|j| row[j] * b[j]).sum();
            b[i] = (b[i] - dot) / row[i];
        }
    }

    /// Solves `Lᵀ y = b` in place.
    pub fn solve_lower_transposed(&self, b: &mut [f64]) {
        for i in (0..self.d).rev() {
            let dot: f64 = (i + 1..self.d).map(|j| self.at(j, i) * b[j]).sum();
            b[i] = (b[i] - dot) / self.at(i, i);
        }
    }

    /// `y = L b`, into `y`.
    pub fn multiply_lower(&self, b: &[f64], y: &mut [f64]) {
        for i in 0..self.d {
            let row = &self.lower[packed_index(i, 0)..];
            y[i] = (0..=i).map(|j| row[j] * b[j]).sum();
        }
    }
}
