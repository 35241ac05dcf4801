//! Launches of the sort by small keys.

use cust::memory::DeviceSlice;
use gmm_kernels::sort::{BITS, DIGITS, Sort, blocks, sort_count, sort_place, sort_scan};

use super::arguments::{at_least, or_null, pointer};
use super::launcher::Launcher;
use crate::Error;

/// The memory of a sort of `n` items, of which the lengths are [`SortBuffers::lens`].
#[derive(Clone, Copy)]
pub(crate) struct SortBuffers {
    pub(crate) counts: DeviceSlice<u32>,
    pub(crate) totals: DeviceSlice<u32>,
    /// Keys of one pass and of the next.
    pub(crate) keys: [DeviceSlice<u32>; 2],
    /// Items of every other pass.
    pub(crate) items: DeviceSlice<u32>,
}

impl SortBuffers {
    /// Lengths of counts, totals, and of keys and items each.
    pub(crate) const fn lens(n: u64) -> [u64; 3] {
        [DIGITS as u64 * blocks(n), DIGITS as u64, n]
    }
}

impl Launcher<'_> {
    /// Writes to `sorted`, `(n,)`, the numbers `0..n` in the order of the keys of their `labels`, `(n,)`, those of a key in their own
    /// order; and to `sorted_keys` these keys. The key of a label is its rank, or itself without `ranks`, below `keys`; labels are
    /// below the number of ranks.
    ///
    /// # Errors
    /// [`Error::Device`].
    pub(crate) fn sort(
        self,
        labels: &DeviceSlice<u32>,
        ranks: Option<&DeviceSlice<u32>>,
        keys: u32,
        b: &SortBuffers,
        (sorted, sorted_keys): (&DeviceSlice<u32>, Option<&DeviceSlice<u32>>),
    ) -> Result<(), Error> {
        let n = sorted.len() as u64;
        let [counts, totals, each] = SortBuffers::lens(n);
        at_least(labels, n, "labels");
        at_least(&b.counts, counts, "counts of digits");
        at_least(&b.totals, totals, "totals of digits");
        [b.keys[0], b.keys[1], b.items].iter().for_each(|slice| at_least(slice, each, "keys and items"));
        sorted_keys.iter().for_each(|slice| at_least(slice, each, "sorted keys"));
        let bits = u32::BITS - keys.saturating_sub(1).leading_zeros();
        let passes = bits.div_ceil(BITS).max(1);
        let grid = (u32::try_from(blocks(n)).expect("fewer than 2^32 items"), 1);
        // The last pass writes to `sorted`.
        let items = |pass: u32| if (passes - 1 - pass).is_multiple_of(2) { *sorted } else { b.items };
        for pass in 0..passes {
            let before = pass.checked_sub(1);
            let a = Sort {
                n,
                shift: pass * BITS,
                blocks: grid.0,
                labels: before.map_or(pointer(labels), |pass| pointer(&b.keys[pass as usize % 2])),
                ranks: or_null(ranks.filter(|_| before.is_none())),
                items: or_null(before.map(items).as_ref()),
                counts: pointer(&b.counts),
                totals: pointer(&b.totals),
                sorted_keys: or_null(if pass + 1 < passes { Some(&b.keys[pass as usize % 2]) } else { sorted_keys }),
                sorted_items: pointer(&items(pass)),
            };
            // SAFETY: every length was checked against the field's formula; the caller passes ranks of all labels.
            unsafe {
                self.launch(sort_count(), grid, a)?;
                self.launch(sort_scan(), (DIGITS, 1), a)?;
                self.launch(sort_place(), grid, a)?;
            }
        }
        Ok(())
    }
}
