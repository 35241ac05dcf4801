//! The end of a pass in one block, for few centres: launching three kernels would take longer than running them.

use crate::device::{self, Shared, WARP, block_sums_of, thread, warp};
use crate::each::each;
use crate::em::state::stopped;
use crate::seeding::lloyd::CentreLayout;
use crate::seeding::lloyd::centres::{Report, report};

kernels! {
    /// One block of 512 threads.
    EndOfPass {
        /// State of the loop, `STATE_LEN` numbers, written: DONE if the centres have converged, TROUBLE if one has no
        /// rows or a sum is not finite.
        state: *mut u32,
        /// The iteration that this ends, from 1.
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
        /// Tolerance: converged if the squares of the moves sum to at most this.
        rest: f64,
        /// `(splits, len)`: partial results, laid out as [`SumSplits::len`](crate::seeding::lloyd::SumSplits::len)
        /// documents.
        partials: *const f64,
        /// Number of partial results.
        splits: u32,
        /// Numbers in each, at most [`MOST_NUMBERS`].
        len: u32,
        /// How many of these, at the end, are parts of the inertia.
        parts: u32,
        /// `(k, d)`: less the shift; read and written.
        centres: *mut f64,
        /// `(k,)`, written: Σ w of each centre's rows; a centre without rows keeps its position.
        weights: *mut f64,
        /// [`CentreLayout::coefficients`], written except where they are always 0: zeroed beforehand.
        coefficients: *mut f64,
        /// `(8*groups,)`, written for each of the `k` centres.
        constants: *mut f64,
        /// `(SEEN,)`, written: see [`SEEN`](crate::seeding::lloyd::centres::SEEN).
        seen: *mut f64,
    }
    /// The kernel.
    lloyd_end => body, shared_bytes, threads;
}

const WARPS: u32 = 16;
const THREADS: u32 = WARPS * WARP;

/// Partial results whose numbers a thread reads together.
const AT_ONCE: usize = 8;

/// Most numbers in a partial result: more are faster with more blocks, as are more centres than [`MOST_CENTRES`].
pub const MOST_NUMBERS: u32 = 1024;

/// Most centres.
pub const MOST_CENTRES: u32 = 64;

/// Threads that add up the same partial results, one thread for each of the `len` numbers, or for several if there are
/// not enough threads. The smaller `len`, the more such shares.
const fn threads_of_share(len: u32) -> u32 {
    // At least one; the compiler must know this, since a check for division by 0 would be a call to a panic.
    let warps = if len > WARP { len.div_ceil(WARP) } else { 1 };
    WARP * if warps < WARPS { warps } else { WARPS }
}

/// How often a thread waits for device memory until `splits` partial results of `len` numbers are added up.
pub const fn waits(len: u32, splits: u32) -> u32 {
    let each = threads_of_share(len);
    len.div_ceil(each) * splits.div_ceil(THREADS / each * AT_ONCE as u32)
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &EndOfPass) -> u32 {
    THREADS
}

/// Numbers in the sums of all shares.
const fn shares_len(len: u32) -> u32 {
    THREADS / threads_of_share(len) * len
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &EndOfPass) -> u64 {
    8 * u64::from(shares_len(a.len) + 3 * WARPS)
}

/// Body of [`lloyd_end`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`EndOfPass`].
#[inline(always)]
pub unsafe fn body(a: EndOfPass) {
    device::await_previous_grid();
    // SAFETY: `state` has `STATE_LEN` numbers.
    if unsafe { stopped(a.state.cast_const(), a.iteration) } {
        return;
    }
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let sums = Shared::<f64>::at(0);
    // SAFETY: all threads call this, `partials` is `(splits, len)`, and shared memory has room for all shares' sums.
    unsafe { add_up(&a, sums) };

    let place = CentreLayout { at_once: a.at_once, groups: a.groups, steps: a.steps };
    let (mut all_moved, mut empty) = (0.0, 0.0);
    let mut c = me;
    while c < a.k {
        let weight = sums.load(a.d * a.k + c);
        let (mut moved, mut norm) = (0.0, 0.0);
        let mut j = lane;
        while j < a.d {
            let at = c as u64 * a.d as u64 + j as u64;
            // SAFETY: `c < k` and `j < d`; only this lane accesses the coordinate.
            unsafe {
                let mut v = device::load(a.centres.cast_const(), at);
                if weight > 0.0 {
                    let by = sums.load(j * a.k + c) / weight;
                    moved += by * by;
                    v += by;
                    device::store(a.centres, at, v);
                }
                norm += v * v;
                device::store(a.coefficients, place.at(c, j), v);
            }
            j += WARP;
        }
        each(5, |by| {
            moved += warp::shuffle_xor(moved, 1 << by);
            norm += warp::shuffle_xor(norm, 1 << by);
        });
        if lane == 0 {
            // SAFETY: `c < k`, and only this lane writes this centre's numbers.
            unsafe {
                device::store(a.constants, c as u64, -0.5 * norm);
                device::store(a.weights, c as u64, weight);
            }
            all_moved += moved;
            empty += if weight > 0.0 { 0.0 } else { 1.0 };
        }
        c += WARPS;
    }
    let mut inertia = 0.0;
    let mut i = t;
    while i < a.parts {
        inertia += sums.load(a.len - a.parts + i);
        i += THREADS;
    }
    let scratch = Shared::at(8 * shares_len(a.len));
    let [moved, empty, inertia] = block_sums_of([all_moved, empty, inertia], scratch, WARPS);
    if t == 0 {
        let of = Report { iteration: a.iteration, empty, inertia, moved };
        // SAFETY: `state` has `STATE_LEN` numbers and `seen` has `SEEN`.
        unsafe { report(a.state, a.seen, a.rest, of) };
    }
}

/// Adds up the partial results in a fixed order into the first `len` numbers of `sums`. All threads must call this.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`EndOfPass`].
#[inline(always)]
unsafe fn add_up(a: &EndOfPass, sums: Shared<f64>) {
    let (t, each_share) = (thread::thread_idx_x(), threads_of_share(a.len));
    let (share, shares) = (t / each_share, THREADS / each_share);
    let mut i = t % each_share;
    // The remaining threads have no share.
    while i < a.len && share < shares {
        let mut sum = 0.0;
        let mut first = share;
        while first < a.splits {
            let mut some = [0.0; AT_ONCE];
            each(AT_ONCE, |more| {
                let s = first + shares * more as u32;
                if s < a.splits {
                    // SAFETY: `s < splits`, `i < len`.
                    some[more] = unsafe { device::load(a.partials, s as u64 * a.len as u64 + i as u64) };
                }
            });
            each(AT_ONCE, |more| sum += some[more]);
            first += shares * AT_ONCE as u32;
        }
        sums.store(share * a.len + i, sum);
        i += each_share;
    }
    thread::sync_threads();
    let mut i = t;
    while i < a.len {
        let (mut sum, mut share) = (0.0, 0);
        while share < shares {
            sum += sums.load(share * a.len + i);
            share += 1;
        }
        // Each thread reads and writes only its own numbers.
        sums.store(i, sum);
        i += THREADS;
    }
    thread::sync_threads();
}

const _: () = assert!(WARPS == 16 && 8 * MOST_NUMBERS + 24 * WARPS <= 48 << 10);
