//! What is found about the rows before the first iteration: squared norms, and powers of two by which columns are scaled, so
//! that squares of what they hold fit into half precision.

use crate::THREADS;
use crate::device::{self, Shared, block_max, thread};
use crate::em::chunked::double_precision::norms::squared_norm;
use crate::layout::{TILE_ROWS, tiles};

kernels! {
    /// The grid is `d+1` blocks: one for each column, and one for the norms.
    Scales {
        /// `(n, d)` tiled: rows less the shift.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms, or null.
        norms: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d+1,)`, written: of the columns, then of the norms.
        scales: *mut f32,
    }
    /// The kernel.
    halves_scales => body, shared_bytes;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(_: &Scales) -> u64 {
    4 * (THREADS / crate::device::WARP) as u64
}

kernels! {
    /// Any grid in `x`; a block takes a tile at a time.
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
    halves_norms => norms_of_rows, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Norms) -> u64 {
    0
}

/// The kernel of [`Norms`].
///
/// # Safety
/// As the fields of [`Norms`] say.
#[inline(always)]
unsafe fn norms_of_rows(a: Norms) {
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        // SAFETY: a row of the tile.
        unsafe {
            let norm = squared_norm(a.x, a.d, tile);
            device::store(a.norms, tile * TILE_ROWS as u64 + thread::thread_idx_x() as u64, norm as f32);
        }
        tile += thread::grid_dim_x() as u64;
    }
}

/// Columns stay below `2^COLUMN`, so squares below `2^(2*COLUMN)`; norms below that.
const COLUMN: i32 = 7;

/// A power of two as a number, for exponents of normal ones; others are brought to the nearest.
#[inline(always)]
pub(crate) fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent.clamp(-126, 127) + 127) as u32) << 23)
}

/// The exponent of a positive number: it is at least `2^e` and less than `2^(e+1)`.
#[inline(always)]
pub(crate) fn exponent(v: f32) -> i32 {
    (v.to_bits() >> 23 & 0xff) as i32 - 127
}

/// The kernel.
///
/// # Safety
/// As the fields of [`Scales`] say.
#[inline(always)]
pub unsafe fn body(a: Scales) {
    let (t, j) = (thread::thread_idx_x() as u64, thread::block_idx_x());
    let rows = TILE_ROWS as u64;
    let mut most = 0.0_f32;
    let mut tile = 0;
    // Where there are no norms their scale is 1.
    while tile < tiles(a.n) && (j < a.d || !a.norms.is_null()) {
        // SAFETY: a row of a tile, which is filled up past the last.
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
        // Two of them have a product within `f32`.
        let e = (limit - 1 - exponent(most)).clamp(-60, 60);
        let scale = if most > 0.0 { power_of_two(e) } else { 1.0 };
        // SAFETY: one of `d+1`.
        unsafe { device::store(a.scales, j as u64, scale) };
    }
}

const _: () = assert!(THREADS == TILE_ROWS);
