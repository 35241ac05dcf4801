//! Squared norms of rows, a feature of spherical covariances; computed once per loop.

use crate::device::{self, thread};
use crate::layout::{TILE_ROWS, tiles};
use crate::{Real, THREADS};

kernels! {
    /// Any grid size in `x`; a block processes a tile at a time.
    Norms<T> {
        /// `(n, d)` tiled.
        x: *const T,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(ceil(n/128)*128,)`, written.
        norms: *mut f64,
    }
    /// The kernel.
    norms => chunked_f64_norms_f32, chunked_f64_norms_f64, body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &Norms<T>) -> u64 {
    0
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Norms`] document.
#[inline(always)]
pub unsafe fn body<T: Real>(a: Norms<T>) {
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: `tile < tiles(n)`; `norms` has 128 elements per tile.
        unsafe {
            let norm = squared_norm(a.x, a.d, tile);
            device::store(a.norms, tile * TILE_ROWS as u64 + thread::thread_idx_x() as u64, norm);
        }
        tile += thread::grid_dim_x() as u64;
    }
}

/// Squared norm of this thread's row of a tile.
///
/// # Safety
/// `tile` is a tile of `x`, which is `(n, d)` tiled.
#[inline(always)]
pub(crate) unsafe fn squared_norm<T: Real>(x: *const T, d: u32, tile: u64) -> f64 {
    let mut sum = 0.0;
    let mut j = 0;
    while j < d {
        let at = (tile * d as u64 + j as u64) * TILE_ROWS as u64 + thread::thread_idx_x() as u64;
        // SAFETY: `j < d`, and the tile is padded past the last row.
        let v = unsafe { device::load(x, at) }.to_f64();
        sum += v * v;
        j += 1;
    }
    sum
}

const _: () = assert!(THREADS == TILE_ROWS);
