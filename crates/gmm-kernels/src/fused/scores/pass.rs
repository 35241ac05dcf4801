//! The pass: densities of sixteen rows at a time under the mixtures of a unit, and their logarithms' sums.

use super::logs::Logs;
use super::top::{key, least};
use super::{Scores, tile_len};
use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::fused::features::GROUP;
use crate::fused::lanes::{larger, row_weight};
use crate::{Real, THREADS};

const WARPS: u32 = THREADS / WARP;

/// Rows of one group as features.
pub(super) trait Rows: Copy {
    /// Features in fours.
    const FOURS: usize;
    /// Numbers of shared memory of a warp.
    const SHARED: u32;
    /// Entries on their way.
    type Arriving<T: Real>: Copy;

    /// Prepares a warp's shared memory.
    fn begin(x: Shared<f64>, lane: u32);

    /// Sends for a group of the rows.
    ///
    /// # Safety
    /// `group` is one of theirs, and the fields of [`Scores`] are as they say.
    unsafe fn arrive<T: Real>(a: &Scores<T>, group: u32, lane: u32) -> Self::Arriving<T>;

    /// Features of what arrived.
    fn stage<T: Real>(a: &Scores<T>, arrived: Self::Arriving<T>, x: Shared<f64>, lane: u32) -> Self;

    /// Adds products of the features of `G` groups with the coefficients of tiles, which lie one after another.
    fn multiply<const TILES: usize, const G: usize>(
        rows: &[Self; G],
        x: Shared<f64>,
        lane: u32,
        tiles: Shared<f64>,
        sums: &mut [[[f64; 4]; TILES]; G],
    );
}

/// Numbers of a unit's tiles.
#[inline(always)]
fn unit_len<R: Rows, const TILES: usize>(k: u32) -> u32 {
    k.div_ceil(8) * TILES as u32 * tile_len(R::FOURS)
}

/// Bytes of shared memory: a unit's tiles, and each warp's columns.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn shared_bytes<T: Real, R: Rows, const TILES: usize>(a: &Scores<T>) -> u64 {
    let unit = u64::from(a.k.div_ceil(8)) * TILES as u64 * u64::from(tile_len(R::FOURS));
    8 * (unit + u64::from(WARPS * R::SHARED))
}

/// Of a row under a mixture: a number near the largest of its joint densities' logarithms, and the sum of all in terms of
/// that, at least 1.
type Density = (f64, f64);

/// Of components of one mixture, `TILES` tiles of eight columns, in this lane's row `half`; `odd` is which of its columns
/// the mixture is, or both where columns are components.
#[inline(always)]
fn of_eight<T: Real, const TILES: usize>(joint: &[[f64; 4]; TILES], half: usize, odd: usize) -> Density {
    let mut top = i32::MIN;
    let mut all = [0.0; 8];
    if TILES == 1 {
        all[0] = joint[0][2 * half];
        all[1] = joint[0][2 * half + 1];
    } else {
        each(TILES, |tile| all[tile] = joint[tile][2 * half + odd]);
    }
    let here = if TILES == 1 { 2 } else { 8 };
    each(here, |i| {
        let key = key(all[i]);
        top = if key > top { key } else { top };
    });
    if TILES == 1 {
        each(2, |i| {
            let other = warp::shuffle_xor_u32(top as u32, 1 << i) as i32;
            top = if other > top { other } else { top };
        });
    }
    let top = least(top);
    let mut e = [T::ZERO; 8];
    each(here, |i| e[i] = T::from_f64(all[i] - top).exp_below());
    // The same tree in both: two columns of a lane, then lanes one and two apart.
    let sum = if TILES == 1 {
        let v = e[0] + e[1];
        let v = v + warp::shuffle_xor(v, 1);
        v + warp::shuffle_xor(v, 2)
    } else {
        ((e[0] + e[1]) + (e[2] + e[3])) + ((e[4] + e[5]) + (e[6] + e[7]))
    };
    (top, sum.to_f64())
}

/// Of more components.
#[inline(always)]
fn of_both<T: Real>(a: Density, b: Density) -> Density {
    let top = larger(a.0, b.0);
    let by = |v: f64| T::from_f64(v - top).exp_below().to_f64();
    (top, a.1 * by(a.0) + b.1 * by(b.0))
}

/// Densities of this lane's two rows, `[half][odd]`: under its two mixtures, or its one.
type Densities = [[Density; 2]; 2];

/// Takes eight components more into account.
#[inline(always)]
fn add<T: Real, const TILES: usize>(first: bool, joint: &[[f64; 4]; TILES], densities: &mut Densities) {
    each(2, |half| {
        each(of_a_lane::<TILES>(), |odd| {
            let eight = of_eight::<T, TILES>(joint, half, odd);
            let all = &mut densities[half][odd];
            *all = if first { eight } else { of_both::<T>(*all, eight) };
        });
    });
}

/// Mixtures that a lane has numbers of.
const fn of_a_lane<const TILES: usize>() -> usize {
    if TILES == 1 { 1 } else { 2 }
}

/// Groups of rows, `G` at a time, that may be on their way.
const AHEAD: usize = 2;

/// How many are: one mixture's products take less time than rows need to arrive, and those of eight more. None where
/// features fill the registers.
const fn ahead<T: Real, R: Rows, const TILES: usize>() -> usize {
    match TILES {
        1 if T::BYTES == 4 => AHEAD,
        8 if R::FOURS >= 16 && R::SHARED == 0 => 0,
        _ => 1,
    }
}

/// The kernel: `TILES` is 1 where columns are components, and 8 where they are mixtures; a warp takes `G` groups of rows
/// at a time, which changes nothing in what it computes.
///
/// # Safety
/// As the fields of [`Scores`] say.
#[inline(always)]
pub(super) unsafe fn body<T: Real, R: Rows, const TILES: usize, const G: usize>(a: Scores<T>) {
    const { assert!(TILES == 1 || TILES == 8) };
    device::await_previous_grid();
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (unit, len) = (thread::block_idx_y(), unit_len::<R, TILES>(a.k));
    let x = Shared::<f64>::at(8 * (len + me * R::SHARED));

    let from = a.coefficients.wrapping_add((unit as u64 * len as u64) as usize);
    let mut i = t;
    while i < len / 2 {
        // SAFETY: within the unit's tiles, whose lengths are even.
        unsafe { copies::send(16 * i, from.wrapping_add(2 * i as usize).cast()) };
        i += THREADS;
    }
    R::begin(x, lane);

    // So many rows as would pass 32 bits here no device holds.
    let groups = a.n.div_ceil(GROUP as u64) as u32;
    let step = thread::grid_dim_x() * WARPS;
    let mut group = thread::block_idx_x() * WARPS + me;
    // A group that is not there has rows of weight 0 alone: it may as well be the last.
    let there = |group: u32| if group < groups { group } else { groups - 1 };
    // SAFETY: one of the groups, here and below.
    let arrive = |group: u32, lane: u32| {
        core::array::from_fn::<_, G, _>(|g| unsafe { R::arrive(&a, there(group + g as u32 * step), lane) })
    };
    let ahead = ahead::<T, R, TILES>();
    let mut arriving = [arrive(group, lane); AHEAD];
    each(ahead.saturating_sub(1), |i| arriving[i + 1] = arrive(group + (i + 1) as u32 * G as u32 * step, lane));
    copies::arrive();
    thread::sync_threads();

    let mut logs = [Logs::START; 2];
    while group < groups {
        each(if ahead > 1 { ahead } else { 1 }, |round| {
            // What follows from it is found anew for each group, and takes no register in between.
            let lane = device::unknown(lane);
            let arrived = if ahead > 0 { arriving[round] } else { arrive(group, lane) };
            let rows: [R; G] = core::array::from_fn(|g| R::stage(&a, arrived[g], x, lane));
            if ahead > 0 {
                arriving[round] = arrive(group + (ahead * G) as u32 * step, lane);
            }
            let mut densities = [[[(0.0, 0.0); 2]; 2]; G];
            let mut at = 0;
            while at < len {
                let tiles = Shared::<f64>::at(8 * at);
                let mut joint = [[[0.0; 4]; TILES]; G];
                each(TILES, |tile| {
                    let constants = (tile as u32 + 1) * tile_len(R::FOURS) - 8;
                    let [even, odd] = tiles.load2(constants + lane % 4 * 2);
                    each(G, |g| joint[g][tile] = [even, odd, even, odd]);
                });
                R::multiply(&rows, x, lane, tiles, &mut joint);
                each(G, |g| add::<T, TILES>(at == 0, &joint[g], &mut densities[g]));
                at += TILES as u32 * tile_len(R::FOURS);
            }
            each(G, |g| {
                each(2, |half| {
                    let row = (group + g as u32 * step) as u64 * GROUP as u64 + (lane / 4 + 8 * half as u32) as u64;
                    // SAFETY: the weights are as the arguments' field says.
                    let weight = unsafe { row_weight(a.row_weights, a.n, row) };
                    each(of_a_lane::<TILES>(), |odd| {
                        let (top, sum) = densities[g][half][odd];
                        logs[odd].add(!a.row_weights.is_null(), weight, top, sum);
                    });
                });
            });
            group += G as u32 * step;
        });
    }

    // The warps' sums, where the coefficients were.
    thread::sync_threads();
    let all = Shared::<f64>::at(0);
    each(of_a_lane::<TILES>(), |odd| {
        let mut sum = logs[odd].total();
        each(3, |i| sum += warp::shuffle_xor(sum, 4 << i));
        if TILES == 8 && lane < 4 || lane == 0 {
            all.store(me * TILES as u32 + 2 * lane + odd as u32, sum);
        }
    });
    thread::sync_threads();
    if t < TILES as u32 {
        let mut sum = 0.0;
        each(WARPS as usize, |w| sum += all.load(w as u32 * TILES as u32 + t));
        let at = thread::block_idx_x() as u64 * a.stride + (unit * TILES as u32 + t) as u64;
        // SAFETY: one of the unit's mixtures, among this block's.
        unsafe { device::store(a.partials, at, sum) };
    }
}
