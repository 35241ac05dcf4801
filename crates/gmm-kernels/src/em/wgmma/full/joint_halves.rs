//! As [`joint`](crate::em::wgmma::full::joint), in split fp16.
//!
//! Left operands, hi and lo parts, take twice the registers, so a block has 192 rows, or 256 with up to 64 columns.
//! Factors are streamed two components at a time, while the next two are prefetched: a barrier for each two leaves as
//! much slack as one for each four of hi parts only.

use crate::Real;
use crate::device::mma::stores_before_products;
use crate::device::warpgroup::{Cores, LeftOfHalves};
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::chunked::half_precision::operand::{EXPONENTIAL, two};
use crate::em::lanes::{across, larger};
use crate::em::state::stopped;
use crate::em::wgmma::full::joint::{Joint, LOWEST, LaneRows, add_squares};
use crate::em::wgmma::full::{
    CORE, ROWS, columns, factors_at, groups, offsets_at, pair, pair_bytes, place_of_rows, rows_apart, scalars_at,
    set_pair,
};
use crate::layout::TILE_ROWS;
use crate::math::{exp2_f32, ln_f64, reciprocal_f32};

/// Threads per block: as many warpgroups, each with 64 rows, as registers allow.
pub(crate) const fn threads_of_block(blocks: u32) -> u32 {
    if blocks <= 2 { 512 } else { 384 }
}

/// Bytes of shared memory: the two components in use, the two prefetched ones, and each thread's running state.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(blocks: u32) -> u64 {
    (known_at(blocks) + 16 * threads_of_block(blocks)) as u64
}

/// Offset of each thread's running state of its row, for which registers do not suffice.
const fn known_at(blocks: u32) -> u32 {
    2 * pair_bytes(blocks, false)
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared_bytes(a: &Joint) -> u64 {
    shared_len(crate::em::wgmma::full::blocks(a.d))
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn threads(a: &Joint) -> u32 {
    threads_of_block(crate::em::wgmma::full::blocks(a.d))
}

/// Hi and lo parts of a lane's two rows, `W` words each: eight for each 32 columns of a kernel.
pub(crate) type LeftOperand<const W: usize> = [[u32; W]; 2];

/// Words of the left operands in kernels for up to 128 columns.
const WORDS: usize = 32;

/// Body of the kernel for `B` blocks of 32 columns.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Joint`] document.
#[inline(always)]
pub(crate) unsafe fn body<const B: usize>(a: Joint) {
    // SAFETY: `state` is null or a loop's state, as `Joint` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (size, known) = const { (pair_bytes(B as u32, false), known_at(B as u32)) };
    let warpgroups = const { threads_of_block(B as u32) / (4 * WARP) };
    let (groups, pairs) = (groups(a.n) as u32, a.components / 2);
    let mut first = thread::block_idx_x() * warpgroups;
    if first >= groups || pairs == 0 {
        return;
    }
    let next_first = |first: u32| first + thread::grid_dim_x_anew() * warpgroups;
    // SAFETY: pair 0 exists, since `pairs > 0`.
    each(B - 1, |part| unsafe { send::<B>(&a, 0, 0, part) });
    let mut sums = [[0.0; 32]; 2];
    while first < groups {
        let mut left = [[0; WORDS]; 2];
        let mine = LaneRows::of(first);
        if mine.group < groups {
            // SAFETY: `mine.group < groups`, so the rows exist.
            unsafe { rows::<B, WORDS>(&a, mine, &mut left) };
        }
        SoFar { top: LOWEST, sum: 0.0, first }.keep(known);
        let (mut made, mut pair) = (PairResults { norms: [0.0; 4], scalars: 0 }, 0);
        while pair < pairs {
            copies::arrive();
            stores_before_products();
            // Makes all threads' copies visible, and ensures that no thread still reads the other buffer.
            thread::sync_threads();
            // The number of pairs is even (components are a multiple of eight), so pair 0 always uses buffer 0.
            let [here, there] = [0, 1].map(|odd| (pair + odd) % 2 * size);
            let first = SoFar::kept(known).first;
            let next = if pair + 1 < pairs { pair + 1 } else { 0 };
            let more = next > 0 || next_first(first) < groups;
            each(B, |block| {
                let products = products(&mut sums, &left, here, const { factors_at(B as u32) }, block);
                if block == 0 {
                    // Also after a product: at the end, all warps would do it at the same time, while no products run.
                    if pair > 0 {
                        // SAFETY: `pair > 0`, so the previous pair exists.
                        unsafe { made.densities(&a, known, pair - 1) };
                    }
                    made.norms = [0.0; 4];
                }
                let offsets =
                    here + offsets_at(B as u32, false) + 4 * 64 * block as u32 + 16 * (thread::thread_idx_x_anew() % 4);
                each(2, |which| {
                    let mut norm = [made.norms[which], made.norms[2 + which]];
                    add_squares(&products, which, offsets, &mut norm);
                    each(2, |row| made.norms[2 * row + which] = norm[row]);
                });
                // After products, so that other warps compute meanwhile, and early, so that the copies arrive before
                // the next barrier. The branch also keeps the compiler from deferring squares beyond the following
                // products, for which there are no registers.
                if block + 1 < B && more {
                    // SAFETY: `next < pairs`, and `block` is below `B − 1`.
                    unsafe { send::<B>(&a, there, next, block) };
                }
            });
            let which = thread::thread_idx_x_anew() % 2;
            made.scalars = Shared::<f64>::at(here + scalars_at(B as u32, false) + 8 * which).load(0).to_bits();
            pair += 1;
        }
        // SAFETY: `pairs > 0`, so the last pair exists.
        unsafe { made.densities(&a, known, pairs - 1) };
        let so_far = SoFar::kept(known);
        first = next_first(so_far.first);
        // SAFETY: all components were added; `finish` writes rows of existing groups only.
        unsafe { so_far.finish(&a) };
    }
}

/// Results for two components before they become densities: each of a row's four lanes finishes one row and one
/// component.
pub(crate) struct PairResults {
    /// A lane's part of the squared norms, those of its first row first.
    pub(crate) norms: [f32; 4],
    /// Constant and multiplier of the lane's component.
    pub(crate) scalars: u64,
}

impl PairResults {
    /// Adds the densities of a pair to the running state and writes them.
    #[inline(always)]
    pub(crate) unsafe fn densities(&self, a: &Joint, known: u32, pair: u32) {
        let so_far = SoFar::kept(known);
        let mine = LaneRows::of(so_far.first);
        let (row, which) = (mine.lane / 2 % 2, mine.lane % 2);
        let [constant, by] = [self.scalars as u32, (self.scalars >> 32) as u32].map(f32::from_bits);
        let joint = Real::fma(by, across::<4>(self.norms, mine.lane), constant);
        so_far.and(joint).keep(known);
        if (mine.group as u64) < groups(a.n) {
            let component = (mine.group * a.components + 2 * pair + which) as u64;
            // SAFETY: only this lane writes this row of this component.
            unsafe { device::store(a.joint, component * ROWS as u64 + (mine.row() + row) as u64, joint) };
        }
    }
}

/// Products with the `block`th 32 rows of two components. Nothing past the diagonal is multiplied, and the tensor cores
/// sum at most 64 terms at a time.
#[inline(always)]
fn products(
    [sums, others]: &mut [[f32; 32]; 2],
    left: &LeftOperand<WORDS>,
    at: u32,
    tails: u32,
    block: usize,
) -> [f32; 32] {
    let of = block as u32;
    let right = Cores { at: at + factors_at(of), terms: CORE, others: rows_apart(of) };
    if block == 0 {
        steps::<2, WORDS>(left, 0).times(sums, right, tails);
    } else {
        steps::<4, WORDS>(left, 0).times(sums, right, tails);
    }
    let mut out = *sums;
    if block >= 2 {
        // A step has two core matrices.
        let rest = Cores { at: right.at + 8 * CORE, ..right };
        if block == 2 {
            steps::<2, WORDS>(left, 4).times(others, rest, tails);
        } else {
            steps::<4, WORDS>(left, 4).times(others, rest, tails);
        }
        each(32, |i| out[i] += others[i]);
    }
    out
}

/// `S` steps of a left operand, from `first` on.
#[inline(always)]
pub(crate) fn steps<const S: usize, const W: usize>(left: &LeftOperand<W>, first: usize) -> [[[u32; 4]; S]; 2] {
    let mut out = [[[0; 4]; S]; 2];
    each(2, |half| each(S, |s| each(4, |i| out[half][s][i] = left[half][4 * (first + s) + i])));
    out
}

/// Starts the copy of part `part` of `B − 1` of a pair of components' coefficients; all threads of the block call it.
#[inline(always)]
unsafe fn send<const B: usize>(a: &Joint, to: u32, pair: u32, part: usize) {
    let (size, round) = const { (pair_bytes(B as u32, false), 16 * threads_of_block(B as u32)) };
    let t = thread::thread_idx_x_anew();
    let from = a.operands.cast::<u8>().wrapping_add((pair as u64 * size as u64) as usize + 16 * t as usize);
    let to = to + 16 * t;
    each(size.div_ceil(round) as usize, |i| {
        let by = i as u32 * round;
        // Full rounds of all threads, known at compile time.
        if i % (B - 1) == part && (by + round <= size || by + 16 * t < size) {
            // SAFETY: the caller passes a pair that exists; `operands` has `size` bytes for each pair.
            unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
        }
    });
}

/// Loads a lane's rows, `2g` and `2g+1` of its warp's sixteen, and writes its part of the columns in the layout of the
/// moments.
#[inline(always)]
pub(crate) unsafe fn rows<const B: usize, const W: usize>(a: &Joint, mine: LaneRows, left: &mut LeftOperand<W>) {
    let (group, row, t, d) = (mine.group, mine.row(), mine.lane % 4, a.d);
    // Opaque, so that no registers hold values derived from it.
    let anew = device::unknown(d);
    let before = (group / 2) as u64 * (d * TILE_ROWS) as u64 + (group % 2 * ROWS + row) as u64;
    let to = a.columns.cast::<f32>().wrapping_add((group as u64 * (columns(anew) * ROWS) as u64) as usize);
    let filled = 16 * anew.div_ceil(16);
    let place = |column: u32| (column * ROWS + place_of_rows(column, row)) as u64;
    each(2 * B, |step| {
        if step > 0 && step % 2 == 0 {
            // Stops the compiler from hoisting the following loads above this point; no registers are left for them.
            warp::sync_warp();
        }
        let column = |q: usize| 16 * step as u32 + 2 * t + (q % 2 + q / 2 * 8) as u32;
        let mut v = [[0.0; 2]; 4];
        each(4, |q| {
            // Loads without a branch, clamped to the last column: behind branches, one load would wait for another.
            let j = column(q).min(d - 1);
            // SAFETY: `j < d`, and the tile is padded past the last row.
            let (both, scale) =
                unsafe { (pair(a.x, before + (j * TILE_ROWS) as u64), device::load(a.scales, j as u64)) };
            v[q] = both.map(|v| if column(q) < d { v * scale } else { 0.0 });
        });
        each(4, |i| {
            let (row, q) = (i % 2, i / 2 * 2);
            let both = two(v[q][row], v[q + 1][row]);
            each(2, |half| left[half][4 * step + i] = both[half]);
        });
        if 16 * (step as u32) < filled {
            // SAFETY: columns of these rows, which only this lane writes.
            each(4, |q| unsafe { set_pair(to, place(column(q)), v[q]) });
        }
    });
    each(4, |i| {
        let column = 4 * i as u32 + t;
        let one = if column == 0 { 1.0 } else { 0.0 };
        // SAFETY: the columns of ones and zeros of these rows, which only this lane writes.
        unsafe { set_pair(to, place(filled + column), [one; 2]) };
    });
}

/// Running maximum and sum of a lane's row, over every second component.
pub(crate) struct SoFar {
    /// Largest density.
    pub(crate) top: f32,
    /// Σ 2^(density − top).
    pub(crate) sum: f32,
    /// First of the block's groups of rows.
    pub(crate) first: u32,
}

impl SoFar {
    #[inline(always)]
    fn place(known: u32) -> Shared<f32> {
        Shared::at(known + 16 * thread::thread_idx_x_anew())
    }

    #[inline(always)]
    pub(crate) fn keep(self, known: u32) {
        Self::place(known).store4(0, [self.top, self.sum, f32::from_bits(self.first), 0.0]);
    }

    #[inline(always)]
    pub(crate) fn kept(known: u32) -> Self {
        let [top, sum, first, _] = Self::place(known).load4(0);
        Self { top, sum, first: first.to_bits() }
    }

    /// Adds one more component. While the maximum does not change, the sum is not rescaled: errors of powers would
    /// accumulate.
    #[inline(always)]
    fn and(self, joint: f32) -> Self {
        let by = exp2_f32(f32::from_bits((joint - self.top).to_bits() | 1 << 31));
        let above = joint > self.top;
        let (sum, more) = if above { (self.sum * by, 1.0) } else { (self.sum, by) };
        Self { top: if above { joint } else { self.top }, sum: sum + more, ..self }
    }

    /// Writes the normalisers and the log-likelihoods.
    #[inline(always)]
    pub(crate) unsafe fn finish(self, a: &Joint) {
        let mine = LaneRows::of(self.first);
        let (group, row) = (mine.group, mine.row() + mine.lane / 2 % 2);
        let top = larger(self.top, warp::shuffle_xor(self.top, 1));
        let sum = self.sum * exp2_f32(self.top - top);
        let sum = sum + warp::shuffle_xor(sum, 1);
        let there = group as u64 * ROWS as u64 + (row as u64) < a.n;
        // NaN if a density is NaN: it reaches the sums, and the host takes another path.
        let share = if there { EXPONENTIAL * reciprocal_f32(sum) } else { 0.0 };
        let first = mine.lane.is_multiple_of(2);
        let log = top.to_f64() * core::f64::consts::LN_2 + ln_f64(sum.to_f64());
        let mut likelihood = if there && first { log } else { 0.0 };
        each(4, |by| likelihood += warp::shuffle_xor(likelihood, 2 << by));
        if (group as u64) < groups(a.n) {
            let at = group as u64 * (2 * ROWS) as u64 + row as u64;
            // SAFETY: two lanes write one row, each one element of it; only the first lane writes the log-likelihood of
            // the warp's sixteen.
            unsafe {
                if first {
                    device::store(a.normalisers, at, top);
                } else {
                    device::store(a.normalisers, at + ROWS as u64, share);
                }
                if mine.lane == 0 {
                    device::store(a.likelihoods, (4 * group + mine.warp) as u64, likelihood);
                }
            }
        }
    }
}
