//! What [`joint_halves`] leaves, of more than 128 columns.
//!
//! Factors pass by 32 rows of two components at a time, as many as shared memory holds twice, with a barrier for each. Left operands take so
//! many registers that a block has 128 rows.

use crate::device::mma::stores_before_products;
use crate::device::warpgroup::{Cores, LeftOfHalves};
use crate::device::{self, Shared, WARP, copies, thread};
use crate::each::each;
use crate::em::state::stopped;
use crate::em::wgmma::full::joint::{Joint, LOWEST, Mine, add_squares};
use crate::em::wgmma::full::joint_halves::{self, Left, Made, SoFar, steps};
use crate::em::wgmma::full::{CORE, WIDE, factors_at, groups, offsets_at, pair_bytes, rows_apart};

/// Threads of a block: as many warpgroups, each with 64 rows, as there are registers for.
pub(crate) const THREADS: u32 = 256;

/// Words of a lane's left operands.
const WORDS: usize = 8 * WIDE as usize;

/// Bytes of half of what 32 rows of two components' factors go through: those in use, or those on their way.
const SLOT: u32 = 2 * block_bytes(WIDE - 1);

/// Bytes of the heads of the `block`th 32 rows of two components' factors.
const fn block_bytes(block: u32) -> u32 {
    factors_at(block + 1) - factors_at(block)
}

/// Bytes before two components' offsets, constants and multipliers, in use or on their way.
const fn ends_at(which: u32) -> u32 {
    2 * SLOT + which * ends_bytes(WIDE)
}

const fn ends_bytes(blocks: u32) -> u32 {
    pair_bytes(blocks, false) - offsets_at(blocks, false)
}

/// Bytes before what each thread knows of its row, for which there are no registers.
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

/// The kernel for [`WIDE`] blocks of 32 columns or one fewer.
///
/// # Safety
/// As the fields of [`Joint`] say.
#[inline(always)]
pub(crate) unsafe fn body(a: Joint) {
    // SAFETY: the state is as `state` says.
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
    // SAFETY: components that there are, here and below.
    unsafe { send(&a, 0, 0, 0) };
    let (mut sums, mut here) = ([[0.0; 32]; 2], 0);
    while first < groups {
        let mut left = [[0; WORDS]; 2];
        let mine = Mine::of(first);
        if mine.group < groups {
            // SAFETY: rows that there are.
            unsafe { joint_halves::rows::<{ WIDE as usize }, WORDS>(&a, mine, &mut left) };
        }
        SoFar { top: LOWEST, sum: 0.0, first }.keep(KNOWN);
        let (mut made, mut pair) = (Made { norms: [0.0; 4], scalars: 0 }, 0);
        while pair < pairs {
            // Of the next components, if any pass by yet.
            let more = |next: u32| next > 0 || next_first(SoFar::kept(KNOWN).first) < groups;
            let ends = ends_at(pair % 2);
            let next = if pair + 1 < pairs { pair + 1 } else { 0 };
            macro_rules! stages {
                ($($block:literal)*) => {
                    // That it is a branch keeps squares from being put off beyond the products that follow, for which there are no
                    // registers.
                    $(if $block < blocks {
                        let last = $block + 1 == WIDE || ($block + 2 == WIDE && blocks < WIDE);
                        copies::arrive();
                        stores_before_products();
                        // What each thread waited for is there for all, and the other half is read by none any more.
                        thread::sync_threads();
                        let there = SLOT - here;
                        products::<$block>(&mut sums, &left, here, || {
                            // Behind a product, so that others multiply meanwhile.
                            if !last {
                                // SAFETY: as above.
                                unsafe { send(&a, there, pair, $block + 1) };
                            } else if more(next) {
                                // SAFETY: as above.
                                unsafe { send(&a, there, next, 0) };
                            }
                        });
                        here = there;
                        if $block == 0 {
                            if pair > 0 {
                                // SAFETY: components that there are.
                                unsafe { made.densities(&a, KNOWN, pair - 1) };
                            }
                            made.norms = [0.0; 4];
                        }
                        let offsets = ends + 4 * 64 * $block + 16 * (thread::thread_idx_x_anew() % 4);
                        each(2, |which| {
                            let mut norm = [made.norms[which], made.norms[2 + which]];
                            add_squares(&sums[0], which, offsets, &mut norm);
                            each(2, |row| made.norms[2 * row + which] = norm[row]);
                        });
                    })*
                };
            }
            stages!(0 1 2 3 4 5);
            let scalars = ends + 4 * 64 * blocks + 8 * (thread::thread_idx_x_anew() % 2);
            made.scalars = Shared::<f64>::at(scalars).load(0).to_bits();
            pair += 1;
        }
        // SAFETY: as above.
        unsafe { made.densities(&a, KNOWN, pairs - 1) };
        let so_far = SoFar::kept(KNOWN);
        first = next_first(so_far.first);
        // SAFETY: all components were added.
        unsafe { so_far.finish(&a) };
    }
}

/// Products with the `BLOCK`th 32 rows of two components, left in `sums`: nothing is multiplied past the diagonal, and the tensor
/// cores add up 64 terms at most. `between` is called when some were formed.
#[inline(always)]
fn products<const BLOCK: usize>(
    [sums, others]: &mut [[f32; 32]; 2],
    left: &Left<WORDS>,
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
        // Steps have two cores each.
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

/// Sends for the `block`th 32 rows of a pair of components' factors, and before the first for what else the pair has; all threads of the
/// thread block do it.
#[inline(always)]
unsafe fn send(a: &Joint, to: u32, pair: u32, block: usize) {
    // Found anew, so that no registers hold what is made of it, for each block something else.
    let (blocks, pair) = (crate::em::wgmma::full::blocks(device::unknown(a.d)), device::unknown(pair));
    let (bytes, t) = (block_bytes(block as u32), thread::thread_idx_x_anew());
    let own = (pair as u64 * pair_bytes(blocks, false) as u64) as usize + 16 * t as usize;
    let own = a.operands.cast::<u8>().wrapping_add(own);
    each(2, |half| {
        let from = own.wrapping_add((factors_at(block as u32) + half as u32 * factors_at(blocks)) as usize);
        let to = to + half as u32 * bytes + 16 * t;
        each((bytes / (16 * THREADS)) as usize, |i| {
            let by = i as u32 * 16 * THREADS;
            // SAFETY: the caller's promise.
            unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
        });
    });
    if block == 0 && 16 * t < ends_bytes(blocks) {
        // Fewer than there are threads, 16 bytes each.
        let to = ends_at(pair % 2) + 16 * t;
        // SAFETY: as above.
        unsafe { copies::send(to, own.wrapping_add(offsets_at(blocks, false) as usize)) };
    }
}

const _: () = assert!(ends_bytes(WIDE) <= 16 * THREADS && block_bytes(0).is_multiple_of(16 * THREADS) && WIDE == 6);
