//! Sums of products of two packed factors on the tensor cores: see [`products`](crate::products).
//!
//! A block of threads has 128 × 64 sums in registers, a warp 64 × 32 of them, and goes over a slice of the terms. What it
//! reads of both factors comes to shared memory two operands deep at a time, in a ring of three stages. Two such blocks run on
//! a multiprocessor, each behind barriers of its own: while one waits for its operands the other multiplies.

use super::share::Share;
use super::{BLOCK, Form, OPERAND, OPERANDS, STEPS};
use crate::device::words::global_store_u32x4;
use crate::device::{self, Shared, WARP, copies, mma, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

/// Stages of the ring: what is in use, what follows, and what is on its way.
const STAGES: u32 = 3;

/// Bytes of a step of the left factor, and of what a block has of the right one.
const LEFT_STEP: u32 = OPERANDS * OPERAND * 4;
const RIGHT_STEP: u32 = LEFT_STEP / 2;

/// Bytes of a stage.
const STAGE: u32 = STEPS * (LEFT_STEP + RIGHT_STEP);

/// Operands of a warp's rows of the left factor, and of the right one.
const LEFT: usize = 8;
const RIGHT: usize = 4;

/// Warps side by side along the right factor.
const ACROSS: u32 = OPERANDS / 2 / RIGHT as u32;

/// Tensor-core tiles of a warp: 16 × 8 sums each.
type Sums<T> = [[[T; 4]; RIGHT]; LEFT / 2];

kernels! {
    /// The grid is `2*left_blocks*right_blocks` in `x`, `ceil(steps/slice)` in `y`.
    Multiply {
        /// Packed `(m, k)`, as the left factor, 16-byte aligned.
        left: *const u32,
        /// Packed `(n, k)`, 16-byte aligned.
        right: *const u32,
        /// [`blocks`](super::blocks) of `m`.
        left_blocks: u32,
        /// [`blocks`](super::blocks) of `n`.
        right_blocks: u32,
        /// [`Form::steps`].
        steps: u32,
        /// Steps of a slice, even.
        slice: u32,
        /// Not 0: the left factor is zero above its diagonal, and those terms are left out.
        triangle: u32,
        /// `(slices, sums_len(m, n))`, 16-byte aligned, written: `f64`, and `f32` of halves.
        sums: *mut u32,
    }
    /// `f64`.
    multiply_doubles => doubles, shared;
    /// Heads and tails.
    multiply_halves => halves, shared;
    /// Heads.
    multiply_heads => heads, shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared(_: &Multiply) -> u64 {
    u64::from(STAGES * STAGE)
}

/// What a block of threads has of the product: a block of the left factor's rows, and half of one of the right's.
#[derive(Clone, Copy)]
struct Part {
    share: Share,
    half: u32,
}

impl Part {
    #[inline(always)]
    fn of(a: &Multiply, triangle: u32) -> Self {
        let (at, half) = (thread::block_idx_x() / 2, thread::block_idx_x() % 2);
        Self { share: Share::of(at, a.left_blocks, a.right_blocks, a.steps, a.slice, triangle), half }
    }

    /// Where a lane's first sum in tile `(i, j)` of its warp lies, and that of eight rows further.
    #[inline(always)]
    fn sum_at(self, a: &Multiply, i: usize, j: usize, half: usize) -> u64 {
        let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
        let row = me / ACROSS * LEFT as u32 * 8 + 16 * i as u32 + lane / 4 + 8 * half as u32;
        let column = self.half * BLOCK / 2 + me % ACROSS * RIGHT as u32 * 8 + 8 * j as u32 + 2 * (lane % 4);
        self.share.sum_at(a.left_blocks, a.right_blocks, row, column)
    }
}

/// Sends for a stage of both factors and ends the group of copies.
#[inline(always)]
unsafe fn send(a: &Multiply, part: Part, step: u32, slot: u32) {
    let t = thread::thread_idx_x();
    let from = |factor: *const u32, block: u32| {
        let words = (block as u64 * a.steps as u64 + step as u64) * (OPERANDS * OPERAND) as u64 + 4 * t as u64;
        factor.wrapping_add(words as usize)
    };
    let (left, right) = (from(a.left, part.share.left), from(a.right, part.share.right));
    let right = right.wrapping_add((part.half * RIGHT_STEP / 4) as usize);
    let to = slot * STAGE + 16 * t;
    // Bytes that the threads send for at a time.
    const AT_ONCE: u32 = 16 * THREADS;
    each((STEPS * LEFT_STEP / AT_ONCE) as usize, |i| {
        let by = i as u32 * AT_ONCE;
        // SAFETY: operands of the factor; its steps are a multiple of a stage's.
        unsafe { copies::send_once(to + by, left.wrapping_add((by / 4) as usize).cast()) };
    });
    each(STEPS as usize, |step| {
        each((RIGHT_STEP / AT_ONCE) as usize, |i| {
            let by = i as u32 * AT_ONCE;
            let from = right.wrapping_add(((step as u32 * LEFT_STEP + by) / 4) as usize);
            // SAFETY: as above.
            unsafe { copies::send_once(to + STEPS * LEFT_STEP + step as u32 * RIGHT_STEP + by, from.cast()) };
        });
    });
}

/// Goes over a block's steps: `add(left, right)` of each stage gets where the warp's operands of its first step begin, for
/// this lane; those of the next are [`LEFT_STEP`] and [`RIGHT_STEP`] bytes on.
#[inline(always)]
unsafe fn walk(a: &Multiply, part: Part, mut add: impl FnMut(u32, u32)) {
    let share = part.share;
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let own = (
        me / ACROSS * LEFT as u32 * 4 * OPERAND + 16 * lane,
        STEPS * LEFT_STEP + me % ACROSS * RIGHT as u32 * 4 * OPERAND + 16 * lane,
    );
    let mut next = share.first;
    let mut slot = 0;
    each(STAGES as usize - 1, |_| {
        if next < share.end {
            // SAFETY: the share's steps.
            unsafe { send(a, part, next, slot) };
        }
        copies::end_group();
        next += STEPS;
        slot += 1;
    });
    let (mut step, mut at) = (share.first, 0);
    while step < share.end {
        copies::arrive_but::<{ STAGES - 2 }>();
        // What each thread waited for is there for all; and nobody reads any more what the next stage is put over.
        thread::sync_threads();
        if next < share.end {
            // SAFETY: the share's steps.
            unsafe { send(a, part, next, slot) };
        }
        copies::end_group();
        next += STEPS;
        slot = if slot + 1 == STAGES { 0 } else { slot + 1 };
        let stage = at * STAGE;
        add(stage + own.0, stage + own.1);
        at = if at + 1 == STAGES { 0 } else { at + 1 };
        step += STEPS;
    }
    copies::arrive();
}

/// A lane's words of an operand.
#[inline(always)]
fn words(from: u32, i: usize) -> [u32; 4] {
    Shared::<f32>::at(from + i as u32 * OPERAND * 4).load4(0).map(f32::to_bits)
}

/// A lane's two numbers of an operand.
#[inline(always)]
fn numbers(from: u32, i: usize) -> [f64; 2] {
    Shared::<f64>::at(from + i as u32 * OPERAND * 4).load2(0)
}

/// [`multiply_doubles`].
///
/// # Safety
/// As the fields of [`Multiply`] say.
#[inline(always)]
unsafe fn doubles(a: Multiply) {
    let triangle = if a.triangle == 0 { 0 } else { BLOCK / Form::Double.columns() };
    let part = Part::of(&a, triangle);
    let mut sums: Sums<f64> = [[[0.0; 4]; RIGHT]; LEFT / 2];
    let add = |left: u32, right: u32| {
        let mut rows = [[0.0; 8]; LEFT / 2];
        each(LEFT / 2, |i| {
            each(2, |s| {
                let from = left + s as u32 * LEFT_STEP;
                let ([p, q], [r, t]) = (numbers(from, 2 * i), numbers(from, 2 * i + 1));
                rows[i][4 * s] = p;
                rows[i][4 * s + 1] = q;
                rows[i][4 * s + 2] = r;
                rows[i][4 * s + 3] = t;
            });
        });
        each(RIGHT, |j| {
            let ([p, q], [r, t]) = (numbers(right, j), numbers(right + RIGHT_STEP, j));
            each(LEFT / 2, |i| mma::f64_16x8x16(&mut sums[i][j], rows[i], [p, q, r, t]));
        });
    };
    // SAFETY: as the fields say.
    unsafe { walk(&a, part, add) };
    each(LEFT / 2, |i| {
        each(RIGHT, |j| {
            each(2, |half| {
                let at = part.sum_at(&a, i, j, half);
                let [v, w] = [sums[i][j][2 * half], sums[i][j][2 * half + 1]].map(f64::to_bits);
                let words = [v as u32, (v >> 32) as u32, w as u32, (w >> 32) as u32];
                // SAFETY: sums that are this lane's alone.
                unsafe { global_store_u32x4(a.sums.wrapping_add(2 * at as usize), words) };
            });
        });
    });
}

#[inline(always)]
unsafe fn store_singles(a: &Multiply, part: Part, sums: &Sums<f32>) {
    each(LEFT / 2, |i| {
        each(RIGHT, |j| {
            each(2, |half| {
                let at = part.sum_at(a, i, j, half);
                let [v, w] = [sums[i][j][2 * half], sums[i][j][2 * half + 1]].map(f32::to_bits);
                // SAFETY: sums that are this lane's alone; `column` is even.
                unsafe { device::store(a.sums.cast::<u64>(), at / 2, v as u64 | (w as u64) << 32) };
            });
        });
    });
}

/// [`multiply_halves`].
///
/// # Safety
/// As the fields of [`Multiply`] say.
#[inline(always)]
unsafe fn halves(a: Multiply) {
    let triangle = if a.triangle == 0 { 0 } else { BLOCK / Form::Halves.columns() };
    let part = Part::of(&a, triangle);
    let mut sums: Sums<f32> = [[[0.0; 4]; RIGHT]; LEFT / 2];
    let add = |left: u32, right: u32| {
        // Heads and tails of both steps.
        let mut rows = [[[[0; 4]; 2]; 2]; LEFT / 2];
        each(LEFT / 2, |i| {
            each(2, |s| {
                rows[i][s] = [0, 1].map(|eight| words(left + s as u32 * LEFT_STEP, 2 * i + eight));
            });
        });
        each(RIGHT, |j| {
            let mut columns = [[[0; 2]; 2]; 2];
            each(2, |s| {
                let [p, q, v, w] = words(right + s as u32 * RIGHT_STEP, j);
                columns[s] = [[p, q], [v, w]];
            });
            // Added to nothing, the small ones first: what was summed before would be rounded towards zero with them.
            let mut new = [[0.0; 4]; LEFT / 2];
            each(6, |turn| {
                let (l, r) = [(1, 0), (0, 1), (0, 0)][turn / 2];
                each(LEFT / 2, |i| mma::mma_m16n8k16_f16(&mut new[i], rows[i][turn % 2][l], columns[turn % 2][r]));
            });
            each(LEFT / 2, |i| each(4, |v| sums[i][j][v] += new[i][v]));
        });
    };
    // SAFETY: as the fields say.
    unsafe {
        walk(&a, part, add);
        store_singles(&a, part, &sums);
    }
}

/// [`multiply_heads`].
///
/// # Safety
/// As the fields of [`Multiply`] say.
#[inline(always)]
unsafe fn heads(a: Multiply) {
    let triangle = if a.triangle == 0 { 0 } else { BLOCK / Form::Heads.columns() };
    let part = Part::of(&a, triangle);
    let mut sums: Sums<f32> = [[[0.0; 4]; RIGHT]; LEFT / 2];
    let add = |left: u32, right: u32| {
        let mut rows = [[[0; 4]; 4]; LEFT / 2];
        each(LEFT / 2, |i| {
            each(2, |s| {
                each(2, |eight| rows[i][2 * s + eight] = words(left + s as u32 * LEFT_STEP, 2 * i + eight));
            });
        });
        each(RIGHT, |j| {
            let mut columns = [[0; 2]; 4];
            each(2, |s| {
                let [p, q, v, w] = words(right + s as u32 * RIGHT_STEP, j);
                columns[2 * s] = [p, q];
                columns[2 * s + 1] = [v, w];
            });
            let mut new = [[0.0; 4]; LEFT / 2];
            each(4, |s| each(LEFT / 2, |i| mma::mma_m16n8k16_f16(&mut new[i], rows[i][s], columns[s])));
            each(LEFT / 2, |i| each(4, |v| sums[i][j][v] += new[i][v]));
        });
    };
    // SAFETY: as the fields say.
    unsafe {
        walk(&a, part, add);
        store_singles(&a, part, &sums);
    }
}

const _: () = assert!(f64::BYTES * 2 * WARP == 4 * OPERAND && LEFT as u32 * (THREADS / WARP / ACROSS) == OPERANDS);
const _: () = assert!(RIGHT_STEP.is_multiple_of(16 * THREADS));
