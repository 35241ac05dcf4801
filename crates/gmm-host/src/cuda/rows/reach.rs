//! How far rows reach from the shift, found while they are copied: a read of their own would take as long as the copy.

use std::ops::Range;
use std::sync::Mutex;

use cust::memory::bytemuck::Pod;
use gmm_kernels::layout::TILE_ROWS;
use gmm_model::Dataset;
use rayon::prelude::*;

use crate::hold::{Real, larger, reach_of};

/// How rows are loaded.
#[derive(Clone, Copy, Default)]
pub(crate) struct LoadOptions<'a> {
    /// Whether they will be shifted to a second point.
    pub(crate) to_move: bool,
    /// Where the largest distances from the shift are noted.
    pub(crate) reach: Option<&'a Reach<'a>>,
    /// The rows of each tile, at most 128, if they are not taken in order; the rest of a tile is 0.
    pub(crate) tiles: Option<&'a [Range<usize>]>,
}

impl LoadOptions<'_> {
    /// Number of rows on the device.
    pub(crate) fn n_rows(&self, data: &Dataset) -> usize {
        self.tiles.map_or(data.n_rows(), |tiles| tiles.len() * TILE_ROWS as usize)
    }
}

/// The largest `|x − shift|` of each column among the rows that were copied so far; NaN if a value was.
pub(crate) struct Reach<'a> {
    shift: &'a [f64],
    largest: Mutex<Vec<f64>>,
}

/// Numbers that a thread copies at a time: they are still in its cache when it compares them.
const PIECE: usize = 1 << 15;

impl<'a> Reach<'a> {
    pub(crate) fn about(shift: &'a [f64]) -> Self {
        Self { shift, largest: Mutex::new(vec![0.0; shift.len()]) }
    }

    /// Copies whole rows, and notes how far they reach.
    pub(crate) fn copy<A: Real + Pod + Send>(&self, from: &[A], to: &mut [A]) {
        let piece = (PIECE / self.shift.len()).max(1) * self.shift.len();
        to.par_chunks_mut(piece).zip(from.par_chunks(piece)).for_each(|(to, from)| {
            to.copy_from_slice(from);
            let here = reach_of(from, self.shift, false);
            let mut all = self.largest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            all.iter_mut().zip(here).for_each(|(all, here)| *all = larger(*all, here));
        });
    }

    pub(crate) fn found(self) -> Vec<f64> {
        self.largest.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
