//! The pass where a warp's registers hold all sums: it takes its rows from their arrival to their part of the sums, alone.

use super::super::features::{Features, GROUP, STRIDE, each};
use super::super::lanes::quad;
use super::super::likelihood::Likelihood;
use super::super::staging::{Rows, raw_bytes};
use super::super::top::{key, least_of_quads};
use super::Pass;
use super::joint::{exponentials, joint, respond, row_stride, weights_of_lane};
use super::parts::{coefficient, constant, every, groups_of_rows, start};
use crate::THREADS;
use crate::device::{self, Shared, WARP, mma, thread, warp};
use crate::math::reciprocal;

const WARPS: u32 = THREADS / WARP;

/// Whether densities are kept in registers; else they wait in shared memory, which for many steps would need more
/// registers for the features.
const fn in_registers(steps: usize, nt: usize) -> bool {
    steps > 4 || nt <= 4
}

/// Whether responsibilities are read once for all features, or for each again.
const fn kept(steps: usize, nt: usize) -> bool {
    steps * nt <= 7
}

/// Whether a lane's likelihood waits in shared memory: where sums fill the registers, and where two registers more would cost
/// Hopper a block.
const fn likelihood_aside(steps: usize, nt: usize) -> bool {
    !kept(steps, nt) || steps == 1 && nt == 4
}

/// Numbers of a warp: its columns, its rows' responsibilities and their shares, each lane's Σ r, and its likelihood. What is on
/// its way comes after those of all warps.
const fn warp_len<F: Features>(groups: u32) -> u32 {
    F::COLUMNS * STRIDE + GROUP * row_stride(groups) + GROUP + WARP * (groups + 3)
}

/// Numbers before the warps' own: coefficients and constants.
const fn coefficients_len(steps: usize, nt: usize) -> u32 {
    (128 * steps * nt + 8 * nt) as u32
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

/// Bytes of shared memory: coefficients, constants, and for each warp its own and what is on its way.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<F: Features, const S: usize, const NT: usize>(a: &Pass) -> u64 {
    let len = coefficients_len(S, NT) + WARPS * warp_len::<F>(NT as u32);
    u64::from(8 * len + WARPS * raw_bytes(F::ENTRIES, a.number_bytes))
}

/// The kernel: `S` is `F::STEPS`, `NT` groups of eight components.
///
/// # Safety
/// As the fields of [`Pass`] say.
#[inline(always)]
pub unsafe fn body<F: Features, const S: usize, const NT: usize>(a: Pass) {
    const { assert!(S == F::STEPS) };
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let (tiles, stride) = ((S * NT) as u32, row_stride(NT as u32));
    let coefficients = Shared::<f64>::at(0);
    let constants = Shared::<f64>::at(8 * 128 * tiles);
    let own_of = |warp: u32| const { coefficients_len(S, NT) } + warp * const { warp_len::<F>(NT as u32) };
    let own = own_of(me);
    let parts = |own: u32| {
        let r = own + F::COLUMNS * STRIDE;
        let shares = r + GROUP * stride;
        let tally = shares + GROUP;
        let aside = tally + WARP * NT as u32;
        [own, r, shares, tally, aside].map(|at| Shared::<f64>::at(8 * at))
    };
    let raw = |warp: u32, number_bytes: u32| 8 * own_of(WARPS) + warp * raw_bytes(F::ENTRIES, number_bytes);
    let [x, _, _, tally, aside] = parts(own);

    let groups = groups_of_rows(&a);
    let mut group = thread::block_idx_x() * WARPS + me;
    // SAFETY: as the fields say.
    if unsafe { start::<F>(&a, THREADS, (tiles, NT as u32), (x, raw(me, a.number_bytes)), group) } {
        return;
    }

    let mut sums = [[[0.0; 4]; NT]; S];
    let mut weights = Tally::<NT>::new(kept(S, NT), tally, lane);
    let mut likelihood = Likelihood::START;
    if likelihood_aside(S, NT) {
        likelihood.leave(aside, lane);
    }
    while group < groups {
        // Found anew for each group, so that no register holds places throughout the loop.
        let t = thread::thread_idx_x_anew();
        let (lane, d, number_bytes) = (t % WARP, device::unknown(a.d), device::unknown(a.number_bytes));
        let own = own_of(t / WARP);
        let [x, r, shares, tally, aside] = parts(own);
        let rows = Rows::new(&a, d, number_bytes, raw(t / WARP, number_bytes), lane);
        rows.stage(F::ENTRIES, F::NORMS, a.derive, x);
        let here = device::unknown(group);
        group = device::unknown(group) + thread::grid_dim_x_anew() * WARPS;
        if group < groups {
            // Found anew again: what staging had would take registers meanwhile.
            let (d, number_bytes) = (device::unknown(a.d), device::unknown(a.number_bytes));
            let rows = Rows::new(&a, d, number_bytes, raw(t / WARP, number_bytes), lane);
            // SAFETY: one of the chunk's groups.
            unsafe { rows.send(F::ENTRIES, group) };
        }

        // SAFETY: the weights are as the arguments' field says.
        let weights_here = unsafe { weights_of_lane(a.row_weights, a.n, here, lane) };
        // Of each of this lane's two rows: weight, a number near the largest joint density, sum of all in terms of that.
        let mut densities = [[0.0; 3]; 2];
        if in_registers(S, NT) {
            let joint = joint::<F, NT>(x, coefficients, constants, lane, false);
            densities = respond(number_bytes, &joint, weights_here, r, lane);
        } else {
            // Log joint densities wait in shared memory, where each lane reads what it wrote itself.
            let mut features = [[0.0; 8]; S];
            F::across(x, lane, false, |step, some| features[step] = some);
            let mut tops = [i32::MIN; 2];
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
                    tops[half] = tops[half].max(key(two[0])).max(key(two[1]));
                    r.store(at(nt, half), two[0]);
                    r.store(at(nt, half) + 4, two[1]);
                });
                nt += 1;
            }
            let tops = least_of_quads(tops);
            each(2, |half| {
                let (weight, top) = (weights_here[half], tops[half]);
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
                if lane % 4 == 0 {
                    shares.store(lane / 4 + 8 * half as u32, weight * reciprocal(sum));
                }
            });
        }
        if likelihood_aside(S, NT) {
            likelihood = Likelihood::fetch(aside, lane);
        }
        // The four lanes of two rows have the same of both: two keep one's, and two the other's.
        let [weight, top, sum] = if lane.is_multiple_of(2) { densities[0] } else { densities[1] };
        likelihood.add(!a.row_weights.is_null(), weight, top, sum);
        if likelihood_aside(S, NT) {
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
            F::down(
                x,
                lane,
                |_| true,
                |step, features| {
                    each(NT, |nt| mma::f64_16x8x16(&mut sums[step][nt], features, kept[nt]));
                },
            );
        } else if in_registers(S, NT) {
            F::down(
                x,
                lane,
                |_| true,
                |step, features| {
                    each(NT, |nt| {
                        let b = responsibilities(nt);
                        if step == 0 {
                            weights.add(tally, lane, nt, b);
                        }
                        mma::f64_16x8x16(&mut sums[step][nt], features, b);
                    });
                },
            );
        } else {
            let mut features = [[0.0; 8]; S];
            F::down(x, lane, |_| true, |step, some| features[step] = some);
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
    let own = own_of(me);
    let [_, _, _, tally, aside] = parts(own);
    if likelihood_aside(S, NT) {
        likelihood = Likelihood::fetch(aside, lane);
    }
    let mut weight = [0.0; NT];
    each(NT, |nt| {
        weight[nt] = weights.get(tally, lane, nt);
        each(2, |i| weight[nt] += warp::shuffle_xor(weight[nt], 1 << i));
    });
    // Two lanes have the same: each gives half, exactly.
    let mut total = 0.5 * likelihood.total();
    each(5, |i| total += warp::shuffle_xor(total, 1 << i));

    // The warps' sums, where the coefficients and the columns were: the later half's are added to the first's, and so on.
    let all = Shared::<f64>::at(0);
    let len = 128 * tiles + 8 * NT as u32 + 1;
    const { assert!(WARPS * warp_len::<F>(NT as u32) > (WARPS / 2 - 1) * (128 * S as u32 + 9) * NT as u32) };
    let mut half = device::unknown(WARPS / 2);
    while half > 0 {
        thread::sync_threads();
        // As above.
        let t = thread::thread_idx_x_anew();
        let (lane, me) = (t % WARP, t / WARP);
        if me >= half && me < 2 * half {
            every(&mut sums, &mut weight, &mut total, lane, |i, v| all.store((me - half) * len + i, *v));
        }
        thread::sync_threads();
        if me < half {
            every(&mut sums, &mut weight, &mut total, lane, |i, v| *v += all.load(me * len + i));
        }
        half /= 2;
    }
    let t = thread::thread_idx_x_anew();
    let (lane, me) = (t % WARP, t / WARP);
    if me == 0 {
        let to = a.partials.wrapping_add((thread::block_idx_x() as u64 * len as u64) as usize);
        // SAFETY: a piece of `len` numbers for each block.
        every(&mut sums, &mut weight, &mut total, lane, |i, v| unsafe { device::store(to, i as u64, *v) });
    }
}
