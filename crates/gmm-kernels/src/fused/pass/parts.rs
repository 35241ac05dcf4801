//! What a lane has of a pass: operands of the densities, and its part of the sums.

use crate::device::Shared;
use crate::each::each;

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
