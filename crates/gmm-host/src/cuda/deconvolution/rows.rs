//! Rows with measurement errors or missing values in device memory.

use std::ops::Range;

use cust::memory::DeviceSlice;
use gmm_kernels::layout::{TILE_ROWS, packed_len, tiled_len};
use gmm_model::{Dataset, packed_index};
use rayon::prelude::*;

use super::patterns::Patterns;
use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::send;
use crate::cuda::launch::NoisyChunk;
use crate::cuda::rows::upload;

const TILE: usize = TILE_ROWS as usize;

/// Rows in tiles; see [`NoisyChunk`].
pub(super) struct NoisyRows {
    pub(super) n: usize,
    pub(super) d: u32,
    pub(super) is_correlated: bool,
    /// Σ w.
    pub(super) total_weight: f64,
    x: Slot<f64>,
    /// None if values are missing from exact rows.
    errors: Option<Slot<f64>>,
    row_weights: Option<Slot<f64>>,
    pub(super) patterns: Option<Patterns>,
}

/// The rows of a data set as the kernels read them.
struct Source<'a> {
    data: &'a Dataset,
    n: usize,
    d: usize,
    is_correlated: bool,
    order: Option<&'a [usize]>,
}

impl Source<'_> {
    /// A value of exact rows, NaN where it is missing.
    fn exact(&self, row: usize, column: usize) -> f64 {
        self.data.rows().at(self.order.map_or(row, |order| order[row]), column)
    }

    fn is_missing(&self, row: usize, column: usize) -> bool {
        self.data.has_missing() && self.data.rows().at(row, column).is_nan()
    }

    /// A measured value, 0 where it is missing.
    fn value(&self, row: usize, column: usize) -> f64 {
        let v = self.data.rows().at(row, column);
        if v.is_nan() { 0.0 } else { v }
    }

    /// Number `at` of a row's errors. A missing value has an infinite variance and no covariances.
    fn error(&self, row: usize, at: usize) -> f64 {
        let values = self.data.measurement_errors().expect("measurement errors").covariances().values();
        if !self.is_correlated {
            return if self.is_missing(row, at) { f64::INFINITY } else { values[[row, at]] };
        }
        let (i, j) = entry(at);
        match (self.is_missing(row, i), self.is_missing(row, j)) {
            (false, false) => values[[row, at]],
            _ if i == j => f64::INFINITY,
            _ => 0.0,
        }
    }

    /// The value past the last row: an error variance of 1.
    fn padding(&self, at: usize) -> f64 {
        let is_variance = if self.is_correlated { entry(at).0 == entry(at).1 } else { true };
        f64::from(is_variance)
    }
}

/// Row and column of entry `at` of a packed triangle.
fn entry(at: usize) -> (usize, usize) {
    let i = ((8 * at + 1).isqrt() - 1) / 2;
    (i, at - packed_index(i, 0))
}

impl NoisyRows {
    /// The context must be current. Exact rows with missing values are refused if less than `beside` bytes would be left.
    ///
    /// # Errors
    /// [`Error::Memory`] before anything is taken; [`Error::Device`].
    pub(super) fn load(gpu: &Gpu, queue: &Queue, data: &Dataset, beside: u64) -> Result<Self, Error> {
        const WHAT: &str = "rows and their measurement errors on the GPU";
        let (n, d) = data.rows().dim();
        let is_correlated = data.measurement_errors().is_some_and(|errors| !errors.covariances().is_diagonal());
        let of_errors = match data.measurement_errors() {
            None => 0,
            Some(_) if is_correlated => packed_len(d as u32) as u32,
            Some(_) => d as u32,
        };
        let len = |columns: u32| tiled_len(n as u64, columns) as usize;
        let weighted = if data.weights().is_some() { n } else { 0 };
        let of_patterns = if of_errors == 0 { u128::from(beside) + 8 * n as u128 } else { 0 };
        gpu.room(WHAT, 8 * (len(d as u32) as u128 + len(of_errors) as u128 + weighted as u128) + of_patterns, 0)?;
        let x = Slot::taken(gpu, WHAT, len(d as u32))?;
        let patterns = if of_errors == 0 { Some(Patterns::load(gpu, queue, data)?) } else { None };
        let order = patterns.as_ref().map(|patterns| patterns.order.as_slice());
        let source = Source { data, n, d, is_correlated, order };
        let rows_to = |to: &mut DeviceSlice<f64>, columns: usize, of: &(dyn Fn(usize, usize) -> f64 + Sync)| {
            send(gpu, queue, to, TILE * columns, |piece, chunk| {
                let first = piece.start / columns;
                chunk.par_chunks_mut(TILE * columns).enumerate().for_each(|(tile, out)| {
                    for (at, slots) in out.chunks_exact_mut(TILE).enumerate() {
                        let row = first + tile * TILE;
                        slots.iter_mut().enumerate().for_each(|(r, slot)| *slot = of(row + r, at));
                    }
                });
            })
        };
        let n = source.n;
        let value = |row, j| if source.order.is_some() { source.exact(row, j) } else { source.value(row, j) };
        rows_to(&mut x.first(len(d as u32)), source.d, &|row, j| if row < n { value(row, j) } else { 0.0 })?;
        let errors = if of_errors == 0 {
            None
        } else {
            let slot = Slot::taken(gpu, WHAT, len(of_errors))?;
            rows_to(&mut slot.first(len(of_errors)), of_errors as usize, &|row, at| {
                if row < n { source.error(row, at) } else { source.padding(at) }
            })?;
            Some(slot)
        };
        let row_weights = match data.weights() {
            Some(weights) => {
                let slot = Slot::taken(gpu, WHAT, n)?;
                let in_order = order.map(|order| order.iter().map(|&row| weights[row]).collect::<Vec<_>>());
                upload::weights(gpu, queue, in_order.as_deref().unwrap_or(weights), &mut slot.first(n))?;
                Some(slot)
            }
            None => None,
        };
        let total_weight = data.total_weight();
        Ok(Self { n, d: d as u32, is_correlated, total_weight, x, errors, row_weights, patterns })
    }

    /// Consecutive rows, which begin at a tile.
    pub(super) fn part(&self, rows: Range<usize>) -> NoisyChunk {
        assert!(rows.start.is_multiple_of(TILE) && rows.end <= self.n, "rows from a tile on");
        let of = |slot: &Slot<f64>, columns: usize| {
            let len = |rows: usize| tiled_len(rows as u64, columns as u32) as usize;
            slot.first(len(self.n)).index(len(rows.start)..).index(..len(rows.len()))
        };
        let d = self.d as usize;
        let of_errors = if self.is_correlated { packed_len(self.d) as usize } else { d };
        NoisyChunk {
            n: rows.len() as u64,
            d: self.d,
            x: of(&self.x, d),
            errors: self.errors.as_ref().map(|errors| of(errors, of_errors)),
            is_correlated: self.is_correlated,
            patterns: self.patterns.as_ref().map(|patterns| patterns.of_rows.first(self.n).index(rows.clone())),
            groups: self.patterns.as_ref().map(|patterns| patterns.groups(&rows)),
            row_weights: self.row_weights.as_ref().map(|weights| weights.first(self.n).index(rows)),
        }
    }
}
