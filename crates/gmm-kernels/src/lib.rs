//! Device code of the Gaussian mixture system: each algorithm once, for PTX and for a host emulator that checks it.
//!
//! On `nvptx64` this crate is `no_std` and becomes one PTX module per target (`cargo xtask build-ptx`); on a host it
//! is a library with three uses:
//! - the host's launcher takes the committed modules (`ptx`, a feature that is on by default), and for each kernel a
//!   [`Kernel`]: its name, its parameters, its block size and its shared memory as a formula. Entry points and parameter
//!   lists come from one macro, so launcher and kernel cannot disagree;
//! - tests run every kernel body in [`device::emulate`], which also finds races, hangs and stray accesses;
//! - a fake driver can do the same, since by the feature `emulator` each [`Kernel`] carries its body.
//!
//! # One pass over the data
//!
//! Rows are held as `x − shift` in *tiles* ([`layout`]): 128 rows, each column contiguous. Thread `t` of a block takes
//! row `t` of a tile, so every read is coalesced for every `d`, a chunk of rows is one piece of memory, and chunks of
//! any number of rows follow one another without a stride that depends on `n`. Responsibilities are tiled alike.
//!
//! A pass goes over the rows in chunks that start at a tile, small enough that a chunk's responsibilities stay in the
//! L2 cache:
//! 1. [`em::simple::e_step`]: log joint densities, log-sum-exp, responsibilities into the chunk's buffer; a block's Σ w ln p(x);
//! 2. [`em::simple::moments`]: weighted moments about the components' means, one partial result per split of the chunk's rows;
//! 3. [`reduce`]: partial results into the statistics, in a fixed order. No atomics: the same rows, parameters and
//!    grid give the same bits.
//!
//! [`log_likelihood::mixing`] puts components together whose densities are kept.
//!
//! Since Ampere, [`em`] does whole iterations without the host, on the tensor cores, and [`seeding::lloyd`] those of k-means; the
//! passes above remain for everything else: older chips, starts, evaluation, and mixtures for which features would lose digits.
//!
//! **What keeps `f32` exact.** The shift is taken out before rounding; means come as two numbers, `high + low`, so that
//! `x − mean` has an error relative to itself and not to the mean; products are `f32`, and in the passes above at most 16
//! or 32 of them are added in `f32`, and everything longer in `f64`. [`em`] says what its kernels do.
#![cfg_attr(target_arch = "nvptx64", no_std)]
// Without an emulator the host knows kernels by their names and sizes alone.
#![cfg_attr(not(any(target_arch = "nvptx64", feature = "emulator")), allow(dead_code, unused_imports))]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx, stdarch_nvptx, asm_experimental_arch, link_llvm_intrinsics))]
// `link_llvm_intrinsics`: warp shuffles.
#![cfg_attr(target_arch = "nvptx64", allow(internal_features))]
// Device functions are inlined into entries by force: a call would cost registers, and name its crate in the PTX.
#![allow(clippy::inline_always)]

#[macro_use]
mod kernel;

pub mod device;
mod each;
pub mod em;
pub mod layout;
pub mod log_likelihood;
pub mod math;
pub mod probe;
pub mod products;
pub mod reduce;
pub mod seeding;
pub mod tile;

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

/// Threads in a block, of most kernels: one for each row of a tile.
pub const THREADS: u32 = layout::TILE_ROWS;

#[cfg(target_arch = "nvptx64")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
