//! What [`joint`](super::joint) leaves, of more than 128 columns.
//!
//! Factors pass by 32 rows of two components at a time, as many as shared memory holds twice, with a barrier for each. Left operands take so
//! many registers that a block has 128 rows, of heads alone 192.

use super::super::super::state::stopped;
use super::joint::{self, Joint, LOWEST, Mine, add_squares};
use super::joint_halves::{self, Left, Made, SoFar, steps};
use super::{CORE, factors_at, groups, halves, offsets_at, pair_bytes, rows_apart};
use crate::device::mma::stores_before_products;
use crate::device::warpgroup::{self, Cores, LeftOfHalves, Sums as _};
use crate::device::{self, Shared, WARP, copies, thread};
use crate::each::each;

/// Threads of a block: as many warpgroups, each with 64 rows, as there are registers for.
pub(super) const fn threads_of_block(one: bool) -> u32 {
    if one { 384 } else { 256 }
}

/// Bytes of half of what 32 rows of two components' factors go through: those in use, or those on their way.
const fn slot_bytes(blocks: u32, one: bool) -> u32 {
    halves(one) * block_bytes(blocks - 1)
}

/// Bytes of the heads of the `block`th 32 rows of two components' factors.
const fn block_bytes(block: u32) -> u32 {
    factors_at(block + 1) - factors_at(block)
}

/// Bytes before two components' offsets, constants and multipliers, in use or on their way.
const fn ends_at(blocks: u32, one: bool, which: u32) -> u32 {
    2 * slot_bytes(blocks, one) + which * ends_bytes(blocks)
}

const fn ends_bytes(blocks: u32) -> u32 {
    pair_bytes(blocks, true) - offsets_at(blocks, true)
}

/// Bytes before what each thread knows of its row, for which there are no registers.
const fn known_at(blocks: u32, one: bool) -> u32 {
    ends_at(blocks, one, 2)
}

/// Bytes of shared memory of the kernel for so many blocks.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn shared_len(blocks: u32, one: bool) -> u64 {
    (known_at(blocks, one) + 16 * threads_of_block(one)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes<const B: u32, const ONE: bool>(_: &Joint) -> u64 {
    shared_len(B, ONE)
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn threads<const ONE: bool>(_: &Joint) -> u32 {
    threads_of_block(ONE)
}

/// The kernel for `B` blocks of 32 columns or one fewer, whose left operands have `W` words; with `ONE` of heads alone.
///
/// # Safety
/// As the fields of [`Joint`] say.
#[inline(always)]
pub(super) unsafe fn body<const B: usize, const W: usize, const ONE: bool>(a: Joint) {
    const { assert!(W == 8 * B) };
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (slot, known) = const { (slot_bytes(B as u32, ONE), known_at(B as u32, ONE)) };
    let warpgroups = const { threads_of_block(ONE) / (4 * WARP) };
    let (groups, pairs) = (groups(a.n) as u32, a.components / 2);
    let mut first = thread::block_idx_x() * warpgroups;
    if first >= groups || pairs == 0 {
        return;
    }
    let next_first = |first: u32| first + thread::grid_dim_x_anew() * warpgroups;
    let blocks = super::blocks(a.d);
    // SAFETY: components that there are, here and below.
    unsafe { send::<B, ONE>(&a, 0, 0, 0) };
    let (mut sums, mut here) = ([[0.0; 32]; 2], 0);
    while first < groups {
        let mut left = [[0; W]; 2];
        let mine = Mine::of(first);
        if mine.group < groups {
            // SAFETY: rows that there are.
            unsafe {
                if ONE {
                    joint::rows::<B, W>(&a, mine, &mut left[0]);
                } else {
                    joint_halves::rows::<B, W>(&a, mine, &mut left);
                }
            }
        }
        SoFar { top: LOWEST, sum: 0.0, first }.keep(known);
        let (mut made, mut pair) = (Made { norms: [0.0; 4], scalars: 0 }, 0);
        while pair < pairs {
            // Of the next components, if any pass by yet.
            let more = |next: u32| next > 0 || next_first(SoFar::kept(known).first) < groups;
            let ends = ends_at(B as u32, ONE, pair % 2);
            let next = if pair + 1 < pairs { pair + 1 } else { 0 };
            macro_rules! stages {
                ($($block:literal)*) => {
                    // That it is a branch keeps squares from being put off beyond the products that follow, for which there are no
                    // registers.
                    $(if $block < B && $block < blocks {
                        let last = $block + 1 == B || ($block + 2 == B && blocks < B as u32);
                        copies::arrive();
                        stores_before_products();
                        // What each thread waited for is there for all, and the other half is read by none any more.
                        thread::sync_threads();
                        let there = slot - here;
                        products::<W, ONE, $block>(&mut sums, &left, here, || {
                            // Behind a product, so that others multiply meanwhile.
                            if !last {
                                // SAFETY: as above.
                                unsafe { send::<B, ONE>(&a, there, pair, $block + 1) };
                            } else if more(next) {
                                // SAFETY: as above.
                                unsafe { send::<B, ONE>(&a, there, next, 0) };
                            }
                        });
                        here = there;
                        if $block == 0 {
                            if pair > 0 {
                                // SAFETY: components that there are.
                                unsafe { made.densities(&a, known, pair - 1) };
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
            stages!(0 1 2 3 4 5 6 7);
            let scalars = ends + 4 * 64 * blocks + 8 * (thread::thread_idx_x_anew() % 2);
            made.scalars = Shared::<f64>::at(scalars).load(0).to_bits();
            pair += 1;
        }
        // SAFETY: as above.
        unsafe { made.densities(&a, known, pairs - 1) };
        let so_far = SoFar::kept(known);
        first = next_first(so_far.first);
        // SAFETY: all components were added.
        unsafe { so_far.finish(&a) };
    }
}

/// Steps of sixteen terms that the tensor cores add up, of two halves. What rounding towards zero takes from a log density grows with
/// the columns, by 1e-5 for 256 with four steps; with two a little more than half of that is lost.
const fn summed(words: usize) -> usize {
    if words <= 48 { 4 } else { 2 }
}

/// Products with the `BLOCK`th 32 rows of two components, left in `sums`: nothing is multiplied past the diagonal. `between` is called
/// when some were formed.
#[inline(always)]
fn products<const W: usize, const ONE: bool, const BLOCK: usize>(
    [sums, others]: &mut [[f32; 32]; 2],
    left: &Left<W>,
    at: u32,
    mut between: impl FnMut(),
) {
    let all = 2 * (BLOCK + 1);
    let tails = block_bytes(BLOCK as u32);
    let summed = if ONE { 4 } else { const { summed(W) } };
    each(W / 4, |i| {
        let first = summed * i;
        if first >= all {
            return;
        }
        // Steps have two cores each.
        let right = Cores { at: at + 2 * CORE * first as u32, terms: CORE, others: rows_apart(BLOCK as u32) };
        let (to, four) = (if first == 0 { &mut *sums } else { &mut *others }, summed == 4 && first + 4 <= all);
        match (ONE, four) {
            (true, true) => {
                let mut words = [0; 16];
                each(16, |i| words[i] = left[0][4 * first + i]);
                sums.four_steps(&words, right, first == 0);
            }
            (true, false) => warpgroup::Left::times(&steps::<2, W>(left, first)[0], to, right),
            (false, true) => LeftOfHalves::times(&steps::<4, W>(left, first), to, right, tails),
            (false, false) => LeftOfHalves::times(&steps::<2, W>(left, first), to, right, tails),
        }
        if first > 0 && !(ONE && four) {
            each(32, |i| sums[i] += others[i]);
        }
        if first == 0 {
            between();
        }
    });
}

/// Sends for the `block`th 32 rows of a pair of components' factors, and before the first for what else the pair has; all threads of the
/// thread block do it.
#[inline(always)]
unsafe fn send<const B: usize, const ONE: bool>(a: &Joint, to: u32, pair: u32, block: usize) {
    let round = const { 16 * threads_of_block(ONE) };
    // Found anew, so that no registers hold what is made of it, for each block something else.
    let (blocks, pair) = (super::blocks(device::unknown(a.d)), device::unknown(pair));
    let (bytes, t) = (block_bytes(block as u32), thread::thread_idx_x_anew());
    let own = (pair as u64 * pair_bytes(blocks, ONE) as u64) as usize + 16 * t as usize;
    let own = a.operands.cast::<u8>().wrapping_add(own);
    each(halves(ONE) as usize, |half| {
        let from = own.wrapping_add((factors_at(block as u32) + half as u32 * factors_at(blocks)) as usize);
        let to = to + half as u32 * bytes + 16 * t;
        each(bytes.div_ceil(round) as usize, |i| {
            let by = i as u32 * round;
            // Whole rounds of all threads, which the compiler knows.
            if by + round <= bytes || by + 16 * t < bytes {
                // SAFETY: the caller's promise.
                unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
            }
        });
    });
    if block == 0 && 16 * t < ends_bytes(blocks) {
        // Fewer than there are threads, 16 bytes each.
        let to = ends_at(B as u32, ONE, pair % 2) + 16 * t;
        // SAFETY: as above.
        unsafe { copies::send(to, own.wrapping_add(offsets_at(blocks, ONE) as usize)) };
    }
}

const _: () = assert!(ends_bytes(8) <= 16 * threads_of_block(true) && ends_bytes(8) <= 16 * threads_of_block(false));
