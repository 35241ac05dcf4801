//! Sections: the ranges of rows over which sums are taken before they are added up, in order.
//!
//! Their size depends only on the shape of the rows. So the order of all additions, and with it every bit of a result,
//! is the same whether the rows are in device memory, pass through it a section at a time, or both.

use std::ops::Range;

use gmm_kernels::layout::TILE_ROWS;

use crate::cuda::launch::plan::ForcedPlan;

/// Bytes of a section's rows on the device: a pass over them takes a hundred times as long as the launches that a
/// section adds, and two sections fit into any GPU.
const BYTES: usize = 512 << 20;

#[cfg(test)]
thread_local! {
    /// Rows of a section, and bytes for passes, instead of [`BYTES`] and [`FOR_PASSES`]; set by tests, on their own
    /// thread.
    pub(crate) static FORCED: std::cell::Cell<Option<(usize, u128)>> = const { std::cell::Cell::new(None) };
}

/// Bytes of device memory that rows of several sections leave for the passes over them.
const FOR_PASSES: u128 = 1 << 30;

/// See [`FOR_PASSES`].
pub(crate) fn bytes_for_passes() -> u128 {
    #[cfg(test)]
    if let Some((_, bytes)) = FORCED.get() {
        return bytes;
    }
    FOR_PASSES
}

/// How `n` rows are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sections {
    n: usize,
    /// Rows of each section but the last: a multiple of 128.
    each: usize,
}

impl Sections {
    /// The sections of `n` rows of `d` columns, with `number_bytes` bytes for each number.
    pub(crate) fn of((n, d): (usize, usize), number_bytes: usize, forced: &ForcedPlan) -> Self {
        let tile = TILE_ROWS as usize;
        let each = forced.section.map_or((BYTES / (d * number_bytes) / tile).max(1) * tile, |rows| rows as usize);
        #[cfg(test)]
        let each = FORCED.get().map_or(each, |(rows, _)| rows);
        Self { n, each }
    }

    /// Most rows of a section.
    pub(crate) fn rows(self) -> usize {
        self.each.min(self.n)
    }

    pub(crate) fn count(self) -> usize {
        self.n.div_ceil(self.each)
    }

    /// The section in which a row lies.
    pub(crate) const fn of_row(self, row: usize) -> usize {
        row / self.each
    }

    /// The rows of a section.
    pub(crate) fn range(self, section: usize) -> Range<usize> {
        section * self.each..self.n.min((section + 1) * self.each)
    }

    /// The rows of each section, in order.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.count()).map(move |section| self.range(section))
    }

    /// Chunks of at most `chunk` rows, in order. None crosses the border of a section.
    pub(crate) fn chunks(self, chunk: usize) -> impl Iterator<Item = Range<usize>> {
        let pieces =
            move |rows: Range<usize>| (rows.start..rows.end).step_by(chunk).map(move |at| at..rows.end.min(at + chunk));
        self.ranges().flat_map(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_and_chunks_cover_all_rows_in_order() {
        for (n, each, chunk) in [(1, 128, 128), (128, 128, 128), (1000, 256, 128), (1000, 384, 256), (769, 256, 1024)] {
            let sections = Sections { n, each };
            for ranges in [sections.ranges().collect::<Vec<_>>(), sections.chunks(chunk).collect()] {
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, n));
                assert!(
                    ranges.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].start.is_multiple_of(128))
                );
                assert!(ranges.iter().all(|rows| sections.of_row(rows.start) == sections.of_row(rows.end - 1)));
            }
            assert_eq!(sections.ranges().count(), sections.count());
        }
    }

    #[test]
    fn a_section_has_half_a_gigabyte_of_rows() {
        let of = |d, bytes| Sections::of((usize::MAX, d), bytes, &ForcedPlan::default()).rows();
        assert_eq!((of(16, 4), of(128, 4), of(13, 8)), (1 << 23, 1 << 20, 5_162_112));
        assert_eq!(of(1 << 30, 8), 128);
    }
}
