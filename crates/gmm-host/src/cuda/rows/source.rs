//! The buffers of rows in their original form.

use gmm_model::Precision;

use crate::cuda::driver::buffers::{Pinned, Slot};

/// Rows on the device in their original form: see [`original`](super::original).
pub(crate) struct Source {
    /// The shift, `(d,)`, then the rows, `(n, d)` row-major, in 8-byte words: one f64 or two f32 each.
    pub(super) device: Slot<f64>,
    /// Pinned: the shift; if everything was uploaded in one copy, then the rows and the row weights, `(n,)`.
    pub(super) host: Pinned<f64>,
    /// Precision of the rows' numbers.
    pub(super) precision: Precision,
    pub(super) words: usize,
}
