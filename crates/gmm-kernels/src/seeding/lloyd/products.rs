//! Products of clusters: Σ w z zᵀ of each cluster, with z = x − centre, in `n*d²/2` multiply-adds whatever the number of
//! centres.
//!
//! A block has a 16×16 piece of the products, a range of centres and a part of the rows, tile by tile. It sorts a tile's
//! rows by centre: a thread counts how many of the 128 labels come before its own. Rows of one centre then follow one
//! another, and one warp adds them all: each lane eight products in registers, which it adds to the centre's sums in shared
//! memory. Everything is computed in `f64`, in the order of the rows.

use crate::device::words::{shared_load_u32, shared_load_u32x4, shared_store_u32};
use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::layout::{TILE_ROWS, packed_index, packed_len, tiles};
use crate::seeding::lloyd::NONE;
use crate::{Real, THREADS};

kernels! {
    /// `n` rows; a grid of `pieces(d)*ranges` by `splits` blocks.
    HardProducts<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Centres.
        k: u32,
        /// If not 0, the products of all clusters are added up.
        tied: u32,
        /// `labels_len(n)`: labels below `k`, or [`NONE`].
        labels: *const u32,
        /// `(k, d)`: less the shift.
        centres: *const f64,
        /// Centres in a range, at least 1.
        range: u32,
        /// `(splits, sums, packed_len(d))`, written: the lower triangle of each centre's products, row by row; `sums` is `k`,
        /// or 1 if `tied`.
        partials: *mut f64,
    }
    /// The kernel.
    hard_products => lloyd_products_f32, lloyd_products_f64, body, shared_bytes;
}

/// Most centres of a range, so that keys fit into 32 bits.
pub const MOST_CENTRES: u32 = (1 << 25) - 2;

/// Rows and columns of a piece of the products.
const SIDE: u32 = 16;
/// Products of a piece, in pairs that follow one another.
const PIECE: u32 = SIDE * SIDE;
const _: () = assert!(PIECE == 2 * THREADS && PIECE == 8 * WARP && TILE_ROWS == THREADS);
const WARPS: u32 = THREADS / WARP;

/// From one staged row to the next: even, so that pairs are 16-byte aligned.
const fn stride(is_single: bool) -> u32 {
    if is_single { SIDE + 2 } else { 2 * SIDE + 2 }
}

/// Whether a row's entries of the piece's rows are those of its columns, so that they are staged once.
#[inline(always)]
const fn is_single(d: u32, is_weighted: bool) -> bool {
    d <= SIDE && !is_weighted
}

/// Positions in shared memory: the keys to sort by, then by position in the sorted tile its row, its centre within the range
/// ([`NONE`] past the last) and the end of its centre's rows; then the sums and the staged rows.
const KEYS: u32 = 0;
const ROWS: u32 = KEYS + 4 * TILE_ROWS;
const CENTRES: u32 = ROWS + 4 * TILE_ROWS;
const ENDS: u32 = CENTRES + 4 * TILE_ROWS;
const STAGED: u32 = ENDS + 4 * TILE_ROWS;

/// Number of pieces of the products of `d` columns.
pub const fn pieces(d: u32) -> u32 {
    let p = d.div_ceil(SIDE);
    p * (p + 1) / 2
}

/// Bytes of a block's shared memory for a range of centres of `d` columns.
pub const fn shared_len(is_tied: bool, range: u32, d: u32, is_weighted: bool) -> u64 {
    let sums = if is_tied { WARPS } else { range };
    sums_at(is_single(d, is_weighted)) as u64 + 8 * PIECE as u64 * sums as u64
}

const fn sums_at(is_single: bool) -> u32 {
    STAGED + 8 * TILE_ROWS * stride(is_single)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(a: &HardProducts<T>) -> u64 {
    shared_len(a.tied != 0, a.range, a.d, !a.row_weights.is_null())
}

/// First row and column of piece number `index` of the lower triangle, row by row.
#[inline(always)]
fn piece(index: u32) -> (u32, u32) {
    let (mut row, mut left) = (0, index);
    while left > row {
        left -= row + 1;
        row += 1;
    }
    (row * SIDE, left * SIDE)
}

/// A block's part of the work.
#[derive(Clone, Copy)]
struct Part<'a, T: Real> {
    a: &'a HardProducts<T>,
    /// First row and first column of the piece.
    i: u32,
    j: u32,
    /// First centre of the range, and number of centres.
    first: u32,
    count: u32,
    /// See [`is_single`].
    is_single: bool,
}

/// Body of the kernel.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`HardProducts`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: HardProducts<T>) {
    device::await_previous_grid();
    // `max(1)` tells the compiler that none is 0; a check for division by 0 would be a call to a panic.
    let (pieces, splits) = (pieces(a.d).max(1), thread::grid_dim_y().max(1) as u64);
    let (i, j) = piece(thread::block_idx_x() % pieces);
    let first = thread::block_idx_x() / pieces * a.range;
    let left = a.k - if first < a.k { first } else { a.k };
    let is_single = is_single(a.d, !a.row_weights.is_null());
    let part = Part { a: &a, i, j, first, count: if left < a.range { left } else { a.range }, is_single };
    let split = thread::block_idx_y() as u64;
    let (t, all) = (thread::thread_idx_x(), tiles(a.n));
    let (mut tile, end) = (all * split / splits, all * (split + 1) / splits);
    let sums = if a.tied != 0 { WARPS } else { part.count };
    let own = Shared::<f64>::at(sums_at(is_single)).skip(2 * t);
    let mut c = 0;
    while c < sums {
        own.store2(c * PIECE, [0.0; 2]);
        c += 1;
    }
    thread::sync_threads();
    // SAFETY: the caller upholds `# Safety`; tiles are below `tiles(n)`, and centres below `k`.
    unsafe {
        while tile < end {
            part.sort(tile);
            part.stage(tile);
            thread::sync_threads();
            part.add();
            thread::sync_threads();
            tile += 1;
        }
        let (row, column) = of_pair(t / WARP, t % WARP);
        let (row, column) = (i + row, j + column);
        let len = packed_len(a.d);
        let all = if a.tied != 0 { 1 } else { a.k as u64 };
        let first = split * all + if a.tied != 0 { 0 } else { part.first as u64 };
        let mut c = 0;
        while c < if a.tied != 0 { 1 } else { sums } {
            let mut values = own.load2(c * PIECE);
            let mut other = 1;
            while a.tied != 0 && other < WARPS {
                let more = own.load2(other * PIECE);
                values = [values[0] + more[0], values[1] + more[1]];
                other += 1;
            }
            let mut v = 0;
            while v < 2 {
                if row < a.d && column + v <= row {
                    device::store(
                        a.partials,
                        (first + c as u64) * len + packed_index(row, column + v),
                        values[v as usize],
                    );
                }
                v += 1;
            }
            c += 1;
        }
    }
}

impl<T: Real> Part<'_, T> {
    /// Sorts the rows of a tile whose centre is in the range by centre, then by row.
    #[inline(always)]
    unsafe fn sort(self, tile: u64) {
        let t = thread::thread_idx_x();
        // SAFETY: labels are padded to whole tiles.
        let label = unsafe { device::load(self.a.labels, tile * TILE_ROWS as u64 + t as u64) };
        let mine = label.wrapping_sub(self.first);
        let counts = mine < self.count;
        // Keys differ, so that each is the number of smaller ones; those of other ranges come last.
        let centre = if counts { mine } else { MOST_CENTRES };
        let (key, next) = (centre * TILE_ROWS + t, (centre + 1) * TILE_ROWS);
        shared_store_u32(KEYS + 4 * t, key);
        thread::sync_threads();
        let (mut before, mut end) = (0, 0);
        let mut other = 0;
        while other < TILE_ROWS {
            let mut some = [[0; 4]; 4];
            each(4, |i| some[i] = shared_load_u32x4(KEYS + 4 * (other + 4 * i as u32)));
            each(16, |i| {
                before += u32::from(some[i / 4][i % 4] < key);
                end += u32::from(some[i / 4][i % 4] < next);
            });
            other += 16;
        }
        shared_store_u32(ROWS + 4 * before, t);
        shared_store_u32(CENTRES + 4 * before, if counts { mine } else { NONE });
        shared_store_u32(ENDS + 4 * before, end);
        thread::sync_threads();
    }

    /// Stores the sorted rows less their centres: the columns of the piece's rows, then, times the row's weight, those of its
    /// columns.
    #[inline(always)]
    unsafe fn stage(self, tile: u64) {
        let (a, t) = (self.a, thread::thread_idx_x());
        let (row, c) = (shared_load_u32(ROWS + 4 * t), shared_load_u32(CENTRES + 4 * t));
        if c == NONE {
            return;
        }
        let c = self.first + c;
        let x = a.x.wrapping_add((tile * (TILE_ROWS as u64 * a.d as u64)) as usize);
        let centre = a.centres.wrapping_add((c as u64 * a.d as u64) as usize);
        let to = Shared::<f64>::at(STAGED).skip(t * stride(self.is_single));
        // SAFETY: `tile` is one of the rows', `row` one of its rows with a weight, and `c < k`.
        unsafe {
            let weight = if a.row_weights.is_null() {
                1.0
            } else {
                device::load(a.row_weights, tile * TILE_ROWS as u64 + row as u64)
            };
            // All loads before the first store: they take longer than anything else here.
            let z = |first: u32| {
                let (mut entries, mut centres) = ([T::ZERO; SIDE as usize], [0.0; SIDE as usize]);
                each(SIDE as usize, |v| {
                    let column = first + v as u32;
                    let column = if column < a.d { column } else { a.d - 1 };
                    entries[v] = device::load(x, (column * TILE_ROWS + row) as u64);
                    centres[v] = device::load(centre, column as u64);
                });
                let mut out = [0.0; SIDE as usize];
                each(SIDE as usize, |v| {
                    out[v] = if first + (v as u32) < a.d { entries[v].to_f64() - centres[v] } else { 0.0 };
                });
                out
            };
            let left = z(self.i);
            each(SIDE as usize / 2, |v| to.store2(2 * v as u32, [left[2 * v], left[2 * v + 1]]));
            if !self.is_single {
                let right = if self.i == self.j { left } else { z(self.j) };
                let of = |v: usize| [weight * right[2 * v], weight * right[2 * v + 1]];
                each(SIDE as usize / 2, |v| to.store2(SIDE + 2 * v as u32, of(v)));
            }
        }
    }

    /// Adds the staged rows to their centres' sums: a warp takes every fourth centre of the tile.
    #[inline(always)]
    fn add(self) {
        let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
        let (staged, stride) = (Shared::<f64>::at(STAGED), stride(self.is_single));
        let (i, j) = of_pair(0, lane);
        let (left, right) = (staged.skip(i), staged.skip(if self.is_single { 0 } else { SIDE } + j));
        let own = Shared::<f64>::at(sums_at(self.is_single)).skip(2 * lane);
        // With a tied covariance each warp takes a quarter of the rows, whatever their centres, to sums of its own.
        let is_tied = self.a.tied != 0;
        let (mut row, mut turn) = if is_tied { (me * WARP, me) } else { (0, 0) };
        let last = if is_tied { row + WARP } else { TILE_ROWS };
        while row < last {
            let (end, c) = (shared_load_u32(ENDS + 4 * row), shared_load_u32(CENTRES + 4 * row));
            let end = if end < last { end } else { last };
            if c == NONE {
                return;
            }
            if is_tied || turn % WARPS == me {
                let at = if is_tied { me } else { c } * PIECE;
                let mut sums = [[0.0; 2]; 4];
                each(4, |v| sums[v] = own.load2(at + 2 * WARP * v as u32));
                while row < end {
                    let two = left.load2(row * stride);
                    let four = [right.load2(row * stride), right.load2(row * stride + 2)];
                    each(8, |e| {
                        let (v, odd) = (e / 2, e % 2);
                        sums[v][odd] = two[v / 2].fma(four[v % 2][odd], sums[v][odd]);
                    });
                    row += 1;
                }
                each(4, |v| own.store2(at + 2 * WARP * v as u32, sums[v]));
            }
            row = end;
            turn += 1;
        }
    }
}

/// Row and first column, within the piece, of pair `v` of four of a lane: two rows, and four columns of each.
#[inline(always)]
fn of_pair(v: u32, lane: u32) -> (u32, u32) {
    (lane / 4 * 2 + v / 2, lane % 4 * 4 + v % 2 * 2)
}
