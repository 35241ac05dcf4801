//! One whole E- and M-pass in one kernel: no responsibility leaves the chip.
//!
//! A warp takes sixteen rows at a time, alone, from the rows' arrival to their part of the sums:
//! 1. entries into shared memory as `f64`, and what the family derives of them;
//! 2. log joint densities: features times coefficients on the tensor cores, all in `f64`;
//! 3. log-sum-exp within groups of four lanes, responsibilities into shared memory: the even components of a group, then
//!    the odd, so that lanes write to different banks;
//! 4. sums: features times responsibilities, into registers that live as long as the kernel.
//!
//! So sums over all of a warp's rows are added up in `f64` without ever being written, and a block leaves one partial
//! result. The grid decides the order of additions; the same grid gives the same bits.

use super::features::{Features, GROUP, STRIDE, each};
use super::lanes::{larger, quad, row_weight};
use super::likelihood::Likelihood;
use super::staging::{AHEAD, Arriving, Columns, Group};
use super::state::stopped;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::math::reciprocal;
use crate::{Real, THREADS};

/// What is derived from a row's entries while they are staged.
pub mod derive {
    /// Nothing.
    pub const NOTHING: u32 = 0;
    /// Column `d` is the sum of the entries' squares.
    pub const NORM: u32 = 1;
    /// The later half of the columns are the squares of the entries in the first.
    pub const SQUARES: u32 = 2;
}

/// What the kernels of this module take; see [`Pass`](super::Pass).
pub(super) use super::Pass;

const WARPS: u32 = THREADS / WARP;

/// Whether densities are kept in registers; else they wait in shared memory, which for many steps would need more
/// registers for the features.
const fn in_registers(steps: usize, nt: usize) -> bool {
    steps > 4 || nt <= 4
}

/// Whether responsibilities are read once for all features, or for each again.
const fn kept(steps: usize, nt: usize) -> bool {
    steps * nt <= 12
}

/// Chains of products for each group of components at most, and for `nt` groups: four in all, or one for each.
const CHAINS: usize = 4;
const fn of_chains(steps: usize, nt: usize) -> usize {
    if nt >= 4 || steps * nt > 12 { 1 } else { CHAINS / nt }
}

/// As many as there are registers for, beside this many tiles of sums.
const fn ahead(tiles: usize) -> usize {
    if tiles > 12 {
        0
    } else if tiles > 10 {
        AHEAD / 2
    } else {
        AHEAD
    }
}

/// Distance of a row's responsibilities from those of the row before: 4 more than the components, against bank
/// conflicts along both.
const fn row_stride(groups: u32) -> u32 {
    8 * groups + 4
}

/// Numbers of a warp: its columns, its rows' responsibilities and their shares, each lane's Σ r, and its likelihood.
const fn warp_len(groups: u32, columns: u32) -> u32 {
    columns * STRIDE + GROUP * row_stride(groups) + GROUP + WARP * (groups + 3)
}

/// Σ r of each lane: in registers, or in shared memory where sums of features fill the registers.
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

/// Shared memory of a block, in `f64`: coefficients, constants, and for each warp columns and responsibilities.
#[cfg(not(target_arch = "nvptx64"))]
const fn shared_len(steps: u32, groups: u32, columns: u32) -> u32 {
    128 * steps * groups + 8 * groups + WARPS * warp_len(groups, columns)
}

/// Bytes of shared memory.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: Real, F: Features, const NT: usize>(_: &Pass<T>) -> u64 {
    8 * u64::from(shared_len(F::STEPS as u32, NT as u32, F::COLUMNS))
}

/// The kernel: `S` is `F::STEPS`, `NT` groups of eight components.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub unsafe fn body<T: Real, F: Features, const S: usize, const NT: usize>(a: Pass<T>) {
    const { assert!(S == F::STEPS) };
    device::await_previous_grid();
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (tiles, stride) = ((S * NT) as u32, row_stride(NT as u32));
    let coefficients = Shared::<f64>::at(0);
    let constants = Shared::<f64>::at(8 * 128 * tiles);
    let own = 128 * tiles + 8 * NT as u32 + me * warp_len(NT as u32, F::COLUMNS);
    let parts = |own: u32| {
        let r = own + F::COLUMNS * STRIDE;
        let shares = r + GROUP * stride;
        let tally = shares + GROUP;
        let aside = tally + WARP * NT as u32;
        [own, r, shares, tally, aside].map(|at| Shared::<f64>::at(8 * at))
    };
    let [x, _, _, tally, aside] = parts(own);

    // SAFETY: positions below the lengths that the fields state.
    unsafe {
        let mut i = t;
        while i < 128 * tiles {
            coefficients.store(i, device::load(a.coefficients, i as u64));
            i += THREADS;
        }
        if t < 8 * NT as u32 {
            constants.store(t, device::load(a.constants, t as u64));
        }
    }
    let mut i = lane;
    while i < F::COLUMNS * STRIDE {
        x.store(i, if F::ONES == Some(i / STRIDE) { 1.0 } else { 0.0 });
        i += WARP;
    }
    thread::sync_threads();

    let mut sums = [[[0.0; 4]; NT]; S];
    let mut weights = Tally::<NT>::new(kept(S, NT), tally, lane);
    let mut likelihood = Likelihood::START;
    if !kept(S, NT) {
        likelihood.leave(aside, lane);
    }
    // So many rows as would pass 32 bits here no device holds.
    let groups = a.n.div_ceil(GROUP as u64) as u32;
    let step = thread::grid_dim_x() * WARPS;
    let mut group = thread::block_idx_x() * WARPS + me;
    let mut here = Group::of(&a, group, lane);
    let mut arriving = Arriving([T::ZERO; AHEAD]);
    if group < groups {
        // SAFETY: one of the chunk's groups.
        arriving = unsafe { here.arrive(ahead(S * NT), a.d, lane) };
    }
    while group < groups {
        // Where registers are scarce, places are found anew for each group, and not kept.
        let (lane, own) = if kept(S, NT) { (lane, own) } else { (device::unknown(lane), device::unknown(own)) };
        let [x, r, shares, tally, aside] = parts(own);
        let columns = Columns { x, lane, d: a.d, derive: a.derive };
        // SAFETY: one of the chunk's groups, here and in `arrive` below.
        unsafe { columns.stage(here, ahead(S * NT), arriving) };
        warp::sync_warp();
        let first = group as u64 * GROUP as u64 + (lane / 4) as u64;
        group += step;
        here = Group::of(&a, group, lane);
        if group < groups {
            // SAFETY: as above.
            arriving = unsafe { here.arrive(ahead(S * NT), a.d, lane) };
        }

        // Of each of this lane's two rows: weight, largest joint density, sum of all in terms of that.
        let mut densities = [[0.0; 3]; 2];
        if in_registers(S, NT) {
            // Several chains of products, so that one does not wait for the other's end.
            let mut chains = [[[0.0; 4]; CHAINS]; NT];
            each(NT, |nt| chains[nt][0] = constant(constants, nt, lane));
            F::across(x, lane, |step, features| {
                each(NT, |nt| {
                    let sum = &mut chains[nt][step % of_chains(S, NT)];
                    mma::f64_16x8x16(sum, features, coefficient(coefficients, step * NT + nt, lane));
                });
            });
            let mut joint = [[0.0; 4]; NT];
            each(NT, |nt| {
                each(4, |i| {
                    let [a, b, c, d] = [0, 1, 2, 3].map(|chain| chains[nt][chain][i]);
                    joint[nt][i] = match of_chains(S, NT).min(S) {
                        1 => a,
                        2 => a + b,
                        _ => (a + b) + (c + d),
                    };
                });
            });
            each(2, |half| {
                // SAFETY: the weights are as the arguments' field says.
                let weight = unsafe { row_weight(a.row_weights, a.n, first + 8 * half as u64) };
                let of = |nt: usize, i: usize| joint[nt][2 * half + i];
                let mut top = of(0, 0);
                each(NT, |nt| top = larger(larger(top, of(nt, 0)), of(nt, 1)));
                let top = quad(top, larger);
                let mut e = [[T::ZERO; 2]; NT];
                let mut sum = 0.0;
                each(NT, |nt| {
                    each(2, |i| e[nt][i] = T::from_f64(of(nt, i) - top).exp_below());
                    sum += e[nt][0].to_f64() + e[nt][1].to_f64();
                });
                let sum = quad(sum, core::ops::Add::add);
                // Not a number where a density is: it shows in the sums, and the pass is made another way.
                let share = weight * reciprocal(sum);
                densities[half] = [weight, top, sum];
                let at = (lane / 4 + 8 * half as u32) * stride + lane % 4;
                each(NT, |nt| {
                    r.store(at + 8 * nt as u32, e[nt][0].to_f64() * share);
                    r.store(at + 8 * nt as u32 + 4, e[nt][1].to_f64() * share);
                });
            });
        } else {
            // Log joint densities wait in shared memory, where each lane reads what it wrote itself.
            let mut features = [[0.0; 8]; S];
            F::across(x, lane, |step, some| features[step] = some);
            let mut top = [f64::NEG_INFINITY; 2];
            let at = |nt: usize, half: usize| (lane / 4 + 8 * half as u32) * stride + 8 * nt as u32 + lane % 4;
            let groups = device::unknown(NT as u32) as usize;
            let mut nt = 0;
            while nt < groups {
                let mut joint = constant(constants, nt, lane);
                each(S, |step| {
                    mma::f64_16x8x16(&mut joint, features[step], coefficient(coefficients, step * NT + nt, lane));
                });
                each(2, |half| {
                    let two = [joint[2 * half], joint[2 * half + 1]];
                    top[half] = larger(larger(top[half], two[0]), two[1]);
                    r.store(at(nt, half), two[0]);
                    r.store(at(nt, half) + 4, two[1]);
                });
                nt += 1;
            }
            each(2, |half| {
                // SAFETY: the weights are as the arguments' field says.
                let weight = unsafe { row_weight(a.row_weights, a.n, first + 8 * half as u64) };
                let top = quad(top[half], larger);
                let mut sum = 0.0;
                let mut nt = 0;
                while nt < groups {
                    each(2, |i| {
                        let at = at(nt, half) + 4 * i as u32;
                        let e = T::from_f64(r.load(at) - top).exp_below().to_f64();
                        sum += e;
                        r.store(at, e);
                    });
                    nt += 1;
                }
                let sum = quad(sum, core::ops::Add::add);
                densities[half] = [weight, top, sum];
                if lane % 4 == 0 {
                    shares.store(lane / 4 + 8 * half as u32, weight * reciprocal(sum));
                }
            });
        }
        if !kept(S, NT) {
            likelihood = Likelihood::fetch(aside, lane);
        }
        each(2, |half| {
            let [weight, top, sum] = densities[half];
            likelihood.add(!a.row_weights.is_null(), weight, top, sum);
        });
        if !kept(S, NT) {
            likelihood.leave(aside, lane);
        }
        warp::sync_warp();

        let at = lane % 4 * stride + lane / 4;
        let responsibilities = |nt: usize| [0, 4, 8, 12].map(|row| r.load(at + row * stride + 8 * nt as u32));
        if in_registers(S, NT) && kept(S, NT) {
            let mut kept = [[0.0; 4]; NT];
            each(NT, |nt| {
                kept[nt] = responsibilities(nt);
                weights.add(tally, lane, nt, kept[nt]);
            });
            F::down(x, lane, |step, features| {
                each(NT, |nt| mma::f64_16x8x16(&mut sums[step][nt], features, kept[nt]));
            });
        } else if in_registers(S, NT) {
            F::down(x, lane, |step, features| {
                each(NT, |nt| {
                    let b = responsibilities(nt);
                    if step == 0 {
                        weights.add(tally, lane, nt, b);
                    }
                    mma::f64_16x8x16(&mut sums[step][nt], features, b);
                });
            });
        } else {
            let mut features = [[0.0; 8]; S];
            F::down(x, lane, |step, some| features[step] = some);
            let share = [0, 4, 8, 12].map(|row| shares.load(lane % 4 + row));
            each(NT, |nt| {
                let mut b = responsibilities(nt);
                each(4, |i| b[i] *= share[i]);
                weights.add(tally, lane, nt, b);
                each(S, |step| mma::f64_16x8x16(&mut sums[step][nt], features[step], b));
            });
        }
        warp::sync_warp();
    }

    // Found anew, so that no register holds them throughout the loop.
    let t = thread::thread_idx_x_anew();
    let (lane, me) = (t % WARP, t / WARP);
    let own = 128 * tiles + 8 * NT as u32 + me * warp_len(NT as u32, F::COLUMNS);
    let [_, _, _, tally, aside] = parts(own);
    if !kept(S, NT) {
        likelihood = Likelihood::fetch(aside, lane);
    }
    let mut weight = [0.0; NT];
    each(NT, |nt| weight[nt] = weights.get(tally, lane, nt));

    // The warps' sums, one warp after another, where the coefficients and the columns were.
    let all = Shared::<f64>::at(0);
    let weights_at = 128 * tiles;
    let likelihood_at = weights_at + 8 * NT as u32;
    let add = |i: u32, v: f64| all.store(i, if me == 0 { v } else { all.load(i) + v });
    let mut turn = 0;
    while turn < WARPS {
        thread::sync_threads();
        if turn == me {
            each(S, |s| {
                each(NT, |nt| {
                    each(4, |i| add((((s * NT + nt) * 4 + i) * 32) as u32 + lane, sums[s][nt][i]));
                });
            });
        }
        // Shuffles are for all lanes of all warps, so they stand outside.
        each(NT, |nt| {
            let mut w = weight[nt];
            w += warp::shuffle_xor(w, 1);
            w += warp::shuffle_xor(w, 2);
            if turn == me && lane % 4 == 0 {
                add(weights_at + 8 * nt as u32 + lane / 4, w);
            }
        });
        let mut l = if lane % 4 == 0 { likelihood.total() } else { 0.0 };
        each(5, |i| l += warp::shuffle_xor(l, 1 << i));
        if turn == me && lane == 0 {
            add(likelihood_at, l);
        }
        turn += 1;
    }
    thread::sync_threads();
    let len = likelihood_at + 1;
    let mut i = t;
    while i < len {
        // SAFETY: a piece of `len` numbers for each block.
        unsafe { device::store(a.partials, thread::block_idx_x() as u64 * len as u64 + i as u64, all.load(i)) };
        i += THREADS;
    }
}

/// Constants of a group of components, as the densities of this lane's entries start.
#[inline(always)]
fn constant(constants: Shared<f64>, nt: usize, lane: u32) -> [f64; 4] {
    let [even, odd] = constants.load2(8 * nt as u32 + lane % 4 * 2);
    [even, odd, even, odd]
}

/// A tile of coefficients, as an operand.
#[inline(always)]
fn coefficient(coefficients: Shared<f64>, tile: usize, lane: u32) -> [f64; 4] {
    let at = tile as u32 * 128 + lane * 2;
    let ([a, b], [c, d]) = (coefficients.load2(at), coefficients.load2(at + 64));
    [a, b, c, d]
}
