//! The pass whose sums all fit into one warp's registers: each warp takes its rows from the copy to the sums by itself.

use crate::THREADS;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::em::approx_max::{key, least_of_quads};
use crate::em::features::{Features, GROUP, STRIDE, each};
use crate::em::fused::Pass;
use crate::em::fused::joint::{exponentials, joint, respond, row_stride, weights_of_lane};
use crate::em::fused::parts::{coefficient, constant, every, groups_of_rows, start};
use crate::em::lanes::quad;
use crate::em::likelihood::Likelihood;
use crate::em::staging::{Rows, raw_bytes};
use crate::math::reciprocal;

const WARPS: u32 = THREADS / WARP;

/// Whether densities are kept in registers. Otherwise they are stored in shared memory, which with many steps would
/// need more registers for the features.
const fn in_registers(steps: usize, nt: usize) -> bool {
    steps > 4 || nt <= 4
}

/// Whether responsibilities are loaded once for all features, rather than once per step.
const fn kept(steps: usize, nt: usize) -> bool {
    steps * nt <= 7
}

/// Whether a lane's likelihood is stored in shared memory: where sums fill the registers, and where two more registers
/// would reduce Hopper's occupancy by a block.
const fn likelihood_aside(steps: usize, nt: usize) -> bool {
    !kept(steps, nt) || steps == 1 && nt == 4
}

/// Shared memory of a warp, in `f64`: its columns, its rows' responsibilities and their factors, each lane's Σ r, and
/// its likelihood. The prefetched rows come after those of all warps.
const fn warp_len<F: Features>(groups: u32) -> u32 {
    F::COLUMNS * STRIDE + GROUP * row_stride(groups) + GROUP + WARP * (groups + 3)
}

/// Shared memory before the warps' parts, in `f64`: coefficients and constants.
const fn coefficients_len(steps: usize, nt: usize) -> u32 {
    (128 * steps * nt + 8 * nt) as u32
}

/// Σ r of each lane: in registers, or in shared memory if the sums of features fill the registers.
#[derive(Clone, Copy)]
struct Tally<const NT: usize> {
    here: bool,
    registers: [f64; NT],
}

impl<const NT: usize> Tally<NT> {
    #[inline(always)]
    fn new(here: bool, aside: Shared<f64>, lane: u32) -> Self {
        if !here {
            each(NT, |nt| aside.store(nt as u32 * WARP + lane, 0.0));
        }
        Self { here, registers: [0.0; NT] }
    }

    #[inline(always)]
    fn add(&mut self, aside: Shared<f64>, lane: u32, nt: usize, r: [f64; 4]) {
        let v = (r[0] + r[1]) + (r[2] + r[3]);
        if self.here {
            self.registers[nt] += v;
        } else {
            let at = nt as u32 * WARP + lane;
            aside.store(at, aside.load(at) + v);
        }
    }

    #[inline(always)]
    fn get(&self, aside: Shared<f64>, lane: u32, nt: usize) -> f64 {
        if self.here { self.registers[nt] } else { aside.load(nt as u32 * WARP + lane) }
    }
}

/// Bytes of shared memory: coefficients, constants, and for each warp its own part and its prefetched rows.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<F: Features, const S: usize, const NT: usize>(a: &Pass) -> u64 {
    let len = coefficients_len(S, NT) + WARPS * warp_len::<F>(NT as u32);
    u64::from(8 * len + WARPS * raw_bytes(F::ENTRIES, a.number_bytes))
}

/// As [`shared_bytes`], for an instance that takes one type of row.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes_typed<F: Features, const S: usize, const NT: usize, const BYTES: u32>(a: &Pass) -> u64 {
    assert_eq!(a.number_bytes, BYTES, "an instance for rows of the other type");
    shared_bytes::<F, S, NT>(a)
}

/// One warp's part of shared memory.
#[derive(Clone, Copy)]
struct Memory {
    /// Columns of its rows.
    x: Shared<f64>,
    /// Responsibilities, [`row_stride`] elements per row.
    r: Shared<f64>,
    /// Factor still to be applied to a row's responsibilities, if densities were stored in shared memory.
    shares: Shared<f64>,
    /// Σ r of each lane, and after them its likelihood, if they are not in registers.
    tally: Shared<f64>,
    aside: Shared<f64>,
}

impl Memory {
    #[inline(always)]
    fn of<F: Features, const S: usize, const NT: usize>(warp: u32) -> Self {
        let x = own_of::<F, S, NT>(warp);
        let r = x + F::COLUMNS * STRIDE;
        let shares = r + GROUP * row_stride(NT as u32);
        let tally = shares + GROUP;
        let aside = tally + WARP * NT as u32;
        let [x, r, shares, tally, aside] = [x, r, shares, tally, aside].map(|at| Shared::<f64>::at(8 * at));
        Self { x, r, shares, tally, aside }
    }
}

/// Offset of a warp's part of shared memory, in `f64`.
#[inline(always)]
fn own_of<F: Features, const S: usize, const NT: usize>(warp: u32) -> u32 {
    let (first, own) = const { (coefficients_len(S, NT), warp_len::<F>(NT as u32)) };
    first + warp * own
}

/// Offset of a warp's prefetched rows in shared memory, in bytes.
#[inline(always)]
fn raw_of<F: Features, const S: usize, const NT: usize>(warp: u32, number_bytes: u32) -> u32 {
    8 * own_of::<F, S, NT>(WARPS) + warp * raw_bytes(F::ENTRIES, number_bytes)
}

/// The block's coefficients and constants in shared memory.
#[inline(always)]
fn operands<const S: usize, const NT: usize>() -> [Shared<f64>; 2] {
    [0, 8 * 128 * (S * NT) as u32].map(Shared::<f64>::at)
}

/// Body of the kernel: `S` is `F::STEPS`, `NT` the number of groups of eight components.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
pub unsafe fn body<F: Features, const S: usize, const NT: usize>(a: Pass) {
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Pass` documents.
    unsafe { pass::<F, S, NT, EITHER>(a) };
}

/// Instances for rows of one type: the bytes per value are known at compile time.
pub mod typed {
    #[cfg(not(target_arch = "nvptx64"))]
    pub use super::shared_bytes_typed as shared_bytes;
    use super::{Features, Pass, pass};

    /// As [`super::body`], for rows of `BYTES` bytes per value.
    ///
    /// # Safety
    /// The buffers in `a` are as the fields of [`Pass`] document; `number_bytes` is `BYTES`.
    #[inline(always)]
    pub unsafe fn body<F: Features, const S: usize, const NT: usize, const BYTES: u32>(a: Pass) {
        // SAFETY: the caller upholds `# Safety`: the buffers are as `Pass` documents.
        unsafe { pass::<F, S, NT, BYTES>(Pass { number_bytes: BYTES, ..a }) };
    }
}

/// Value of `BYTES` for a kernel that takes rows of either type.
const EITHER: u32 = 0;

/// [`body`]; `BYTES` per value, or [`EITHER`].
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
unsafe fn pass<F: Features, const S: usize, const NT: usize, const BYTES: u32>(a: Pass) {
    const { assert!(S == F::STEPS) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let memory = Memory::of::<F, S, NT>(me);
    let groups = groups_of_rows(&a);
    let mut group = thread::block_idx_x() * WARPS + me;
    let raw = raw_of::<F, S, NT>(me, a.number_bytes);
    // SAFETY: the caller upholds `# Safety`: the buffers are as `Pass` documents.
    if unsafe { start::<F>(&a, THREADS, ((S * NT) as u32, NT as u32), (memory.x, raw), group) } {
        return;
    }

    let mut sums = [[[0.0; 4]; NT]; S];
    let mut weights = Tally::<NT>::new(kept(S, NT), memory.tally, lane);
    let mut likelihood = Likelihood::START;
    if likelihood_aside(S, NT) {
        likelihood.leave(memory.aside, lane);
    }
    while group < groups {
        // Recomputed for each group, so that no register holds addresses throughout the loop.
        let t = thread::thread_idx_x_anew();
        let lane = t % WARP;
        let memory = Memory::of::<F, S, NT>(t / WARP);
        // SAFETY: the caller upholds `# Safety`; `group < groups`.
        let here = unsafe { stage::<F, S, NT, BYTES>(&a, memory.x, t, &mut group, groups) };

        // SAFETY: `row_weights` is null or `(n,)`, as `Pass` documents.
        let weights_here = unsafe { weights_of_lane(a.row_weights, a.n, here, lane) };
        let [coefficients, constants] = operands::<S, NT>();
        let densities = if in_registers(S, NT) {
            let joint = joint::<F, NT>(memory.x, coefficients, constants, lane, false);
            respond(a.number_bytes, &joint, weights_here, memory.r, lane)
        } else {
            respond_by_group::<F, S, NT>(a.number_bytes, memory, weights_here, lane)
        };
        if likelihood_aside(S, NT) {
            likelihood = Likelihood::fetch(memory.aside, lane);
        }
        // The four lanes of two rows have the values of both: even lanes count the one row, odd lanes the other.
        let [weight, top, sum] = if lane.is_multiple_of(2) { densities[0] } else { densities[1] };
        likelihood.add(!a.row_weights.is_null(), weight, top, sum);
        if likelihood_aside(S, NT) {
            likelihood.leave(memory.aside, lane);
        }
        warp::sync_warp();
        add_up::<F, S, NT>(&mut sums, &mut weights, memory, lane);
        warp::sync_warp();
    }

    // Recomputed, so that no register holds them throughout the loop.
    let t = thread::thread_idx_x_anew();
    let lane = t % WARP;
    let memory = Memory::of::<F, S, NT>(t / WARP);
    if likelihood_aside(S, NT) {
        likelihood = Likelihood::fetch(memory.aside, lane);
    }
    let mut weight = [0.0; NT];
    each(NT, |nt| {
        weight[nt] = weights.get(memory.tally, lane, nt);
        each(2, |i| weight[nt] += warp::shuffle_xor(weight[nt], 1 << i));
    });
    // Two lanes counted each row: each contributes half, which is exact.
    let mut total = 0.5 * likelihood.total();
    each(5, |i| total += warp::shuffle_xor(total, 1 << i));
    // The warps' sums overwrite the coefficients and the columns.
    const { assert!(WARPS * warp_len::<F>(NT as u32) > (WARPS / 2 - 1) * (128 * S as u32 + 9) * NT as u32) };
    // SAFETY: `partials` has `128*S*NT + 8*NT + 1` elements for each block, as `Pass` documents.
    unsafe { store(&mut sums, &mut weight, &mut total, a.partials) };
}

/// Writes a warp's rows as columns to `x` and prefetches the warp's next rows. Returns the group that was staged and
/// advances `group`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Pass`] document.
#[inline(always)]
unsafe fn stage<F: Features, const S: usize, const NT: usize, const BYTES: u32>(
    a: &Pass,
    x: Shared<f64>,
    t: u32,
    group: &mut u32,
    groups: u32,
) -> u32 {
    let rows = || {
        let d = device::unknown(a.d);
        let number_bytes = if BYTES == EITHER { device::unknown(a.number_bytes) } else { BYTES };
        Rows::new(a.x, d, number_bytes, raw_of::<F, S, NT>(t / WARP, number_bytes), t % WARP)
    };
    rows().stage(F::ENTRIES, F::NORMS, a.derive, x);
    let here = device::unknown(*group);
    *group = device::unknown(*group) + thread::grid_dim_x_anew() * WARPS;
    if *group < groups {
        // Recomputed again: values kept from staging would occupy registers meanwhile.
        // SAFETY: `*group < groups`, so it is a group of this chunk.
        unsafe { rows().send(F::ENTRIES, *group) };
    }
    here
}

/// As [`respond`], one group of components at a time: log joint densities are stored in the slots of the
/// responsibilities, and each lane reads only what it wrote. The responsibilities must still be multiplied by their
/// rows' factors in `shares`.
#[inline(always)]
fn respond_by_group<F: Features, const S: usize, const NT: usize>(
    number_bytes: u32,
    memory: Memory,
    weights: [f64; 2],
    lane: u32,
) -> [[f64; 3]; 2] {
    let Memory { x, r, shares, .. } = memory;
    let [coefficients, constants] = operands::<S, NT>();
    let mut features = [[0.0; 8]; S];
    F::across(x, lane, false, |step, some| features[step] = some);
    let mut tops = [i32::MIN; 2];
    let row = |half: usize| (lane / 4 + 8 * half as u32) * row_stride(NT as u32);
    let at = |nt: usize, half: usize| row(half) + 8 * nt as u32 + lane % 4;
    let groups = device::unknown(NT as u32) as usize;
    let mut nt = 0;
    while nt < groups {
        let mut joint = constant(constants, nt, lane);
        each(S, |step| {
            mma::f64_16x8x16(&mut joint, features[step], coefficient(coefficients, step * NT + nt, lane));
        });
        each(2, |half| {
            let two = [joint[2 * half], joint[2 * half + 1]];
            tops[half] = tops[half].max(key(two[0])).max(key(two[1]));
            r.store(at(nt, half), two[0]);
            r.store(at(nt, half) + 4, two[1]);
        });
        nt += 1;
    }
    let tops = least_of_quads(tops);
    let mut densities = [[0.0; 3]; 2];
    each(2, |half| {
        let (weight, top) = (weights[half], tops[half]);
        let mut sum = 0.0;
        let mut nt = 0;
        while nt < groups {
            let mut e = [[0.0; 2]];
            each(2, |i| e[0][i] = r.load(at(nt, half) + 4 * i as u32) - top);
            exponentials(number_bytes, &mut e);
            each(2, |i| {
                sum += e[0][i];
                r.store(at(nt, half) + 4 * i as u32, e[0][i]);
            });
            nt += 1;
        }
        let sum = quad(sum, core::ops::Add::add);
        densities[half] = [weight, top, sum];
        if lane.is_multiple_of(4) {
            shares.store(lane / 4 + 8 * half as u32, weight * reciprocal(sum));
        }
    });
    densities
}

/// Adds features times responsibilities of a warp's rows to its sums.
#[inline(always)]
fn add_up<F: Features, const S: usize, const NT: usize>(
    sums: &mut [[[f64; 4]; NT]; S],
    weights: &mut Tally<NT>,
    memory: Memory,
    lane: u32,
) {
    let Memory { x, r, shares, tally, .. } = memory;
    let stride = row_stride(NT as u32);
    let at = lane % 4 * stride + lane / 4;
    let responsibilities = |nt: usize| [0, 4, 8, 12].map(|row| r.load(at + row * stride + 8 * nt as u32));
    if !in_registers(S, NT) {
        let mut features = [[0.0; 8]; S];
        F::down(x, lane, |_| true, |step, some| features[step] = some);
        let share = [0, 4, 8, 12].map(|row| shares.load(lane % 4 + row));
        each(NT, |nt| {
            let mut b = responsibilities(nt);
            each(4, |i| b[i] *= share[i]);
            weights.add(tally, lane, nt, b);
            each(S, |step| mma::f64_16x8x16(&mut sums[step][nt], features[step], b));
        });
        return;
    }
    let mut held = [[0.0; 4]; NT];
    if kept(S, NT) {
        each(NT, |nt| {
            held[nt] = responsibilities(nt);
            weights.add(tally, lane, nt, held[nt]);
        });
    }
    let add = |step: usize, features: [f64; 8]| {
        each(NT, |nt| {
            let b = if kept(S, NT) { held[nt] } else { responsibilities(nt) };
            if !kept(S, NT) && step == 0 {
                weights.add(tally, lane, nt, b);
            }
            mma::f64_16x8x16(&mut sums[step][nt], features, b);
        });
    };
    F::down(x, lane, |_| true, add);
}

/// Adds up the sums of a block's warps by halving (each warp of the first half adds those of one in the second) and
/// writes them.
///
/// # Safety
/// `partials` has `128*S*NT + 8*NT + 1` elements for each block. No other thread uses the block's shared memory any
/// more.
#[inline(always)]
unsafe fn store<const S: usize, const NT: usize>(
    sums: &mut [[[f64; 4]; NT]; S],
    weight: &mut [f64; NT],
    total: &mut f64,
    partials: *mut f64,
) {
    let all = Shared::<f64>::at(0);
    let len = (128 * S * NT + 8 * NT + 1) as u32;
    let mut half = device::unknown(WARPS / 2);
    while half > 0 {
        thread::sync_threads();
        // Recomputed, so that no register holds them throughout the loop.
        let t = thread::thread_idx_x_anew();
        let (lane, me) = (t % WARP, t / WARP);
        if me >= half && me < 2 * half {
            every(sums, weight, total, lane, |i, v| all.store((me - half) * len + i, *v));
        }
        thread::sync_threads();
        if me < half {
            every(sums, weight, total, lane, |i, v| *v += all.load(me * len + i));
        }
        half /= 2;
    }
    let t = thread::thread_idx_x_anew();
    let (lane, me) = (t % WARP, t / WARP);
    if me == 0 {
        let to = partials.wrapping_add((thread::block_idx_x() as u64 * len as u64) as usize);
        // SAFETY: `i < len`, and `partials` has `len` elements for this block.
        every(sums, weight, total, lane, |i, v| unsafe { device::store(to, i as u64, *v) });
    }
}
