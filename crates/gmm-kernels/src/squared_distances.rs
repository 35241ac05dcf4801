//! `out[i] = min(out[i], |x_i − centre|²)`: one more centre for k-means++.

use crate::Real;
use crate::device::{self, thread};
use crate::layout::{TILE_ROWS, tiles};
use crate::nearest::squared_distance;

kernels! {
    /// `n` rows; a grid of any number of blocks in `x` strides over their tiles.
    SquaredDistances<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d,)`: the centre less the shift.
        centre_high: *const T,
        /// `(d,)`: what rounding took from it.
        centre_low: *const T,
        /// `(n,)`, lowered.
        out: *mut f64,
    }
    /// The kernel.
    squared_distances => squared_distances_f32, squared_distances_f64, body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &SquaredDistances<T>) -> u64 {
    0
}

/// The kernel.
///
/// # Safety
/// As the fields of [`SquaredDistances`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: SquaredDistances<T>) {
    let (rows, lane) = (TILE_ROWS as u64, thread::thread_idx_x() as u64);
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        let row = tile * rows + lane;
        if row < a.n {
            // SAFETY: `row < n`.
            unsafe {
                let x = a.x.wrapping_add((tile * rows * a.d as u64 + lane) as usize);
                let distance = squared_distance(x, a.d, a.centre_high, a.centre_low, 0).to_f64();
                if distance < device::load(a.out.cast_const(), row) {
                    device::store(a.out, row, distance);
                }
            }
        }
        tile += thread::grid_dim_x() as u64;
    }
}
