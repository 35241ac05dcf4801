//! Weighted moments of a chunk of rows about the components' means: Σ r, Σ r z, Σ r z zᵀ with `z = x − mean`.
//!
//! Each block owns a piece of the statistics and one split of the chunk's rows, and writes its piece of that split's
//! partial result: every element is written by one thread of one block. `reduce` adds the splits in order.

pub mod diag;
pub mod full;
pub mod spherical;
pub mod tied;

use crate::device::{self, Shared, thread};
use crate::layout::{Kind, TILE_ROWS, statistics_len, tiles};
use crate::{Real, THREADS};

kernels! {
    /// One chunk of `n` rows; the grid is (`blocks(kind, k, d)`, splits).
    Sums<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n, k)` tiled: responsibilities times row weights.
        responsibilities: *const T,
        /// Rows of the chunk.
        n: u64,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// `(k, d)`: the centres, which are the means less the shift.
        mean_high: *const T,
        /// `(k, d)`: rounding errors of `mean_high`.
        mean_low: *const T,
        /// `(splits, statistics_len(kind, k, d))`, written.
        partials: *mut f64,
    }
    /// Full covariances.
    full => moments_full_f32, moments_full_f64, full::body, full::shared_bytes;
    /// A tied covariance.
    tied => moments_tied_f32, moments_tied_f64, tied::body, full::shared_bytes;
    /// Diagonal covariances.
    diag => moments_diag_f32, moments_diag_f64, diag::body, diag::shared_bytes;
    /// Spherical covariances.
    spherical => moments_spherical_f32, moments_spherical_f64, spherical::body, diag::shared_bytes;
}

/// Columns, and components, that a block processes at a time.
pub const SIDE: u32 = 16;

/// Blocks in `x`: full `k*p*(p+1)/2` with `p = ceil(d/16)`, tied `p*(p+1)/2`, diag `ceil(k/16)*p`, spherical
/// `ceil(k/16)`.
pub const fn blocks(kind: Kind, k: u32, d: u32) -> u32 {
    let (p, groups) = (d.div_ceil(SIDE), k.div_ceil(SIDE));
    match kind {
        Kind::Full => k * (p * (p + 1) / 2),
        Kind::Tied => p * (p + 1) / 2,
        Kind::Diag => groups * p,
        Kind::Spherical => groups,
    }
}

/// Elements from one row of a staged tile to the next: 16 elements and 16 bytes more, so that threads that access 16
/// bytes of neighbouring rows use different banks.
const fn stride<T: Real>() -> u32 {
    SIDE + 16 / T::BYTES
}

/// Bytes of a staged tile of 128 rows by 16 columns.
const fn staged_bytes<T: Real>() -> u32 {
    TILE_ROWS * stride::<T>() * T::BYTES
}

/// Tiles of this block's split: the first, and one past the last.
#[inline(always)]
fn split(n: u64) -> (u64, u64) {
    let (s, splits) = (thread::block_idx_y() as u64, thread::grid_dim_y().max(1) as u64);
    (tiles(n) * s / splits, tiles(n) * (s + 1) / splits)
}

/// Start of this split's partial result.
#[inline(always)]
fn partial<T: Real>(a: &Sums<T>, kind: Kind) -> *mut f64 {
    a.partials.wrapping_add((thread::block_idx_y() as u64 * statistics_len(kind, a.k, a.d)) as usize)
}

/// Responsibility of this thread's row of a tile for component `c`; 0 past the last row.
#[inline(always)]
unsafe fn responsibility<T: Real>(a: &Sums<T>, tile: u64, c: u32) -> T {
    let lane = thread::thread_idx_x() as u64;
    if tile * TILE_ROWS as u64 + lane < a.n && c < a.k {
        let at = (tile * a.k as u64 + c as u64) * TILE_ROWS as u64 + lane;
        // SAFETY: the row is below `n` and `c < k`.
        unsafe { device::load(a.responsibilities, at) }
    } else {
        T::ZERO
    }
}

/// Entry `j` of this thread's row of a tile; 0 past the last column. Tiles are padded, so every row can be read.
#[inline(always)]
unsafe fn entry<T: Real>(a: &Sums<T>, tile: u64, j: u32) -> T {
    if j < a.d {
        let at = (tile * a.d as u64 + j as u64) * TILE_ROWS as u64 + thread::thread_idx_x() as u64;
        // SAFETY: `j < d`, and `x` is tiled, with whole tiles.
        unsafe { device::load(a.x, at) }
    } else {
        T::ZERO
    }
}

/// Means of component `c` in columns `j..j+N`, 0 past the last: high and low parts.
#[inline(always)]
unsafe fn means<T: Real, const N: usize>(a: &Sums<T>, c: u32, j: u32) -> ([T; N], [T; N]) {
    let (mut high, mut low) = ([T::ZERO; N], [T::ZERO; N]);
    let mut v = 0;
    while v < N {
        if c < a.k && j + (v as u32) < a.d {
            let at = c as u64 * a.d as u64 + (j + v as u32) as u64;
            // SAFETY: `c < k` and `j + v < d`.
            unsafe { (high[v], low[v]) = (device::load(a.mean_high, at), device::load(a.mean_low, at)) };
        }
        v += 1;
    }
    (high, low)
}

/// Stages 16 values of this thread's row, given four at a time.
#[inline(always)]
fn stage<T: Real>(to: Shared<T>, four: impl Fn(u32) -> [T; 4]) {
    let mut q = 0;
    while q < SIDE {
        to.store4(thread::thread_idx_x() * stride::<T>() + q, four(q));
        q += 4;
    }
}

const _: () = assert!(THREADS == TILE_ROWS, "a thread stages one row");
