//! The device primitives: the only operations through which kernels use the hardware.
//!
//! Two implementations provide them: `ptx`, one instruction each, and `emulated`, which runs a block as coroutines on
//! the host and checks what a GPU would let pass (see [`emulate`]). Names follow `cuda_std` if it has the primitive.

#[cfg(target_arch = "nvptx64")]
mod ptx;
#[cfg(target_arch = "nvptx64")]
use ptx as machine;

#[cfg(not(target_arch = "nvptx64"))]
mod emulated;
#[cfg(not(target_arch = "nvptx64"))]
use emulated as machine;

#[cfg(not(target_arch = "nvptx64"))]
pub use emulated::{Buffer, emulate};

mod block;
pub mod mma;
mod prefetch;
pub mod ring;
mod shared;
pub mod warpgroup;

pub use block::{block_max, block_sum, block_sums, block_sums_of, first_lanes_sums, warp_sums};
pub use machine::Pairs;
pub(crate) use machine::array_parameter;
pub use machine::{await_previous_grid, count_block, unknown};
pub use prefetch::{Prefetch, copies};
pub use shared::{Integers, Shared};

pub(crate) mod words {
    //! Bit-level primitives behind [`Real`](crate::Real) and [`Shared`](super::Shared).
    pub(crate) use super::machine::{
        copies_arrive, copy_ahead_u64, exp2_approx_f32, fma_f32, fma_f64, global_load_u32x4, global_load_u64x2,
        global_store_u32x4, log2_approx_f32, reciprocal_approx_f32, reciprocal_approx_f64, shared_load_u32,
        shared_load_u32x4, shared_load_u64, shared_load_u64x2, shared_store_u32, shared_store_u32x4, shared_store_u64,
        shared_store_u64x2, shuffle_idx_u64, shuffle_xor_u64, sqrt_f32, sqrt_f64,
    };
    pub(crate) use super::machine::{global_load_u32x4_keeping, keeping};
}

/// Threads in a warp.
pub const WARP: u32 = 32;

/// Thread and block indices, and the block's barrier.
pub mod thread {
    pub use super::machine::{
        block_dim_x, block_idx_x, block_idx_y, grid_dim_x, grid_dim_x_anew, grid_dim_y, sync_threads, thread_idx_x,
        thread_idx_x_anew,
    };

    /// Index of this thread among all threads of a one-dimensional grid.
    #[inline(always)]
    pub fn index_1d() -> u64 {
        block_idx_x() as u64 * block_dim_x() as u64 + thread_idx_x() as u64
    }

    /// Number of threads in a one-dimensional grid.
    #[inline(always)]
    pub fn count_1d() -> u64 {
        grid_dim_x() as u64 * block_dim_x() as u64
    }
}

/// Warp-wide primitives: all 32 lanes must call them together.
pub mod warp {
    pub use super::machine::{any, ballot, shuffle_idx_u32, shuffle_xor_u32, sync_warp};

    /// Index of this thread within its warp.
    #[inline(always)]
    pub fn lane_id() -> u32 {
        super::thread::thread_idx_x() % super::WARP
    }

    /// A bit for each lane below this one.
    #[inline(always)]
    pub fn lanes_below() -> u32 {
        (1 << lane_id()) - 1
    }

    /// The value of lane `lane_id() ^ mask`.
    #[inline(always)]
    pub fn shuffle_xor<T: crate::Real>(value: T, mask: u32) -> T {
        value.shuffle_xor(mask)
    }
}

/// The condition, as a value of which the compiler knows nothing. Between two tests of the same condition it may make two
/// copies of a barrier, one for each outcome, and threads then wait for one another in different copies.
#[inline(always)]
pub(crate) fn anew(condition: bool) -> bool {
    unknown(u32::from(condition)) != 0
}

/// Reads `p[i]` of global memory.
///
/// # Safety
/// `p[i]` must be in a live allocation of the device.
#[inline(always)]
pub unsafe fn load<T: Copy>(p: *const T, i: u64) -> T {
    let at = p.wrapping_add(i as usize);
    machine::check_load(at, 1);
    // SAFETY: the caller upholds `# Safety`: `p[i]` is live.
    unsafe { *at }
}

/// Writes `p[i]` of global memory.
///
/// # Safety
/// As for [`load`]. In addition, no other thread of the grid may access `p[i]` in this launch, except threads of the
/// same block across a barrier.
#[inline(always)]
pub unsafe fn store<T: Copy>(p: *mut T, i: u64, value: T) {
    let at = p.wrapping_add(i as usize);
    machine::check_store(at.cast_const(), 1);
    // SAFETY: the caller upholds `# Safety`: `p[i]` is live, and no other thread accesses it concurrently.
    unsafe { *at = value };
}

/// Writes `p[i..i+4]` of global memory, 16-byte aligned.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
pub unsafe fn store4(p: *mut u32, i: u64, values: [u32; 4]) {
    // SAFETY: the caller upholds `# Safety`: `p[i..i+4]` is live, aligned, and not accessed concurrently.
    unsafe { machine::global_store_u32x4(p.wrapping_add(i as usize), values) };
}

/// Prefetches the line at `p` into the L2 cache. A hint: `p` may be any address.
#[inline(always)]
pub fn prefetch<T>(p: *const T) {
    machine::prefetch(p.cast());
}
