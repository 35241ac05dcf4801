//! Rows with missing values in the order of their patterns: the sets of observed columns.

use std::ops::Range;

use gmm_model::Dataset;

use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::send;
use crate::cuda::rows::upload;
use crate::missing::patterns::of_rows;

/// The patterns of rows, each a mask of at most 64 columns.
pub(super) struct Patterns {
    /// The given row at each place.
    pub(super) order: Vec<usize>,
    /// The first place of each pattern, and the number of rows.
    starts: Vec<usize>,
    /// The pattern at each place, `(n,)`.
    pub(super) of_rows: Slot<u32>,
    masks: Slot<u64>,
}

impl Patterns {
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn load(gpu: &Gpu, queue: &Queue, data: &Dataset) -> Result<Self, Error> {
        const WHAT: &str = "the patterns of missing values on the GPU";
        let n = data.n_rows();
        let (mut groups, unobserved) = of_rows(data.rows());
        groups.extend((!unobserved.is_empty()).then_some((Vec::new(), unobserved)));
        // Rare ones first: a warp of many patterns takes longest, and should not begin last.
        groups.sort_by_key(|(_, rows)| rows.len());
        let mask = |columns: &Vec<usize>| columns.iter().fold(0, |mask, &j| mask | 1u64 << j);
        let masks: Vec<u64> = groups.iter().map(|(columns, _)| mask(columns)).collect();
        let (mut order, mut starts, mut pattern_of) = (Vec::with_capacity(n), vec![0], Vec::with_capacity(n));
        for (pattern, (_, rows)) in groups.into_iter().enumerate() {
            pattern_of.resize(pattern_of.len() + rows.len(), pattern as u32);
            order.extend(rows);
            starts.push(order.len());
        }
        let of_rows = Slot::taken(gpu, WHAT, n)?;
        send(gpu, queue, &mut of_rows.first(n), 1, |piece, to| upload::copy(&pattern_of[piece], to))?;
        let held = Slot::taken(gpu, WHAT, masks.len())?;
        send(gpu, queue, &mut held.first(masks.len()), 1, |piece, to| upload::copy(&masks[piece], to))?;
        Ok(Self { order, starts, of_rows, masks: held })
    }

    /// A mask for each pattern.
    pub(super) fn masks(&self) -> cust::memory::DeviceSlice<u64> {
        self.masks.first(self.starts.len() - 1)
    }

    /// The patterns of some rows.
    pub(super) fn among(&self, rows: &Range<usize>) -> Range<usize> {
        let of = |place: usize| self.starts.partition_point(|&start| start <= place) - 1;
        of(rows.start)..of(rows.end - 1) + 1
    }

    /// The end of the first rows of `rows` that have at most `most` patterns, at a multiple of `tile` or at their end; at least
    /// one tile.
    pub(super) fn end(&self, rows: &Range<usize>, most: usize, tile: usize) -> usize {
        let last = (self.among(rows).start + most).min(self.starts.len() - 1);
        let full = self.starts[last] / tile * tile;
        if self.starts[last] >= rows.end { rows.end } else { full.max(rows.start + tile).min(rows.end) }
    }
}
