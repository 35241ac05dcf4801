//! Log joint densities of a chunk of rows to base 2, what rows are to be normalised with, and their columns as halves.
//!
//! A block takes 256 rows, a warpgroup 64 of them, as left operands in registers. Factors pass by in shared memory, four
//! components at a time: with as many on their way, a barrier for each four leaves the warpgroups room to get out of step, so that one
//! squares what it has while others multiply.

use super::super::super::halves::operand::EXPONENTIAL;
use super::super::super::lanes::{larger, quad};
use super::super::super::scores::slices::across;
use super::super::super::state::stopped;
use super::{CORE, ROWS, columns, component_bytes, factor_bytes, factor_rows, groups, pair, set_pair, word_of_rows};
use crate::Real;
use crate::device::mma::{stores_before_products, to_halves};
use crate::device::warpgroup::{Cores, Sums as _};
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::layout::TILE_ROWS;
use crate::math::{exp2_f32, log2_f32, reciprocal_f32};

kernels! {
    /// Any grid in `x`; a block takes 256 rows at a time.
    Joint {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions, at most [`COLUMNS`](super::COLUMNS).
        d: u32,
        /// [`Full::components`](super::Full::components).
        components: u32,
        /// `(d,)`: of columns; powers of two.
        scales: *const f32,
        /// [`Full::operands`](super::Full::operands), 16-byte aligned.
        operands: *const u32,
        /// [`Full::column_words`](super::Full::column_words), written: for each 64 rows column by column, in the order of
        /// `word_of_rows`.
        columns: *mut u32,
        /// `(ceil(n/64), components, 64)`, written.
        joint: *mut f32,
        /// `(ceil(n/64), 2, 64)`, written: largest densities, then what powers of two less that are to be multiplied with for
        /// responsibilities as halves: 0 past the last row.
        normalisers: *mut f32,
        /// [`likelihoods`](crate::fused::large::likelihoods), written: Σ ln p(x) of each sixteen rows.
        likelihoods: *mut f64,
    }
    /// Up to 64 columns.
    warpgroups_joint_64 => body::<1>, shared_bytes, threads;
    /// Up to 128 columns.
    warpgroups_joint_128 => body::<2>, shared_bytes, threads;
}

/// Threads of a block.
pub const THREADS: u32 = 512;

/// Warpgroups of a block, each with 64 rows.
const WARPGROUPS: u32 = THREADS / (4 * WARP);

/// Components that pass by together: one for each lane of a row.
const TOGETHER: u32 = 4;

/// Bytes of shared memory: those that are in use, and those on their way.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) const fn shared_len(d: u32) -> u64 {
    (2 * TOGETHER * component_bytes(d)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Joint) -> u64 {
    shared_len(a.d)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Joint) -> u32 {
    THREADS
}

/// What is less than every density, and finite, so that a difference to −∞ is a number.
const LOWEST: f32 = -3e38;

/// Left operands of a lane's two rows: of each 64 columns four steps.
type Left<const H: usize> = [[u32; 16]; H];

/// The most columns of a kernel.
const fn most_columns(halves: usize) -> u32 {
    64 * halves as u32
}

/// The kernel for `H` times 64 columns.
///
/// # Safety
/// As the fields of [`Joint`] say.
#[inline(always)]
unsafe fn body<const H: usize>(a: Joint) {
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let size = const { component_bytes(most_columns(H)) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let (t, me) = (lane % 4, (me / 4, me % 4));
    let (groups, stages) = (groups(a.n) as u32, a.components / TOGETHER);
    let mut first = thread::block_idx_x() * WARPGROUPS;
    if first >= groups || stages == 0 {
        return;
    }
    // SAFETY: components that there are, here and below.
    each(TOGETHER as usize, |c| unsafe { send::<H>(&a, 0, 0, c) });
    let mut slot = 0;
    let mut sums = [0.0; 32];
    while first < groups {
        let group = first + me.0;
        let mut left: Left<H> = [[0; 16]; H];
        if group < groups {
            // SAFETY: rows that there are.
            unsafe { rows::<H>(&a, group, me.1, lane, &mut left) };
        }
        first += thread::grid_dim_x() * WARPGROUPS;
        let mut so_far = SoFar { top: [LOWEST; 2], sum: [0.0; 2] };
        let mut stage = 0;
        while stage < stages {
            copies::arrive();
            stores_before_products();
            // What each thread waited for is there for all, and what the other half held is read by none any more.
            thread::sync_threads();
            let (here, there) = (slot * TOGETHER * size, (1 - slot) * TOGETHER * size);
            slot = 1 - slot;
            let next = if stage + 1 < stages { stage + 1 } else { 0 };
            let more = next > 0 || first < groups;
            let mut norms = [[0.0; 4]; 2];
            each(TOGETHER as usize, |c| {
                let at = here + c as u32 * size;
                let offsets = at + factor_bytes(most_columns(H)) + 16 * t;
                let mut norm = [0.0; 2];
                sums.four_steps(&left[0], Cores { at, terms: CORE, others: 8 * CORE }, true);
                // Behind a product, so that others multiply meanwhile; and early, so that all are there at the next barrier.
                if c < 2 && more {
                    // SAFETY: as above.
                    each(2, |i| unsafe { send::<H>(&a, there, next, 2 * c + i) });
                }
                add_squares(&sums, offsets, &mut norm);
                if H == 2 {
                    let below = |terms: u32| Cores { at: at + (64 + terms) * CORE, terms: CORE, others: 16 * CORE };
                    sums.four_steps(&left[0], below(0), true);
                    sums.four_steps(&left[H - 1], below(8), false);
                    add_squares(&sums, offsets + 4 * 64, &mut norm);
                }
                each(2, |row| norms[row][c] = norm[row]);
            });
            let scalars = here + t * size + factor_bytes(most_columns(H)) + 4 * factor_rows(most_columns(H));
            let both = Shared::<f64>::at(scalars).load(0).to_bits();
            let [constant, by] = [both as u32, (both >> 32) as u32].map(f32::from_bits);
            let mut joint = [0.0; 2];
            each(2, |row| joint[row] = Real::fma(by, across::<4>(norms[row], lane), constant));
            so_far.add(joint);
            if group < groups {
                let component = (group * a.components + TOGETHER * stage + t) as u64;
                let row = 16 * me.1 + lane / 4 * 2;
                // SAFETY: rows and a component of this lane's.
                unsafe { set_pair(a.joint, component * ROWS as u64 + row as u64, joint) };
            }
            stage += 1;
        }
        // SAFETY: all components were added.
        unsafe { so_far.finish(&a, group, me.1, lane) };
    }
}

/// Sends for the `c`th component of a stage, into a half of shared memory; all threads of the block do it.
#[inline(always)]
unsafe fn send<const H: usize>(a: &Joint, half: u32, stage: u32, c: usize) {
    let size = const { component_bytes(most_columns(H)) };
    let t = thread::thread_idx_x_anew();
    let before = (stage * TOGETHER + c as u32) as u64 * size as u64;
    let from = a.operands.cast::<u8>().wrapping_add(before as usize + 16 * t as usize);
    let to = half + c as u32 * size + 16 * t;
    each(size.div_ceil(16 * THREADS) as usize, |i| {
        let by = i as u32 * 16 * THREADS;
        // Whole rounds of all threads, which the compiler knows.
        if by + 16 * THREADS <= size || by + 16 * t < size {
            // SAFETY: the caller's promise.
            unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
        }
    });
}

/// Takes in a lane's rows, `2g` and `2g+1` of its warp's sixteen; what it has of the columns is written as the moments want it.
#[inline(always)]
unsafe fn rows<const H: usize>(a: &Joint, group: u32, me: u32, lane: u32, left: &mut Left<H>) {
    let (g, t) = (lane / 4, lane % 4);
    let row = 16 * me + 2 * g;
    let before = (group / 2) as u64 * (a.d * TILE_ROWS) as u64 + (group % 2 * ROWS + row) as u64;
    let to = a.columns.wrapping_add((group as u64 * (columns(a.d) * ROWS / 2) as u64) as usize);
    let filled = 16 * a.d.div_ceil(16);
    let word = |column: u32| (column * (ROWS / 2) + word_of_rows(column, row)) as u64;
    each(4 * H, |step| {
        if step == 4 {
            // Keeps the other half from being read ahead, into registers of which there are none left.
            warp::sync_warp();
        }
        let column = |q: usize| 16 * step as u32 + 2 * t + (q % 2 + q / 2 * 8) as u32;
        let mut v = [[0.0; 2]; 4];
        each(4, |q| {
            let j = column(q);
            if j < a.d {
                // SAFETY: a column, whose tile is filled up past the last row.
                let (both, scale) =
                    unsafe { (pair(a.x, before + (j * TILE_ROWS) as u64), device::load(a.scales, j as u64)) };
                v[q] = both.map(|v| v * scale);
            }
        });
        each(4, |i| {
            let (row, q) = (i % 2, i / 2 * 2);
            left[step / 4][step % 4 * 4 + i] = to_halves(v[q][row], v[q + 1][row]);
        });
        if 16 * (step as u32) < filled {
            // SAFETY: columns of these rows, which this lane alone has.
            each(4, |q| unsafe { device::store(to, word(column(q)), to_halves(v[q][0], v[q][1])) });
        }
    });
    each(4, |i| {
        let column = 4 * i as u32 + t;
        let one = if column == 0 { 1.0 } else { 0.0 };
        // SAFETY: as above.
        unsafe { device::store(to, word(filled + column), to_halves(one, one)) };
    });
}

/// Adds the squares of a lane's part of 64 rows of `W(x − μ)`.
#[inline(always)]
fn add_squares(sums: &[f32; 32], offsets: u32, norm: &mut [f32; 2]) {
    each(4, |two| {
        let four = Shared::<f32>::at(offsets + 64 * two as u32).load4(0);
        each(4, |i| {
            each(2, |row| {
                let v = sums[4 * (2 * two + i / 2) + 2 * row + i % 2] + four[i];
                norm[row] = Real::fma(v, v, norm[row]);
            });
        });
    });
}

/// What is known of a lane's two rows so far, from every fourth component.
struct SoFar {
    /// Largest density of each row.
    top: [f32; 2],
    /// Σ 2^(density − top).
    sum: [f32; 2],
}

impl SoFar {
    #[inline(always)]
    fn add(&mut self, joint: [f32; 2]) {
        each(2, |row| {
            let top = larger(self.top[row], joint[row]);
            let more = exp2_f32(joint[row] - top);
            self.sum[row] = Real::fma(self.sum[row], exp2_f32(self.top[row] - top), more);
            self.top[row] = top;
        });
    }

    /// Normalisers and likelihoods.
    #[inline(always)]
    unsafe fn finish(self, a: &Joint, group: u32, me: u32, lane: u32) {
        let (g, t) = (lane / 4, lane % 4);
        let row = 16 * me + 2 * g;
        let mut likelihood = 0.0;
        let (mut tops, mut shares) = ([0.0; 2], [0.0; 2]);
        each(2, |odd| {
            let top = quad(self.top[odd], larger);
            let sum = quad(self.sum[odd] * exp2_f32(self.top[odd] - top), |a, b| a + b);
            let there = group as u64 * ROWS as u64 + ((row + odd as u32) as u64) < a.n;
            tops[odd] = top;
            // Not a number where a density is: it shows in the sums.
            shares[odd] = if there { EXPONENTIAL * reciprocal_f32(sum) } else { 0.0 };
            likelihood += if there { top.to_f64() + log2_f32(sum).to_f64() } else { 0.0 };
        });
        each(3, |by| likelihood += warp::shuffle_xor(likelihood, 4 << by));
        if (group as u64) < groups(a.n) {
            let at = group as u64 * (2 * ROWS) as u64 + row as u64;
            // SAFETY: rows of this lane's, and of the warp's sixteen the first lane's.
            unsafe {
                if t < 2 {
                    set_pair(a.normalisers, at + (t * ROWS) as u64, if t == 0 { tops } else { shares });
                }
                if lane == 0 {
                    device::store(a.likelihoods, (4 * group + me) as u64, likelihood * core::f64::consts::LN_2);
                }
            }
        }
    }
}
