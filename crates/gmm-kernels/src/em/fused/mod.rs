//! A whole E-step and the sums of the M-step in one kernel: responsibilities never leave the multiprocessor.
//!
//! A warp processes sixteen rows at a time, up to their responsibilities:
//! 1. the entries and the columns derived from them are written to shared memory as `f64`, and the next rows are
//!    prefetched;
//! 2. log joint densities: features times coefficients on the tensor cores, all in `f64`;
//! 3. log-sum-exp within groups of four lanes; responsibilities go to shared memory, the even components of a group
//!    before the odd, so that lanes write to different banks.
//!
//! Then features times responsibilities are added to sums that stay in registers for the whole kernel: the registers of
//! the warp itself ([`warp`]), or, if those are too few, the registers of all warps of the block ([`block`]). So sums
//! accumulate in `f64` without being written to memory, and each block writes one partial result. The grid size
//! determines the order of additions: the same grid gives the same bits.

pub mod block;
pub mod instances;
mod joint;
mod parts;
pub mod warp;

pub use instances::{Instance, Pass};
#[cfg(not(target_arch = "nvptx64"))]
pub use instances::{block_of, kernel};

/// Rows that a block of `threads` threads processes at a time: sixteen per warp.
pub const fn rows_of_block(threads: u32) -> u64 {
    (crate::em::features::GROUP * threads / crate::device::WARP) as u64
}

/// Threads of a block of `W` warps.
#[cfg(not(target_arch = "nvptx64"))]
pub fn threads<const W: usize>(_: &Pass) -> u32 {
    W as u32 * crate::device::WARP
}
