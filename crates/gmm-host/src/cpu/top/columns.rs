//! Log joint densities of the kinds full and tied, which a pass computes by columns of rows.

use std::ops::Range;

use gmm_model::Dataset;

use super::super::e_step::log_joint_of_rows;
use super::super::layout::{BLOCK, Buffer, Layout, STRIDE};
use super::super::passes::padded;
use super::super::simd::{Dispatch, Kernel, Machine, Real, Words};
use super::super::terms::Terms;
use super::TopBackground;
use super::densities::pitch;
use crate::Error;

/// Rows by columns, and the densities of one block of them.
pub(super) struct Columns<T> {
    layout: Layout<T>,
    /// The block whose densities are in `joint`.
    block: Option<usize>,
    /// `(k, STRIDE)`.
    joint: Buffer<T>,
    /// `(2*d, STRIDE)`.
    scratch: Buffer<T>,
}

impl<T: Dispatch> Columns<T> {
    pub(super) fn new(machine: Machine, data: &Dataset, background: &TopBackground<T>) -> Result<Self, Error> {
        let layout = Layout::new(machine, data, &background.shift, u128::MAX)?;
        let joint = Buffer::zeroed(background.terms.k * STRIDE);
        let scratch = Buffer::zeroed(2 * background.terms.d * STRIDE);
        Ok(Self { layout, block: None, joint, scratch })
    }

    /// Copies the densities of some rows of one block to `out`, `(rows, pitch)`.
    pub(super) fn copy(&mut self, machine: Machine, terms: &Terms<T>, rows: Range<usize>, out: &mut [T]) {
        let Self { layout, block, joint, scratch } = self;
        let mut buffer = layout.block_buffer();
        for (row, out) in rows.zip(out.chunks_exact_mut(pitch(terms.k))) {
            let of_row = row / BLOCK;
            if *block != Some(of_row) {
                *block = Some(of_row);
                T::dispatch(machine, ByColumns { terms, layout, block: of_row, buffer: &mut buffer, joint, scratch });
            }
            out.fill(T::of(f64::NEG_INFINITY));
            out.iter_mut().zip(joint[row % BLOCK..].iter().step_by(STRIDE)).take(terms.k).for_each(|(to, v)| *to = *v);
        }
    }
}

/// The log joint densities of a block by columns, `(k, STRIDE)`.
struct ByColumns<'a, T> {
    terms: &'a Terms<T>,
    layout: &'a Layout<T>,
    block: usize,
    buffer: &'a mut Buffer<T>,
    joint: &'a mut [T],
    scratch: &'a mut [T],
}

impl<T: Real> Kernel<T> for ByColumns<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<W: Words<T>>(self, w: W) {
        let Self { terms, layout, block, buffer, joint, scratch } = self;
        let (x, rows) = (layout.block(w, block, buffer), layout.rows_in(block));
        log_joint_of_rows(w, terms, 0..terms.k, x, padded::<T, W>(rows), joint, &mut [], scratch);
    }
}
