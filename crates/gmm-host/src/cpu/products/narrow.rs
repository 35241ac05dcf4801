//! Products with few columns: dot products of rows in place, in register tiles of 4 rows (AVX2: 2) by up to 4 columns.

use std::ops::Range;

use ndarray::{ArrayView2, ArrayViewMut2, Axis};

use super::super::simd::{Kernel, Words};

/// `sums += a bᵀ`, `(r, c)` from `(r, k)` and `(c, k)`, both with contiguous rows.
pub(super) struct Narrow<'a> {
    pub(super) a: ArrayView2<'a, f64>,
    pub(super) b: ArrayView2<'a, f64>,
    pub(super) sums: ArrayViewMut2<'a, f64>,
}

impl Kernel<f64> for Narrow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<f64>>(mut self, words: W) {
        let (r, c) = (self.a.nrows(), self.b.nrows());
        assert!(self.a.ncols() == self.b.ncols() && self.sums.dim() == (r, c));
        for first in (0..r).step_by(ROWS) {
            let rows = first..r.min(first + ROWS);
            let mut column = 0;
            while column < c {
                // A register tile wider than the remaining columns would do useless work.
                column += match c - column {
                    1 => self.columns::<1, W>(words, rows.clone(), column),
                    2 => self.columns::<2, W>(words, rows.clone(), column),
                    _ => self.columns::<4, W>(words, rows.clone(), column),
                };
            }
        }
    }
}

/// Rows that stay in the L1 cache while all columns are processed: 16 KiB for 256 terms.
const ROWS: usize = 8;

impl Narrow<'_> {
    /// Computes up to `C` columns from `column` on. Returns `C`.
    #[inline(always)]
    fn columns<const C: usize, W: Words<f64>>(&mut self, words: W, rows: Range<usize>, column: usize) -> usize {
        let mut row = rows.start;
        while row < rows.end {
            row += if W::GROUP == 4 {
                self.tile::<4, C, W>(words, row, column)
            } else {
                self.tile::<2, C, W>(words, row, column)
            };
        }
        C
    }

    /// Computes up to `R` rows by `C` columns; past the end, the last row or column is used instead. Returns `R`.
    #[inline(always)]
    fn tile<const R: usize, const C: usize, W: Words<f64>>(&mut self, words: W, row: usize, column: usize) -> usize {
        let (r, c, k) = (self.a.nrows(), self.b.nrows(), self.a.ncols());
        let a: [&[f64]; R] = std::array::from_fn(|i| slice(self.a, r.min(row + i + 1) - 1));
        let b: [&[f64]; C] = std::array::from_fn(|j| slice(self.b, c.min(column + j + 1) - 1));
        let mut sums = [[words.splat(0.0); C]; R];
        let whole = k - k % W::LANES;
        for at in (0..whole).step_by(W::LANES) {
            let mut there = [words.splat(0.0); C];
            for j in 0..C {
                // SAFETY: all slices have k numbers, as `run` asserts, and at + LANES ≤ k.
                there[j] = unsafe { words.load(b[j].as_ptr().add(at)) };
            }
            for i in 0..R {
                // SAFETY: as above: a[i] has k numbers.
                let a = unsafe { words.load(a[i].as_ptr().add(at)) };
                for j in 0..C {
                    sums[i][j] = words.fma(a, there[j], sums[i][j]);
                }
            }
        }
        for i in 0..R.min(r - row) {
            // Reduce four at a time: a sum over lanes takes as long as several products.
            let mut four = [words.splat(0.0); 4];
            four[..C].copy_from_slice(&sums[i]);
            let found = words.sum4(four);
            for j in 0..C.min(c - column) {
                let rest: f64 = a[i][whole..].iter().zip(&b[j][whole..]).map(|(a, b)| a * b).sum();
                self.sums[[row + i, column + j]] += found[j] + rest;
            }
        }
        R
    }
}

#[inline(always)]
fn slice(matrix: ArrayView2<'_, f64>, row: usize) -> &[f64] {
    matrix.index_axis_move(Axis(0), row).to_slice().expect("a row's numbers side by side")
}
