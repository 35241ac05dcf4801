//! Scale of each row before its numbers become fp16: a power of two, so that scaling is exact.

use super::super::device::{self, WARP, thread, warp};
use crate::THREADS;
use crate::each::each;

/// Exponent that the largest number of a row gets: sums of 32 products of such numbers stay far within the range of
/// `f32`, as hi parts do within that of fp16.
const LARGEST: i32 = 14;

/// Rows whose largest number has an exponent beyond this, or is NaN or infinite, are not scaled but reported in
/// `trouble`.
const EXTREME: i32 = 100;

/// Most pieces of a row.
pub const PIECES: u64 = 64;

/// Number of pieces into which rows of `k` numbers are divided to find the largest.
pub const fn pieces(k: u64) -> u64 {
    let pieces = k.div_ceil(256);
    if pieces < 1 {
        1
    } else if pieces > PIECES {
        PIECES
    } else {
        pieces
    }
}

kernels! {
    /// The grid is `ceil(rows/128)` blocks in `x` and [`pieces`] in `y`.
    Largest {
        /// As for [`Pack`](super::pack::Pack).
        from: *const f32,
        /// Rows.
        rows: u64,
        /// Columns.
        k: u64,
        /// As for [`Pack`](super::pack::Pack).
        by_columns: u32,
        /// `(pieces, rows)`, written: bits of the largest absolute value; those of NaN are above those of infinity.
        largest: *mut u32,
    }
    /// The kernel.
    products_largest => sizes, no_shared;
}

kernels! {
    /// Any grid in `x`.
    Scales {
        /// `(pieces, rows)`, as [`Largest`] writes it.
        largest: *const u32,
        /// Number of pieces.
        pieces: u32,
        /// Rows.
        rows: u64,
        /// `(rows,)`, written.
        scales: *mut f32,
        /// One word, set to 1 if a row cannot be scaled because its numbers are too large, too small or not finite.
        trouble: *mut u32,
    }
    /// The kernel.
    products_scales => powers, no_shared_scales;
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared(_: &Largest) -> u64 {
    0
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared_scales(_: &Scales) -> u64 {
    0
}

/// Bits of the absolute value of entry `i`.
#[inline(always)]
unsafe fn size(from: *const f32, i: u64) -> u32 {
    // SAFETY: the caller passes the index of an entry of the matrix.
    unsafe { device::load(from, i) }.to_bits() & 0x7fff_ffff
}

/// Body of [`products_largest`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Largest`].
#[inline(always)]
unsafe fn sizes(a: Largest) {
    const AT_ONCE: usize = 8;
    let (piece, pieces) = (thread::block_idx_y() as u64, thread::grid_dim_y() as u64);
    let long = (a.k + pieces - 1).checked_div(pieces).unwrap_or(0);
    let first = piece * long;
    let end = if first + long < a.k { first + long } else { a.k };
    let block = thread::block_idx_x() as u64 * THREADS as u64;
    // Past the end, read the last number, which does not change the maximum, instead of branching, so that no load
    // waits.
    let last = |at: u64, end: u64| if at < end { at } else { end - 1 };
    let put = |row: u64, most: u32| {
        // SAFETY: `piece < pieces` and `row < rows`.
        unsafe { device::store(a.largest, piece * a.rows + row, most) };
    };
    if a.by_columns != 0 {
        let row = block + thread::thread_idx_x() as u64;
        let (mut most, mut l) = (0, first);
        // Each address follows from the previous one by an addition: address arithmetic would dominate this loop.
        let mut at = a.from.wrapping_add((first * a.rows + last(row, a.rows)) as usize);
        while l < end {
            let mut some = [0; AT_ONCE];
            if l + AT_ONCE as u64 <= end {
                each(AT_ONCE, |i| {
                    // SAFETY: `l + i < end <= k`, and the row is clamped to the matrix.
                    some[i] = unsafe { size(at, 0) };
                    at = at.wrapping_add(a.rows as usize);
                });
            } else {
                each(AT_ONCE, |i| {
                    let by = last(l + i as u64, end) - l;
                    // SAFETY: as above, with `l + by < end`.
                    some[i] = unsafe { size(at, by * a.rows) };
                });
            }
            each(AT_ONCE, |i| most = if some[i] > most { some[i] } else { most });
            l += AT_ONCE as u64;
        }
        if row < a.rows {
            put(row, most);
        }
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let mut i = me as u64;
    while i < THREADS as u64 {
        let row = block + i;
        let (mut most, mut l) = (0, first);
        while l < end {
            let mut some = [0; AT_ONCE];
            each(AT_ONCE, |i| {
                let (l, row) = (last(l + (WARP * i as u32 + lane) as u64, end), last(row, a.rows));
                // SAFETY: `l` and `row` are clamped to the matrix.
                some[i] = unsafe { size(a.from, row * a.k + l) };
            });
            each(AT_ONCE, |i| most = if some[i] > most { some[i] } else { most });
            l += (WARP * AT_ONCE as u32) as u64;
        }
        each(5, |by| {
            let other = warp::shuffle_xor_u32(most, 1 << by);
            most = if other > most { other } else { most };
        });
        if lane == 0 && row < a.rows {
            put(row, most);
        }
        i += (THREADS / WARP) as u64;
    }
}

/// Body of [`products_scales`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Scales`].
#[inline(always)]
unsafe fn powers(a: Scales) {
    let mut row = thread::index_1d();
    while row < a.rows {
        let (mut most, mut piece) = (0, 0);
        while piece < a.pieces {
            // SAFETY: `piece < pieces` and `row < rows`.
            let one: u32 = unsafe { device::load(a.largest, piece as u64 * a.rows + row) };
            most = if one > most { one } else { most };
            piece += 1;
        }
        let exponent = (most >> 23) as i32 - 127;
        let mut scale = 1.0;
        if most > 0 {
            if !(-EXTREME..=EXTREME).contains(&exponent) {
                // SAFETY: `trouble` is one word, and all threads that write it write the same value.
                unsafe { device::store(a.trouble, 0, 1) };
            } else {
                scale = f32::from_bits(((LARGEST - exponent + 127) as u32) << 23);
            }
        }
        // SAFETY: `row < rows`, and only this thread writes it.
        unsafe { device::store(a.scales, row, scale) };
        row += thread::count_1d();
    }
}
