//! From a warp's sixteen rows to their responsibilities: shared by both fused passes.

use crate::device::{self, Shared, mma};
use crate::em::approx_max::{key, least_of_quads};
use crate::em::features::{Features, GROUP, each};
use crate::em::fused::parts::{coefficient, constant};
use crate::em::lanes::{quad, row_weight};
use crate::math::{exp_below_f32, exp_below_f64, reciprocal};

/// Elements from one row's responsibilities to the next: 4 more than the components, against bank conflicts along both.
pub(crate) const fn row_stride(groups: u32) -> u32 {
    8 * groups + 4
}

/// Weights of a lane's two rows in the `group`th sixteen.
///
/// # Safety
/// `row_weights` is null or has `n` elements.
#[inline(always)]
pub(crate) unsafe fn weights_of_lane(row_weights: *const f64, n: u64, group: u32, lane: u32) -> [f64; 2] {
    let inside = lane / 4;
    if row_weights.is_null() {
        let left = n - group as u64 * GROUP as u64;
        let left = if left < GROUP as u64 { left as u32 } else { GROUP };
        return [0, 8].map(|half| if inside + half < left { 1.0 } else { 0.0 });
    }
    let row = group as u64 * GROUP as u64 + inside as u64;
    // SAFETY: `row_weights` is not null, so it has `n` elements.
    [0, 8].map(|half| unsafe { row_weight(row_weights, n, row + half) })
}

/// Log joint densities of the rows whose columns are at `x`, in the layout of mma accumulators. Forms features with few
/// registers if those are `scarce`.
#[inline(always)]
pub(crate) fn joint<F: Features, const NT: usize>(
    x: Shared<f64>,
    coefficients: Shared<f64>,
    constants: Shared<f64>,
    lane: u32,
    scarce: bool,
) -> [[f64; 4]; NT] {
    some_joint::<F, NT, NT>(x, coefficients, constants, lane, 0, scarce)
}

/// Log joint densities of `SOME` groups of components, from group `from` on.
#[inline(always)]
fn some_joint<F: Features, const NT: usize, const SOME: usize>(
    x: Shared<f64>,
    coefficients: Shared<f64>,
    constants: Shared<f64>,
    lane: u32,
    from: u32,
    scarce: bool,
) -> [[f64; 4]; SOME] {
    let (coefficients, constants) = (coefficients.skip(128 * from), constants.skip(8 * from));
    let mut joint = [[0.0; 4]; SOME];
    each(SOME, |nt| joint[nt] = constant(constants, nt, lane));
    F::across(x, lane, scarce, |step, features| {
        each(SOME, |nt| {
            mma::f64_16x8x16(&mut joint[nt], features, coefficient(coefficients, step * NT + nt, lane));
        });
    });
    joint
}

/// Replaces each value by its exponential, in the precision of rows of `number_bytes` per value.
#[inline(always)]
pub(crate) fn exponentials<const N: usize>(number_bytes: u32, v: &mut [[f64; 2]; N]) {
    if number_bytes == 4 {
        each(N, |n| each(2, |i| v[n][i] = exp_below_f32(v[n][i] as f32) as f64));
    } else {
        each(N, |n| each(2, |i| v[n][i] = exp_below_f64(v[n][i])));
    }
}

/// As [`joint`] followed by [`respond`], with `SOME` groups of components in registers at a time; `SOME` divides `NT`.
/// Features are formed anew for each part, and densities are stored in the slots of the responsibilities.
#[inline(always)]
pub(crate) fn respond_in_parts<F: Features, const NT: usize, const SOME: usize>(
    number_bytes: u32,
    x: Shared<f64>,
    [coefficients, constants]: [Shared<f64>; 2],
    weights: impl FnOnce() -> [f64; 2],
    r: Shared<f64>,
    lane: u32,
    scarce: bool,
) -> [[f64; 3]; 2] {
    let at = |nt: u32, half: usize| (lane / 4 + 8 * half as u32) * row_stride(NT as u32) + 8 * nt + lane % 4;
    let mut tops = [i32::MIN; 2];
    // Loops that are not unrolled, here and below, so that no registers are used for later parts.
    let (mut from, groups) = (0, device::unknown(NT as u32));
    while from < groups {
        let joint = some_joint::<F, NT, SOME>(x, coefficients, constants, lane, from, scarce);
        each(2, |half| {
            each(SOME, |nt| {
                let two = [joint[nt][2 * half], joint[nt][2 * half + 1]];
                tops[half] = tops[half].max(key(two[0])).max(key(two[1]));
                let at = at(from + nt as u32, half);
                r.store(at, two[0]);
                r.store(at + 4, two[1]);
            });
        });
        from += SOME as u32;
    }
    let tops = least_of_quads(tops);
    // Each lane reads only what it wrote.
    let mut sums = [0.0; 2];
    let mut nt = 0;
    while nt < groups {
        let mut e = [[0.0; 2]; 2];
        each(2, |half| each(2, |odd| e[half][odd] = r.load(at(nt, half) + 4 * odd as u32) - tops[half]));
        exponentials(number_bytes, &mut e);
        each(2, |half| {
            each(2, |odd| {
                // In f64 even if the exponentials are f32, as in `respond`.
                sums[half] += e[half][odd];
                r.store(at(nt, half) + 4 * odd as u32, e[half][odd]);
            });
        });
        nt += 1;
    }
    let sums = sums.map(|sum| quad(sum, core::ops::Add::add));
    let weights = weights();
    let shares = [0, 1].map(|half| weights[half] * reciprocal(sums[half]));
    let mut nt = 0;
    while nt < groups {
        each(2, |half| {
            each(2, |odd| {
                let at = at(nt, half) + 4 * odd as u32;
                r.store(at, r.load(at) * shares[half]);
            });
        });
        nt += 1;
    }
    [0, 1].map(|half| [weights[half], tops[half], sums[half]])
}

/// Writes responsibilities to `r`, [`row_stride`] elements per row. Returns for each of this lane's two rows: its
/// weight, a value `top` near the largest log joint density, and Σ exp(log density − `top`).
#[inline(always)]
pub(crate) fn respond<const NT: usize>(
    number_bytes: u32,
    joint: &[[f64; 4]; NT],
    weights: [f64; 2],
    r: Shared<f64>,
    lane: u32,
) -> [[f64; 3]; 2] {
    let of = |half: usize, nt: usize, i: usize| joint[nt][2 * half + i];
    let mut tops = [i32::MIN; 2];
    each(2, |half| each(NT, |nt| each(2, |i| tops[half] = tops[half].max(key(of(half, nt, i))))));
    let tops = least_of_quads(tops);
    let mut densities = [[0.0; 3]; 2];
    each(2, |half| {
        let (weight, top) = (weights[half], tops[half]);
        let mut e = [[0.0; 2]; NT];
        each(NT, |nt| each(2, |i| e[nt][i] = of(half, nt, i) - top));
        exponentials(number_bytes, &mut e);
        // In f64 even if the exponentials are f32: an error in the sum of the responsibilities, times the mean's
        // square, enters the covariance.
        let mut sum = 0.0;
        each(NT, |nt| {
            let two = e[nt][0] + e[nt][1];
            sum = if nt == 0 { two } else { sum + two };
        });
        let sum = quad(sum, core::ops::Add::add);
        // NaN if a density is NaN: it reaches the sums, and the host repeats the pass on another path.
        let share = weight * reciprocal(sum);
        densities[half] = [weight, top, sum];
        let at = (lane / 4 + 8 * half as u32) * row_stride(NT as u32) + lane % 4;
        each(NT, |nt| {
            r.store(at + 8 * nt as u32, e[nt][0] * share);
            r.store(at + 8 * nt as u32 + 4, e[nt][1] * share);
        });
    });
    densities
}
