//! Device code for Gaussian mixtures: each algorithm is written once, for PTX and for a host emulator that checks it.
//!
//! On `nvptx64` this crate is `no_std` and compiles to PTX (`cargo xtask build-ptx`), which [`module`] translates for each target. On a host
//! it is a library with three uses:
//! - The host's launcher takes the committed kernels (`ptx`, a default feature) and a [`Kernel`] for each kernel: its
//!   name, parameters, block size and a formula for its shared memory. One macro makes both the entry point and the
//!   parameter list, so launcher and kernel cannot disagree.
//! - Tests run every kernel body in [`device::emulate`], which also detects races, hangs and out-of-bounds accesses.
//! - A fake CUDA driver can do the same: with the feature `emulator` each [`Kernel`] carries its body.
//!
//! # One pass over the data
//!
//! Rows are stored as `x − shift` in *tiles* ([`layout`]): 128 rows, each column contiguous. Thread `t` of a block
//! takes row `t` of a tile. Every read is then coalesced for every `d`, a chunk of rows is one contiguous range, and
//! chunks of any number of rows follow one another without a stride that depends on `n`. Responsibilities are tiled the
//! same way.
//!
//! A pass processes the rows in chunks that start at a tile and are small enough for a chunk's responsibilities to stay
//! in the L2 cache:
//! 1. [`em::simple::e_step`]: log joint densities, log-sum-exp, responsibilities into the chunk's buffer; Σ w ln p(x)
//!    per block.
//! 2. [`em::simple::moments`]: weighted moments about the components' means, one partial result per split of the
//!    chunk's rows.
//! 3. [`reduce`]: partial results into the statistics, in a fixed order. There are no atomics: the same rows,
//!    parameters and grid give the same bits.
//!
//! [`many`] runs whole fits of few rows, a block each. [`truncated`] finds a few components for each row. [`deconvolution`] passes over rows with measurement errors.
//! [`sort`] puts rows in the order of their components. [`log_likelihood::mixing`] combines stored component densities into a mixture's log-likelihood.
//!
//! On Ampere and later, [`em`] runs whole iterations on the tensor cores without the host, and [`seeding::lloyd`] does
//! so for k-means. The passes above serve everything else: older chips, starts, evaluation, and mixtures for which the
//! feature products would lose precision.
//!
//! **What keeps `f32` accurate.** The shift is subtracted before rounding. Means are passed as two numbers, `high +
//! low`, so that the error of `x − mean` is relative to the difference and not to the mean. Products are `f32`. In the
//! passes above at most 16 or 32 products are added in `f32`; longer sums are `f64`. [`em`] documents the precision of
//! its own kernels.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Without the emulator, the host uses only the names and sizes of kernels.
#![cfg_attr(not(any(target_arch = "nvptx64", feature = "emulator")), allow(dead_code, unused_imports))]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics))]
// `link_llvm_intrinsics`: warp shuffles.
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
// Force device functions inline into entries: a call would cost registers and put its crate's name into the PTX.
#![allow(clippy::inline_always)]

#[macro_use]
mod kernel;

pub mod deconvolution;
pub mod device;
mod each;
pub mod em;
pub mod layout;
pub mod log_likelihood;
pub mod many;
pub mod math;
#[cfg(not(target_arch = "nvptx64"))]
pub mod module;
pub mod probe;
pub mod products;
pub mod reduce;
pub mod seeding;
pub mod sort;
pub mod tile;
pub mod truncated;

mod real;
pub use real::Real;

#[cfg(all(not(target_arch = "nvptx64"), feature = "ptx"))]
pub mod ptx;
#[cfg(not(target_arch = "nvptx64"))]
mod signature;

#[cfg(not(target_arch = "nvptx64"))]
pub use kernel::{Arguments, Kernel};
#[cfg(not(target_arch = "nvptx64"))]
pub use signature::{Signature, signatures};

/// Threads per block in most kernels: one for each row of a tile.
pub const THREADS: u32 = layout::TILE_ROWS;

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
