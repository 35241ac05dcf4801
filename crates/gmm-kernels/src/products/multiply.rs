//! Sums of products of two packed factors on the tensor cores; see [`products`](crate::products).
//!
//! A thread block keeps 128 × 64 sums in registers, 64 × 32 per warp, and loops over a slice of the terms. Both factors
//! are copied to shared memory two operands deep at a time, into a ring of three stages. Two such blocks run on a
//! multiprocessor with independent barriers: while one waits for its operands, the other multiplies.

use super::share::Share;
use super::{BLOCK, Form, OPERAND, OPERANDS, STEPS};
use crate::device::words::global_store_u32x4;
use crate::device::{self, Shared, WARP, copies, mma, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

/// Stages of the ring: the one in use, the next, and one in flight.
const STAGES: u32 = 3;

/// Bytes of a step of the left factor, and of a thread block's half of a step of the right one.
const LEFT_STEP: u32 = OPERANDS * OPERAND * 4;
const RIGHT_STEP: u32 = LEFT_STEP / 2;

/// Bytes of a stage.
const STAGE: u32 = STEPS * (LEFT_STEP + RIGHT_STEP);

/// Operands that cover a warp's rows of the left factor, and of the right one.
const LEFT: usize = 8;
const RIGHT: usize = 4;

/// Number of warps side by side along the right factor.
const ACROSS: u32 = OPERANDS / 2 / RIGHT as u32;

/// A warp's tensor-core tiles of 16 × 8 sums each.
type Sums<T> = [[[T; 4]; RIGHT]; LEFT / 2];

kernels! {
    /// The grid is `2*left_blocks*right_blocks` in `x` and `ceil(steps/slice)` in `y`.
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
        /// Steps per slice, even.
        slice: u32,
        /// If not 0, the left factor is zero above its diagonal, and those terms are skipped.
        triangle: u32,
        /// `(slices, sums_len(m, n))`, 16-byte aligned, written: `f64`, or `f32` for fp16 factors.
        sums: *mut u32,
    }
    /// The kernel for `f64`.
    multiply_doubles => doubles, shared;
    /// The kernel for split fp16.
    multiply_halves => halves, shared;
    /// The kernel for fp16.
    multiply_heads => heads, shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared(_: &Multiply) -> u64 {
    u64::from(STAGES * STAGE)
}

/// A thread block's part of the product: a block of the left factor's rows by half a block of the right factor's.
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

    /// Position of a lane's first sum in tile `(i, j)` of its warp, or with `half = 1` eight rows further.
    #[inline(always)]
    fn sum_at(self, a: &Multiply, i: usize, j: usize, half: usize) -> u64 {
        let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
        let row = me / ACROSS * LEFT as u32 * 8 + 16 * i as u32 + lane / 4 + 8 * half as u32;
        let column = self.half * BLOCK / 2 + me % ACROSS * RIGHT as u32 * 8 + 8 * j as u32 + 2 * (lane % 4);
        self.share.sum_at(a.left_blocks, a.right_blocks, row, column)
    }
}

/// Starts copying a stage of both factors.
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
    // Bytes that all threads copy at a time.
    const AT_ONCE: u32 = 16 * THREADS;
    each((STEPS * LEFT_STEP / AT_ONCE) as usize, |i| {
        let by = i as u32 * AT_ONCE;
        // SAFETY: the copy stays within the factor, whose steps are padded to a multiple of a stage's.
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

/// Loops over a block's steps. For each stage, `add(left, right)` gets the byte positions, for this lane, of the warp's
/// first operands of the first step; those of the next step are [`LEFT_STEP`] and [`RIGHT_STEP`] bytes further.
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
            // SAFETY: `next < share.end`, a step of the factors.
            unsafe { send(a, part, next, slot) };
        }
        copies::end_group();
        next += STEPS;
        slot += 1;
    });
    let (mut step, mut at) = (share.first, 0);
    while step < share.end {
        copies::arrive_but::<{ STAGES - 2 }>();
        // After the barrier, the stage that each thread waited for is visible to all, and no thread still reads the
        // stage that the next copies overwrite.
        thread::sync_threads();
        if next < share.end {
            // SAFETY: `next < share.end`, a step of the factors.
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

/// Body of [`multiply_doubles`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Multiply`].
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
    // SAFETY: the fields are as documented, and `part` is one of the grid's.
    unsafe { walk(&a, part, add) };
    each(LEFT / 2, |i| {
        each(RIGHT, |j| {
            each(2, |half| {
                let at = part.sum_at(&a, i, j, half);
                let [v, w] = [sums[i][j][2 * half], sums[i][j][2 * half + 1]].map(f64::to_bits);
                let words = [v as u32, (v >> 32) as u32, w as u32, (w >> 32) as u32];
                // SAFETY: `at` is within the padded sums, and only this lane writes it; `at` is even, so the address is
                // 16-byte aligned.
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
                // SAFETY: `at` is within the padded sums, only this lane writes it, and it is even since `column` is.
                unsafe { device::store(a.sums.cast::<u64>(), at / 2, v as u64 | (w as u64) << 32) };
            });
        });
    });
}

/// Body of [`multiply_halves`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Multiply`].
#[inline(always)]
unsafe fn halves(a: Multiply) {
    let triangle = if a.triangle == 0 { 0 } else { BLOCK / Form::HalfPrecision.columns() };
    let part = Part::of(&a, triangle);
    let mut sums: Sums<f32> = [[[0.0; 4]; RIGHT]; LEFT / 2];
    let add = |left: u32, right: u32| {
        // hi and lo parts of both steps.
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
            // Start from zero and add the small products first: the tensor cores would round earlier sums towards zero
            // along with them.
            let mut new = [[0.0; 4]; LEFT / 2];
            each(6, |turn| {
                let (l, r) = [(1, 0), (0, 1), (0, 0)][turn / 2];
                each(LEFT / 2, |i| mma::mma_m16n8k16_f16(&mut new[i], rows[i][turn % 2][l], columns[turn % 2][r]));
            });
            each(LEFT / 2, |i| each(4, |v| sums[i][j][v] += new[i][v]));
        });
    };
    // SAFETY: the fields are as documented, and `part` is one of the grid's.
    unsafe {
        walk(&a, part, add);
        store_singles(&a, part, &sums);
    }
}

/// Body of [`multiply_heads`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Multiply`].
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
    // SAFETY: the fields are as documented, and `part` is one of the grid's.
    unsafe {
        walk(&a, part, add);
        store_singles(&a, part, &sums);
    }
}

const _: () = assert!(f64::BYTES * 2 * WARP == 4 * OPERAND && LEFT as u32 * (THREADS / WARP / ACROSS) == OPERANDS);
const _: () = assert!(RIGHT_STEP.is_multiple_of(16 * THREADS));
