//! As [`joint_halves`], for more than 128 columns.
//!
//! Factors are streamed 32 rows of two components at a time, as many as fit into shared memory twice, with a barrier
//! for each. Left operands take so many registers that a block has only 128 rows.

use crate::device::mma::stores_before_products;
use crate::device::warpgroup::{Cores, LeftOfHalves};
use crate::device::{self, Shared, WARP, copies, thread};
use crate::each::each;
use crate::em::state::stopped;
use crate::em::wgmma::full::joint::{Joint, LOWEST, LaneRows, add_squares};
use crate::em::wgmma::full::joint_halves::{self, LeftOperand, PairResults, SoFar, steps};
use crate::em::wgmma::full::{CORE, WIDE, factors_at, groups, offsets_at, pair_bytes, rows_apart};

/// Threads per block: as many warpgroups, each with 64 rows, as registers allow.
pub(crate) const THREADS: u32 = 256;

/// Words of a lane's left operands.
const WORDS: usize = 8 * WIDE as usize;

/// Bytes of one of the two buffers for 32 rows of two components' factors: one is in use, the other is being filled.
const SLOT: u32 = 2 * block_bytes(WIDE - 1);

/// Bytes of the hi parts of the `block`th 32 rows of two components' factors.
const fn block_bytes(block: u32) -> u32 {
    factors_at(block + 1) - factors_at(block)
}

/// Offset of one of the two buffers for two components' offsets, constants and multipliers.
const fn ends_at(which: u32) -> u32 {
    2 * SLOT + which * ends_bytes(WIDE)
}

const fn ends_bytes(blocks: u32) -> u32 {
    pair_bytes(blocks, false) - offsets_at(blocks, false)
}

/// Offset of each thread's running state of its row, for which registers do not suffice.
const KNOWN: u32 = ends_at(2);

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const SHARED: u64 = (KNOWN + 16 * THREADS) as u64;

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared_bytes(_: &Joint) -> u64 {
    SHARED
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn threads(_: &Joint) -> u32 {
    THREADS
}

/// Body of the kernel for [`WIDE`] blocks of 32 columns or one fewer.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Joint`] document.
#[inline(always)]
pub(crate) unsafe fn body(a: Joint) {
    // SAFETY: `state` is null or a loop's state, as `Joint` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let warpgroups = const { THREADS / (4 * WARP) };
    let (groups, pairs) = (groups(a.n) as u32, a.components / 2);
    let mut first = thread::block_idx_x() * warpgroups;
    if first >= groups || pairs == 0 {
        return;
    }
    let next_first = |first: u32| first + thread::grid_dim_x_anew() * warpgroups;
    let blocks = crate::em::wgmma::full::blocks(a.d);
    // SAFETY: pair 0 exists, since `pairs > 0`.
    unsafe { send(&a, 0, 0, 0) };
    let (mut sums, mut here) = ([[0.0; 32]; 2], 0);
    while first < groups {
        let mut left = [[0; WORDS]; 2];
        let mine = LaneRows::of(first);
        if mine.group < groups {
            // SAFETY: `mine.group < groups`, so the rows exist.
            unsafe { joint_halves::rows::<{ WIDE as usize }, WORDS>(&a, mine, &mut left) };
        }
        SoFar { top: LOWEST, sum: 0.0, first }.keep(KNOWN);
        let (mut made, mut pair) = (PairResults { norms: [0.0; 4], scalars: 0 }, 0);
        while pair < pairs {
            // Whether the next components are still needed.
            let more = |next: u32| next > 0 || next_first(SoFar::kept(KNOWN).first) < groups;
            let ends = ends_at(pair % 2);
            let next = if pair + 1 < pairs { pair + 1 } else { 0 };
            macro_rules! stages {
                ($($block:literal)*) => {
                    // The branch also keeps the compiler from deferring squares beyond the following products, for
                    // which there are no registers.
                    $(if $block < blocks {
                        let last = $block + 1 == WIDE || ($block + 2 == WIDE && blocks < WIDE);
                        copies::arrive();
                        stores_before_products();
                        // Makes all threads' copies visible, and ensures that no thread still reads the other buffer.
                        thread::sync_threads();
                        let there = SLOT - here;
                        products::<$block>(&mut sums, &left, here, || {
                            // After a product, so that other warps compute meanwhile.
                            if !last {
                                // SAFETY: `pair < pairs` and the block is not the last.
                                unsafe { send(&a, there, pair, $block + 1) };
                            } else if more(next) {
                                // SAFETY: `next < pairs`.
                                unsafe { send(&a, there, next, 0) };
                            }
                        });
                        here = there;
                        if $block == 0 {
                            if pair > 0 {
                                // SAFETY: `pair > 0`, so the previous pair exists.
                                unsafe { made.densities(&a, KNOWN, pair - 1) };
                            }
                            made.norms = [0.0; 4];
                        }
                        let offsets = ends + 4 * 64 * $block + 16 * (thread::thread_idx_x_anew() % 4);
                        add_squares_of_two(&mut made.norms, &sums[0], offsets);
                    })*
                };
            }
            stages!(0 1 2 3 4 5);
            let scalars = ends + 4 * 64 * blocks + 8 * (thread::thread_idx_x_anew() % 2);
            made.scalars = Shared::<f64>::at(scalars).load(0).to_bits();
            pair += 1;
        }
        // SAFETY: `pairs > 0`, so the last pair exists.
        unsafe { made.densities(&a, KNOWN, pairs - 1) };
        let so_far = SoFar::kept(KNOWN);
        first = next_first(so_far.first);
        // SAFETY: all components were added; `finish` writes rows of existing groups only.
        unsafe { so_far.finish(&a) };
    }
}

/// Adds the squares of products to the norms of two rows for two components.
#[inline(always)]
fn add_squares_of_two(norms: &mut [f32; 4], sums: &[f32; 32], offsets: u32) {
    each(2, |which| {
        let mut norm = [norms[which], norms[2 + which]];
        add_squares(sums, which, offsets, &mut norm);
        each(2, |row| norms[2 * row + which] = norm[row]);
    });
}

/// Products with the `BLOCK`th 32 rows of two components, written to `sums`. Nothing past the diagonal is multiplied,
/// and the tensor cores sum at most 64 terms at a time. `between` is called after the first products.
#[inline(always)]
fn products<const BLOCK: usize>(
    [sums, others]: &mut [[f32; 32]; 2],
    left: &LeftOperand<WORDS>,
    at: u32,
    mut between: impl FnMut(),
) {
    let all = 2 * (BLOCK + 1);
    let tails = block_bytes(BLOCK as u32);
    each(WORDS / 16, |four| {
        let first = 4 * four;
        if first >= all {
            return;
        }
        // A step has two core matrices.
        let right = Cores { at: at + 2 * CORE * first as u32, terms: CORE, others: rows_apart(BLOCK as u32) };
        let to = if first == 0 { &mut *sums } else { &mut *others };
        if first + 4 <= all {
            steps::<4, WORDS>(left, first).times(to, right, tails);
        } else {
            steps::<2, WORDS>(left, first).times(to, right, tails);
        }
        if first > 0 {
            each(32, |i| sums[i] += others[i]);
        } else {
            between();
        }
    });
}

/// Starts the copy of the `block`th 32 rows of a pair of components' factors and, with the first block, of the rest of
/// the pair's coefficients; all threads of the thread block call it.
#[inline(always)]
unsafe fn send(a: &Joint, to: u32, pair: u32, block: usize) {
    // Opaque, so that no registers hold values derived from them, which differ for each block.
    let (blocks, pair) = (crate::em::wgmma::full::blocks(device::unknown(a.d)), device::unknown(pair));
    let (bytes, t) = (block_bytes(block as u32), thread::thread_idx_x_anew());
    let own = (pair as u64 * pair_bytes(blocks, false) as u64) as usize + 16 * t as usize;
    let own = a.operands.cast::<u8>().wrapping_add(own);
    each(2, |half| {
        let from = own.wrapping_add((factors_at(block as u32) + half as u32 * factors_at(blocks)) as usize);
        let to = to + half as u32 * bytes + 16 * t;
        each((bytes / (16 * THREADS)) as usize, |i| {
            let by = i as u32 * 16 * THREADS;
            // SAFETY: the caller passes a pair and a block that exist; the block has `bytes` bytes for each part.
            unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
        });
    });
    if block == 0 && 16 * t < ends_bytes(blocks) {
        // At most one copy of 16 bytes per thread.
        let to = ends_at(pair % 2) + 16 * t;
        // SAFETY: the pair exists, and its coefficients end with these bytes.
        unsafe { copies::send(to, own.wrapping_add(offsets_at(blocks, false) as usize)) };
    }
}

const _: () = assert!(ends_bytes(WIDE) <= 16 * THREADS && block_bytes(0).is_multiple_of(16 * THREADS) && WIDE == 6);
