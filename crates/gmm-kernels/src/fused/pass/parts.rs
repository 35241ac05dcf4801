//! What a lane has of a pass: operands of the densities, and its part of the sums.

use super::Pass;
use crate::device::{Shared, copies, thread};
use crate::each::each;
use crate::fused::state::stopped;
use crate::{Real, THREADS};

/// Brings the coefficients of `tiles` and after them the constants of `groups` to the start of the block's shared memory;
/// whether the loop ended before this iteration, which is looked at meanwhile. All threads.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub(super) unsafe fn begin<T: Real>(a: &Pass<T>, tiles: u32, groups: u32) -> bool {
    let t = thread::thread_idx_x();
    let two = |from: *const f64, i: u32| from.wrapping_add(2 * i as usize).cast();
    // SAFETY: positions below the lengths that the fields state.
    let stop = unsafe {
        let mut i = t;
        while i < 64 * tiles {
            copies::send(16 * i, two(a.coefficients, i));
            i += THREADS;
        }
        let mut i = t;
        while i < 4 * groups {
            copies::send(8 * 128 * tiles + 16 * i, two(a.constants, i));
            i += THREADS;
        }
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
