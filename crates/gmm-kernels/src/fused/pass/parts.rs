//! How a pass starts, and what a lane has of it: operands of the densities, and its part of the sums.

use super::super::features::{Features, GROUP, STRIDE};
use super::super::staging::Rows;
use super::super::state::stopped;
use super::Pass;
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;

/// Groups of rows. So many rows as would pass 32 bits here no device holds.
#[inline(always)]
pub(super) fn groups_of_rows(a: &Pass) -> u32 {
    a.n.div_ceil(GROUP as u64) as u32
}

/// What a block does before its first rows; whether the loop ended before this iteration. `tiles` of coefficients and after
/// them the constants of `groups` come to the start of its shared memory; a warp has its columns at `x`, its rows arrive at
/// `raw`, and its first group is on its way. All `threads` of the block.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub(super) unsafe fn start<F: Features>(
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
    let rows = Rows::new(a, a.d, a.number_bytes, raw, lane);
    rows.clear(F::ENTRIES);
    if first < groups_of_rows(a) {
        // Rows do not change in a loop: the first may come while the grids before this one end.
        // SAFETY: one of the chunk's groups.
        unsafe { rows.send(F::ENTRIES, first) };
    }
    device::await_previous_grid();
    let two = |from: *const f64, i: u32| from.wrapping_add(2 * i as usize).cast();
    // SAFETY: positions below the lengths that the fields state.
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
        // It comes meanwhile.
        stopped(a.state, a.iteration)
    };
    copies::arrive();
    thread::sync_threads();
    stop
}

/// Calls `f(place, number)` for what a lane has of its warp's sums.
#[inline(always)]
pub(super) fn every<const S: usize, const NT: usize>(
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

/// Constants of a group of components, as the densities of this lane's entries start.
#[inline(always)]
pub(super) fn constant(constants: Shared<f64>, nt: usize, lane: u32) -> [f64; 4] {
    let [even, odd] = constants.load2(8 * nt as u32 + lane % 4 * 2);
    [even, odd, even, odd]
}

/// A tile of coefficients, as an operand.
#[inline(always)]
pub(super) fn coefficient(coefficients: Shared<f64>, tile: usize, lane: u32) -> [f64; 4] {
    let at = tile as u32 * 128 + lane * 2;
    let ([a, b], [c, d]) = (coefficients.load2(at), coefficients.load2(at + 64));
    [a, b, c, d]
}
