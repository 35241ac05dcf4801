//! Memory layout of rows: blocks of 256 rows, each column of a block contiguous, so that a vector holds several rows.

use std::ops::Range;

use gmm_model::{Dataset, Matrix};
use rayon::prelude::*;

use super::simd::Real;
use crate::{Error, memory};

/// Rows per block. A column is 2 KiB in f64, so a block of 30 columns fits into the L2 cache.
pub(crate) const BLOCK: usize = 256;

/// Distance between two columns of a block, and between two components' values. A distance of 256 would map all columns
/// to the same few sets of the L1 cache; 16 more values (one or two cache lines) spread them over all sets.
pub(crate) const STRIDE: usize = BLOCK + 16;

/// A zeroed buffer that starts at a cache line, so that no vector load crosses a line.
pub(crate) struct Buffer<T> {
    cells: Vec<T>,
    start: usize,
    len: usize,
}

const LINE: usize = 64;

impl<T: Real> Buffer<T> {
    pub(crate) fn zeroed(len: usize) -> Self {
        let per_line = LINE / size_of::<T>();
        let cells = vec![T::ZERO; len + per_line];
        let start = (cells.as_ptr().align_offset(LINE)).min(per_line);
        Self { cells, start, len }
    }
}

impl<T> std::ops::Deref for Buffer<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.cells[self.start..][..self.len]
    }
}

impl<T> std::ops::DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.cells[self.start..][..self.len]
    }
}

/// All rows as `x − shift` in `T`, with their weights.
pub(crate) struct Layout<T> {
    pub(crate) n: usize,
    pub(crate) d: usize,
    pub(crate) shift: Vec<f64>,
    pub(crate) total_weight: f64,
    /// Blocks one after another, `d*STRIDE` values each; rows past `n` are 0.
    cells: Buffer<T>,
    /// One weight per row if the data set has weights; 0 past `n`.
    weights: Option<Buffer<T>>,
    /// Weights of a full block and of the last block if the data set has none: 1, and 0 for rows past `n`.
    ones: Buffer<T>,
    last: Buffer<T>,
}

impl<T: Real> Layout<T> {
    /// Copies a data set in one pass. Needs `n*d*size_of::<T>()` bytes plus a sixteenth, rounded up to whole blocks.
    pub(crate) fn new(data: &Dataset, shift: &[f64]) -> Result<Self, Error> {
        let d = shift.len();
        Self::filled(data.n_rows(), shift, data.weights(), |out, rows| match data.rows() {
            Matrix::F32(a) => fill(out, &a.as_slice().expect("row-major")[rows.start * d..rows.end * d], shift),
            Matrix::F64(a) => fill(out, &a.as_slice().expect("row-major")[rows.start * d..rows.end * d], shift),
        })
    }

    /// Copies the given rows, with new weights.
    pub(crate) fn sample(&self, rows: &[usize], weights: Option<&[f64]>) -> Result<Self, Error> {
        Self::filled(rows.len(), &self.shift, weights, |out, some| {
            for (to, &row) in rows[some].iter().enumerate() {
                for (column, value) in self.row(row).enumerate() {
                    out[column * STRIDE + to] = value;
                }
            }
        })
    }

    /// Copies all rows of another layout, converted to `T`.
    pub(crate) fn copy_of<S: Real>(other: &Layout<S>) -> Result<Self, Error> {
        let weights: Option<Vec<f64>> =
            other.weights.as_ref().map(|all| all[..other.n].iter().map(|w| w.to_f64()).collect());
        let copy = Self::filled(other.n, &other.shift, weights.as_deref(), |out, rows| {
            let from = other.block(rows.start / BLOCK);
            out.iter_mut().zip(from).for_each(|(slot, v)| *slot = T::of(v.to_f64()));
        })?;
        Ok(Self { total_weight: other.total_weight, ..copy })
    }

    /// Creates a layout; `fill` gets the zeroed columns of each block and its range of rows.
    fn filled(
        n: usize,
        shift: &[f64],
        weights: Option<&[f64]>,
        fill: impl Fn(&mut [T], Range<usize>) + Sync,
    ) -> Result<Self, Error> {
        let (d, blocks) = (shift.len(), n.div_ceil(BLOCK));
        let bytes = (blocks * BLOCK) as u128 * (d + usize::from(weights.is_some())) as u128 * size_of::<T>() as u128;
        memory::check("a copy of the data", bytes)?;
        let mut cells = Buffer::<T>::zeroed(blocks * STRIDE * d);
        cells.par_chunks_exact_mut(STRIDE * d).enumerate().for_each(|(block, out)| {
            let first = block * BLOCK;
            fill(out, first..n.min(first + BLOCK));
        });
        let total_weight = weights.map_or(n as f64, |all| all.iter().sum());
        let weights = weights.map(|all| {
            let mut buffer = Buffer::zeroed(blocks * BLOCK);
            for (slot, &w) in buffer.iter_mut().zip(all) {
                *slot = T::of(w);
            }
            buffer
        });
        let mut ones = Buffer::zeroed(BLOCK);
        ones.fill(T::ONE);
        let mut last = Buffer::zeroed(BLOCK);
        last[..n - (blocks - 1) * BLOCK].fill(T::ONE);
        Ok(Self { n, d, shift: shift.to_vec(), total_weight, cells, weights, ones, last })
    }

    pub(crate) fn blocks(&self) -> usize {
        self.n.div_ceil(BLOCK)
    }

    /// The columns of one block: `d` times `STRIDE` values, of which the first `BLOCK` are rows.
    pub(crate) fn block(&self, block: usize) -> &[T] {
        &self.cells[block * self.d * STRIDE..][..self.d * STRIDE]
    }

    /// Values of one row, `d` of them.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = T> {
        self.block(row / BLOCK).chunks_exact(STRIDE).map(move |column| column[row % BLOCK])
    }

    /// Number of rows of the data in a block.
    pub(crate) fn rows_in(&self, block: usize) -> usize {
        BLOCK.min(self.n - block * BLOCK)
    }

    /// Whether the data set has row weights.
    pub(crate) fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// Row weights of one block, `BLOCK` values.
    pub(crate) fn weights(&self, block: usize) -> &[T] {
        match &self.weights {
            Some(all) => &all[block * BLOCK..][..BLOCK],
            None if block + 1 == self.blocks() => &self.last,
            None => &self.ones,
        }
    }
}

/// Transposes rows into columns and subtracts the shift; the difference is computed in f64 and rounded once.
fn fill<S: Copy + Into<f64>, T: Real>(out: &mut [T], rows: &[S], shift: &[f64]) {
    let d = shift.len();
    for (row, values) in rows.chunks_exact(d).enumerate() {
        for (column, (&v, &s)) in values.iter().zip(shift).enumerate() {
            out[column * STRIDE + row] = T::of(v.into() - s);
        }
    }
}
