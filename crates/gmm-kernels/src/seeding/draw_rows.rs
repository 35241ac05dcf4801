//! Row sampling by distance for k-means++: finds the row of a group that a uniform number selects, and writes it in the
//! layouts that [`potentials`](crate::seeding::squared_distances::Potentials) and
//! [`add_centre`](crate::seeding::squared_distances::AddCentre) read.

use crate::device::{self, Shared, WARP, thread};
use crate::each::each;
use crate::layout::tiled_index;
use crate::seeding::squared_distances::{CANDIDATES, weighted};
use crate::{Real, THREADS};

/// Rows in a group, of which one is drawn.
pub const DRAWN_ROWS: u64 = THREADS as u64 * EACH as u64;

/// Consecutive rows of the group per thread.
const EACH: usize = 8;

kernels! {
    /// One block in `x` per candidate slot. The number of slots is a multiple of four, so that launches of eight, and a
    /// last one of four, cover all of them. Slots beyond `count` repeat the last draw.
    DrawRows<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(n,)`: a row's probability within its group is proportional to its weight times this.
        near: *const f64,
        /// `(count,)`: indices of groups of [`DRAWN_ROWS`] rows, each with at least one row.
        groups: *const u64,
        /// `(count,)`: uniform numbers in `[0, 1)`.
        uniforms: *const f64,
        /// Number of draws, from 1 to the number of blocks.
        count: u32,
        /// `(count,)`, written: the rows drawn.
        rows: *mut u64,
        /// `(d, 2, C)` for each launch of `C` candidates (8, or 4 for the last), written: rows less the shift, as
        /// stored, and zeros.
        candidates: *mut T,
        /// `(places, 2, d)`, written: the same, candidate by candidate.
        points: *mut T,
    }
    /// The kernel.
    draw_rows => draw_rows_f32, draw_rows_f64, body, shared_bytes;
}

const WARPS: u32 = THREADS / WARP;

/// Byte positions in shared memory of the warps' sums, behind those of the threads, and of the index of the row found.
const OF_WARPS: u32 = THREADS * 8;
const FOUND: u32 = OF_WARPS + WARPS * 8;

/// Bytes of shared memory that [`row_of_group`] needs.
pub(crate) const ROW_BYTES: u32 = FOUND + 8;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &DrawRows<T>) -> u64 {
    u64::from(ROW_BYTES)
}

/// Whether a running sum exceeds the mark at `uniform` times the total.
///
/// Rounding can make the mark equal to the total (if the total is subnormal); the last row with a positive weight is
/// then drawn.
#[inline(always)]
pub(crate) fn is_beyond(sum: f64, uniform: f64, total: f64) -> bool {
    let mark = uniform * total;
    if total > mark { sum > mark } else { sum >= total }
}

/// Returns to all threads the row of a group of [`DRAWN_ROWS`] that `uniform` selects; each row's probability is
/// proportional to its `value`, which is at least 0. All threads must call this.
///
/// Running sums within a thread's rows, over the threads of a warp, and over warps are each added in order, so that
/// they never decrease from one row to the next. The mark therefore lies between the sums of exactly one row and its
/// predecessor, and never selects a row of weight 0.
#[inline(always)]
pub(crate) fn row_of_group(group: u64, n: u64, uniform: f64, value: impl Fn(u64) -> f64) -> u64 {
    let t = thread::thread_idx_x();
    let first = group * DRAWN_ROWS + t as u64 * EACH as u64;
    let mut sums = [0.0; EACH];
    each(EACH, |i| {
        let row = first + i as u64;
        if row < n {
            sums[i] = value(row);
        }
    });
    each(EACH - 1, |i| sums[i + 1] += sums[i]);
    let (of_threads, of_warps, found) = (Shared::<f64>::at(0), Shared::<f64>::at(OF_WARPS), Shared::<f64>::at(FOUND));
    of_threads.store(t, sums[EACH - 1]);
    if t == 0 {
        // Used if no row of the group has weight.
        found.store(0, 0.0);
    }
    thread::sync_threads();
    let (warp, lane) = (t / WARP, t % WARP);
    let (mut before, mut of_warp) = (0.0, 0.0);
    let mut l = 0;
    while l < WARP {
        before = if l == lane { of_warp } else { before };
        of_warp += of_threads.load(warp * WARP + l);
        l += 1;
    }
    if lane == 0 {
        of_warps.store(warp, of_warp);
    }
    thread::sync_threads();
    let (mut base, mut total) = (0.0, 0.0);
    each(WARPS as usize, |w| {
        base = if w as u32 == warp { total } else { base };
        total += of_warps.load(w as u32);
    });
    let is_beyond = |sum: f64| is_beyond(sum, uniform, total);
    if is_beyond(base + (before + sums[EACH - 1])) && !is_beyond(base + before) {
        let mut which = 0;
        each(EACH - 1, |i| which += if is_beyond(base + (before + sums[i])) { 0 } else { 1 });
        found.store(0, (t * EACH as u32 + which) as f64);
    }
    thread::sync_threads();
    group * DRAWN_ROWS + found.load(0) as u64
}

/// Writes a row as this block's candidate, in the layouts that
/// [`potentials`](crate::seeding::squared_distances::Potentials) and
/// [`add_centre`](crate::seeding::squared_distances::AddCentre) read. All threads must call this.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`DrawRows`], and `row < n`.
#[inline(always)]
pub(crate) unsafe fn put<T: Real>(x: *const T, d: u32, row: u64, candidates: *mut T, points: *mut T, places: u32) {
    let place = thread::block_idx_x();
    let launch = place / CANDIDATES as u32 * CANDIDATES as u32;
    let left = places - launch;
    let (wide, len) = (if left < CANDIDATES as u32 { left } else { CANDIDATES as u32 } as u64, d as u64);
    let candidates = candidates.wrapping_add((2 * launch as u64 * len) as usize + (place - launch) as usize);
    let point = points.wrapping_add((2 * place as u64 * len) as usize);
    let mut j = thread::thread_idx_x();
    while j < d {
        // SAFETY: `row < n`, `j < d`, and the block's slot is one of the launch's `wide` candidates.
        unsafe {
            let (value, j) = (device::load(x, tiled_index(row, j, d)), j as u64);
            device::store(candidates, 2 * j * wide, value);
            device::store(candidates, (2 * j + 1) * wide, T::ZERO);
            device::store(point, j, value);
            device::store(point, len + j, T::ZERO);
        }
        j += THREADS;
    }
}

/// Body of [`draw_rows`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`DrawRows`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: DrawRows<T>) {
    let place = thread::block_idx_x();
    let draw = if place < a.count { place } else { a.count - 1 };
    // SAFETY: `draw < count`.
    let (group, uniform) = unsafe { (device::load(a.groups, draw as u64), device::load(a.uniforms, draw as u64)) };
    // SAFETY: `row_of_group` passes only rows below `n`.
    let value = |row: u64| unsafe { weighted(a.row_weights, row, device::load(a.near, row)) };
    let row = row_of_group(group, a.n, uniform, value);
    if thread::thread_idx_x() == 0 && place < a.count {
        // SAFETY: `place < count`, and only this thread writes it.
        unsafe { device::store(a.rows, place as u64, row) };
    }
    // SAFETY: the fields are as documented, and `row_of_group` returns a row of a group that has rows.
    unsafe { put(a.x, a.d, row, a.candidates, a.points, thread::grid_dim_x()) };
}
