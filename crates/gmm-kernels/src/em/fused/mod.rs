//! One whole E- and M-pass in one kernel: no responsibility leaves the chip.
//!
//! A warp takes sixteen rows at a time from their arrival to their responsibilities:
//! 1. entries into shared memory as `f64`, and what the family derives of them; the next rows are then sent for;
//! 2. log joint densities: features times coefficients on the tensor cores, all in `f64`;
//! 3. log-sum-exp within groups of four lanes, responsibilities into shared memory: the even components of a group, then
//!    the odd, so that lanes write to different banks.
//!
//! Then come sums, features times responsibilities, into registers that live as long as the kernel: those of the warp
//! itself ([`warp`]), or, where it has not registers enough, of all warps of its block ([`block`]). So sums are
//! added up in `f64` without ever being written, and a block leaves one partial result. The grid decides the order of
//! additions; the same grid gives the same bits.

pub mod block;
pub mod instances;
mod joint;
mod parts;
pub mod warp;

pub use instances::{Pass, Variant};
#[cfg(not(target_arch = "nvptx64"))]
pub use instances::{block_of, kernel};

/// Rows that a block of so many threads takes at a time: sixteen for each of its warps.
pub const fn rows_of_block(threads: u32) -> u64 {
    (crate::em::features::GROUP * threads / crate::device::WARP) as u64
}

/// Threads of a block of `W` warps.
#[cfg(not(target_arch = "nvptx64"))]
pub fn threads<const W: usize>(_: &Pass) -> u32 {
    W as u32 * crate::device::WARP
}
