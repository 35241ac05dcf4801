//! Products of matrices by tiles: up to 256 × 256 entries each, summed in f64, shared out to the engine's threads.
//!
//! An f32 operand is widened a block at a time, into a thread's workspace that stays in its cache: the product of two f32
//! is exact in f64, and a sum is rounded once, when it is written. Which tiles there are and in which order their terms
//! are added follows from the shapes alone, so neither the number of threads nor their timing changes a bit.

mod narrow;

use std::sync::{Mutex, PoisonError};

use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder, s};

use super::CpuEngine;
use super::simd::{Dispatch, Machine};
use crate::products::Element;
use narrow::Narrow;

/// Rows and columns of a tile: enough that a block of an operand, once in the cache, is used 256 times.
pub(crate) const TILE: usize = 256;

/// Terms of a sum for which blocks of both operands are widened at a time: with [`TILE`], 512 KiB each.
const BLOCK: usize = 256;

/// Tiles of fewer columns than this are sums over rows as they lie: to pack them for a product of matrices would take
/// longer than the product (measured: from about 64 columns on the packing is paid for).
pub(crate) const NARROW: usize = 64;

/// Multiplications below which threads cost more than they bring.
const ALONE: u128 = 1 << 17;

/// What a thread needs for one tile after another. What a shape does not use is never touched, and so never there.
pub(crate) struct Workspace {
    machine: Machine,
    left: Vec<f64>,
    right: Vec<f64>,
    sums: Vec<f64>,
    short: Vec<f32>,
}

/// Bytes of the workspaces of all threads.
pub(crate) fn workspace_bytes(engine: &CpuEngine) -> u128 {
    (engine.threads() * (2 * TILE * BLOCK * size_of::<f64>() + TILE * TILE * (size_of::<f64>() + size_of::<f32>())))
        as u128
}

impl Workspace {
    fn new(engine: &CpuEngine) -> Self {
        let zeros = |len| vec![0.0; len];
        let (left, right, sums) = (zeros(TILE * BLOCK), zeros(TILE * BLOCK), zeros(TILE * TILE));
        Self { machine: engine.machine, left, right, sums, short: vec![0.0; TILE * TILE] }
    }

    /// `a b`, `(r, c)`, of at most [`TILE`] rows and columns, from `(r, k)` and `(k, c)`. Of f32, [`BLOCK`] terms at a time
    /// may be added in f32 where it is to be `fast`.
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
            (Some(a), Some(b)) if !is_narrow || !has_rows_in_place(a) => general_mat_mul(1.0, &a, &b, 0.0, &mut sums),
            (None, _) if fast && !is_narrow => {
                sums.fill(0.0);
                for first in (0..k).step_by(BLOCK) {
                    let terms = first..k.min(first + BLOCK);
                    let mut found = view(&mut self.short, shape);
                    T::multiply_in_f32(a.slice(s![.., terms.clone()]), b.slice(s![terms, ..]), &mut found);
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
                        general_mat_mul(1.0, &a, &b.reversed_axes(), 1.0, &mut sums);
                    }
                }
            }
        }
        ArrayView2::from_shape(shape, &self.sums[..shape.0 * shape.1]).expect("a tile's length")
    }
}

/// The first numbers of `memory`, as `shape`.
fn view<T>(memory: &mut [T], shape: (usize, usize)) -> ArrayViewMut2<'_, T> {
    ArrayViewMut2::from_shape(shape, &mut memory[..shape.0 * shape.1]).expect("a tile's length")
}

/// Whether each row's numbers lie side by side.
fn has_rows_in_place<T>(matrix: ArrayView2<'_, T>) -> bool {
    matrix.ncols() < 2 || matrix.strides()[1] == 1
}

/// A block in f64, row by row.
fn widened<'m, T: Element>(memory: &'m mut [f64], block: ArrayView2<'_, T>) -> ArrayView2<'m, f64> {
    let shape = block.dim();
    let mut to = view(memory, shape);
    if has_rows_in_place(block) {
        for (mut to, from) in to.rows_mut().into_iter().zip(block.rows()) {
            // As slices, which the compiler takes in vectors.
            let (to, from) = (to.as_slice_mut().expect("standard"), from.to_slice().expect("side by side"));
            to.iter_mut().zip(from).for_each(|(to, from)| *to = from.to_f64());
        }
    } else {
        // By the columns of small squares: whole ones would miss the cache at every number.
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

/// Does every job, each thread with a workspace and a state of its own; which thread does which is a matter of timing.
/// Gives the states. `cost` is in multiplications.
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
            // A panic in a job comes out of the pool; the queue itself is whole.
            let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some(job) = job else { return state };
            work(&mut workspace, &mut state, job);
        }
    };
    if cost < ALONE || engine.threads() == 1 { vec![one()] } else { engine.pool.broadcast(|_| one()) }
}
