//! The order of the rows: by their best components, which are in the order of a k-d tree.

use std::ops::Range;

use cust::memory::AsyncCopyDestination;

use super::buffers::{Buffers, download};
use crate::Error;
use crate::cuda::em::packing::{as_integers, words};
use crate::cuda::em::path::Launch;
use crate::cuda::launch::SortBuffers;

/// Sorts the rows by their labels, which the seeding has left.
pub(super) fn sort_rows(launch: &Launch<'_>, own: &Buffers) -> Result<(), Error> {
    let Launch { launcher, plan, buffers, .. } = *launch;
    let (n, k, d) = (plan.shape.n as usize, plan.shape.k as usize, plan.shape.d as usize);
    let mut means = vec![0.0; k * d];
    download(launcher, &buffers.means.index(..k * d), &mut means)?;
    let at = |range: &Range<usize>| buffers.own.nearby.index(range.clone());
    let ranks = words(&ranks(&means, (k, d)));
    // SAFETY: the driver copies pageable memory before it returns.
    let copied = unsafe { at(&own.ranks).async_copy_from(&ranks[..], &launcher.queue.stream) };
    launcher.gpu.check("a copy of ranks to the device", copied)?;
    let [counts, totals, keys, next_keys, items] = &own.sort;
    let integers = |range: &Range<usize>| as_integers(&at(range));
    let memory = SortBuffers {
        counts: integers(counts),
        totals: integers(totals),
        keys: [integers(keys), integers(next_keys)],
        items: integers(items),
    };
    let sorted = integers(&own.order).index(..n);
    launcher.sort(&integers(&own.labels), Some(&integers(&own.ranks)), plan.shape.k, &memory, (&sorted, None))
}

/// The position of each component in the order of a k-d tree of the means.
fn ranks(means: &[f64], (k, d): (usize, usize)) -> Vec<u32> {
    let mut ranks = vec![0; k];
    let order = crate::nearby::order(k, d, 1, |c, j| means[c * d + j]);
    (0..).zip(order).for_each(|(rank, c)| ranks[c as usize] = rank);
    ranks
}
