//! The pass where a warp's registers do not hold all sums, but those of a block's warps together do.
//!
//! Each warp takes sixteen rows from their arrival to their responsibilities, as in the pass [of a warp](super::of_warp).
//! When all have done so, each adds the rows of all to its share of the sums: some tiles of sixteen features by eight
//! components, which no other warp has. So features are formed once for most of the tiles, a block's sums need no adding up
//! at the end, and a warp needs a quarter of the registers, or an eighth: a block has four warps, or eight.

use core::marker::PhantomData;

use super::super::features::{Features, GROUP, STRIDE, each};
use super::super::likelihood::Likelihood;
use super::super::staging::{Rows, raw_bytes};
use super::Pass;
use super::joint::{joint, respond, respond_in_parts, row_stride, weights_of_lane};
use super::parts::{groups_of_rows, start};
use crate::device::{self, Shared, WARP, mma, thread, warp};

/// What a block has room for.
struct Room<F, const NT: usize, const W: usize>(PhantomData<F>);

impl<F: Features, const NT: usize, const W: usize> Room<F, NT, W> {
    /// Tiles of a warp's share.
    const SHARE: usize = share(F::STEPS * NT, W);
    /// Groups of components whose densities are computed at a time: fewer than all where those would not fit into the registers
    /// beside the sums.
    /// The bound is where the assembler begins to put registers into memory.
    const AT_ONCE: usize = match Self::SHARE + NT {
        0..=21 => NT,
        _ if NT.is_multiple_of(5) => 5,
        _ => 2,
    };
    /// Whether sums and densities leave few registers to entries of which features are formed; the bound is the assembler's too.
    const SCARCE: bool = 8 * (Self::SHARE + NT) as u32 + F::COLUMNS > 165;
    /// Numbers of a warp's likelihoods, each lane's own.
    const LIKELIHOODS: u32 = Likelihood::LEFT;
    /// Numbers of a warp's columns, and of its rows' responsibilities.
    const COLUMNS: u32 = F::COLUMNS * STRIDE;
    const RESPONSIBILITIES: u32 = GROUP * row_stride(NT as u32);
    /// Numbers on their way, of the larger type and of the smaller.
    const COMING: [u32; 2] = [raw_bytes(F::ENTRIES, 8) / 8, raw_bytes(F::ENTRIES, 4) / 8];
    /// Numbers of a block's coefficients and constants.
    const COEFFICIENTS: u32 = (128 * F::STEPS * NT + 8 * NT) as u32;
    /// Whether rows on their way have a place of their own. Else they arrive where responsibilities were, when those are used.
    const AHEAD: bool = {
        let [of_f64, of_f32] = [Self::fits_with(Self::COMING[0]), Self::fits_with(Self::COMING[1])];
        assert!(of_f64 == of_f32 && (of_f64 || Self::RESPONSIBILITIES >= Self::COMING[0]));
        of_f64
    };
    /// Where a warp's likelihoods are among its numbers: columns, responsibilities, likelihoods.
    const ASIDE: u32 = Self::COLUMNS + Self::RESPONSIBILITIES;
    /// Numbers of a warp in all. What is on its way, where that has a place of its own, comes after those of all warps.
    const WARP: u32 = Self::ASIDE + Self::LIKELIHOODS;
    /// Numbers before that.
    const ALL: u32 = Self::COEFFICIENTS + W as u32 * Self::WARP;

    const fn fits_with(coming: u32) -> bool {
        8 * (Self::ALL + W as u32 * coming) <= MOST_SHARED
    }

    /// Where a warp's rows arrive, in bytes.
    #[inline(always)]
    fn raw(warp: u32, number_bytes: u32) -> u32 {
        if Self::AHEAD {
            8 * Self::ALL + warp * raw_bytes(F::ENTRIES, number_bytes)
        } else {
            8 * (Self::COEFFICIENTS + warp * Self::WARP + Self::COLUMNS)
        }
    }
}

/// Shared memory that a block may have on Hopper, which has the most.
const MOST_SHARED: u32 = 232_448;

/// Tiles of a warp's share, of so many in all.
const fn share(tiles: usize, warps: usize) -> usize {
    tiles.div_ceil(warps)
}

/// Whether responsibilities of sixteen rows stay in registers for all features, or are read for each tile again.
const fn kept(share: usize, nt: usize) -> bool {
    2 * nt + share <= 18
}

/// Groups of components whose Σ r a warp adds up at most: every fourth or eighth.
const WEIGHTS: usize = 4;

/// Bytes of shared memory of [`body`]: coefficients, constants, and for each of `W` warps its own and what is on its way.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(a: &Pass) -> u64 {
    let coming = if Room::<F, NT, W>::AHEAD { W as u32 * raw_bytes(F::ENTRIES, a.number_bytes) } else { 0 };
    u64::from(8 * Room::<F, NT, W>::ALL + coming)
}

/// The kernel: `S` is `F::STEPS`, `NT` groups of eight components, `P` tiles of the share of each of `W` warps.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub unsafe fn body<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(a: Pass) {
    const { assert!(S == F::STEPS && P == Room::<F, NT, W>::SHARE && NT <= WEIGHTS * W && (W == 4 || W == 8)) };
    const { assert!(NT.is_multiple_of(Room::<F, NT, W>::AT_ONCE)) };
    let warps = const { W as u32 };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let tiles = (S * NT) as u32;
    let coefficients = Shared::<f64>::at(0);
    let constants = Shared::<f64>::at(8 * 128 * tiles);
    let own_of = |warp: u32| const { Room::<F, NT, W>::COEFFICIENTS } + warp * const { Room::<F, NT, W>::WARP };
    let parts = |own: u32| {
        let aside = const { Room::<F, NT, W>::ASIDE };
        [own, own + F::COLUMNS * STRIDE, own + aside].map(|at| Shared::<f64>::at(8 * at))
    };
    let raw = Room::<F, NT, W>::raw;
    let own = own_of(me);
    let [x, _, aside] = parts(own);

    let groups = groups_of_rows(&a);
    let mut first = thread::block_idx_x() * warps;
    // SAFETY: as the fields say.
    if unsafe { start::<F>(&a, warps * WARP, (tiles, NT as u32), (x, raw(me, a.number_bytes)), first + me) } {
        return;
    }

    let mut sums = [[0.0; 4]; P];
    let mut weights = [0.0; WEIGHTS];
    let (at_once, ahead) = const { (Room::<F, NT, W>::AT_ONCE, Room::<F, NT, W>::AHEAD) };
    let scarce = const { Room::<F, NT, W>::SCARCE };
    Likelihood::START.leave(aside, lane);
    while first < groups {
        // Found anew each time, so that no register holds places throughout the loop.
        let t = thread::thread_idx_x_anew();
        let (lane, me) = (t % WARP, t / WARP);
        let (d, number_bytes) = (device::unknown(a.d), device::unknown(a.number_bytes));
        let [x, r, aside] = parts(own_of(me));
        let here = device::unknown(first) + me;
        first = device::unknown(first) + thread::grid_dim_x_anew() * warps;
        if here < groups {
            let rows = Rows::new(&a, d, number_bytes, raw(me, number_bytes), lane);
            rows.stage(F::ENTRIES, F::NORMS, a.derive, x);
            if ahead && first + me < groups {
                // SAFETY: one of the chunk's groups.
                unsafe { rows.send(F::ENTRIES, first + me) };
            }
            // SAFETY: the weights are as the arguments' field says.
            let weights_here = || unsafe { weights_of_lane(a.row_weights, a.n, here, lane) };
            let densities = match at_once {
                2 if NT > 2 => respond_in_parts::<F, NT, 2>(
                    number_bytes,
                    x,
                    coefficients,
                    constants,
                    weights_here,
                    r,
                    lane,
                    scarce,
                ),
                5 if NT > 5 => respond_in_parts::<F, NT, 5>(
                    number_bytes,
                    x,
                    coefficients,
                    constants,
                    weights_here,
                    r,
                    lane,
                    scarce,
                ),
                _ => {
                    let weights = weights_here();
                    let joint = joint::<F, NT>(x, coefficients, constants, lane, scarce);
                    respond(number_bytes, &joint, weights, r, lane)
                }
            };
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
        while from < warps {
            let [x, r, _] = parts(own_of(from));
            // What a warp adds to is known to the compiler. Warps past `W` would have nothing to add to.
            match me {
                0 => add::<F, S, NT, P, W, 0>(&mut sums, &mut weights, x, r, lane),
                1 => add::<F, S, NT, P, W, 1>(&mut sums, &mut weights, x, r, lane),
                2 => add::<F, S, NT, P, W, 2>(&mut sums, &mut weights, x, r, lane),
                3 => add::<F, S, NT, P, W, 3>(&mut sums, &mut weights, x, r, lane),
                4 => add::<F, S, NT, P, W, 4>(&mut sums, &mut weights, x, r, lane),
                5 => add::<F, S, NT, P, W, 5>(&mut sums, &mut weights, x, r, lane),
                6 => add::<F, S, NT, P, W, 6>(&mut sums, &mut weights, x, r, lane),
                _ => add::<F, S, NT, P, W, 7>(&mut sums, &mut weights, x, r, lane),
            }
            from += 1;
        }
        thread::sync_threads();
        if !ahead {
            let t = thread::thread_idx_x_anew();
            let (lane, me) = (t % WARP, t / WARP);
            if first + me < groups {
                let (d, number_bytes) = (device::unknown(a.d), device::unknown(a.number_bytes));
                let rows = Rows::new(&a, d, number_bytes, raw(me, number_bytes), lane);
                rows.clear(F::ENTRIES);
                // SAFETY: one of the chunk's groups; of what was there all have read.
                unsafe { rows.send(F::ENTRIES, first + me) };
            }
        }
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
        let group = warps * i as u32 + me;
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
        let four = |from: u32| {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| totals.load(from + i));
            (a + b) + (c + d)
        };
        let all = if W == 8 { four(0) + four(4) } else { four(0) };
        // SAFETY: as above.
        unsafe { device::store(to, (len - 1) as u64, all) };
    }
}

/// Adds sixteen rows to the tiles of warp `WHICH`, `WHICH * P` and so on of all, which lie step by step.
#[inline(always)]
fn add<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize, const WHICH: usize>(
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
        let weighs = nt % W == WHICH;
        if kept(P, NT) || weighs {
            let b = responsibilities(nt);
            if weighs {
                weights[nt / W] += (b[0] + b[1]) + (b[2] + b[3]);
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
