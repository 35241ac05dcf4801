//! Rows reordered into tiles that are near each other: each block of the layout is a tile. See [`crate::nearby`].

use super::layout::{BLOCK, Layout, STRIDE};
use super::simd::{Dispatch, Real, Words};
use crate::nearby::{Boxes, order};
use crate::{Error, memory};

/// A reordered copy of rows, with the boxes of its blocks.
pub(crate) struct Tiles<T> {
    pub(crate) layout: Layout<T>,
    pub(crate) boxes: Boxes,
    /// The given row of each reordered row, `(n,)`.
    pub(crate) order: Vec<u32>,
}

impl<T: Dispatch> Tiles<T> {
    /// Reorders the rows of a layout; runs on the threads of the calling pool.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is no memory for the copy.
    pub(crate) fn new(rows: &Layout<T>) -> Result<Self, Error> {
        memory::check("the order of the rows", 20 * rows.n as u128)?;
        let order = order(rows.n, rows.d, BLOCK, |row, column| rows.at(row, column).to_f64());
        let weights: Option<Vec<f64>> =
            rows.is_weighted().then(|| order.iter().map(|&row| rows.weight(row as usize).to_f64()).collect());
        let from = |i: usize| (rows, order[i] as usize);
        let mut layout = Layout::gathered(rows.n, &rows.shift, weights.as_deref(), from)?;
        // Not that of the weights as rounded to `T`.
        layout.total_weight = rows.total_weight;
        let mut boxes = Boxes::none(layout.blocks(), rows.d);
        for block in 0..layout.blocks() {
            for (column, values) in layout.copied(block).chunks_exact(STRIDE).enumerate() {
                boxes.extend(block, column, values[..layout.rows_in(block)].iter().map(|v| v.to_f64()));
            }
        }
        Ok(Self { layout, boxes, order })
    }
}

/// `top[row] = max(top[row], values[c][row])` over `count` columns of `values`, `STRIDE` apart.
#[inline(always)]
pub(crate) fn raise<T: Real, W: Words<T>>(w: W, values: &[T], count: usize, rows: usize, top: &mut [T]) {
    assert!(values.len() >= count * STRIDE && top.len() >= rows && rows <= BLOCK && rows.is_multiple_of(W::LANES));
    for row in (0..rows).step_by(W::LANES) {
        // SAFETY: row + LANES <= rows <= BLOCK, and the lengths were asserted.
        unsafe {
            let mut most = w.load(top.as_ptr().add(row));
            for c in 0..count {
                most = w.max(w.load(values.as_ptr().add(c * STRIDE + row)), most);
            }
            w.store(top.as_mut_ptr().add(row), most);
        }
    }
}
