//! The rows' features in fp16, computed once: they do not change between iterations.

use crate::Real;
use crate::THREADS;
use crate::device::mma::{multiply_halves, to_halves};
use crate::device::{self, thread};
use crate::each::each;
use crate::em::features::derive;
use crate::em::wgmma::linear::{ROWS, column, core_bytes, groups};
use crate::layout::TILE_ROWS;

kernels! {
    /// Any grid size in `x`; a block processes 64 rows at a time.
    Features {
        /// `(n, d)` tiled: rows less the shift; 16-byte aligned.
        x: *const f32,
        /// `(ceil(n/128)*128,)`: squared norms of the rows if they are a feature; else null; 16-byte aligned.
        norms: *const f32,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`mod@derive`].
        derive: u32,
        /// One of [`FEATURES`](crate::em::wgmma::linear::FEATURES).
        features: u32,
        /// `(d+1,)`: scales of columns and norms; powers of two.
        scales: *const f32,
        /// [`Linear::feature_words`](crate::em::wgmma::linear::Linear::feature_words) words, 16-byte aligned, written:
        /// core matrices whose rows are features.
        out: *mut u32,
    }
    /// The kernel.
    wgmma_features => body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Features) -> u64 {
    0
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Features`] document.
#[inline(always)]
unsafe fn body(a: Features) {
    let words = core_bytes(a.features) / 4;
    let mut group = thread::block_idx_x() as u64;
    while group < groups(a.n) {
        let (tile, first) = (group / 2, (group % 2) as u32 * ROWS);
        let mut line = thread::thread_idx_x();
        while line < words / 4 {
            // Core matrices have eight rows; all data rows of eight features come before the next features.
            let (f, row) = (line / 64 * 8 + line % 8, first + line / 8 % 8 * 8);
            let (j, square) = column(f, a.features, a.derive == derive::SQUARES);
            let mut out = [0; 4];
            let from = if j < a.d {
                a.x.wrapping_add(((tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + row as u64) as usize)
            } else {
                a.norms.wrapping_add((tile * TILE_ROWS as u64 + row as u64) as usize)
            };
            if j < a.d || (j == a.d && a.derive == derive::NORM) {
                // SAFETY: eight rows of a tile, which is padded past the last row; `j ≤ d`, and `scales` has `d + 1`
                // elements.
                unsafe {
                    let scale = device::load(a.scales, j as u64);
                    each(2, |half| {
                        let [p, q, r, s]: [f32; 4] = Real::global_load4(from.wrapping_add(4 * half));
                        out[2 * half] = to_halves(p * scale, q * scale);
                        out[2 * half + 1] = to_halves(r * scale, s * scale);
                    });
                }
                if square {
                    each(4, |i| out[i] = multiply_halves(out[i], out[i]));
                }
            }
            // SAFETY: the index is within the group's features, and only this thread writes it.
            unsafe { device::store4(a.out, group * words as u64 + (4 * line) as u64, out) };
            line += THREADS;
        }
        group += thread::grid_dim_x() as u64;
    }
}
