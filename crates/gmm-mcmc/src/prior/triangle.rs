//! A lower Cholesky factor in the samplers' coordinates: packed row by row, with logarithms on its diagonal.

use gmm_model::{packed_index, packed_len};

/// The factor `L`, `(d*(d+1)/2,)`, with the operations that priors need.
pub(super) struct Triangle {
    d: usize,
    lower: Vec<f64>,
}

impl Triangle {
    pub(super) fn new(scales: &[f64], d: usize) -> Self {
        debug_assert_eq!(scales.len(), packed_len(d));
        let mut lower = scales.to_vec();
        (0..d).for_each(|i| lower[packed_index(i, i)] = scales[packed_index(i, i)].exp());
        Self { d, lower }
    }

    pub(super) fn at(&self, i: usize, j: usize) -> f64 {
        self.lower[packed_index(i, j)]
    }

    /// The variance `(L Lᵀ)_ii`.
    pub(super) fn variance(&self, i: usize) -> f64 {
        (0..=i).map(|j| self.at(i, j) * self.at(i, j)).sum()
    }

    /// `B = L⁻¹ diag(s) L⁻ᵀ`, `(d, d)` in row-major order. Cost: `O(d³)`.
    pub(super) fn whiten(&self, s: &[f64]) -> Vec<f64> {
        let d = self.d;
        // Row j is the solution y of L y = √s_j e_j.
        let mut rows = vec![0.0; d * d];
        for (j, row) in rows.chunks_exact_mut(d).enumerate() {
            row[j] = s[j].sqrt();
            for i in j..d {
                let before: f64 = (j..i).map(|l| self.at(i, l) * row[l]).sum();
                row[i] = (row[i] - before) / self.at(i, i);
            }
        }
        let mut product = vec![0.0; d * d];
        for row in rows.chunks_exact(d) {
            for i in 0..d {
                for j in 0..d {
                    product[i * d + j] += row[i] * row[j];
                }
            }
        }
        product
    }

    /// Computes `L⁻ᵀ B` in place, for `B`, `(d, d)` in row-major order. Cost: `O(d³)`.
    pub(super) fn solve_transposed(&self, b: &mut [f64]) {
        let d = self.d;
        for i in (0..d).rev() {
            for j in 0..d {
                let after: f64 = (i + 1..d).map(|l| self.at(l, i) * b[l * d + j]).sum();
                b[i * d + j] = (b[i * d + j] - after) / self.at(i, i);
            }
        }
    }
}
