//! Conversion between row-major and tiled layout, through shared memory so that both sides are coalesced; and selection
//! of rows of a tiled matrix.
//!
//! A block that transposes takes 32 rows and, one after another, groups of 32 columns: each warp reads along one side
//! and writes along the other. If there are fewer columns, the lanes go on in the next rows.

use crate::device::{self, Shared, WARP, thread};
use crate::layout::{TILE_ROWS, tiled_index, tiles};
use crate::{Real, THREADS};

kernels! {
    /// Converts `(n, columns)` row-major to tiled; any number of blocks along `x`.
    Tile<T> {
        /// `(n, columns)` row-major; `f32` or `f64`, as the kernel's name states.
        from: *const u8,
        /// Rows.
        n: u64,
        /// Columns.
        columns: u32,
        /// `(columns,)`, or null: subtracted from each row before it is rounded to `T`.
        shift: *const f64,
        /// `(n,)`, or null: factor of each row, applied after the shift.
        scale: *const f64,
        /// `tiled_len(n, columns)`, written; rows past `n` are set to 0.
        to: *mut T,
    }
    /// The kernel for `f32` input.
    tile_from_f32 => tile_from_f32_f32, tile_from_f32_f64, from_f32, shared_bytes;
    /// The kernel for `f64` input.
    tile_from_f64 => tile_from_f64_f32, tile_from_f64_f64, from_f64, shared_bytes;
}

kernels! {
    /// Converts `(n, columns)` tiled to row-major `f64`; any number of blocks along `x`.
    Untile<T> {
        /// `tiled_len(n, columns)`.
        from: *const T,
        /// Rows.
        n: u64,
        /// Columns.
        columns: u32,
        /// `(n, columns)` row-major, written.
        to: *mut f64,
    }
    /// The kernel.
    untile => untile_f32, untile_f64, untile_body, untile_shared_bytes;
}

kernels! {
    /// Copies some rows of an `(n, columns)` tiled matrix; any grid, with columns along `y`.
    Pick<T> {
        /// `tiled_len(n, columns)`.
        from: *const T,
        /// `(count,)`: indices of the rows, each below `n`.
        rows: *const u64,
        /// Number of rows to copy.
        count: u64,
        /// Columns.
        columns: u32,
        /// `tiled_len(count, columns)`, written; rows past `count` are set to 0.
        to: *mut T,
    }
    /// The kernel.
    pick => pick_f32, pick_f64, pick_body, no_shared;
}

/// Stride of a row of 32 numbers in shared memory: 33, so that the numbers of a column lie in different banks.
const STRIDE: u32 = WARP + 1;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &Tile<T>) -> u64 {
    u64::from(WARP * STRIDE * T::BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn untile_shared_bytes<T: Real>(_: &Untile<T>) -> u64 {
    u64::from(WARP * STRIDE * T::BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &Pick<T>) -> u64 {
    0
}

/// Visits the 32×32 blocks of an `(n, columns)` matrix padded to whole tiles. If `rows_first` is false, calls `get(row,
/// column)` with the lanes along columns, then `put(row, column, value)` with the lanes along rows; if true, the other
/// way round.
#[inline(always)]
fn transpose<T: Real>(n: u64, columns: u32, rows_first: bool, get: impl Fn(u64, u32) -> T, put: impl Fn(u64, u32, T)) {
    let shared = Shared::<T>::at(0);
    let pieces = tiles(n) * (TILE_ROWS / WARP) as u64;
    let mut piece = thread::block_idx_x() as u64;
    while piece < pieces {
        let row = piece * WARP as u64;
        let mut column = 0;
        while column < columns {
            let width = if columns - column < WARP { columns - column } else { WARP };
            let get = |r: u32, c: u32| shared.store(r * STRIDE + c, get(row + r as u64, column + c));
            let put = |r: u32, c: u32| put(row + r as u64, column + c, shared.load(r * STRIDE + c));
            if rows_first {
                along_rows(width, get)
            } else {
                along_columns(width, get)
            }
            thread::sync_threads();
            if rows_first {
                along_columns(width, put)
            } else {
                along_rows(width, put)
            }
            thread::sync_threads();
            column += WARP;
        }
        piece += thread::grid_dim_x() as u64;
    }
}

/// Visits the `(row, column)` of 32 rows of `width` columns, the lanes along rows.
#[inline(always)]
fn along_rows(width: u32, visit: impl Fn(u32, u32)) {
    let mut column = thread::thread_idx_x() / WARP;
    while column < width {
        visit(thread::thread_idx_x() % WARP, column);
        column += THREADS / WARP;
    }
}

/// As [`along_rows`], the lanes along columns; if there are fewer columns than lanes, along several rows.
#[inline(always)]
fn along_columns(width: u32, visit: impl Fn(u32, u32)) {
    let (rows, columns) = (THREADS / width, THREADS % width);
    let (mut row, mut column) = (thread::thread_idx_x() / width, thread::thread_idx_x() % width);
    while row < WARP {
        visit(row, column);
        (row, column) = (row + rows, column + columns);
        if column >= width {
            (row, column) = (row + 1, column - width);
        }
    }
}

#[inline(always)]
unsafe fn tile<S: Real, T: Real>(a: Tile<T>) {
    let get = |row: u64, column: u32| {
        if row >= a.n {
            return T::ZERO;
        }
        // SAFETY: `row < n` and `column < columns`: `from` has n*columns entries, `shift` columns and `scale` n.
        unsafe {
            let mut v = device::load(a.from.cast::<S>(), row * a.columns as u64 + column as u64).to_f64();
            if !a.shift.is_null() {
                v -= device::load(a.shift, column as u64);
            }
            if !a.scale.is_null() {
                v *= device::load(a.scale, row);
            }
            T::from_f64(v)
        }
    };
    // SAFETY: `row` is within the last tile and `column < columns`; `to` has `tiled_len(n, columns)` entries.
    let put = |row, column, v| unsafe { device::store(a.to, tiled_index(row, column, a.columns), v) };
    transpose(a.n, a.columns, false, get, put);
}

/// Body of [`tile_from_f32`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Tile`]; `from` holds `f32`.
#[inline(always)]
pub unsafe fn from_f32<T: Real>(a: Tile<T>) {
    // SAFETY: the caller upholds `# Safety`; `from` holds `S = f32`.
    unsafe { tile::<f32, T>(a) };
}

/// Body of [`tile_from_f64`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Tile`]; `from` holds `f64`.
#[inline(always)]
pub unsafe fn from_f64<T: Real>(a: Tile<T>) {
    // SAFETY: the caller upholds `# Safety`; `from` holds `S = f64`.
    unsafe { tile::<f64, T>(a) };
}

/// Body of [`untile`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Untile`].
#[inline(always)]
pub unsafe fn untile_body<T: Real>(a: Untile<T>) {
    let get = |row: u64, column: u32| {
        // Responsibilities of rows past `n` are never written, so they must not be read.
        if row >= a.n {
            return T::ZERO;
        }
        // SAFETY: `row < n` and `column < columns`; `from` has `tiled_len(n, columns)` entries.
        unsafe { device::load(a.from, tiled_index(row, column, a.columns)) }
    };
    let put = |row: u64, column: u32, v: T| {
        if row < a.n {
            // SAFETY: `row < n` and `column < columns`; `to` has n*columns entries.
            unsafe { device::store(a.to, row * a.columns as u64 + column as u64, v.to_f64()) };
        }
    };
    transpose(a.n, a.columns, true, get, put);
}

/// Body of [`pick`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Pick`].
#[inline(always)]
pub unsafe fn pick_body<T: Real>(a: Pick<T>) {
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.count) {
        let row = tile * TILE_ROWS as u64 + thread::thread_idx_x() as u64;
        let is_there = row < a.count;
        // SAFETY: `row < count`, and `rows` has `count` entries.
        let from = if is_there { unsafe { device::load(a.rows, row) } } else { 0 };
        let mut column = thread::block_idx_y();
        while column < a.columns {
            // SAFETY: `from < n` if `row < count`; `row` is within the last tile of `to`, and `column < columns`.
            unsafe {
                let v = if is_there { device::load(a.from, tiled_index(from, column, a.columns)) } else { T::ZERO };
                device::store(a.to, tiled_index(row, column, a.columns), v);
            }
            column += thread::grid_dim_y();
        }
        tile += thread::grid_dim_x() as u64;
    }
}

const _: () = assert!(THREADS == TILE_ROWS);
