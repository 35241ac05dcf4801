//! Packed Cholesky factors of small symmetric matrices.

use ndarray::ArrayView2;

use crate::{packed_index, packed_len};

/// The lower factor `L` of `A = L Lᵀ`, packed row by row: length `d*(d+1)/2`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cholesky {
    d: usize,
    lower: Vec<f64>,
}

/// The column and pivot at which a factorisation failed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NotPositiveDefinite {
    /// Column of the failing pivot, from 0.
    pub column: usize,
    /// The pivot: the diagonal entry minus the contributions of the columns before it.
    pub pivot: f64,
}

impl Cholesky {
    /// Factors the `(d, d)` matrix `a`; reads only its lower triangle. Cost: `d³/3` flops.
    ///
    /// A pivot of at most `(d+1) * eps * a[i,i]` counts as zero. That is the size of its rounding error, so the column
    /// is constant or a combination of those before it. The test does not depend on the scales of the columns.
    ///
    /// # Errors
    /// [`NotPositiveDefinite`] with the column and the pivot.
    pub fn new(a: ArrayView2<'_, f64>) -> Result<Self, NotPositiveDefinite> {
        let d = a.nrows();
        let mut lower = vec![0.0; packed_len(d)];
        for i in 0..d {
            // Row i is computed from the rows above it. All are contiguous, so every inner product runs over two
            // slices.
            let (above, rest) = lower.split_at_mut(packed_index(i, 0));
            let row = &mut rest[..=i];
            for j in 0..i {
                let other = &above[packed_index(j, 0)..][..=j];
                row[j] = (a[[i, j]] - dot(&row[..j], &other[..j])) / other[j];
            }
            let diagonal = a[[i, i]];
            let pivot = diagonal - dot(&row[..i], &row[..i]);
            let least = (d + 1) as f64 * f64::EPSILON * diagonal;
            // Also false for NaN.
            if !(pivot > least && pivot > 0.0 && pivot.is_finite()) {
                return Err(NotPositiveDefinite { column: i, pivot });
            }
            row[i] = pivot.sqrt();
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

    /// Row `i` of the factor, `(i + 1,)`.
    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.lower[packed_index(i, 0)..][..=i]
    }

    /// The upper left `(size, size)` block of the factor: the factor of that block of `A`.
    pub(crate) fn leading(&self, size: usize) -> Self {
        Self { d: size, lower: self.lower[..packed_len(size)].to_vec() }
    }

    /// The lower right block of the factor without its first `from` rows and columns: the factor of the Schur complement
    /// of the upper left block of `A`.
    pub(crate) fn trailing(&self, from: usize) -> Self {
        let lower = (from..self.d).flat_map(|i| &self.row(i)[from..]).copied().collect();
        Self { d: self.d - from, lower }
    }

    /// Solves `L y = b` in place. Cost `d²` flops.
    pub fn solve_lower(&self, b: &mut [f64]) {
        for i in 0..self.d {
            let row = self.row(i);
            let rest = b[i] - dot(&row[..i], &b[..i]);
            b[i] = rest / row[i];
        }
    }

    /// Solves `Lᵀ y = b` in place. Cost `d²` flops.
    pub fn solve_lower_transposed(&self, b: &mut [f64]) {
        for i in (0..self.d).rev() {
            let row = self.row(i);
            let (before, at) = b.split_at_mut(i);
            at[0] /= row[i];
            // Subtracts y[i] from the equations above it along row i of L: a column of Lᵀ would be strided.
            before.iter_mut().zip(row).for_each(|(b, l)| *b -= l * at[0]);
        }
    }

    /// `tr(A⁻¹ B)`, from the factors of both: `Σ_j |L⁻¹ g_j|²` over the columns of the other factor. Cost: `d³/3` flops.
    pub(crate) fn trace_of_ratio(&self, other: &Self) -> f64 {
        let mut column = vec![0.0; self.d];
        let mut trace = 0.0;
        for j in 0..self.d {
            // The column is 0 above its diagonal, and so is the solution.
            for i in j..self.d {
                let row = self.row(i);
                column[i] = (other.at(i, j) - dot(&row[j..i], &column[j..i])) / row[i];
                trace += column[i] * column[i];
            }
        }
        trace
    }

    /// Adds `L b` to `y`.
    pub(crate) fn add_product(&self, b: &[f64], y: &mut [f64]) {
        for (i, y) in y.iter_mut().enumerate().take(self.d) {
            *y += dot(self.row(i), &b[..=i]);
        }
    }

    /// Computes `L b` into `y`.
    pub fn multiply_lower(&self, b: &[f64], y: &mut [f64]) {
        for (i, y) in y.iter_mut().enumerate().take(self.d) {
            *y = dot(self.row(i), &b[..=i]);
        }
    }
}

/// Σ a b over two slices of equal length, in eight independent sums: in a single sum each addition would wait for the
/// one before. The order depends only on the length, so the bits do not depend on the machine.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum();
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7)) + rest
}
