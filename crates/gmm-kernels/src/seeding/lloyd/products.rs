//! Products of clusters: Σ w z zᵀ of each cluster, with z = x − centre, in `n*d²/2` multiply-adds whatever the number of
//! centres.
//!
//! A block has a 16×16 piece of the products, a range of centres and a part of the rows, tile by tile. It counts a tile's rows
//! of each centre, which says where each row stands among the rows sorted by centre, and stages them in that order. So one warp
//! adds all rows of a centre: each lane eight products in registers, which it adds to the centre's sums in shared memory.
//! Everything is computed in `f64`, in the order of the rows. The rows are read before they are sorted, so that this takes
//! place while they arrive.

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

/// Positions in shared memory: by place in the sorted tile a row's centre within the range ([`NONE`] past the last) and the end
/// of its centre's rows; then the staged rows, the sums, the centres by column, and the numbers of rows.
const CENTRES: u32 = 0;
const ENDS: u32 = CENTRES + 4 * TILE_ROWS;
const STAGED: u32 = ENDS + 4 * TILE_ROWS;

/// Number of pieces of the products of `d` columns.
pub const fn pieces(d: u32) -> u32 {
    let p = d.div_ceil(SIDE);
    p * (p + 1) / 2
}

/// Bytes of a block's shared memory for a range of centres of `d` columns.
pub const fn shared_len(is_tied: bool, range: u32, d: u32, is_weighted: bool) -> u64 {
    let is_single = is_single(d, is_weighted);
    if is_tied {
        return sums_at(is_single) as u64 + 8 * PIECE as u64 * WARPS as u64;
    }
    counts_at(is_single, range) as u64 + 4 * WARPS as u64 * (range as u64 + 1)
}

const fn sums_at(is_single: bool) -> u32 {
    STAGED + 8 * TILE_ROWS * stride(is_single)
}

/// Where the entries of a range's centres are: those of the piece's rows, then, unless they are the same, of its columns.
const fn table_at(is_single: bool, range: u32) -> u32 {
    sums_at(is_single) + 8 * PIECE * range
}

/// Where the numbers of rows are, by centre and warp; those of no centre of the range are last.
const fn counts_at(is_single: bool, range: u32) -> u32 {
    table_at(is_single, range) + 8 * columns(is_single) * range
}

const fn columns(is_single: bool) -> u32 {
    if is_single { SIDE } else { 2 * SIDE }
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
    // SAFETY: the caller upholds `# Safety`; tiles are below `tiles(n)`, and centres below `k`.
    unsafe {
        if a.tied == 0 {
            part.fill_table();
            part.clear_counts();
        }
        thread::sync_threads();
        // The next tile's label is read while this tile is added.
        let mut label = if tile < end { part.label(tile) } else { NONE };
        while tile < end {
            let row = part.read(tile, label);
            let place = if a.tied != 0 { t } else { part.sort(row.centre) };
            part.stage(&row, place);
            tile += 1;
            label = if tile < end { part.label(tile) } else { NONE };
            thread::sync_threads();
            part.add();
            if a.tied == 0 {
                part.clear_counts();
            }
            thread::sync_threads();
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

/// A thread's row.
struct Row<T> {
    /// Its centre within the range; `count` if it is none of them.
    centre: u32,
    weight: f64,
    /// Entries of the piece's rows, and of its columns.
    entries: [[T; SIDE as usize]; 2],
}

impl<T: Real> Part<'_, T> {
    /// Writes the entries of the range's centres, by column.
    #[inline(always)]
    unsafe fn fill_table(self) {
        let a = self.a;
        let table = Shared::<f64>::at(table_at(self.is_single, a.range));
        let mut i = thread::thread_idx_x();
        while i < columns(self.is_single) * self.count {
            let (v, c) = (i / self.count.max(1), i % self.count.max(1));
            let column = if v < SIDE { self.i + v } else { self.j + v - SIDE };
            let column = if column < a.d { column } else { a.d - 1 };
            // SAFETY: the centre is below `k`, and the column below `d`.
            let entry = unsafe { device::load(a.centres, (self.first + c) as u64 * a.d as u64 + column as u64) };
            table.store(v * a.range + c, entry);
            i += THREADS;
        }
    }

    #[inline(always)]
    fn clear_counts(self) {
        let mut i = thread::thread_idx_x();
        while i < WARPS * (self.count + 1) {
            shared_store_u32(counts_at(self.is_single, self.a.range) + 4 * i, 0);
            i += THREADS;
        }
    }

    /// The label of a thread's row in a tile.
    #[inline(always)]
    unsafe fn label(self, tile: u64) -> u32 {
        // SAFETY: labels are padded to whole tiles.
        unsafe { device::load(self.a.labels, tile * TILE_ROWS as u64 + thread::thread_idx_x() as u64) }
    }

    /// Reads a thread's row.
    #[inline(always)]
    unsafe fn read(self, tile: u64, label: u32) -> Row<T> {
        let (a, t) = (self.a, thread::thread_idx_x());
        let mine = label.wrapping_sub(self.first);
        let centre = if mine < self.count { mine } else { self.count };
        let x = a.x.wrapping_add((tile * (TILE_ROWS as u64 * a.d as u64)) as usize);
        let mut row = Row { centre, weight: 1.0, entries: [[T::ZERO; SIDE as usize]; 2] };
        // SAFETY: `tile` is one of the rows', which are padded to whole tiles; a row with a label has a weight.
        unsafe {
            let entry = |first: u32, v: usize| {
                let column = first + v as u32;
                let column = if column < a.d { column } else { a.d - 1 };
                device::load(x, (column * TILE_ROWS + t) as u64)
            };
            each(SIDE as usize, |v| row.entries[0][v] = entry(self.i, v));
            if !self.is_single {
                if self.i == self.j {
                    row.entries[1] = row.entries[0];
                } else {
                    each(SIDE as usize, |v| row.entries[1][v] = entry(self.j, v));
                }
                if !a.row_weights.is_null() && centre < self.count {
                    row.weight = device::load(a.row_weights, tile * TILE_ROWS as u64 + t as u64);
                }
            }
        }
        row
    }

    /// The place of a thread's row among the rows of the tile, sorted by centre, then by row.
    #[inline(always)]
    fn sort(self, centre: u32) -> u32 {
        let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
        let counts = counts_at(self.is_single, self.a.range);
        // The lanes of the warp whose row has the same centre: all bits of their numbers agree.
        let (mut same, mut left) = (u32::MAX, self.count);
        let mut bits = centre;
        while left > 0 {
            let (bit, set) = (bits & 1 != 0, warp::ballot(bits & 1 != 0));
            same &= if bit { set } else { !set };
            (bits, left) = (bits >> 1, left >> 1);
        }
        let before = (same & ((1 << lane) - 1)).count_ones();
        if before == 0 {
            shared_store_u32(counts + 4 * (WARPS * centre + t / WARP), same.count_ones());
        }
        thread::sync_threads();
        let (mut start, mut other) = (0, 0);
        while other < centre {
            start += shared_load_u32x4(counts + 4 * WARPS * other).iter().sum::<u32>();
            other += 1;
        }
        let (mut place, mut end) = (start + before, start);
        let of_warps = shared_load_u32x4(counts + 4 * WARPS * centre);
        each(WARPS as usize, |w| {
            place += if (w as u32) < t / WARP { of_warps[w] } else { 0 };
            end += of_warps[w];
        });
        shared_store_u32(CENTRES + 4 * place, if centre < self.count { centre } else { NONE });
        shared_store_u32(ENDS + 4 * place, end);
        place
    }

    /// Stores a row less its centre at its place: the columns of the piece's rows, then, times the row's weight, those of its
    /// columns; zeros for a row without a centre.
    #[inline(always)]
    unsafe fn stage(self, row: &Row<T>, place: u32) {
        let (a, is_one) = (self.a, row.centre < self.count);
        let table = Shared::<f64>::at(table_at(self.is_single, a.range)).skip(row.centre);
        let centre = a.centres.wrapping_add(((self.first + row.centre) as u64 * a.d as u64) as usize);
        let to = Shared::<f64>::at(STAGED).skip(place * stride(self.is_single));
        let z = |side: usize, v: usize| {
            let column = if side == 0 { self.i } else { self.j } + v as u32;
            if !is_one || column >= a.d {
                return 0.0;
            }
            let entry = if a.tied == 0 {
                table.load((side as u32 * SIDE + v as u32) * a.range)
            } else {
                // SAFETY: the centre is below `k`, and the column below `d`.
                unsafe { device::load(centre, column as u64) }
            };
            row.entries[side][v].to_f64() - entry
        };
        each(SIDE as usize / 2, |v| to.store2(2 * v as u32, [z(0, 2 * v), z(0, 2 * v + 1)]));
        if !self.is_single {
            let of = |v: usize| [row.weight * z(1, 2 * v), row.weight * z(1, 2 * v + 1)];
            each(SIDE as usize / 2, |v| to.store2(SIDE + 2 * v as u32, of(v)));
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
        let add = |sums: &mut [[f64; 2]; 4], rows: (u32, u32)| {
            let (mut row, end) = rows;
            while row < end {
                let two = left.load2(row * stride);
                let four = [right.load2(row * stride), right.load2(row * stride + 2)];
                each(8, |e| {
                    let (v, odd) = (e / 2, e % 2);
                    sums[v][odd] = two[v / 2].fma(four[v % 2][odd], sums[v][odd]);
                });
                row += 1;
            }
        };
        let to = |centre: u32, rows: (u32, u32)| {
            let mut sums = [[0.0; 2]; 4];
            each(4, |v| sums[v] = own.load2(centre * PIECE + 2 * WARP * v as u32));
            add(&mut sums, rows);
            each(4, |v| own.store2(centre * PIECE + 2 * WARP * v as u32, sums[v]));
        };
        if self.a.tied != 0 {
            // A quarter of the rows, whatever their centres, to sums of the warp's own.
            return to(me, (me * WARP, (me + 1) * WARP));
        }
        let (mut row, mut turn) = (0, 0);
        while row < TILE_ROWS {
            let (end, c) = (shared_load_u32(ENDS + 4 * row), shared_load_u32(CENTRES + 4 * row));
            if c == NONE {
                return;
            }
            if turn % WARPS == me {
                to(c, (row, end));
            }
            (row, turn) = (end, turn + 1);
        }
    }
}

/// Row and first column, within the piece, of pair `v` of four of a lane: two rows, and four columns of each.
#[inline(always)]
fn of_pair(v: u32, lane: u32) -> (u32, u32) {
    (lane / 4 * 2 + v / 2, lane % 4 * 4 + v % 2 * 2)
}
