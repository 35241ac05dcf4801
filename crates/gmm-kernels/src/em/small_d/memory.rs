//! Layout of a block's shared memory, and each thread's part of it.

use crate::device::{Shared, WARP, thread};
use crate::em::small_d::{CROSSING, MOST_WARPS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::small_d::{Partition, SmallDPass};
use crate::layout::packed_len;

/// Length of a component's parameters in shared memory, a multiple of four.
pub(crate) const fn parameters(d: u32) -> u32 {
    (2 * d + 1 + packed_len(d) as u32).next_multiple_of(4)
}

/// Length of a component's sums.
pub(crate) const fn sums_len(d: u32) -> u32 {
    1 + d + packed_len(d) as u32
}

/// Offset of the largest constant, as a binary logarithm in `f64`.
pub(crate) const TOP: u32 = 0;
/// Offset of the warps' values of each row; double-buffered, so that one barrier suffices.
pub(crate) const SHARES: u32 = 16;

/// Bytes of the warps' values with `rows` rows per lane.
pub(crate) const fn shares_len(rows: u32) -> u32 {
    4 * MOST_WARPS * WARP * rows
}

/// Offset of the first warp's part.
pub(crate) const fn first(rows: u32) -> u32 {
    SHARES + 2 * shares_len(rows)
}

/// Byte offsets within a warp's part of shared memory. Compile-time constants, since a computed address takes a
/// register and none are left.
pub(crate) struct Part {
    /// Sums of its components so far, in `f64`; their parameters come before.
    pub(crate) sums: u32,
    /// Σ w log₂ p(x) of each lane, `f64`.
    pub(crate) likelihood: u32,
    /// Buffer in which sums are transposed across lanes.
    pub(crate) crossing: u32,
    pub(crate) end: u32,
}

impl Part {
    pub(crate) const fn new(d: u32, each: u32) -> Self {
        let sums = (4 * parameters(d) * each).next_multiple_of(16);
        let likelihood = sums + 8 * each * sums_len(d);
        let crossing = likelihood + 8 * WARP;
        Self { sums, likelihood, crossing, end: (crossing + 4 * WARP * CROSSING).next_multiple_of(16) }
    }
}

/// Bytes of shared memory per block.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn shared_bytes(cut: Partition) -> u64 {
    (first(cut.rows) + cut.warps * Part::new(cut.d, cut.each).end) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared<const D: usize, const C: usize, const R: usize>(a: &SmallDPass) -> u64 {
    shared_bytes(Partition { d: D as u32, each: C as u32, rows: R as u32, warps: a.warps })
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn threads(a: &SmallDPass) -> u32 {
    WARP * a.warps
}

/// A thread's indices, and its warp's part of shared memory.
#[derive(Clone, Copy)]
pub(crate) struct ThreadShare {
    pub(crate) lane: u32,
    pub(crate) warp: u32,
    /// Offset of the parameters of its components, in bytes.
    pub(crate) parameters: u32,
    pub(crate) totals: Shared<f64>,
    pub(crate) likelihood: Shared<f64>,
    pub(crate) crossing: Shared<f32>,
}

impl ThreadShare {
    /// Recomputed on each use: kept values, including an address for each component, would take registers that are not
    /// available.
    #[inline(always)]
    pub(crate) fn new<const D: usize, const C: usize, const R: usize>() -> Self {
        let t = thread::thread_idx_x_anew();
        let part = const { Part::new(D as u32, C as u32) };
        let parameters = first(R as u32) + t / WARP * part.end;
        Self {
            lane: t % WARP,
            warp: t / WARP,
            parameters,
            totals: Shared::at(parameters + part.sums),
            likelihood: Shared::at(parameters + part.likelihood),
            crossing: Shared::at(parameters + part.crossing),
        }
    }
}

/// Shared memory of the parameters and the sums of component `c` of the block.
#[inline(always)]
pub(crate) fn of_component<const D: usize, const C: usize, const R: usize>(c: u32) -> (Shared<f32>, Shared<f64>) {
    let part = const { Part::new(D as u32, C as u32) };
    let (from, i) = (first(R as u32) + c / C as u32 * part.end, c % C as u32);
    (Shared::at(from + 4 * i * parameters(D as u32)), Shared::at(from + part.sums + 8 * i * sums_len(D as u32)))
}
