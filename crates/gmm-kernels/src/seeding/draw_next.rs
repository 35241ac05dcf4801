//! A step of k-means++ without the host: the potentials computed last decide on a centre, and the distances that it
//! leaves determine the candidates for the next centre.

use crate::device::{self, Shared, WARP, block_sums_of, thread};
use crate::each::each;
use crate::seeding::draw_rows::{DRAWN_ROWS, ROW_BYTES, is_beyond, put, row_of_group};
use crate::seeding::squared_distances::{SUMMED_ROWS, weighted};
use crate::{Real, THREADS};

/// Most rows: a block has one thread for each group of [`DRAWN_ROWS`] rows.
pub const MOST_ROWS: u64 = THREADS as u64 * DRAWN_ROWS;

kernels! {
    /// One block in `x` per candidate slot, a multiple of four as for
    /// [`DrawRows`](crate::seeding::draw_rows::DrawRows), but at least one block. Each block computes the best
    /// candidate itself.
    DrawNext<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows, at most [`MOST_ROWS`].
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(n,)`: squared distances to the centres before the one being decided.
        near: *const f64,
        /// `(weighed, n)`: squared distances to the candidates; or null if the only candidate is already included in
        /// `near`.
        distances: *const T,
        /// `(weighed, ceil(n/256))`: Σ weight min(near, distance) of each group of rows.
        sums: *const f64,
        /// Number of candidates with potentials, at least 1.
        weighed: u32,
        /// `(weighed,)`: rows of the candidates; null if `distances` is.
        weighed_rows: *const u64,
        /// The row of the chosen centre, written; or null if it is known.
        chosen: *mut u64,
        /// Index of the chosen candidate, written.
        best: *mut u64,
        /// Set to 1 if every row coincides with a centre, or if distances overflow.
        ran_out: *mut u64,
        /// `(2, count)`, in `[0, 1)`: uniform numbers that select a group, then those that select a row within it.
        uniforms: *const f64,
        /// Number of draws; 0 after the last centre.
        count: u32,
        /// Number of slots, at least `count`.
        places: u32,
        /// `(count,)`, written: the rows drawn.
        rows: *mut u64,
        /// `(d, 2, C)` for each launch of `C` candidates (8, or 4 for the last), written: rows less the shift, as
        /// stored, and zeros.
        candidates: *mut T,
        /// `(places, 2, d)`, written: the same, candidate by candidate.
        points: *mut T,
    }
    /// The kernel.
    draw_next => draw_next_f32, draw_next_f64, body, shared_bytes;
}

const WARPS: u32 = THREADS / WARP;

/// Candidates whose sums are added up together.
const AT_ONCE: usize = 8;

/// Byte positions in shared memory of the groups' sums, and of the group found; the scratch of other steps precedes
/// them.
const OF_GROUPS: u32 = {
    let scratch = WARPS * AT_ONCE as u32 * 8;
    if ROW_BYTES > scratch { ROW_BYTES } else { scratch }
};
const FOUND: u32 = OF_GROUPS + THREADS * 8;

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &DrawNext<T>) -> u64 {
    u64::from(FOUND + 8)
}

/// Returns the candidate that leaves the least potential, the first among equals.
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
                // SAFETY: `c < weighed` and `part < parts`.
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

/// Body of [`draw_next`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`DrawNext`].
#[inline(always)]
pub unsafe fn body<T: Real>(a: DrawNext<T>) {
    const { assert!(DRAWN_ROWS.is_multiple_of(SUMMED_ROWS)) };
    device::await_previous_grid();
    let (t, place) = (thread::thread_idx_x(), thread::block_idx_x());
    let (parts, groups) = (a.n.div_ceil(SUMMED_ROWS), a.n.div_ceil(DRAWN_ROWS) as u32);
    // SAFETY: the fields are as documented, and `sums` has `parts` numbers per candidate.
    let best = unsafe { least(&a, parts) };
    let (of_groups, found) = (Shared::<f64>::at(OF_GROUPS), Shared::<f64>::at(FOUND));
    if t < groups {
        let mut sum = 0.0;
        each((DRAWN_ROWS / SUMMED_ROWS) as usize, |i| {
            let part = t as u64 * (DRAWN_ROWS / SUMMED_ROWS) + i as u64;
            if part < parts {
                // SAFETY: `best < weighed` and `part < parts`.
                sum += unsafe { device::load(a.sums, best * parts + part) };
            }
        });
        of_groups.store(t, sum);
    }
    if t == 0 {
        // Used if no group has any potential left.
        found.store(0, 0.0);
    }
    thread::sync_threads();
    // Running sums never decrease from one group to the next, so exactly one group contains the mark.
    let (mut before, mut with, mut total) = (0.0, 0.0, 0.0);
    let mut g = 0;
    while g < groups {
        before = if g == t { total } else { before };
        total += of_groups.load(g);
        with = if g == t { total } else { with };
        g += 1;
    }
    if t == 0 && place == 0 {
        // SAFETY: each output is one number, written only by this thread; `best < weighed`.
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
    // SAFETY: `draw < count`, and `uniforms` has 2*count numbers.
    let [of_group, of_row] = [0, a.count].map(|from| unsafe { device::load(a.uniforms, (from + draw) as u64) });
    if t < groups && is_beyond(with, of_group, total) && !is_beyond(before, of_group, total) {
        found.store(0, t as f64);
    }
    thread::sync_threads();
    let near = |row: u64| {
        // SAFETY: `row_of_group` passes only rows below `n`.
        let near = unsafe { device::load(a.near, row) };
        if a.distances.is_null() {
            return near;
        }
        // SAFETY: `best < weighed` and `row < n`.
        let distance = unsafe { device::load(a.distances, best * a.n + row) }.to_f64();
        if distance < near { distance } else { near }
    };
    // SAFETY: `row < n`, as above.
    let value = |row: u64| unsafe { weighted(a.row_weights, row, near(row)) };
    let row = row_of_group(found.load(0) as u64, a.n, of_row, value);
    if t == 0 && place < a.count {
        // SAFETY: `place < count`, and only this thread writes it.
        unsafe { device::store(a.rows, place as u64, row) };
    }
    // SAFETY: the fields are as documented, and `row_of_group` returns a row of a group that has rows.
    unsafe { put(a.x, a.d, row, a.candidates, a.points, a.places) };
}
