//! The M-step's shared memory.

use crate::device::{Shared, WARP};
use crate::em::m_step::{OWN_THREADS, Update, bayes, has_matrix, kind};
use crate::layout::packed_len;

/// Sums over threads at once, at most; even, so that what follows is aligned.
const AT_ONCE: u32 = 6;

/// Length of the scratch for sums over threads, and of two sums of each warp over its lanes.
pub(super) const SUMS: u32 = (AT_ONCE + 2) * OWN_THREADS / WARP;

/// Bytes before those.
pub(super) const BEFORE_WARPS: u32 = 8 * AT_ONCE * OWN_THREADS / WARP;

/// Maximum columns of a matrix that a block keeps in registers while it is inverted.
pub(super) const HELD: u32 = 32;

/// Length of a column of the matrix, padded with zeros.
pub(super) const fn padded(d: u32) -> u32 {
    if d < HELD { HELD } else { d.next_multiple_of(2) }
}

/// Rows per warp if a block keeps a matrix in its registers; each lane has one column.
pub(super) const ROWS: usize = (HELD * WARP / OWN_THREADS) as usize;

/// Components whose means are in shared memory at once, for a tied covariance.
pub(super) const fn together(d: u32) -> u32 {
    if d <= 64 { 32 } else { 16 }
}

/// Length of each of those: the padded mean, the weight, and one element that keeps the next aligned.
pub(super) const fn pooled_stride(d: u32) -> u32 {
    padded(d) + 2
}

/// Whether the block prefetches the scatter matrix into shared memory.
pub(super) const fn brings_scatter(kind: u32, d: u32) -> bool {
    kind == kind::TIED && d <= HELD
}

/// Bytes of shared memory: scratch for sums; for full and tied covariances, two columns of a matrix; for tied ones,
/// some components' means and weights; four or five vectors; the packed matrix; and the scatter matrix if it is prefetched.
pub const fn shared_len(kind: u32, d: u32) -> u64 {
    let (columns, matrix) = if has_matrix(kind) { (2 * padded(d) as u64, packed_len(d)) } else { (0, 0) };
    let means = if kind == kind::TIED { together(d) as u64 * pooled_stride(d) as u64 } else { 0 };
    let scatter = if brings_scatter(kind, d) { packed_len(d) } else { 0 };
    (SUMS as u64 + columns + means + vectors(kind) as u64 * d as u64 + matrix + scatter).saturating_mul(8)
}

/// Number of vectors in shared memory.
pub(super) const fn vectors(kind: u32) -> u32 {
    if has_matrix(kind) { 5 } else { 4 }
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes(a: &Update) -> u64 {
    let scale = if !a.prior.is_null() && bayes::brings_scale(a.kind, a.d) { packed_len(a.d) } else { 0 };
    shared_len(a.kind, a.d) + 8 * scale
}

#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn wide_shared_bytes(a: &Update) -> u64 {
    crate::em::m_step::wide_shared_len(a.d)
}

/// A block's shared memory.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) sum: Shared<f64>,
    /// Two sums of each warp over its lanes.
    pub(super) of_warps: Shared<f64>,
    /// The component's mean.
    pub(super) mean: Shared<f64>,
    /// Its variances, including regularisation.
    pub(super) variance: Shared<f64>,
    /// Upper bound of how far its rows are from the shift: |mean| + 4 standard deviations.
    pub(super) reach: Shared<f64>,
    /// Pivots of the covariance; for a spherical covariance, first the sum of squares.
    pub(super) pivot: Shared<f64>,
    /// A column of the matrix, alternately in one and the other; [`padded`] and 16-byte aligned.
    pub(super) column: [Shared<f64>; 2],
    /// The packed covariance, then its negative inverse.
    pub(super) a: Shared<f64>,
    /// Means and weights of some components, `(together, pooled_stride)`.
    pub(super) some: Shared<f64>,
    /// The scatter matrix, if it is [prefetched](brings_scatter), or the prior's scale ([`bayes::brings_scale`]).
    pub(super) scatter: Shared<f64>,
    /// The prior's mean, if the kind has a matrix and it is in shared memory.
    pub(super) centre: Shared<f64>,
}

impl Work {
    #[inline(always)]
    pub(super) fn new(kind: u32, d: u32) -> Self {
        let column = if has_matrix(kind) { padded(d) } else { 0 };
        let some = SUMS + 2 * column;
        let (from, matrix) =
            (some + if kind == kind::TIED { together(d) * pooled_stride(d) } else { 0 }, vectors(kind));
        let vector = |i: u32| Shared::at(8 * (from + i * d));
        Self {
            sum: Shared::at(0),
            of_warps: Shared::at(BEFORE_WARPS),
            column: [Shared::at(8 * SUMS), Shared::at(8 * (SUMS + column))],
            mean: vector(0),
            variance: vector(1),
            reach: vector(2),
            pivot: vector(3),
            centre: vector(4),
            a: vector(matrix),
            some: Shared::at(8 * some),
            scatter: Shared::at(8 * (from + matrix * d + packed_len(d) as u32)),
        }
    }
}
