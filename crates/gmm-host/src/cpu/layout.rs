//! Memory layout of rows: blocks of 256 rows, each column of a block contiguous, so that a vector holds several rows.
//!
//! Blocks are copied once, when the rows are loaded. If that copy would be large, only a reference to the rows is kept,
//! and each pass copies a block at a time into its workspace: to the same bits, since both fill a block alike. That
//! takes longer per pass, and saves the memory and the time of the copy.

use std::ops::Range;

use gmm_model::{Dataset, Matrix, Precision};
use rayon::prelude::*;

use super::fill::{Fill, rounded};
use super::simd::{Dispatch, Machine, Real, Words};
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

/// Copies of at most this many bytes are made when rows are loaded.
pub(crate) const MOST_COPIED: u128 = 256 << 20;

/// Fewer numbers are copied on the calling thread: that takes about as long as waking another.
const SMALL: usize = 50_000;

/// Makes a layout of `(n, d)` rows, on the threads of the pool if it is large.
pub(crate) fn make<A: Send>(pool: &rayon::ThreadPool, (n, d): (usize, usize), make: impl FnOnce() -> A + Send) -> A {
    if n.saturating_mul(d) < SMALL { make() } else { pool.install(make) }
}

/// All rows as `x − shift` in `T`, with their weights.
pub(crate) struct Layout<T> {
    pub(crate) n: usize,
    pub(crate) d: usize,
    pub(crate) shift: Vec<f64>,
    pub(crate) total_weight: f64,
    cells: Cells<T>,
    /// One weight per row if the data set has weights; 0 past `n`.
    weights: Option<Buffer<T>>,
    /// Weights of a full block and of the last block if the data set has none: 1, and 0 for rows past `n`.
    ones: Buffer<T>,
    last: Buffer<T>,
}

/// Where the blocks are.
enum Cells<T> {
    /// Blocks one after another, `d*STRIDE` values each; rows past `n` are 0.
    Copied(Buffer<T>),
    /// The rows as they were given, and the precision to which `x − shift` is rounded before it is stored as `T`.
    Given(Matrix, Precision),
}

impl<T: Real> Layout<T> {
    /// Copies a data set in one pass, which needs `n*d*size_of::<T>()` bytes plus a sixteenth, rounded up to whole
    /// blocks; or keeps a reference to its rows if that is more than `most_copied` bytes, or if the data set asks for
    /// it.
    pub(crate) fn new(machine: Machine, data: &Dataset, shift: &[f64], most_copied: u128) -> Result<Self, Error>
    where
        T: Dispatch,
    {
        let (n, d) = (data.n_rows(), shift.len());
        if ((n * d * size_of::<T>()) as u128 > most_copied || data.is_kept_in_place())
            && let Some(rows) = data.rows().cheap_clone()
        {
            return Self::with_cells(n, shift, data.weights(), Cells::Given(rows, T::PRECISION));
        }
        Self::filled(n, shift, data.weights(), |out, rows| {
            T::dispatch(machine, Fill { out, from: data.rows(), rows, shift, precision: T::PRECISION });
        })
    }

    /// Copies the given rows, with new weights.
    pub(crate) fn sample(&self, rows: &[usize], weights: Option<&[f64]>) -> Result<Self, Error> {
        Self::gathered(rows.len(), &self.shift, weights, |i| (self, rows[i]))
    }

    /// Copies `n` rows, with new weights; row `i` is the row of a layout with the same shift that `from(i)` names.
    pub(crate) fn gathered<'a>(
        n: usize,
        shift: &[f64],
        weights: Option<&[f64]>,
        from: impl Fn(usize) -> (&'a Self, usize) + Sync,
    ) -> Result<Self, Error>
    where
        T: 'a,
    {
        Self::filled(n, shift, weights, |out, some| {
            for (to, i) in some.enumerate() {
                let (layout, row) = from(i);
                for (column, value) in layout.row(row).enumerate() {
                    out[column * STRIDE + to] = value;
                }
            }
        })
    }

    /// All rows of another layout, converted to `T`.
    pub(crate) fn copy_of<S: Real>(other: &Layout<S>) -> Result<Self, Error> {
        let weights: Option<Vec<f64>> =
            other.weights.as_ref().map(|all| all[..other.n].iter().map(|w| w.to_f64()).collect());
        let copy = match &other.cells {
            Cells::Given(rows, precision) => {
                let rows = rows.cheap_clone().expect("rows that were cloned before");
                Self::with_cells(other.n, &other.shift, weights.as_deref(), Cells::Given(rows, *precision))?
            }
            Cells::Copied(cells) => Self::filled(other.n, &other.shift, weights.as_deref(), |out, rows| {
                let from = &cells[rows.start / BLOCK * other.d * STRIDE..];
                out.iter_mut().zip(from).for_each(|(slot, v)| *slot = T::of(v.to_f64()));
            })?,
        };
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
        let bytes = (blocks * BLOCK) as u128 * d as u128 * size_of::<T>() as u128;
        memory::check("a copy of the data", bytes)?;
        let mut cells = Buffer::<T>::zeroed(blocks * STRIDE * d);
        let fill_one = |(block, out): (usize, &mut [T])| {
            let first = block * BLOCK;
            fill(out, first..n.min(first + BLOCK));
        };
        if n * d < SMALL {
            cells.chunks_exact_mut(STRIDE * d).enumerate().for_each(fill_one);
        } else {
            cells.par_chunks_exact_mut(STRIDE * d).enumerate().for_each(fill_one);
        }
        Self::with_cells(n, shift, weights, Cells::Copied(cells))
    }

    fn with_cells(n: usize, shift: &[f64], weights: Option<&[f64]>, cells: Cells<T>) -> Result<Self, Error> {
        let blocks = n.div_ceil(BLOCK);
        let bytes = weights.map_or(0, |_| blocks * BLOCK * size_of::<T>());
        memory::check("a copy of the row weights", bytes as u128)?;
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
        Ok(Self { n, d: shift.len(), shift: shift.to_vec(), total_weight, cells, weights, ones, last })
    }

    pub(crate) fn blocks(&self) -> usize {
        self.n.div_ceil(BLOCK)
    }

    /// A buffer for [`block`](Self::block): empty if the blocks were copied when the rows were loaded.
    pub(crate) fn block_buffer(&self) -> Buffer<T> {
        Buffer::zeroed(self.block_len())
    }

    /// The length of a [`block_buffer`](Self::block_buffer).
    pub(crate) fn block_len(&self) -> usize {
        match self.cells {
            Cells::Copied(_) => 0,
            Cells::Given(..) => self.d * STRIDE,
        }
    }

    /// The columns of one block: `d` times `STRIDE` values, of which the first `BLOCK` are rows. `buffer` is a
    /// [`block_buffer`](Self::block_buffer) of this layout.
    #[inline(always)]
    pub(crate) fn block<'a, W: Words<T>>(&'a self, w: W, block: usize, buffer: &'a mut Buffer<T>) -> &'a [T] {
        match &self.cells {
            Cells::Copied(_) => self.copied(block),
            Cells::Given(rows, precision) => {
                let range = block * BLOCK..block * BLOCK + self.rows_in(block);
                if range.len() < BLOCK {
                    buffer.fill(T::ZERO);
                }
                w.apart(Fill { out: buffer, from: rows, rows: range, shift: &self.shift, precision: *precision });
                buffer
            }
        }
    }

    /// Values of one row, `d` of them.
    pub(crate) fn row(&self, row: usize) -> impl Iterator<Item = T> {
        (0..self.d).map(move |column| self.at(row, column))
    }

    /// One value of a row.
    pub(crate) fn at(&self, row: usize, column: usize) -> T {
        match &self.cells {
            Cells::Copied(cells) => cells[(row / BLOCK * self.d + column) * STRIDE + row % BLOCK],
            Cells::Given(rows, precision) => rounded(rows.at(row, column) - self.shift[column], *precision),
        }
    }

    /// The columns of a block of a layout of copies, as [`block`](Self::block).
    pub(crate) fn copied(&self, block: usize) -> &[T] {
        match &self.cells {
            Cells::Copied(cells) => &cells[block * self.d * STRIDE..][..self.d * STRIDE],
            Cells::Given(..) => panic!("no copies"),
        }
    }

    /// Changes the shift, if the blocks are not copies.
    pub(crate) fn move_to(&mut self, shift: &[f64]) -> bool {
        let is_given = matches!(self.cells, Cells::Given(..));
        if is_given {
            self.shift = shift.to_vec();
        }
        is_given
    }

    /// Number of rows of the data in a block.
    pub(crate) fn rows_in(&self, block: usize) -> usize {
        BLOCK.min(self.n - block * BLOCK)
    }

    /// Whether the data set has row weights.
    pub(crate) fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// The weight of one row.
    pub(crate) fn weight(&self, row: usize) -> T {
        self.weights(row / BLOCK)[row % BLOCK]
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
