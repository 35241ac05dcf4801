//! A place of k-means++ without the host: what was weighed last decides on a centre, and by what that leaves candidates for the
//! next are drawn.

use crate::device::{self, Shared, WARP, block_sums_of, thread};
use crate::each::each;
use crate::seeding::draw_rows::{DRAWN_ROWS, ROW_BYTES, is_beyond, put, row_of_group};
use crate::seeding::squared_distances::{SUMMED_ROWS, weighted};
use crate::{Real, THREADS};

/// Rows at most: a block has a thread for each group of [`DRAWN_ROWS`].
pub const MOST_ROWS: u64 = THREADS as u64 * DRAWN_ROWS;

kernels! {
    /// A block in `x` for each place of a candidate, a multiple of four as for [`DrawRows`](crate::seeding::draw_rows::DrawRows), but at
    /// least one. Each finds out by itself what the candidates that were weighed leave.
    DrawNext<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows, at most [`MOST_ROWS`].
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(n,)`: distances to the centres before the one that is decided on.
        near: *const f64,
        /// `(weighed, n)`: distances to those that were weighed; or null, where the one centre that was is in `near`.
        distances: *const T,
        /// `(weighed, ceil(n/256))`: Σ weight min(near, distance) of each group of rows.
        sums: *const f64,
        /// Candidates that were weighed, from 1.
        weighed: u32,
        /// `(weighed,)`: their rows; null where `distances` is.
        weighed_rows: *const u64,
        /// The row of the centre, written; or null where it is known.
        chosen: *mut u64,
        /// Which of the candidates it was, written.
        best: *mut u64,
        /// Written 1 where no row is away from all centres, or distances overflow.
        ran_out: *mut u64,
        /// `(2, count)`, in `[0, 1)`: of a group, and of a row among its rows.
        uniforms: *const f64,
        /// Draws; 0 where that was the last centre.
        count: u32,
        /// Places, from `count`.
        places: u32,
        /// `(count,)`, written: the rows that were drawn.
        rows: *mut u64,
        /// `(d, 2, C)` of each launch of `C` candidates, 8 or at the end 4: rows less the shift, as they are held, and zeros.
        candidates: *mut T,
        /// `(places, 2, d)`: the same one by one.
        points: *mut T,
    }
    /// The kernel.
    draw_next => draw_next_f32, draw_next_f64, body, shared_bytes;
}

const WARPS: u32 = THREADS / WARP;

/// Candidates whose sums are added up together.
const AT_ONCE: usize = 8;

/// Where the sums of groups lie in shared memory, and the group that was found; before them is what is needed for the rest.
const OF_GROUPS: u32 = {
    let scratch = WARPS * AT_ONCE as u32 * 8;
    if ROW_BYTES > scratch { ROW_BYTES } else { scratch }
};
const FOUND: u32 = OF_GROUPS + THREADS * 8;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &DrawNext<T>) -> u64 {
    u64::from(FOUND + 8)
}

/// Which of those that were weighed leaves least, the first among equals.
#[inline(always)]
unsafe fn least<T: Real>(a: &DrawNext<T>, parts: u64) -> u64 {
    let (mut best, mut least) = (0, f64::INFINITY);
    let mut from = 0;
    while from < a.weighed {
        let mut sums = [0.0; AT_ONCE];
        each(AT_ONCE, |i| {
            let c = from + i as u32;
            let mut part = thread::thread_idx_x() as u64;
            while c < a.weighed && part < parts {
                // SAFETY: a sum of a candidate's.
                sums[i] += unsafe { device::load(a.sums, c as u64 * parts + part) };
                part += THREADS as u64;
            }
        });
        let sums = block_sums_of(sums, Shared::at(0), WARPS);
        each(AT_ONCE, |i| {
            let c = from + i as u32;
            if c < a.weighed && sums[i] < least {
                (best, least) = (c as u64, sums[i]);
            }
        });
        from += AT_ONCE as u32;
    }
    best
}

/// The kernel.
///
/// # Safety
/// As the fields of [`DrawNext`] say.
#[inline(always)]
pub unsafe fn body<T: Real>(a: DrawNext<T>) {
    const { assert!(DRAWN_ROWS.is_multiple_of(SUMMED_ROWS)) };
    device::await_previous_grid();
    let (t, place) = (thread::thread_idx_x(), thread::block_idx_x());
    let (parts, groups) = (a.n.div_ceil(SUMMED_ROWS), a.n.div_ceil(DRAWN_ROWS) as u32);
    // SAFETY: the caller's promise.
    let best = unsafe { least(&a, parts) };
    let (of_groups, found) = (Shared::<f64>::at(OF_GROUPS), Shared::<f64>::at(FOUND));
    if t < groups {
        let mut sum = 0.0;
        each((DRAWN_ROWS / SUMMED_ROWS) as usize, |i| {
            let part = t as u64 * (DRAWN_ROWS / SUMMED_ROWS) + i as u64;
            if part < parts {
                // SAFETY: a sum of a candidate's.
                sum += unsafe { device::load(a.sums, best * parts + part) };
            }
        });
        of_groups.store(t, sum);
    }
    if t == 0 {
        // Where nothing is left of any group.
        found.store(0, 0.0);
    }
    thread::sync_threads();
    // Running sums never fall from one group to the next, so that one group alone has the mark.
    let (mut before, mut with, mut total) = (0.0, 0.0, 0.0);
    let mut g = 0;
    while g < groups {
        before = if g == t { total } else { before };
        total += of_groups.load(g);
        with = if g == t { total } else { with };
        g += 1;
    }
    if t == 0 && place == 0 {
        // SAFETY: a number each.
        unsafe {
            device::store(a.best, 0, best);
            if !a.chosen.is_null() {
                device::store(a.chosen, 0, device::load(a.weighed_rows, best));
            }
            if a.count > 0 && !(total > 0.0 && total < f64::INFINITY) {
                device::store(a.ran_out, 0, 1);
            }
        }
    }
    if place >= a.places {
        return;
    }
    let draw = if place < a.count { place } else { a.count - 1 };
    // SAFETY: `draw < count`.
    let [of_group, of_row] = [0, a.count].map(|from| unsafe { device::load(a.uniforms, (from + draw) as u64) });
    if t < groups && is_beyond(with, of_group, total) && !is_beyond(before, of_group, total) {
        found.store(0, t as f64);
    }
    thread::sync_threads();
    let near = |row: u64| {
        // SAFETY: a row that there is.
        let near = unsafe { device::load(a.near, row) };
        if a.distances.is_null() {
            return near;
        }
        // SAFETY: as above, of a candidate.
        let distance = unsafe { device::load(a.distances, best * a.n + row) }.to_f64();
        if distance < near { distance } else { near }
    };
    // SAFETY: as above.
    let value = |row: u64| unsafe { weighted(a.row_weights, row, near(row)) };
    let row = row_of_group(found.load(0) as u64, a.n, of_row, value);
    if t == 0 && place < a.count {
        // SAFETY: a row per draw.
        unsafe { device::store(a.rows, place as u64, row) };
    }
    // SAFETY: the caller's promise.
    unsafe { put(a.x, a.d, row, a.candidates, a.points, a.places) };
}
