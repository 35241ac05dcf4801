//! The product from its sums: adds the slices in order, in `f64`, removes the scales and rounds once.

use super::BLOCK;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::{Real, THREADS};

/// Rows, and columns, that a thread block processes at a time.
pub const SIDE: u32 = 32;

kernels! {
    /// The grid is `ceil(n/32)` blocks in `x` and any number in `y`.
    Finish<T> {
        /// `(slices, sums_len(m, n))`.
        sums: *const f64,
        /// Number of slices.
        slices: u32,
        /// Rows of the product.
        m: u64,
        /// Columns of the product.
        n: u64,
        /// If not 0, the product is written column-major; otherwise row-major.
        by_columns: u32,
        /// `(m, n)`, written.
        to: *mut T,
    }
    /// The kernel.
    finish => finish_f32, finish_f64, doubles::<T>, shared_doubles::<T>;
}

kernels! {
    /// As for [`Finish`].
    FinishHalves {
        /// `(slices, sums_len(m, n))`.
        sums: *const f32,
        /// Number of slices.
        slices: u32,
        /// Rows of the product.
        m: u64,
        /// Columns of the product.
        n: u64,
        /// As for [`Finish`].
        by_columns: u32,
        /// `(m,)`: powers of two by which the left factor's rows were scaled.
        left: *const f32,
        /// `(n,)`: powers of two by which the right factor's rows were scaled.
        right: *const f32,
        /// `(m, n)`, written.
        to: *mut f32,
    }
    /// The kernel.
    finish_halves => halves, shared_halves;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_doubles<T: Real>(_: &Finish<T>) -> u64 {
    u64::from(T::BYTES * SIDE * STRIDE)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_halves(_: &FinishHalves) -> u64 {
    u64::from(4 * SIDE * STRIDE)
}

/// Distance between rows in shared memory: one more than their length, against bank conflicts.
const STRIDE: u32 = SIDE + 1;

/// Shape, layout and address of the result.
#[derive(Clone, Copy)]
struct Product<T> {
    m: u64,
    n: u64,
    by_columns: bool,
    to: *mut T,
}

/// Σ over slices of sum `(row, column)`, in `f64`.
#[inline(always)]
pub(super) unsafe fn total<S: Real>(sums: *const S, slices: u32, (m, n): (u64, u64), row: u64, column: u64) -> f64 {
    let (wide, slice) = (super::blocks(n) * BLOCK as u64, super::sums_len(m, n));
    let (mut sum, mut s) = (0.0, 0);
    while s < slices {
        // SAFETY: `s < slices`, and the caller passes `row < m` and `column < n`.
        sum += unsafe { device::load(sums, s as u64 * slice + row * wide + column) }.to_f64();
        s += 1;
    }
    sum
}

/// [`total`] for several rows together, so that their latencies overlap.
#[inline(always)]
unsafe fn totals<S: Real>(
    sums: *const S,
    slices: u32,
    (m, n): (u64, u64),
    rows: [u64; ROWS],
    column: u64,
) -> [f64; ROWS] {
    let (wide, slice) = (super::blocks(n) * BLOCK as u64, super::sums_len(m, n));
    let (mut sum, mut s) = ([0.0; ROWS], 0);
    while s < slices {
        let from = sums.wrapping_add((s as u64 * slice + column) as usize);
        let mut some = [S::ZERO; ROWS];
        // SAFETY: `s < slices`, and the caller passes rows below `m` and `column < n`.
        each(ROWS, |i| some[i] = unsafe { device::load(from, rows[i] * wide) });
        each(ROWS, |i| sum[i] += some[i].to_f64());
        s += 1;
    }
    sum
}

/// Rows of a tile per warp.
const ROWS: usize = (SIDE / (THREADS / WARP)) as usize;

/// Writes the product; `entries(rows, column)` returns its values.
#[inline(always)]
unsafe fn write<T: Real>(product: Product<T>, entries: impl Fn([u64; ROWS], u64) -> [T; ROWS]) {
    let Product { m, n, by_columns, to } = product;
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let (column, turned) = (thread::block_idx_x() as u64 * SIDE as u64, Shared::<T>::at(0));
    let mut row = thread::block_idx_y() as u64 * SIDE as u64;
    while row < m {
        let (first, c) = (row + (me * ROWS as u32) as u64, column + lane as u64);
        let mut values = [T::ZERO; ROWS];
        if c < n {
            // Past the last row, read the last row.
            let mut rows = [m - 1; ROWS];
            each(ROWS, |i| {
                if first + (i as u64) < m {
                    rows[i] = first + i as u64;
                }
            });
            values = entries(rows, c);
        }
        each(ROWS, |i| {
            let r = first + i as u64;
            if !by_columns && r < m && c < n {
                // SAFETY: `r < m` and `c < n`, and only this thread writes the entry.
                unsafe { device::store(to, r * n + c, values[i]) };
            }
        });
        if by_columns {
            thread::sync_threads();
            each(ROWS, |i| turned.store((me * ROWS as u32 + i as u32) * STRIDE + lane, values[i]));
            thread::sync_threads();
            each(ROWS, |i| {
                let at = me * ROWS as u32 + i as u32;
                let (r, c) = (row + lane as u64, column + at as u64);
                let value = turned.load(lane * STRIDE + at);
                if r < m && c < n {
                    // SAFETY: `r < m` and `c < n`, and only this thread writes the entry.
                    unsafe { device::store(to, c * m + r, value) };
                }
            });
        }
        row += thread::grid_dim_y() as u64 * SIDE as u64;
    }
}

/// Body of [`finish`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Finish`].
#[inline(always)]
unsafe fn doubles<T: Real>(a: Finish<T>) {
    let product = Product { m: a.m, n: a.n, by_columns: a.by_columns != 0, to: a.to };
    // SAFETY: `write` passes only rows below `m` and columns below `n`; the fields are as documented.
    unsafe { write(product, |rows, c| totals(a.sums, a.slices, (a.m, a.n), rows, c).map(T::from_f64)) };
}

/// Body of [`finish_halves`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`FinishHalves`].
#[inline(always)]
unsafe fn halves(a: FinishHalves) {
    let product = Product { m: a.m, n: a.n, by_columns: a.by_columns != 0, to: a.to };
    // The scales are powers of two, so the division is exact unless it overflows or underflows.
    let entries = |rows: [u64; ROWS], c: u64| {
        // SAFETY: `write` passes only rows below `m` and columns below `n`.
        let (sums, right) =
            unsafe { (totals(a.sums, a.slices, (a.m, a.n), rows, c), device::load(a.right, c).to_f64()) };
        let mut out = [0.0; ROWS];
        // SAFETY: `rows[i] < m`.
        each(ROWS, |i| out[i] = (sums[i] / (unsafe { device::load(a.left, rows[i]) }.to_f64() * right)) as f32);
        out
    };
    // SAFETY: the fields are as documented.
    unsafe { write(product, entries) };
}
