//! Functions of both fused passes: the start of a pass, loads of density operands, and a lane's part of the sums.

use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::features::{Features, GROUP, STRIDE};
use crate::em::fused::Pass;
use crate::em::staging::Rows;
use crate::em::state::stopped;

/// Groups of rows. No device holds enough rows to exceed 32 bits here.
#[inline(always)]
pub(crate) fn groups_of_rows(a: &Pass) -> u32 {
    a.n.div_ceil(GROUP as u64) as u32
}

/// Prologue of a block; returns whether the loop ended before this iteration. Copies `tiles` of coefficients and after
/// them the constants of `groups` to the start of shared memory, initialises the warp's columns at `x`, and starts the
/// copy of its first group of rows, `first`, to `raw`. All `threads` of the block call it.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
pub(crate) unsafe fn start<F: Features>(
    a: &Pass,
    threads: u32,
    (tiles, groups): (u32, u32),
    (x, raw): (Shared<f64>, u32),
    first: u32,
) -> bool {
    let (t, lane) = (thread::thread_idx_x(), warp::lane_id());
    let mut i = lane;
    while i < F::COLUMNS * STRIDE {
        x.store(i, if F::ONES == Some(i / STRIDE) { 1.0 } else { 0.0 });
        i += WARP;
    }
    let rows = Rows::new(a.x, a.d, a.number_bytes, raw, lane);
    rows.clear(F::ENTRIES);
    if first < groups_of_rows(a) {
        // Rows do not change during a loop, so the first copy may start before the previous grids end.
        // SAFETY: `first` is a group of this chunk.
        unsafe { rows.send(F::ENTRIES, first) };
    }
    device::await_previous_grid();
    let two = |from: *const f64, i: u32| from.wrapping_add(2 * i as usize).cast();
    // SAFETY: indices below the lengths that the fields of `Pass` document.
    let stop = unsafe {
        let mut i = t;
        while i < 64 * tiles {
            copies::send(16 * i, two(a.coefficients, i));
            i += threads;
        }
        let mut i = t;
        while i < 4 * groups {
            copies::send(8 * 128 * tiles + 16 * i, two(a.constants, i));
            i += threads;
        }
        // Read while the copies are in flight.
        stopped(a.state, a.iteration)
    };
    copies::arrive();
    thread::sync_threads();
    stop
}

/// Calls `f(index, value)` for each value that a lane holds of its warp's sums.
#[inline(always)]
pub(crate) fn every<const S: usize, const NT: usize>(
    sums: &mut [[[f64; 4]; NT]; S],
    weight: &mut [f64; NT],
    likelihood: &mut f64,
    lane: u32,
    mut f: impl FnMut(u32, &mut f64),
) {
    let weights_at = (128 * S * NT) as u32;
    each(S, |s| {
        each(NT, |nt| each(4, |i| f((((s * NT + nt) * 4 + i) * 32) as u32 + lane, &mut sums[s][nt][i])));
    });
    if lane.is_multiple_of(4) {
        each(NT, |nt| f(weights_at + 8 * nt as u32 + lane / 4, &mut weight[nt]));
    }
    if lane == 0 {
        f(weights_at + 8 * NT as u32, likelihood);
    }
}

/// Constants of a group of components: the initial values of this lane's mma accumulators.
#[inline(always)]
pub(crate) fn constant(constants: Shared<f64>, nt: usize, lane: u32) -> [f64; 4] {
    let [even, odd] = constants.load2(8 * nt as u32 + lane % 4 * 2);
    [even, odd, even, odd]
}

/// Loads a tile of coefficients as an mma operand.
#[inline(always)]
pub(crate) fn coefficient(coefficients: Shared<f64>, tile: usize, lane: u32) -> [f64; 4] {
    let at = tile as u32 * 128 + lane * 2;
    let ([a, b], [c, d]) = (coefficients.load2(at), coefficients.load2(at + 64));
    [a, b, c, d]
}
