//! Log joint densities of a chunk of rows to base 2, the rows' normalisers, and their columns in fp16.
//!
//! A block takes 256 rows, 64 per warpgroup, as left operands in registers. Factors are streamed through shared memory,
//! four components at a time, while the next four are prefetched. One barrier per four components lets the warpgroups
//! drift apart, so that one squares its results while others run products.

use crate::Real;
use crate::device::mma::{stores_before_products, to_halves};
use crate::device::warpgroup::{self, Cores};
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::chunked::half_precision::operand::EXPONENTIAL;
use crate::em::lanes::{across, larger, quad};
use crate::em::state::stopped;
use crate::em::wgmma::full::{
    CORE, ROWS, columns, factors_at, groups, joint_halves, joint_wide, offsets_at, pair, pair_bytes, rows_apart,
    scalars_at, set_pair, word_of_rows,
};
use crate::layout::TILE_ROWS;
use crate::math::{exp2_f32, log2_f32, reciprocal_f32};

kernels! {
    /// Any grid size in `x`; a block processes 64 rows per warpgroup at a time.
    Joint {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions, at most [`columns_at_most`](crate::em::wgmma::full::columns_at_most).
        d: u32,
        /// [`Full::components`](crate::em::wgmma::full::Full::components).
        components: u32,
        /// `(d,)`: scales of columns; powers of two.
        scales: *const f32,
        /// [`Full::operands`](crate::em::wgmma::full::Full::operands) words, 16-byte aligned.
        operands: *const u32,
        /// [`Full::column_words`](crate::em::wgmma::full::Full::column_words) words, written: for each 64 rows column
        /// by column, in the order of `word_of_rows`, or in split fp16 of `place_of_rows`.
        columns: *mut u32,
        /// `(ceil(n/64), components, 64)`, written: log joint densities to base 2.
        joint: *mut f32,
        /// `(ceil(n/64), 2, 64)`, written: largest log densities, then the factor that turns 2^(log density − largest)
        /// into an fp16 responsibility; 0 past the last row.
        normalisers: *mut f32,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements, written: Σ ln p(x) of each
        /// sixteen rows.
        likelihoods: *mut f64,
    }
    /// Up to 64 columns.
    wgmma_joint_64 => body::<2>, shared_bytes, threads;
    /// Up to 96 columns.
    wgmma_joint_96 => body::<3>, shared_bytes, threads;
    /// Up to 128 columns.
    wgmma_joint_128 => body::<4>, shared_bytes, threads;
    /// Split fp16, up to 64 columns.
    wgmma_joint_halves_64 => joint_halves::body::<2>, joint_halves::shared_bytes, joint_halves::threads;
    /// Split fp16, up to 96 columns.
    wgmma_joint_halves_96 => joint_halves::body::<3>, joint_halves::shared_bytes, joint_halves::threads;
    /// Split fp16, up to 128 columns.
    wgmma_joint_halves_128 => joint_halves::body::<4>, joint_halves::shared_bytes, joint_halves::threads;
    /// Split fp16, up to 192 columns.
    wgmma_joint_halves_192 => joint_wide::body, joint_wide::shared_bytes, joint_wide::threads;
}

/// Threads per block.
pub const THREADS: u32 = 512;

/// Warpgroups per block, each with 64 rows.
const WARPGROUPS: u32 = THREADS / (4 * WARP);

/// Components streamed together: one per lane of a row. They come in pairs.
const TOGETHER: u32 = 4;
const PAIRS: u32 = TOGETHER / 2;

/// Bytes of shared memory: the components in use, the prefetched ones, and each thread's running state of its rows.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(blocks: u32) -> u64 {
    (known_at(blocks) + 16 * THREADS) as u64
}

/// Offset of the threads' running state.
const fn known_at(blocks: u32) -> u32 {
    2 * PAIRS * pair_bytes(blocks, true)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Joint) -> u64 {
    shared_len(crate::em::wgmma::full::blocks(a.d))
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Joint) -> u32 {
    THREADS
}

/// Below every density, and finite, so that its difference from −∞ is not NaN.
pub(crate) const LOWEST: f32 = -3e38;

/// Left operands of a lane's two rows: eight words for each 32 columns of a kernel.
type LeftOperand = [u32; 32];

/// Body of the kernel for `B` blocks of 32 columns.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Joint`] document.
#[inline(always)]
unsafe fn body<const B: usize>(a: Joint) {
    // SAFETY: `state` is null or a loop's state, as `Joint` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let size = const { pair_bytes(B as u32, true) };
    let (groups, stages) = (groups(a.n) as u32, a.components / TOGETHER);
    let mut first = thread::block_idx_x() * WARPGROUPS;
    if first >= groups || stages == 0 {
        return;
    }
    let next_first = |first: u32| first + thread::grid_dim_x_anew() * WARPGROUPS;
    // SAFETY: stage 0 exists, since `stages > 0`.
    each(PAIRS as usize, |pair| unsafe { send::<B>(&a, 0, 0, pair) });
    let (mut half, mut sums) = (0, [0.0; 32]);
    while first < groups {
        let mut left = [0; 32];
        let mine = LaneRows::of(first);
        if mine.group < groups {
            // SAFETY: `mine.group < groups`, so the rows exist.
            unsafe { rows::<B>(&a, mine, &mut left) };
        }
        SoFar { top: [LOWEST; 2], sum: [0.0; 2] }.keep::<B>();
        let mut stage = 0;
        while stage < stages {
            copies::arrive();
            stores_before_products();
            // Makes all threads' copies visible, and ensures that no thread still reads the other buffer.
            thread::sync_threads();
            let (here, there) = (half, PAIRS * size - half);
            half = there;
            let next = if stage + 1 < stages { stage + 1 } else { 0 };
            let more = next > 0 || next_first(first) < groups;
            let mine = LaneRows::of(first);
            let mut norms = [[0.0; 4]; 2];
            each(PAIRS as usize, |pair| {
                let at = here + pair as u32 * size;
                each(B, |block| {
                    products(&mut sums, &left, at, block);
                    // After a product, so that other warpgroups compute meanwhile; and early, so that the copies arrive
                    // before the next barrier.
                    if pair == 0 && block < PAIRS as usize && more {
                        // SAFETY: `next < stages`.
                        unsafe { send::<B>(&a, there, next, block) };
                    }
                    let offsets = at + offsets_at(B as u32, true) + 4 * 64 * block as u32 + 16 * (mine.lane % 4);
                    each(2, |which| {
                        let c = 2 * pair + which;
                        let mut norm = [norms[0][c], norms[1][c]];
                        add_squares(&sums, which, offsets, &mut norm);
                        each(2, |row| norms[row][c] = norm[row]);
                    });
                });
            });
            let t = mine.lane % 4;
            let scalars = here + t / 2 * size + scalars_at(B as u32, true) + t % 2 * 8;
            let both = Shared::<f64>::at(scalars).load(0).to_bits();
            let [constant, by] = [both as u32, (both >> 32) as u32].map(f32::from_bits);
            let mut joint = [0.0; 2];
            each(2, |row| joint[row] = Real::fma(by, across::<4>(norms[row], mine.lane), constant));
            SoFar::kept::<B>().and(joint).keep::<B>();
            if mine.group < groups {
                let component = (mine.group * a.components + TOGETHER * stage + t) as u64;
                // SAFETY: only this lane writes these rows of this component.
                unsafe { set_pair(a.joint, component * ROWS as u64 + mine.row() as u64, joint) };
            }
            stage += 1;
        }
        // SAFETY: all components were added; `finish` writes rows of existing groups only.
        unsafe { SoFar::kept::<B>().finish(&a, LaneRows::of(first)) };
        first = next_first(first);
    }
}

/// A lane's position in a block's rows; recomputed on each use, so that no registers hold it.
#[derive(Clone, Copy)]
pub(crate) struct LaneRows {
    /// Group of 64 rows, which may be past the last.
    pub(crate) group: u32,
    /// Index of the warp in its warpgroup.
    pub(crate) warp: u32,
    pub(crate) lane: u32,
}

impl LaneRows {
    /// Position of this thread in the block whose groups start at `first`.
    #[inline(always)]
    pub(crate) fn of(first: u32) -> Self {
        let t = thread::thread_idx_x_anew();
        Self { group: first + t / (4 * WARP), warp: t / WARP % 4, lane: t % WARP }
    }

    /// The first of the lane's two rows in the group.
    #[inline(always)]
    pub(crate) fn row(self) -> u32 {
        16 * self.warp + self.lane / 4 * 2
    }
}

/// Products with the `block`th 32 rows of two components; nothing past the diagonal is multiplied.
#[inline(always)]
fn products(sums: &mut [f32; 32], left: &LeftOperand, at: u32, block: usize) {
    let of = block as u32;
    let right = Cores { at: at + factors_at(of), terms: CORE, others: rows_apart(of) };
    match block {
        0 => warpgroup::LeftOperand::times(&first::<2>(left), sums, right),
        1 => warpgroup::LeftOperand::times(&first::<4>(left), sums, right),
        2 => warpgroup::LeftOperand::times(&first::<6>(left), sums, right),
        _ => warpgroup::LeftOperand::times(&first::<8>(left), sums, right),
    }
}

/// The first `S` steps of a left operand.
#[inline(always)]
fn first<const S: usize>(left: &LeftOperand) -> [[u32; 4]; S] {
    let mut out = [[0; 4]; S];
    each(S, |s| each(4, |i| out[s][i] = left[4 * s + i]));
    out
}

/// Starts the copy of a pair of components of a stage to a buffer; all threads of the block call it.
#[inline(always)]
unsafe fn send<const B: usize>(a: &Joint, half: u32, stage: u32, pair: usize) {
    let size = const { pair_bytes(B as u32, true) };
    let t = thread::thread_idx_x_anew();
    let before = (stage * PAIRS + pair as u32) as u64 * size as u64;
    let from = a.operands.cast::<u8>().wrapping_add(before as usize + 16 * t as usize);
    let to = half + pair as u32 * size + 16 * t;
    each(size.div_ceil(16 * THREADS) as usize, |i| {
        let by = i as u32 * 16 * THREADS;
        // Full rounds of all threads, known at compile time.
        if by + 16 * THREADS <= size || by + 16 * t < size {
            // SAFETY: the caller passes a stage and a pair that exist; `operands` has `size` bytes for each pair.
            unsafe { copies::send(to + by, from.wrapping_add(by as usize)) };
        }
    });
}

/// Loads a lane's rows, `2g` and `2g+1` of its warp's sixteen, and writes its part of the columns in the layout of the
/// moments.
#[inline(always)]
unsafe fn rows<const B: usize>(a: &Joint, mine: LaneRows, left: &mut LeftOperand) {
    let (group, row, t) = (mine.group, mine.row(), mine.lane % 4);
    // With fewer columns opaque, so that no registers hold values derived from `d`; with more columns, `ptxas` would
    // then use more registers.
    let d = if B < 4 { device::unknown(a.d) } else { a.d };
    let before = (group / 2) as u64 * (d * TILE_ROWS) as u64 + (group % 2 * ROWS + row) as u64;
    let to = a.columns.wrapping_add((group as u64 * (columns(d) * ROWS / 2) as u64) as usize);
    let filled = 16 * d.div_ceil(16);
    let word = |column: u32| (column * (ROWS / 2) + word_of_rows(column, row)) as u64;
    each(2 * B, |step| {
        if step == 4 {
            // Stops the compiler from hoisting the following loads above this point; no registers are left for them.
            warp::sync_warp();
        }
        let column = |q: usize| 16 * step as u32 + 2 * t + (q % 2 + q / 2 * 8) as u32;
        let mut v = [[0.0; 2]; 4];
        each(4, |q| {
            let j = column(q);
            if j < d {
                // SAFETY: `j < d`, and the tile is padded past the last row.
                let (both, scale) =
                    unsafe { (pair(a.x, before + (j * TILE_ROWS) as u64), device::load(a.scales, j as u64)) };
                v[q] = both.map(|v| v * scale);
            }
        });
        each(4, |i| {
            let (row, q) = (i % 2, i / 2 * 2);
            left[4 * step + i] = to_halves(v[q][row], v[q + 1][row]);
        });
        if 16 * (step as u32) < filled {
            // SAFETY: columns of these rows, which only this lane writes.
            each(4, |q| unsafe { device::store(to, word(column(q)), to_halves(v[q][0], v[q][1])) });
        }
    });
    each(4, |i| {
        let column = 4 * i as u32 + t;
        let one = if column == 0 { 1.0 } else { 0.0 };
        // SAFETY: the columns of ones and zeros of these rows, which only this lane writes.
        unsafe { device::store(to, word(filled + column), to_halves(one, one)) };
    });
}

/// Adds the squares of a lane's part of 32 rows of `W(x − μ)`, for the first or second of two components.
#[inline(always)]
pub(crate) fn add_squares(sums: &[f32; 32], which: usize, offsets: u32, norm: &mut [f32; 2]) {
    // Sixteen rows of the factor at a time, of which a lane has four.
    each(2, |i| {
        let sixteen = 2 * which + i;
        let four = Shared::<f32>::at(offsets + 64 * sixteen as u32).load4(0);
        each(4, |i| {
            each(2, |row| {
                let v = sums[8 * sixteen + 4 * (i / 2) + 2 * row + i % 2] + four[i];
                norm[row] = Real::fma(v, v, norm[row]);
            });
        });
    });
}

/// Running maxima and sums of a lane's two rows, over every fourth component. In shared memory, since registers do not
/// suffice.
struct SoFar {
    /// Largest density of each row.
    top: [f32; 2],
    /// Σ 2^(density − top).
    sum: [f32; 2],
}

impl SoFar {
    #[inline(always)]
    fn place<const B: usize>() -> Shared<f32> {
        Shared::at(known_at(B as u32) + 16 * thread::thread_idx_x_anew())
    }

    #[inline(always)]
    fn keep<const B: usize>(self) {
        Self::place::<B>().store4(0, [self.top[0], self.top[1], self.sum[0], self.sum[1]]);
    }

    #[inline(always)]
    fn kept<const B: usize>() -> Self {
        let [a, b, c, d] = Self::place::<B>().load4(0);
        Self { top: [a, b], sum: [c, d] }
    }

    /// Adds one more component.
    #[inline(always)]
    fn and(mut self, joint: [f32; 2]) -> Self {
        each(2, |row| {
            let top = larger(self.top[row], joint[row]);
            let more = exp2_f32(joint[row] - top);
            self.sum[row] = Real::fma(self.sum[row], exp2_f32(self.top[row] - top), more);
            self.top[row] = top;
        });
        self
    }

    /// Writes the normalisers and the log-likelihoods.
    #[inline(always)]
    unsafe fn finish(self, a: &Joint, mine: LaneRows) {
        let (group, row, t) = (mine.group, mine.row(), mine.lane % 4);
        let mut likelihood = 0.0;
        let (mut tops, mut shares) = ([0.0; 2], [0.0; 2]);
        each(2, |odd| {
            let top = quad(self.top[odd], larger);
            let sum = quad(self.sum[odd] * exp2_f32(self.top[odd] - top), |a, b| a + b);
            let there = group as u64 * ROWS as u64 + ((row + odd as u32) as u64) < a.n;
            tops[odd] = top;
            // NaN if a density is NaN: it reaches the sums, and the host takes another path.
            shares[odd] = if there { EXPONENTIAL * reciprocal_f32(sum) } else { 0.0 };
            likelihood += if there { top.to_f64() + log2_f32(sum).to_f64() } else { 0.0 };
        });
        each(3, |by| likelihood += warp::shuffle_xor(likelihood, 4 << by));
        if (group as u64) < groups(a.n) {
            let at = group as u64 * (2 * ROWS) as u64 + row as u64;
            // SAFETY: only this lane writes these rows, and only the first lane the log-likelihood of the warp's
            // sixteen.
            unsafe {
                if t < 2 {
                    set_pair(a.normalisers, at + (t * ROWS) as u64, if t == 0 { tops } else { shares });
                }
                if mine.lane == 0 {
                    device::store(a.likelihoods, (4 * group + mine.warp) as u64, likelihood * core::f64::consts::LN_2);
                }
            }
        }
    }
}
