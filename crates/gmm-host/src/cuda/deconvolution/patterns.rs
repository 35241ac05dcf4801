//! Rows with missing values in the order of their patterns: the sets of observed columns.

use std::ops::Range;

use bytemuck::Pod;
use cust::memory::{DeviceCopy, DeviceSlice};
use gmm_kernels::device::WARP;
use gmm_model::Dataset;

use crate::Error;
use crate::cuda::driver::buffers::Slot;
use crate::cuda::driver::device::Gpu;
use crate::cuda::driver::queue::Queue;
use crate::cuda::driver::staging::send;
use crate::cuda::rows::upload;
use crate::missing::patterns::of_rows;

/// Most patterns of a warp: each of its threads reads the factors of its own, so that a warp of many would outlast all
/// others.
const MOST_OF_WARP: usize = 8;

/// The patterns of rows, each a mask of at most 64 columns.
pub(super) struct Patterns {
    /// The given row at each place.
    pub(super) order: Vec<usize>,
    /// The first place of each pattern, and the number of rows.
    starts: Vec<usize>,
    /// The pattern at each place, `(n,)`.
    pub(super) of_rows: Slot<u32>,
    masks: Slot<u64>,
    /// The first places of the groups of rows that a warp takes, and the number of rows.
    group_starts: Vec<u64>,
    /// The same on the device.
    groups: Slot<u64>,
}

impl Patterns {
    /// # Errors
    /// [`Error::Memory`]; [`Error::Device`].
    pub(super) fn load(gpu: &Gpu, queue: &Queue, data: &Dataset) -> Result<Self, Error> {
        let n = data.n_rows();
        let (mut groups, unobserved) = of_rows(data.rows());
        groups.extend((!unobserved.is_empty()).then_some((Vec::new(), unobserved)));
        // Rare ones first: a warp of several patterns takes longest, and should not begin last.
        groups.sort_by_key(|(_, rows)| rows.len());
        let mask = |columns: &Vec<usize>| columns.iter().fold(0, |mask, &j| mask | 1u64 << j);
        let masks: Vec<u64> = groups.iter().map(|(columns, _)| mask(columns)).collect();
        let (mut order, mut starts, mut pattern_of) = (Vec::with_capacity(n), vec![0], Vec::with_capacity(n));
        for (pattern, (_, rows)) in groups.into_iter().enumerate() {
            pattern_of.resize(pattern_of.len() + rows.len(), pattern as u32);
            order.extend(rows);
            starts.push(order.len());
        }
        let group_starts = groups_of_warps(&pattern_of);
        let of_rows = held(gpu, queue, &pattern_of)?;
        let (masks, groups) = (held(gpu, queue, &masks)?, held(gpu, queue, &group_starts)?);
        Ok(Self { order, starts, of_rows, masks, group_starts, groups })
    }

    /// The groups of rows that warps take, of rows from the start of a tile to the start of another or to the last.
    pub(super) fn groups(&self, rows: &Range<usize>) -> DeviceSlice<u64> {
        let at = |place: usize| self.group_starts.partition_point(|&start| start < place as u64);
        self.groups.first(self.group_starts.len()).index(at(rows.start)..=at(rows.end))
    }

    /// A mask for each pattern.
    pub(super) fn masks(&self) -> DeviceSlice<u64> {
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

/// Copies numbers to the device.
///
/// # Errors
/// [`Error::Memory`]; [`Error::Device`].
fn held<T: DeviceCopy + Pod + Send + Sync>(gpu: &Gpu, queue: &Queue, numbers: &[T]) -> Result<Slot<T>, Error> {
    let slot = Slot::taken(gpu, "the patterns of missing values on the GPU", numbers.len())?;
    send(gpu, queue, &mut slot.first(numbers.len()), 1, |piece, to| upload::copy(&numbers[piece], to))?;
    Ok(slot)
}

/// Splits rows with these patterns into groups of at most a warp's rows and of a few patterns each. Returns where each
/// begins, and the number of rows.
fn groups_of_warps(patterns: &[u32]) -> Vec<u64> {
    let (mut starts, mut met) = (Vec::new(), 0);
    for (place, pattern) in patterns.iter().enumerate() {
        let is_new = place == 0 || *pattern != patterns[place - 1];
        if place.is_multiple_of(WARP as usize) || is_new && met == MOST_OF_WARP {
            starts.push(place as u64);
            met = 1;
        } else if is_new {
            met += 1;
        }
    }
    starts.push(patterns.len() as u64);
    starts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_few_patterns_and_at_most_a_warp_of_rows() {
        let of = |patterns: &[u32]| groups_of_warps(patterns);
        assert_eq!(of(&[0; 70]), [0, 32, 64, 70]);
        let each: Vec<u32> = (0..40).collect();
        assert_eq!(of(&each), [0, 8, 16, 24, 32, 40]);
        // Seven patterns of a row, then a frequent one, which is the eighth.
        let few: Vec<u32> = (0..33).map(|i| i.min(7)).collect();
        assert_eq!(of(&few), [0, 32, 33]);
    }
}
