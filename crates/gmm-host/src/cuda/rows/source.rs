//! The memory of rows as they came.

use gmm_model::Precision;

use crate::cuda::driver::buffers::{Pinned, Slot};

/// Rows on the device as they came: see [`original`](super::original).
pub(crate) struct Source {
    /// The shift, `(d,)`, then the rows, `(n, d)` row-major, two numbers to a word where they are f32.
    pub(super) device: Slot<f64>,
    /// Pinned: the shift, and where the rows came together also these, and the row weights, `(n,)`, after them.
    pub(super) host: Pinned<f64>,
    /// Of the numbers of the rows.
    pub(super) precision: Precision,
    pub(super) words: usize,
}
