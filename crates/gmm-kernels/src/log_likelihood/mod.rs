//! Log-likelihoods of rows under mixtures: of many at once ([`batches`]), of one ([`single_mixture`]), in fixed point
//! ([`fixed_point`]); and of mixtures whose components' densities are kept ([`mixing`]).

#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod batches;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
mod entries;
#[cfg(any(not(target_arch = "nvptx64"), feature = "sm_80"))]
pub mod fixed_point;
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
