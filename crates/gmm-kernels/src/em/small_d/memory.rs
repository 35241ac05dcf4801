//! Where things lie in a block's shared memory, and who has what of it.

use crate::device::{Shared, WARP, thread};
use crate::em::small_d::{CROSSING, MOST_WARPS};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::small_d::{Narrow, Partition};
use crate::layout::packed_len;

/// Numbers of a component's parameters in shared memory, a multiple of four.
pub(crate) const fn parameters(d: u32) -> u32 {
    (2 * d + 1 + packed_len(d) as u32).next_multiple_of(4)
}

/// Numbers of a component's sums.
pub(crate) const fn sums_len(d: u32) -> u32 {
    1 + d + packed_len(d) as u32
}

/// Where the largest of the constants lies, as a binary logarithm in `f64`.
pub(crate) const TOP: u32 = 0;
/// Where what warps have of the rows' sums lies, twice, so that one barrier is enough.
pub(crate) const SHARES: u32 = 16;

/// Bytes of what warps have of the sums of `rows` rows a lane.
pub(crate) const fn shares_len(rows: u32) -> u32 {
    4 * MOST_WARPS * WARP * rows
}

/// Where warps' parts start.
pub(crate) const fn first(rows: u32) -> u32 {
    SHARES + 2 * shares_len(rows)
}

/// Where things lie in a warp's part of shared memory, in bytes from its start. Constants, since a place that has to be
/// computed takes a register, of which there are none left.
pub(crate) struct Part {
    /// Its components' sums so far, `f64`; before them their parameters.
    pub(crate) sums: u32,
    /// Σ w log₂ p(x) of each lane, `f64`.
    pub(crate) likelihood: u32,
    /// Where its sums cross the lanes.
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

/// Bytes of shared memory of a block.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn shared_bytes(cut: Partition) -> u64 {
    (first(cut.rows) + cut.warps * Part::new(cut.d, cut.each).end) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared<const D: usize, const C: usize, const R: usize>(a: &Narrow) -> u64 {
    shared_bytes(Partition { d: D as u32, each: C as u32, rows: R as u32, warps: a.warps })
}

#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn threads(a: &Narrow) -> u32 {
    WARP * a.warps
}

/// Who a thread is, and what is its warp's.
#[derive(Clone, Copy)]
pub(crate) struct Mine {
    pub(crate) lane: u32,
    pub(crate) warp: u32,
    /// In bytes: its components'.
    pub(crate) parameters: u32,
    pub(crate) totals: Shared<f64>,
    pub(crate) likelihood: Shared<f64>,
    pub(crate) crossing: Shared<f32>,
}

impl Mine {
    /// Found anew each time: what is kept, with a place for each component, would take registers of which there are none.
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

/// Where a component's parameters and sums are, of all the block's.
#[inline(always)]
pub(crate) fn of_component<const D: usize, const C: usize, const R: usize>(c: u32) -> (Shared<f32>, Shared<f64>) {
    let part = const { Part::new(D as u32, C as u32) };
    let (from, i) = (first(R as u32) + c / C as u32 * part.end, c % C as u32);
    (Shared::at(from + 4 * i * parameters(D as u32)), Shared::at(from + part.sums + 8 * i * sums_len(D as u32)))
}
