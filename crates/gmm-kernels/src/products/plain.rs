//! Sums of products of two packed factors without tensor cores; see [`products`](crate::products).
//!
//! As [`multiply`](super::multiply), for `f64` only. A thread block takes half of a block's columns; a thread has 8 × 4
//! sums, 16 rows and columns apart.

use super::share::Share;
use super::{BLOCK, Form, OPERAND, OPERANDS, STEPS};
use crate::Real;
use crate::device::words::{global_load_u32x4, shared_store_u32x4};
use crate::device::{self, Shared, thread};
use crate::each::each;

/// Threads per block.
const MULTIPLIERS: u32 = 256;

/// Bytes of one factor that are staged at a time.
const FACTOR: u32 = STEPS * OPERANDS * OPERAND * 4;

/// Distance between a thread's rows, and between its columns.
const APART: u32 = 16;

/// Columns per thread; more would exceed the available registers.
const COLUMNS: usize = 4;

kernels! {
    /// The grid is `2*left_blocks*right_blocks` in `x` and `ceil(steps/slice)` in `y`.
    MultiplyPlain {
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
        /// `(slices, sums_len(m, n))`, written.
        sums: *mut f64,
    }
    /// The kernel.
    multiply_plain => body, shared, threads;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared(_: &MultiplyPlain) -> u64 {
    u64::from(2 * FACTOR)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &MultiplyPlain) -> u32 {
    MULTIPLIERS
}

/// Entry `(row, column)` of the staged part of the left factor.
#[inline(always)]
fn left_entry(row: u32, column: u32) -> f64 {
    const TERMS: u32 = Form::Double.columns();
    let operand = column / TERMS * OPERANDS + row / 16 * 2 + column % TERMS / 4;
    let lane = row % 8 * 4 + column % 4;
    Shared::<f64>::at(operand * OPERAND * 4 + 16 * lane + 8 * (row % 16 / 8)).load(0)
}

/// Entry `(row, column)` of the staged part of the right factor.
#[inline(always)]
fn right_entry(row: u32, column: u32) -> f64 {
    const TERMS: u32 = Form::Double.columns();
    let operand = column / TERMS * OPERANDS + row / 8;
    let lane = row % 8 * 4 + column % 4;
    Shared::<f64>::at(FACTOR + operand * OPERAND * 4 + 16 * lane + 8 * (column % TERMS / 4)).load(0)
}

/// Body of [`multiply_plain`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`MultiplyPlain`].
#[inline(always)]
unsafe fn body(a: MultiplyPlain) {
    const TERMS: u32 = Form::Double.columns();
    let triangle = if a.triangle == 0 { 0 } else { BLOCK / TERMS };
    let (at, half) = (thread::block_idx_x() / 2, thread::block_idx_x() % 2);
    let share = Share::of(at, a.left_blocks, a.right_blocks, a.steps, a.slice, triangle);
    let t = thread::thread_idx_x();
    let (row, column) = (t / APART, half * BLOCK / 2 + t % APART);
    let mut sums = [[0.0; COLUMNS]; 8];
    let mut step = share.first;
    while step < share.end {
        let from = |factor: *const u32, block: u32| {
            let words = (block as u64 * a.steps as u64 + step as u64) * (OPERANDS * OPERAND) as u64;
            factor.wrapping_add(words as usize + 4 * t as usize)
        };
        thread::sync_threads();
        each((FACTOR / (16 * MULTIPLIERS)) as usize, |i| {
            let (to, words) = (16 * (t + i as u32 * MULTIPLIERS), i * 4 * MULTIPLIERS as usize);
            // SAFETY: the reads stay within both factors, whose steps are padded to a multiple of the staged ones.
            unsafe {
                shared_store_u32x4(to, global_load_u32x4(from(a.left, share.left).wrapping_add(words)));
                shared_store_u32x4(FACTOR + to, global_load_u32x4(from(a.right, share.right).wrapping_add(words)));
            }
        });
        thread::sync_threads();
        let mut l = 0;
        while l < STEPS * TERMS {
            let mut left = [0.0; 8];
            each(8, |i| left[i] = left_entry(row + APART * i as u32, l));
            each(COLUMNS, |j| {
                let right = right_entry(column + APART * j as u32, l);
                each(8, |i| sums[i][j] = Real::fma(left[i], right, sums[i][j]));
            });
            l += 1;
        }
        step += STEPS;
    }
    each(8, |i| {
        each(COLUMNS, |j| {
            let (row, column) = (row + APART * i as u32, column + APART * j as u32);
            let at = share.sum_at(a.left_blocks, a.right_blocks, row, column);
            // SAFETY: `at` is within the padded sums, and only this thread writes it.
            unsafe { device::store(a.sums, at, sums[i][j]) };
        });
    });
}

const _: () = assert!(APART * APART == MULTIPLIERS && APART * 8 == BLOCK && 2 * APART * COLUMNS as u32 == BLOCK);
