//! The pass whose sums do not fit into one warp's registers, but into those of all warps of a block.
//!
//! Each warp takes sixteen rows from the copy to their responsibilities, as in the pass [of a
//! warp](crate::em::fused::warp). After a barrier, each warp adds the rows of all warps to its share of the sums: some
//! tiles of sixteen features by eight components that belong to it alone. So most features are formed once per block, a
//! block's sums need no final reduction, and a warp needs a quarter or an eighth of the registers: a block has four or
//! eight warps.

use core::marker::PhantomData;

use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::em::features::{Features, GROUP, STRIDE, each};
use crate::em::fused::Pass;
use crate::em::fused::joint::{joint, respond, respond_in_parts, row_stride, weights_of_lane};
use crate::em::fused::parts::{groups_of_rows, start};
use crate::em::likelihood::Likelihood;
use crate::em::staging::{Rows, raw_bytes};

/// Sizes and register budget of a block.
struct Room<F, const NT: usize, const W: usize>(PhantomData<F>);

impl<F: Features, const NT: usize, const W: usize> Room<F, NT, W> {
    /// Tiles in a warp's share.
    const SHARE: usize = share(F::STEPS * NT, W);
    /// Groups of components whose densities are computed at a time: fewer than all if those would not fit into the
    /// registers beside the sums. The bound is where `ptxas` begins to spill.
    const AT_ONCE: usize = match Self::SHARE + NT {
        0..=21 => NT,
        _ if NT.is_multiple_of(5) => 5,
        _ => 2,
    };
    /// Whether sums and densities leave few registers for the entries that features are formed from; the bound is where
    /// `ptxas` spills.
    const SCARCE: bool = 8 * (Self::SHARE + NT) as u32 + F::COLUMNS > 165;
    /// Length of a warp's likelihoods, one per lane, in `f64`.
    const LIKELIHOODS: u32 = Likelihood::LEFT;
    /// Lengths of a warp's columns and of its rows' responsibilities, in `f64`.
    const COLUMNS: u32 = F::COLUMNS * STRIDE;
    const RESPONSIBILITIES: u32 = GROUP * row_stride(NT as u32);
    /// Lengths of the prefetched rows, for the larger type and for the smaller, in `f64`.
    const COMING: [u32; 2] = [raw_bytes(F::ENTRIES, 8) / 8, raw_bytes(F::ENTRIES, 4) / 8];
    /// Length of a block's coefficients and constants.
    const COEFFICIENTS: u32 = (128 * F::STEPS * NT + 8 * NT) as u32;
    /// Whether prefetched rows have their own buffer. Otherwise they overwrite the responsibilities once those are
    /// used.
    const AHEAD: bool = {
        let [of_f64, of_f32] = [Self::fits_with(Self::COMING[0]), Self::fits_with(Self::COMING[1])];
        assert!(of_f64 == of_f32 && (of_f64 || Self::RESPONSIBILITIES >= Self::COMING[0]));
        of_f64
    };
    /// Offset of a warp's likelihoods within its part: columns, responsibilities, likelihoods.
    const ASIDE: u32 = Self::COLUMNS + Self::RESPONSIBILITIES;
    /// Length of a warp's part. Prefetched rows, if they have their own buffer, come after the parts of all warps.
    const WARP: u32 = Self::ASIDE + Self::LIKELIHOODS;
    /// Length of everything before the prefetch buffers.
    const ALL: u32 = Self::COEFFICIENTS + W as u32 * Self::WARP;

    const fn fits_with(coming: u32) -> bool {
        8 * (Self::ALL + W as u32 * coming) <= MOST_SHARED
    }

    /// Offset of a warp's prefetched rows in shared memory, in bytes.
    #[inline(always)]
    fn raw(warp: u32, number_bytes: u32) -> u32 {
        if Self::AHEAD {
            8 * Self::ALL + warp * raw_bytes(F::ENTRIES, number_bytes)
        } else {
            8 * (Self::COEFFICIENTS + warp * Self::WARP + Self::COLUMNS)
        }
    }
}

/// Maximum bytes of shared memory per block on Hopper, which has the most.
const MOST_SHARED: u32 = 232_448;

/// Tiles in a warp's share of `tiles`.
const fn share(tiles: usize, warps: usize) -> usize {
    tiles.div_ceil(warps)
}

/// Whether responsibilities of sixteen rows stay in registers for all features, rather than being loaded for each tile.
const fn kept(share: usize, nt: usize) -> bool {
    2 * nt + share <= 18
}

/// Maximum number of groups of components whose Σ r a warp adds up: every fourth or eighth group.
const WEIGHTS: usize = 4;

/// Bytes of shared memory of [`body`]: coefficients, constants, and for each of `W` warps its part and its prefetched
/// rows.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(a: &Pass) -> u64 {
    let coming = if Room::<F, NT, W>::AHEAD { W as u32 * raw_bytes(F::ENTRIES, a.number_bytes) } else { 0 };
    u64::from(8 * Room::<F, NT, W>::ALL + coming)
}

/// One warp's part of shared memory.
#[derive(Clone, Copy)]
struct Memory {
    /// Columns of its rows.
    x: Shared<f64>,
    /// Responsibilities, [`row_stride`] elements per row.
    r: Shared<f64>,
    /// Each lane's likelihood, since sums fill the registers.
    aside: Shared<f64>,
}

impl Memory {
    #[inline(always)]
    fn of<F: Features, const NT: usize, const W: usize>(warp: u32) -> Self {
        let x = const { Room::<F, NT, W>::COEFFICIENTS } + warp * const { Room::<F, NT, W>::WARP };
        let aside = const { Room::<F, NT, W>::ASIDE };
        let [x, r, aside] = [x, x + F::COLUMNS * STRIDE, x + aside].map(|at| Shared::<f64>::at(8 * at));
        Self { x, r, aside }
    }
}

/// Body of the kernel: `S` is `F::STEPS`, `NT` the number of groups of eight components, `P` the tiles in the share of
/// each of `W` warps.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
pub unsafe fn body<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(a: Pass) {
    const { assert!(S == F::STEPS && P == Room::<F, NT, W>::SHARE && NT <= WEIGHTS * W && (W == 4 || W == 8)) };
    const { assert!(NT.is_multiple_of(Room::<F, NT, W>::AT_ONCE)) };
    let warps = const { W as u32 };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let Memory { x, aside, .. } = Memory::of::<F, NT, W>(me);
    let raw = Room::<F, NT, W>::raw(me, a.number_bytes);
    let groups = groups_of_rows(&a);
    let mut first = thread::block_idx_x() * warps;
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Pass` documents.
    if unsafe { start::<F>(&a, warps * WARP, ((S * NT) as u32, NT as u32), (x, raw), first + me) } {
        return;
    }

    let mut sums = [[0.0; 4]; P];
    let mut weights = [0.0; WEIGHTS];
    Likelihood::START.leave(aside, lane);
    while first < groups {
        // Recomputed each time, so that no register holds addresses throughout the loop.
        let t = thread::thread_idx_x_anew();
        let (lane, me) = (t % WARP, t / WARP);
        let (d, number_bytes) = (device::unknown(a.d), device::unknown(a.number_bytes));
        let memory = Memory::of::<F, NT, W>(me);
        let here = device::unknown(first) + me;
        first = device::unknown(first) + thread::grid_dim_x_anew() * warps;
        if here < groups {
            let rows = Rows::new(a.x, d, number_bytes, Room::<F, NT, W>::raw(me, number_bytes), lane);
            rows.stage(F::ENTRIES, F::NORMS, a.derive, memory.x);
            if const { Room::<F, NT, W>::AHEAD } && first + me < groups {
                // SAFETY: `first + me < groups`, so it is a group of this chunk.
                unsafe { rows.send(F::ENTRIES, first + me) };
            }
            // SAFETY: the caller upholds `# Safety`; `here < groups`.
            let densities = unsafe { respond_of::<F, S, NT, W>(&a, number_bytes, here, memory, lane) };
            // The four lanes of two rows have the values of both: even lanes count the one row, odd lanes the other.
            let [weight, top, sum] = if lane.is_multiple_of(2) { densities[0] } else { densities[1] };
            let mut likelihood = Likelihood::fetch(memory.aside, lane);
            likelihood.add(!a.row_weights.is_null(), weight, top, sum);
            likelihood.leave(memory.aside, lane);
        } else {
            // No rows are left for this warp: responsibilities of zero cancel the old contents of its columns.
            let mut i = lane;
            while i < GROUP * row_stride(NT as u32) {
                memory.r.store(i, 0.0);
                i += WARP;
            }
        }
        thread::sync_threads();
        add_rows_of_all::<F, S, NT, P, W>(&mut sums, &mut weights, me, lane);
        thread::sync_threads();
        if !const { Room::<F, NT, W>::AHEAD } {
            let t = thread::thread_idx_x_anew();
            let (lane, me) = (t % WARP, t / WARP);
            if first + me < groups {
                let (d, number_bytes) = (device::unknown(a.d), device::unknown(a.number_bytes));
                let rows = Rows::new(a.x, d, number_bytes, Room::<F, NT, W>::raw(me, number_bytes), lane);
                rows.clear(F::ENTRIES);
                // SAFETY: `first + me < groups`; all warps have read the old contents, by the barrier above.
                unsafe { rows.send(F::ENTRIES, first + me) };
            }
        }
    }
    // SAFETY: `partials` has `128*S*NT + 8*NT + 1` elements for each block, as `Pass` documents.
    unsafe { store::<F, S, NT, P, W>(&sums, &weights, a.partials) };
}

/// Computes the responsibilities of the `here`th sixteen rows from their columns, with as many densities in registers
/// at a time as fit.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
unsafe fn respond_of<F: Features, const S: usize, const NT: usize, const W: usize>(
    a: &Pass,
    number_bytes: u32,
    here: u32,
    memory: Memory,
    lane: u32,
) -> [[f64; 3]; 2] {
    let Memory { x, r, .. } = memory;
    let operands @ [coefficients, constants] = [0, 8 * 128 * (S * NT) as u32].map(Shared::<f64>::at);
    let scarce = const { Room::<F, NT, W>::SCARCE };
    // SAFETY: `row_weights` is null or `(n,)`, as `Pass` documents.
    let weights = || unsafe { weights_of_lane(a.row_weights, a.n, here, lane) };
    match const { Room::<F, NT, W>::AT_ONCE } {
        2 if NT > 2 => respond_in_parts::<F, NT, 2>(number_bytes, x, operands, weights, r, lane, scarce),
        5 if NT > 5 => respond_in_parts::<F, NT, 5>(number_bytes, x, operands, weights, r, lane, scarce),
        _ => {
            let weights = weights();
            let joint = joint::<F, NT>(x, coefficients, constants, lane, scarce);
            respond(number_bytes, &joint, weights, r, lane)
        }
    }
}

/// Adds the rows of all warps to the tiles of warp `me`.
#[inline(always)]
fn add_rows_of_all<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(
    sums: &mut [[f64; 4]; P],
    weights: &mut [f64; WEIGHTS],
    me: u32,
    lane: u32,
) {
    let mut from = 0;
    while from < const { W as u32 } {
        let Memory { x, r, .. } = Memory::of::<F, NT, W>(from);
        // A match, so that the warp's tiles are known at compile time. Warps past `W` would have no tiles.
        match me {
            0 => add::<F, S, NT, P, W, 0>(sums, weights, x, r, lane),
            1 => add::<F, S, NT, P, W, 1>(sums, weights, x, r, lane),
            2 => add::<F, S, NT, P, W, 2>(sums, weights, x, r, lane),
            3 => add::<F, S, NT, P, W, 3>(sums, weights, x, r, lane),
            4 => add::<F, S, NT, P, W, 4>(sums, weights, x, r, lane),
            5 => add::<F, S, NT, P, W, 5>(sums, weights, x, r, lane),
            6 => add::<F, S, NT, P, W, 6>(sums, weights, x, r, lane),
            _ => add::<F, S, NT, P, W, 7>(sums, weights, x, r, lane),
        }
        from += 1;
    }
}

/// Writes the block's sums: each warp writes its tiles and its part of Σ r, and the first thread the likelihood of all
/// warps.
///
/// # Safety
/// `partials` has `128*S*NT + 8*NT + 1` elements for each block.
#[inline(always)]
unsafe fn store<F: Features, const S: usize, const NT: usize, const P: usize, const W: usize>(
    sums: &[[f64; 4]; P],
    weights: &[f64; WEIGHTS],
    partials: *mut f64,
) {
    // Recomputed, so that no register holds them throughout the loop.
    let t = thread::thread_idx_x_anew();
    let (lane, me) = (t % WARP, t / WARP);
    let tiles = (S * NT) as u32;
    let len = 128 * tiles + 8 * NT as u32 + 1;
    let to = partials.wrapping_add((thread::block_idx_x() as u64 * len as u64) as usize);
    each(P, |p| {
        let tile = me * P as u32 + p as u32;
        if tile < tiles {
            // SAFETY: `to` has `len` elements, `tile < tiles`, and only this warp writes this tile.
            each(4, |i| unsafe { device::store(to, (tile * 128 + 32 * i as u32 + lane) as u64, sums[p][i]) });
        }
    });
    each(WEIGHTS, |i| {
        let group = W as u32 * i as u32 + me;
        let mut weight = weights[i];
        each(2, |by| weight += warp::shuffle_xor(weight, 1 << by));
        if group < NT as u32 && lane.is_multiple_of(4) {
            // SAFETY: `to` has `len` elements, `group < NT`, and only this warp writes this group.
            unsafe { device::store(to, (128 * tiles + 8 * group + lane / 4) as u64, weight) };
        }
    });
    // Two lanes counted each row: each contributes half, which is exact.
    let mut total = 0.5 * Likelihood::fetch(Memory::of::<F, NT, W>(me).aside, lane).total();
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
        // SAFETY: `to` has `len` elements, and only this thread writes the last.
        unsafe { device::store(to, (len - 1) as u64, all) };
    }
}

/// Adds sixteen rows to the tiles of warp `WHICH`: those from `WHICH * P` on, in an order step by step.
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
