//! Between two passes of Lloyd's: each centre to the mean of its rows, then whether they rest.

use crate::THREADS;
use crate::device::{self, Shared, block_sum, thread};
use crate::em::state::{DONE, FINISHED, TROUBLE, stopped};
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;
use crate::seeding::lloyd::CentreLayout;

kernels! {
    /// The grid is `8*groups` blocks, one for each centre and those past the last.
    MoveCentres {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this ends, from 1; 0 makes coefficients of the centres that are there.
        iteration: u32,
        /// Centres.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`CentreLayout::at_once`].
        at_once: u32,
        /// [`CentreLayout::groups`].
        groups: u32,
        /// [`CentreLayout::steps`].
        steps: u32,
        /// `(d + 1, k)`: Σ w z of each column, then Σ w; not read at iteration 0.
        sums: *const f64,
        /// `(k, d)`: less the shift; read and written.
        centres: *mut f64,
        /// `(k,)`, written: Σ w of each centre's rows; a centre without stays where it is.
        weights: *mut f64,
        /// `(k,)`, written: the square of its move.
        moved: *mut f64,
        /// [`CentreLayout::coefficients`], written where they are not 0 for good: zeroed beforehand.
        coefficients: *mut f64,
        /// `(8*groups,)`, written.
        constants: *mut f64,
    }
    /// The kernel.
    lloyd_move => move_body, move_shared;
}

kernels! {
    /// One block.
    Settle {
        /// State of the loop, `STATE_LEN` numbers, written: done where the centres rest, in trouble where one has no rows
        /// or a sum is not finite.
        state: *mut u32,
        /// The iteration that this ends, from 1.
        iteration: u32,
        /// Centres.
        k: u32,
        /// Rest is where the squares of the moves sum to this at most.
        rest: f64,
        /// `(k,)`.
        weights: *const f64,
        /// `(k,)`.
        moved: *const f64,
        /// `(parts,)`: of the inertia.
        inertia: *const f64,
        /// Parts of the inertia.
        parts: u32,
        /// `(SEEN,)`, written: see [`SEEN`].
        seen: *mut f64,
    }
    /// The kernel.
    lloyd_settle => settle_body, settle_shared;
}

/// What [`lloyd_settle`] says of the last pass: its number, how many centres have no rows, inertia before the move, and the sum
/// of the squares of the moves.
pub const SEEN: usize = 4;

#[cfg(not(target_arch = "nvptx64"))]
fn move_shared(_: &MoveCentres) -> u64 {
    u64::from(SUM_BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn settle_shared(_: &Settle) -> u64 {
    u64::from(SUM_BYTES)
}

/// [`lloyd_move`].
///
/// # Safety
/// As the fields of [`MoveCentres`] say.
#[inline(always)]
pub unsafe fn move_body(a: MoveCentres) {
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = CentreLayout { at_once: a.at_once, groups: a.groups, steps: a.steps };
    let (c, k, t) = (thread::block_idx_x(), a.k as u64, thread::thread_idx_x());
    if c >= a.k {
        if t == 0 {
            // SAFETY: a constant per block.
            unsafe { device::store(a.constants, c as u64, f64::NEG_INFINITY) };
        }
        return;
    }
    let moves = a.iteration > 0;
    // SAFETY: `c < k`.
    let weight = if moves { unsafe { device::load(a.sums, a.d as u64 * k + c as u64) } } else { 0.0 };
    let (mut moved, mut norm) = (0.0, 0.0);
    let mut j = t;
    while j < a.d {
        let at = c as u64 * a.d as u64 + j as u64;
        // SAFETY: `c < k`, `j < d`.
        unsafe {
            let mut v = device::load(a.centres.cast_const(), at);
            if weight > 0.0 {
                let by = device::load(a.sums, j as u64 * k + c as u64) / weight;
                moved += by * by;
                v += by;
                device::store(a.centres, at, v);
            }
            norm += v * v;
            device::store(a.coefficients, place.at(c, j), v);
        }
        j += THREADS;
    }
    let scratch = Shared::at(0);
    let (moved, norm) = (block_sum(moved, scratch), block_sum(norm, scratch));
    if t == 0 {
        // SAFETY: `c < k`.
        unsafe {
            device::store(a.constants, c as u64, -0.5 * norm);
            if moves {
                device::store(a.weights, c as u64, weight);
                device::store(a.moved, c as u64, moved);
            }
        }
    }
}

/// [`lloyd_settle`].
///
/// # Safety
/// As the fields of [`Settle`] say.
#[inline(always)]
pub unsafe fn settle_body(a: Settle) {
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state.cast_const(), a.iteration) } {
        return;
    }
    let (mut moved, mut empty, mut inertia) = (0.0, 0.0, 0.0);
    let t = thread::thread_idx_x();
    let mut c = t;
    while c < a.k {
        // SAFETY: `c < k`.
        unsafe {
            moved += device::load(a.moved, c as u64);
            empty += if device::load(a.weights, c as u64) > 0.0 { 0.0 } else { 1.0 };
        }
        c += THREADS;
    }
    let mut i = t;
    while i < a.parts {
        // SAFETY: `i < parts`.
        inertia += unsafe { device::load(a.inertia, i as u64) };
        i += THREADS;
    }
    let scratch = Shared::at(0);
    let (moved, empty, inertia) = (block_sum(moved, scratch), block_sum(empty, scratch), block_sum(inertia, scratch));
    if t == 0 {
        // SAFETY: state and report are that long.
        unsafe { report(a.state, a.seen, a.rest, Report { iteration: a.iteration, empty, inertia, moved }) };
    }
}

/// What is known of a pass at its end: see [`SEEN`].
pub(crate) struct Report {
    pub(crate) iteration: u32,
    pub(crate) empty: f64,
    pub(crate) inertia: f64,
    pub(crate) moved: f64,
}

/// Says it, and whether the loop goes on. One thread.
///
/// # Safety
/// `STATE_LEN` and [`SEEN`] numbers.
#[inline(always)]
pub(crate) unsafe fn report(state: *mut u32, seen: *mut f64, rest: f64, of: Report) {
    let finite = of.moved < f64::INFINITY && of.inertia < f64::INFINITY;
    // SAFETY: the caller's promise.
    unsafe {
        if of.empty > 0.0 || !finite {
            device::store(state, TROUBLE, of.iteration);
        }
        if of.moved <= rest {
            device::store(state, DONE, of.iteration);
        }
        device::store(state, FINISHED, of.iteration);
        device::store(seen, 0, of.iteration as f64);
        device::store(seen, 1, of.empty);
        device::store(seen, 2, of.inertia);
        device::store(seen, 3, of.moved);
    }
}
