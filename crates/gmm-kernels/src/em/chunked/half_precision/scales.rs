//! Properties of the rows, computed before the first iteration: squared norms, and powers of two that scale columns so
//! that the squares of their entries fit into fp16.

use crate::THREADS;
use crate::device::{self, Shared, block_max, thread};
use crate::em::chunked::double_precision::norms::squared_norm;
use crate::layout::{TILE_ROWS, tiles};

kernels! {
    /// The grid is `d+1` blocks: one per column, and one for the norms.
    Scales {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms, or null.
        norms: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d+1,)`, written: scales of the columns, then of the norms.
        scales: *mut f32,
    }
    /// The kernel.
    chunked_half_scales => body, shared_bytes;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Scales) -> u64 {
    4 * (THREADS / crate::device::WARP) as u64
}

kernels! {
    /// Any grid size in `x`; a block processes a tile at a time.
    Norms {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(ceil(n/128)*128,)`, written: squared norms.
        norms: *mut f32,
    }
    /// The kernel.
    chunked_half_norms => norms_of_rows, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Norms) -> u64 {
    0
}

/// Body of the kernel of [`Norms`].
///
/// # Safety
/// The buffers in `a` are as the fields of [`Norms`] document.
#[inline(always)]
unsafe fn norms_of_rows(a: Norms) {
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: `tile < tiles(n)`; `norms` has 128 elements per tile.
        unsafe {
            let norm = squared_norm(a.x, a.d, tile);
            device::store(a.norms, tile * TILE_ROWS as u64 + thread::thread_idx_x() as u64, norm as f32);
        }
        tile += thread::grid_dim_x() as u64;
    }
}

/// Scaled columns are below `2^COLUMN`, so squares are below `2^(2*COLUMN)`, and so are scaled norms.
const COLUMN: i32 = 7;

/// Returns `2^exponent`, with the exponent clamped to that of normal `f32`.
#[inline(always)]
pub(crate) fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent.clamp(-126, 127) + 127) as u32) << 23)
}

/// Returns the exponent `e` of a positive `v`: `2^e ≤ v < 2^(e+1)`.
#[inline(always)]
pub(crate) fn exponent(v: f32) -> i32 {
    (v.to_bits() >> 23 & 0xff) as i32 - 127
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Scales`] document.
#[inline(always)]
pub unsafe fn body(a: Scales) {
    let (t, j) = (thread::thread_idx_x() as u64, thread::block_idx_x());
    let rows = TILE_ROWS as u64;
    let mut most = 0.0_f32;
    let mut tile = 0;
    // Without norms, their scale is 1.
    while tile < tiles(a.n) && (j < a.d || !a.norms.is_null()) {
        // SAFETY: a row of a tile, which is padded past the last row; `norms` is not null if it is read.
        let v = unsafe {
            if j < a.d {
                device::load(a.x, (tile * a.d as u64 + j as u64) * rows + t)
            } else {
                device::load(a.norms, tile * rows + t)
            }
        };
        let v = if v < 0.0 { -v } else { v };
        most = if v > most { v } else { most };
        tile += 1;
    }
    let most = block_max(most, Shared::at(0));
    if t == 0 {
        let limit = if j < a.d { COLUMN } else { 2 * COLUMN };
        // The clamp keeps the product of two scales within `f32`.
        let e = (limit - 1 - exponent(most)).clamp(-60, 60);
        let scale = if most > 0.0 { power_of_two(e) } else { 1.0 };
        // SAFETY: `j ≤ d`, and `scales` has `d + 1` elements.
        unsafe { device::store(a.scales, j as u64, scale) };
    }
}

const _: () = assert!(THREADS == TILE_ROWS);
