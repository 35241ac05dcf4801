//! The pass where a warp's registers do not hold all sums, but those of a block's warps together do.
//!
//! Each warp takes sixteen rows from their arrival to their responsibilities, as in the pass of a [warp](super::body).
//! When all have done so, each adds the rows of all to its share of the sums: some tiles of sixteen features by eight
//! components, which no other warp has. So features are formed once for most of the tiles, a block's sums need no adding up
//! at the end, and a warp needs a quarter of the registers.

use super::super::features::{Features, GROUP, STRIDE, each};
use super::super::likelihood::Likelihood;
use super::super::staging::{Rows, raw_len};
use super::joint::{joint, respond, row_stride, weights_of_lane};
use super::parts::{groups_of_rows, start};
use super::{Pass, WARPS};
use crate::Real;
use crate::device::{self, Shared, WARP, mma, thread, warp};

/// Numbers of a warp: its columns, its rows' responsibilities, each lane's likelihood, then what is on its way.
const fn warp_len<T: Real, F: Features>(groups: u32) -> u32 {
    F::COLUMNS * STRIDE + GROUP * row_stride(groups) + 3 * WARP + raw_len::<T>(F::ENTRIES)
}

/// Tiles of a warp's share, of so many in all.
pub const fn share(tiles: usize) -> usize {
    tiles.div_ceil(WARPS as usize)
}

/// Whether responsibilities of sixteen rows stay in registers for all features, or are read for each tile again.
const fn kept(share: usize, nt: usize) -> bool {
    2 * nt + share <= 18
}

/// Groups of components whose Σ r a warp adds up at most: every fourth.
const WEIGHTS: usize = 4;

/// Bytes of shared memory: coefficients, constants, and for each warp its own.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: Real, F: Features, const NT: usize>(_: &Pass<T>) -> u64 {
    let groups = NT as u32;
    8 * u64::from(128 * F::STEPS as u32 * groups + 8 * groups + WARPS * warp_len::<T, F>(groups))
}

/// The kernel: `S` is `F::STEPS`, `NT` groups of eight components, `P` tiles of each warp's share.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub unsafe fn body<T: Real, F: Features, const S: usize, const NT: usize, const P: usize>(a: Pass<T>) {
    const { assert!(S == F::STEPS && P == share(S * NT) && NT <= WEIGHTS * WARPS as usize && WARPS == 4) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let tiles = (S * NT) as u32;
    let coefficients = Shared::<f64>::at(0);
    let constants = Shared::<f64>::at(8 * 128 * tiles);
    let own_of = |warp: u32| 128 * tiles + 8 * NT as u32 + warp * warp_len::<T, F>(NT as u32);
    let parts = |own: u32| {
        let r = own + F::COLUMNS * STRIDE;
        [own, r, r + GROUP * row_stride(NT as u32)].map(|at| Shared::<f64>::at(8 * at))
    };
    let raw = |own: u32| 8 * (own + const { warp_len::<T, F>(NT as u32) - raw_len::<T>(F::ENTRIES) });
    let own = own_of(me);
    let [x, _, aside] = parts(own);

    let groups = groups_of_rows(&a);
    let mut first = thread::block_idx_x() * WARPS;
    // SAFETY: as the fields say.
    if unsafe { start::<T, F>(&a, (tiles, NT as u32), (x, raw(own)), first + me) } {
        return;
    }

    let mut sums = [[0.0; 4]; P];
    let mut weights = [0.0; WEIGHTS];
    Likelihood::START.leave(aside, lane);
    while first < groups {
        // Found anew each time, so that no register holds places throughout the loop.
        let t = thread::thread_idx_x_anew();
        let (lane, me, d) = (t % WARP, t / WARP, device::unknown(a.d));
        let [x, r, aside] = parts(own_of(me));
        let here = device::unknown(first) + me;
        first = device::unknown(first) + thread::grid_dim_x_anew() * WARPS;
        if here < groups {
            let rows = Rows::new(&a, d, raw(own_of(me)), lane);
            rows.stage(F::ENTRIES, F::NORMS, a.derive, x);
            if first + me < groups {
                // SAFETY: one of the chunk's groups.
                unsafe { rows.send(F::ENTRIES, first + me) };
            }
            // SAFETY: the weights are as the arguments' field says.
            let weights_here = unsafe { weights_of_lane(a.row_weights, a.n, here, lane) };
            let joint = joint::<F, S, NT>(x, coefficients, constants, lane);
            let densities = respond::<T, NT>(&joint, weights_here, r, lane);
            // The four lanes of two rows have the same of both: two keep one's, and two the other's.
            let [weight, top, sum] = if lane.is_multiple_of(2) { densities[0] } else { densities[1] };
            // It waits in shared memory: sums fill the registers.
            let mut likelihood = Likelihood::fetch(aside, lane);
            likelihood.add(!a.row_weights.is_null(), weight, top, sum);
            likelihood.leave(aside, lane);
        } else {
            // No rows are left for this warp: what its columns held before counts for nothing.
            let mut i = lane;
            while i < GROUP * row_stride(NT as u32) {
                r.store(i, 0.0);
                i += WARP;
            }
        }
        thread::sync_threads();
        let mut from = 0;
        while from < WARPS {
            let [x, r, _] = parts(own_of(from));
            // What a warp adds to is known to the compiler.
            match me {
                0 => add::<F, S, NT, P, 0>(&mut sums, &mut weights, x, r, lane),
                1 => add::<F, S, NT, P, 1>(&mut sums, &mut weights, x, r, lane),
                2 => add::<F, S, NT, P, 2>(&mut sums, &mut weights, x, r, lane),
                _ => add::<F, S, NT, P, 3>(&mut sums, &mut weights, x, r, lane),
            }
            from += 1;
        }
        thread::sync_threads();
    }

    // Found anew, so that no register holds them throughout the loop.
    let t = thread::thread_idx_x_anew();
    let (lane, me) = (t % WARP, t / WARP);
    let len = 128 * tiles + 8 * NT as u32 + 1;
    let to = a.partials.wrapping_add((thread::block_idx_x() as u64 * len as u64) as usize);
    each(P, |p| {
        let tile = me * P as u32 + p as u32;
        if tile < tiles {
            // SAFETY: a piece of `len` numbers for each block, and a tile of this warp's alone.
            each(4, |i| unsafe { device::store(to, (tile * 128 + 32 * i as u32 + lane) as u64, sums[p][i]) });
        }
    });
    each(WEIGHTS, |i| {
        let group = WARPS * i as u32 + me;
        let mut weight = weights[i];
        each(2, |by| weight += warp::shuffle_xor(weight, 1 << by));
        if group < NT as u32 && lane.is_multiple_of(4) {
            // SAFETY: as above.
            unsafe { device::store(to, (128 * tiles + 8 * group + lane / 4) as u64, weight) };
        }
    });
    // Two lanes have the same: each gives half, exactly.
    let [_, _, aside] = parts(own_of(me));
    let mut total = 0.5 * Likelihood::fetch(aside, lane).total();
    each(5, |i| total += warp::shuffle_xor(total, 1 << i));
    let totals = Shared::<f64>::at(0);
    if lane == 0 {
        totals.store(me, total);
    }
    thread::sync_threads();
    if t == 0 {
        let all = (totals.load(0) + totals.load(1)) + (totals.load(2) + totals.load(3));
        // SAFETY: as above.
        unsafe { device::store(to, (len - 1) as u64, all) };
    }
}

/// Adds sixteen rows to a warp's tiles, `WHICH * P` and so on of all, which lie step by step.
#[inline(always)]
fn add<F: Features, const S: usize, const NT: usize, const P: usize, const WHICH: usize>(
    sums: &mut [[f64; 4]; P],
    weights: &mut [f64; WEIGHTS],
    x: Shared<f64>,
    r: Shared<f64>,
    lane: u32,
) {
    let stride = row_stride(NT as u32);
    let at = lane % 4 * stride + lane / 4;
    let responsibilities = |nt: usize| [0, 4, 8, 12].map(|row| r.load(at + row * stride + 8 * nt as u32));
    let mine = |tile: usize| tile / P == WHICH;
    let mut kept_here = [[0.0; 4]; NT];
    each(NT, |nt| {
        let weighs = nt % WARPS as usize == WHICH;
        if kept(P, NT) || weighs {
            let b = responsibilities(nt);
            if weighs {
                weights[nt / WARPS as usize] += (b[0] + b[1]) + (b[2] + b[3]);
            }
            kept_here[nt] = b;
        }
    });
    let wanted = |step: usize| step * NT / P <= WHICH && WHICH <= (step * NT + NT - 1) / P;
    F::down(x, lane, wanted, |step, features| {
        each(NT, |nt| {
            let tile = step * NT + nt;
            if mine(tile) {
                let b = if kept(P, NT) { kept_here[nt] } else { responsibilities(nt) };
                mma::f64_16x8x16(&mut sums[tile % P], features, b);
            }
        });
    });
}
