//! EM without a host: one kernel for a whole pass, one for the M-step, and a state that says when to stop.
//!
//! A loop enqueues, per iteration, a pass ([`pass`]), the reduction
//! of its blocks' partial results ([`reduce_blocks`](crate::reduce::reduce_blocks)), and [`update`]; the host looks at
//! [`state`] when it likes. A launch after the end finds that out and returns.
//!
//! In [`pass`] and [`large`] everything between the rows and the new parameters is `f64` (only the exponential is in the
//! rows' precision), on the tensor cores, where that costs what `f32` costs elsewhere. For `f32` rows there are two faster
//! ways, which add up some hundred ([`narrow`]) or thousand ([`halves`]) rows in `f32` before they go on in `f64`, and say so
//! where they would lose digits by what they do.

pub mod features;
pub mod halves;
mod lanes;
pub mod large;
mod likelihood;
pub mod narrow;
pub mod pass;
pub mod place;
pub mod scores;
mod staging;
pub mod state;
mod top;
pub mod update;
pub mod variants;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_90a"))]
pub mod warpgroups;

pub use variants::{Pass, Variant};
#[cfg(not(target_arch = "nvptx64"))]
pub use variants::{block, kernel};

use crate::layout::Kind;

/// What features are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Entries and their products: full covariances.
    Full,
    /// The same, one entry more than a multiple of four.
    FullAndOne,
    /// Entries, and what is derived of them: spherical and tied covariances.
    Linear,
    /// Entries and their squares: diagonal covariances.
    Squares,
}

/// What is derived of a row for a kind.
pub const fn derived(kind: Kind) -> u32 {
    match kind {
        Kind::Full | Kind::Tied => pass::derive::NOTHING,
        Kind::Diag => pass::derive::SQUARES,
        Kind::Spherical => pass::derive::NORM,
    }
}

/// Rows that a block of so many threads takes at a time: sixteen for each of its warps.
pub const fn rows_of_block(threads: u32) -> u64 {
    (features::GROUP * threads / crate::device::WARP) as u64
}
