//! Log-likelihoods of rows under mixtures: many mixtures at once ([`batches`]), a single one ([`single_mixture`]), or
//! many in fixed point ([`fixed_point`]); and of mixtures whose component densities are stored ([`mixing`]).

#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod batches;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
mod entries;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod fixed_point;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
mod fixed_point_sums;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
mod logs;
pub mod mixing;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod pass;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod single_mixture;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
mod staged;

#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub use batches::*;
