//! The stable sort by small keys, against that of the standard library.

use std::ptr::{null, null_mut};

use gmm_kernels::device::Buffer;
use gmm_kernels::sort::{BITS, DIGITS, Sort, blocks, sort_count, sort_place, sort_scan};

use crate::data::Random;

/// Sorts items by the keys of their labels, in as many passes as the keys need.
fn sorted(labels: &[u32], ranks: Option<&[u32]>, most: u32) -> Vec<u32> {
    let (n, of_blocks) = (labels.len(), blocks(labels.len() as u64) as u32);
    let labels = Buffer::new(labels);
    let ranks = ranks.map(Buffer::new);
    let mut counts = Buffer::<u32>::unwritten((DIGITS * of_blocks) as usize);
    let mut totals = Buffer::<u32>::unwritten(DIGITS as usize);
    let mut before: Option<(Buffer<u32>, Buffer<u32>)> = None;
    let mut shift = 0;
    loop {
        let (mut keys, mut items) = (Buffer::<u32>::unwritten(n), Buffer::<u32>::unwritten(n));
        let is_last = u64::from(most) >> (shift + BITS) == 0;
        let a = Sort {
            n: n as u64,
            shift,
            blocks: of_blocks,
            labels: before.as_ref().map_or(labels.pointer(), |(keys, _)| keys.pointer()),
            ranks: ranks.as_ref().filter(|_| before.is_none()).map_or(null(), Buffer::pointer),
            items: before.as_ref().map_or(null(), |(_, items)| items.pointer()),
            counts: counts.pointer_mut(),
            totals: totals.pointer_mut(),
            sorted_keys: if is_last { null_mut() } else { keys.pointer_mut() },
            sorted_items: items.pointer_mut(),
        };
        // SAFETY: every buffer has the length that the kernels' arguments document.
        unsafe {
            sort_count().emulate((of_blocks, 1), a);
            sort_scan().emulate((DIGITS, 1), a);
            sort_place().emulate((of_blocks, 1), a);
        }
        if is_last {
            return items.to_vec();
        }
        before = Some((keys, items));
        shift += BITS;
    }
}

#[test]
fn equal_keys_keep_their_order() {
    let random = &mut Random(7);
    for (n, most) in [(1_usize, 0_u32), (2, 1), (33, 40), (4096, 255), (4097, 256), (9001, 70_000), (5000, 3)] {
        let labels: Vec<u32> = (0..n).map(|_| (random.uniform() * f64::from(most + 1)) as u32).collect();
        let mut want: Vec<u32> = (0..n as u32).collect();
        want.sort_by_key(|&i| labels[i as usize]);
        assert_eq!(sorted(&labels, None, most), want, "{n} items, keys up to {most}");
        let ranks: Vec<u32> = (0..=most).map(|label| most - label).collect();
        want.sort_by_key(|&i| (ranks[labels[i as usize] as usize], i));
        assert_eq!(sorted(&labels, Some(&ranks), most), want, "{n} items, ranks up to {most}");
    }
}

/// All keys the same, in more parts than a block has threads to add them up.
#[test]
fn one_key_and_many_blocks() {
    let n = 4096 * 130 + 5;
    let want: Vec<u32> = (0..n as u32).collect();
    assert_eq!(sorted(&vec![9; n], None, 9), want);
}
