//! Between two of Lloyd's passes: moves each centre to the mean of its rows, then checks for convergence.

use crate::THREADS;
use crate::device::{self, Shared, block_sum, thread};
use crate::em::state::{DONE, FINISHED, TROUBLE, stopped};
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;
use crate::seeding::lloyd::CentreLayout;

kernels! {
    /// The grid has `8*groups` blocks, one per centre and per padding slot.
    MoveCentres {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this ends, from 1; 0 only computes coefficients of the current centres.
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
        /// `(d + 1, k)`: Σ w z of each column, then Σ w; not read in iteration 0.
        sums: *const f64,
        /// `(k, d)`: less the shift; read and written.
        centres: *mut f64,
        /// `(k,)`, written: Σ w of each centre's rows; a centre without rows keeps its position.
        weights: *mut f64,
        /// `(k,)`, written: the squared length of each centre's move.
        moved: *mut f64,
        /// [`CentreLayout::coefficients`], written except where they are always 0: zeroed beforehand.
        coefficients: *mut f64,
        /// `(8*groups,)`, written: `−|c|²/2`, and −∞ past the last centre.
        constants: *mut f64,
    }
    /// The kernel.
    lloyd_move => move_body, move_shared;
}

kernels! {
    /// One block.
    Settle {
        /// State of the loop, `STATE_LEN` numbers, written: DONE if the centres have converged, TROUBLE if one has no
        /// rows or a sum is not finite.
        state: *mut u32,
        /// The iteration that this ends, from 1.
        iteration: u32,
        /// Centres.
        k: u32,
        /// Tolerance: converged if the squares of the moves sum to at most this.
        rest: f64,
        /// `(k,)`.
        weights: *const f64,
        /// `(k,)`.
        moved: *const f64,
        /// `(parts,)`: parts of the inertia.
        inertia: *const f64,
        /// Number of parts of the inertia.
        parts: u32,
        /// `(SEEN,)`, written: see [`SEEN`].
        seen: *mut f64,
    }
    /// The kernel.
    lloyd_settle => settle_body, settle_shared;
}

/// Numbers that [`lloyd_settle`] reports about the last pass: its index, the number of centres without rows, the
/// inertia before the move, and the sum of the squares of the moves.
pub const SEEN: usize = 4;

#[cfg(not(target_arch = "nvptx64"))]
fn move_shared(_: &MoveCentres) -> u64 {
    u64::from(SUM_BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn settle_shared(_: &Settle) -> u64 {
    u64::from(SUM_BYTES)
}

/// Body of [`lloyd_move`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`MoveCentres`].
#[inline(always)]
pub unsafe fn move_body(a: MoveCentres) {
    device::await_previous_grid();
    // SAFETY: `state` is null or has `STATE_LEN` numbers.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let place = CentreLayout { at_once: a.at_once, groups: a.groups, steps: a.steps };
    let (c, k, t) = (thread::block_idx_x(), a.k as u64, thread::thread_idx_x());
    if c >= a.k {
        if t == 0 {
            // SAFETY: `constants` has one number per block.
            unsafe { device::store(a.constants, c as u64, f64::NEG_INFINITY) };
        }
        return;
    }
    let moves = a.iteration > 0;
    // SAFETY: `c < k`, and `sums` is `(d + 1, k)`.
    let weight = if moves { unsafe { device::load(a.sums, a.d as u64 * k + c as u64) } } else { 0.0 };
    let (mut moved, mut norm) = (0.0, 0.0);
    let mut j = t;
    while j < a.d {
        let at = c as u64 * a.d as u64 + j as u64;
        // SAFETY: `c < k` and `j < d`; only this thread accesses the coordinate.
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
        // SAFETY: `c < k`, and only this thread writes this centre's numbers.
        unsafe {
            device::store(a.constants, c as u64, -0.5 * norm);
            if moves {
                device::store(a.weights, c as u64, weight);
                device::store(a.moved, c as u64, moved);
            }
        }
    }
}

/// Body of [`lloyd_settle`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Settle`].
#[inline(always)]
pub unsafe fn settle_body(a: Settle) {
    device::await_previous_grid();
    // SAFETY: `state` has `STATE_LEN` numbers.
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
        // SAFETY: `state` has `STATE_LEN` numbers and `seen` has `SEEN`.
        unsafe { report(a.state, a.seen, a.rest, Report { iteration: a.iteration, empty, inertia, moved }) };
    }
}

/// Results of a pass; see [`SEEN`].
pub(crate) struct Report {
    pub(crate) iteration: u32,
    pub(crate) empty: f64,
    pub(crate) inertia: f64,
    pub(crate) moved: f64,
}

/// Writes the report and the state of the loop. Called by one thread.
///
/// # Safety
/// `state` must have `STATE_LEN` numbers, and `seen` [`SEEN`].
#[inline(always)]
pub(crate) unsafe fn report(state: *mut u32, seen: *mut f64, rest: f64, of: Report) {
    let finite = of.moved < f64::INFINITY && of.inertia < f64::INFINITY;
    // SAFETY: the caller upholds `# Safety`: `state` has `STATE_LEN` numbers and `seen` has `SEEN`.
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
