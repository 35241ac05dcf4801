//! One whole E- and M-pass in one kernel: no responsibility leaves the chip.
//!
//! A warp takes sixteen rows at a time from their arrival to their responsibilities:
//! 1. entries into shared memory as `f64`, and what the family derives of them; the next rows are then sent for;
//! 2. log joint densities: features times coefficients on the tensor cores, all in `f64`;
//! 3. log-sum-exp within groups of four lanes, responsibilities into shared memory: the even components of a group, then
//!    the odd, so that lanes write to different banks.
//!
//! Then come sums, features times responsibilities, into registers that live as long as the kernel: those of the warp
//! itself ([`of_warp`]), or, where it has not registers enough, of all warps of its block ([`of_block`]). So sums are
//! added up in `f64` without ever being written, and a block leaves one partial result. The grid decides the order of
//! additions; the same grid gives the same bits.

mod joint;
pub mod of_block;
pub mod of_warp;
mod parts;

/// What is derived from a row's entries while they are staged.
pub mod derive {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// Column `d` is the sum of the entries' squares.
    pub const NORM: u32 = 1;
    /// The later half of the columns are the squares of the entries in the first.
    pub const SQUARES: u32 = 2;
}

/// What the kernels of this module take; see [`Pass`](super::Pass).
pub(super) use super::Pass;

/// Threads of a block of `W` warps.
#[cfg(not(target_arch = "nvptx64"))]
pub fn threads<const W: usize>(_: &Pass) -> u32 {
    W as u32 * crate::device::WARP
}
