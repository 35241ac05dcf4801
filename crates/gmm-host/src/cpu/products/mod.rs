//! Matrix products by tiles of up to 512 × 512 entries, summed in f64 and distributed over the engine's threads.
//!
//! An f32 operand is converted to f64 a block at a time, in a thread's workspace that stays in cache: the product of
//! two f32 is exact in f64, and each sum is rounded once, when it is written. The tiles and the order of additions
//! depend only on the shapes, so the result has the same bits for any number of threads and any timing.

mod multiply;
mod narrow;

use std::sync::{Mutex, PoisonError};

use ndarray::{ArrayView2, ArrayViewMut2, LinalgScalar, ShapeBuilder, s};

use super::CpuEngine;
use super::simd::{Dispatch, Machine};
use crate::products::Element;
pub(crate) use multiply::{add_product, multiply};
use narrow::Narrow;

/// Rows and columns of a tile, unless [`side`] chooses another size: each block of an operand, once in the cache, is
/// used 256 times.
pub(crate) const TILE: usize = 256;

/// Rows and columns of the tiles of a product of `shape`: larger tiles for a larger product, which then reads its
/// operands less often, and smaller tiles for a smaller one, which then has tiles for all threads.
pub(crate) fn side((rows, columns): (usize, usize)) -> usize {
    // Measured: tiles of 128 take 5 % longer than larger ones in products up to 256, and 10 to 20 % beyond.
    match (rows as f64 * columns as f64).sqrt() {
        ..=256.0 => TILE / 2,
        ..=1024.0 => TILE,
        _ => 2 * TILE,
    }
}

/// Terms of a sum for which both operands are converted at a time: 1 MiB each for the largest tiles.
const BLOCK: usize = 256;

/// Tiles with fewer columns than this are computed as dot products of rows in place: packing them for a matrix product
/// would take longer than the product itself (measured: packing pays off from about 64 columns on).
pub(crate) const NARROW: usize = 64;

/// Below this many multiplications, about 100 µs of one core, threads cost more than they gain.
const ALONE: u128 = 1 << 22;

/// A thread's buffers, reused for one tile after another; they grow as needed.
pub(crate) struct Workspace {
    machine: Machine,
    left: Vec<f64>,
    right: Vec<f64>,
    sums: Vec<f64>,
    short: Vec<f32>,
}

/// Largest total bytes of the workspaces of all participating threads, for tiles of `shape` with `terms` terms per sum.
pub(crate) fn workspace_bytes(engine: &CpuEngine, cost: u128, shape: (usize, usize), terms: usize) -> u128 {
    let (r, c) = (shape.0 as u128, shape.1 as u128);
    let widened = (r + c) * terms.min(BLOCK) as u128 * size_of::<f64>() as u128;
    threads(engine, cost) as u128 * (widened + r * c * (size_of::<f64>() + size_of::<f32>()) as u128)
}

/// Number of threads that share work of `cost` multiplications.
fn threads(engine: &CpuEngine, cost: u128) -> usize {
    if cost < ALONE { 1 } else { engine.threads() }
}

impl Workspace {
    fn new(engine: &CpuEngine) -> Self {
        Self { machine: engine.machine, left: vec![], right: vec![], sums: vec![], short: vec![] }
    }

    /// Computes `a b`, `(r, c)`, from `(r, k)` and `(k, c)`; `r` and `c` are at most two [`TILE`]s. With `fast`, f32
    /// operands may be added in f32 for [`BLOCK`] terms at a time.
    pub(crate) fn tile<T: Element>(
        &mut self,
        a: ArrayView2<'_, T>,
        b: ArrayView2<'_, T>,
        fast: bool,
    ) -> ArrayView2<'_, f64> {
        let (shape, k) = ((a.nrows(), b.ncols()), a.ncols());
        let is_narrow = shape.1 < NARROW;
        let mut sums = view(&mut self.sums, shape);
        match (T::as_f64(a), T::as_f64(b)) {
            (Some(a), Some(b)) if !is_narrow || !has_rows_in_place(a) => multiply(a, b, sums),
            (None, _) if fast && !is_narrow => {
                sums.fill(0.0);
                for first in (0..k).step_by(BLOCK) {
                    let terms = first..k.min(first + BLOCK);
                    let mut found = view(&mut self.short, shape);
                    T::multiply_in_f32(a.slice(s![.., terms.clone()]), b.slice(s![terms, ..]), found.view_mut());
                    sums.zip_mut_with(&found, |sum, &value| *sum += f64::from(value));
                }
            }
            (a_there, b_there) => {
                sums.fill(0.0);
                for first in (0..k).step_by(BLOCK) {
                    let terms = s![.., first..k.min(first + BLOCK)];
                    let a = match a_there {
                        Some(a) => a.slice_move(terms),
                        None => widened(&mut self.left, a.slice(terms)),
                    };
                    let b = match b_there {
                        Some(b) if has_rows_in_place(b.reversed_axes()) => b.reversed_axes().slice_move(terms),
                        _ => widened(&mut self.right, b.t().slice(terms)),
                    };
                    if is_narrow {
                        f64::dispatch(self.machine, Narrow { a, b, sums: sums.view_mut() });
                    } else {
                        add_product(1.0, a, b.reversed_axes(), sums.view_mut());
                    }
                }
            }
        }
        ArrayView2::from_shape(shape, &self.sums[..shape.0 * shape.1]).expect("a tile's length")
    }
}

/// Returns the first numbers of `memory` with shape `shape`; their values are unspecified.
fn view<T: LinalgScalar>(memory: &mut Vec<T>, shape: (usize, usize)) -> ArrayViewMut2<'_, T> {
    let len = shape.0 * shape.1;
    if memory.len() < len {
        // Zeroed pages come from the system, and are not written one by one.
        *memory = vec![T::zero(); len];
    }
    ArrayViewMut2::from_shape(shape, &mut memory[..len]).expect("a tile's length")
}

/// Whether the numbers of each row are contiguous.
fn has_rows_in_place<T>(matrix: ArrayView2<'_, T>) -> bool {
    matrix.ncols() < 2 || matrix.strides()[1] == 1
}

/// Returns a block converted to f64, row-major.
fn widened<'m, T: Element>(memory: &'m mut Vec<f64>, block: ArrayView2<'_, T>) -> ArrayView2<'m, f64> {
    let shape = block.dim();
    let mut to = view(memory, shape);
    if has_rows_in_place(block) {
        for (mut to, from) in to.rows_mut().into_iter().zip(block.rows()) {
            // Slices, which the compiler vectorises.
            let (to, from) = (to.as_slice_mut().expect("standard"), from.to_slice().expect("side by side"));
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f64());
        }
    } else {
        // Copy by columns within small squares: whole columns would miss the cache at every number.
        const SIDE: usize = 16;
        for (mut to, from) in
            to.axis_chunks_iter_mut(ndarray::Axis(0), SIDE).zip(block.axis_chunks_iter(ndarray::Axis(0), SIDE))
        {
            for j in 0..shape.1 {
                to.column_mut(j).zip_mut_with(&from.column(j), |to, from| *to = from.to_f64());
            }
        }
    }
    ArrayView2::from_shape(shape.strides((shape.1.max(1), 1)), &memory[..shape.0 * shape.1]).expect("a block's length")
}

/// Runs every job; each thread has its own workspace and state, and takes the next job when it is free. Returns the
/// states. `cost` is in multiplications.
pub(crate) fn each<J: Send, S: Send>(
    engine: &CpuEngine,
    cost: u128,
    jobs: impl Iterator<Item = J> + Send,
    state: impl Fn() -> S + Sync,
    work: impl Fn(&mut Workspace, &mut S, J) + Sync,
) -> Vec<S> {
    let jobs = Mutex::new(jobs);
    let one = || {
        let (mut workspace, mut state) = (Workspace::new(engine), state());
        loop {
            // A panic in a job propagates out of the pool; the queue itself stays consistent.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { return state };
            work(&mut workspace, &mut state, job);
        }
    };
    if threads(engine, cost) == 1 { vec![one()] } else { engine.pool.broadcast(|_| one()) }
}
