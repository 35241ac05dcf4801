//! The pass: densities of sixteen rows at a time under the mixtures of a unit, and their logarithms' sums.

use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::approx_max::{key, least, least_of_quads};
use crate::em::features::GROUP;
use crate::em::lanes::{larger, row_weight};
use crate::log_likelihood::logs::Logs;
use crate::log_likelihood::{Scores, tile_len};
use crate::{Real, THREADS};

const WARPS: u32 = THREADS / WARP;

/// Rows of one group as features.
pub(crate) trait Rows: Copy {
    /// Features in fours.
    const FOURS: usize;
    /// Whether what they are multiplied with makes whole densities, of which nothing is added elsewhere.
    const WHOLE: bool;
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

    /// Adds products of the features with the coefficients of tiles, which lie one after another.
    fn multiply<const TILES: usize>(&self, x: Shared<f64>, lane: u32, tiles: Shared<f64>, sums: &mut [[f64; 4]; TILES]);
}

/// Numbers of a unit's tiles.
#[inline(always)]
fn unit_len<R: Rows, const TILES: usize>(k: u32) -> u32 {
    k.div_ceil(8) * TILES as u32 * tile_len(R::FOURS)
}

/// Bytes of shared memory: a unit's tiles, and each warp's columns.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared_bytes<T: Real, R: Rows, const TILES: usize>(a: &Scores<T>) -> u64 {
    let unit = u64::from(a.k.div_ceil(8)) * TILES as u64 * u64::from(tile_len(R::FOURS));
    8 * (unit + u64::from(WARPS * R::SHARED))
}

/// Mixtures that a lane has numbers of.
const fn of_a_lane<const TILES: usize>() -> usize {
    if TILES == 1 { 1 } else { 2 }
}

/// A row's density: a number near the largest of the joint densities' logarithms, in one of two numbers, the other of which is
/// 0; and the sum of all in terms of that, at least 1.
#[derive(Clone, Copy)]
pub(crate) struct Density<T> {
    pub(crate) top: f64,
    pub(crate) rounded: f32,
    pub(crate) sum: T,
}

/// Those of this lane's two rows, under its two mixtures or its one, `[half][odd]`.
type Densities<T> = [[Density<T>; 2]; 2];

const fn no_densities<T: Real>() -> Densities<T> {
    [[Density { top: 0.0, rounded: 0.0, sum: T::ZERO }; 2]; 2]
}

/// Calls `f(half, odd)` for every density that a lane has.
#[inline(always)]
fn every<const TILES: usize>(mut f: impl FnMut(usize, usize)) {
    each(2, |half| each(of_a_lane::<TILES>(), |odd| f(half, odd)));
}

/// Whether joint densities are rounded to `f32` before anything is done with them. The tensor cores' unit does all
/// arithmetic in `f64`, and a warp that wants it for one number waits for another's products. The host takes from the
/// constants what typical rows have, so that few digits are before the point.
const fn is_rounded<T: Real, R: Rows>() -> bool {
    T::BYTES == 4 && R::WHOLE
}

/// The largest number that a density is told from none by, where it is rounded.
const LEAST: f32 = f32::MIN / 4.0;

/// Densities of a group under eight components.
#[inline(always)]
fn of_eight<T: Real, R: Rows, const TILES: usize>(joint: &[[f64; 4]; TILES]) -> Densities<T> {
    let mut out = no_densities();
    if TILES == 1 {
        let densities = of_columns::<T, R>(joint[0]);
        each(2, |half| out[half][0] = densities[half]);
    } else {
        every::<TILES>(|half, odd| {
            let mut all = [0.0; 8];
            each(TILES, |tile| all[tile] = joint[tile][2 * half + odd]);
            out[half][odd] = of_tiles::<T, R>(all);
        });
    }
    out
}

/// Of eight components that a lane has itself.
#[inline(always)]
fn of_tiles<T: Real, R: Rows>(all: [f64; 8]) -> Density<T> {
    // As the four lanes of `of_columns` add them.
    let add = |[a, b, c, d, e, f, g, h]: [T; 8]| ((a + b) + (c + d)) + ((e + f) + (g + h));
    if is_rounded::<T, R>() {
        let all = all.map(|v| v as f32);
        let mut top = LEAST;
        each(8, |i| top = top.max(all[i]));
        return Density { top: 0.0, rounded: top, sum: add(all.map(|v| T::from_f64((v - top) as f64).exp_below())) };
    }
    let mut top = i32::MIN;
    each(8, |i| top = top.max(key(all[i])));
    let top = least(top);
    Density { top, rounded: 0.0, sum: add(all.map(|v| T::from_f64(v - top).exp_below())) }
}

/// Of eight components of which four lanes have two each, for two rows: step by step for both, so that one does not wait for
/// the other's shuffles.
#[inline(always)]
fn of_columns<T: Real, R: Rows>([a, b, c, d]: [f64; 4]) -> [Density<T>; 2] {
    let (mut tops, mut rounded) = ([0.0; 2], [0.0; 2]);
    let mut sums;
    if is_rounded::<T, R>() {
        let [a, b, c, d] = [a, b, c, d].map(|v| v as f32);
        rounded = [LEAST.max(a).max(b), LEAST.max(c).max(d)];
        each(2, |i| {
            let other = rounded.map(|v| warp::shuffle_xor(v, 1 << i));
            each(2, |half| rounded[half] = rounded[half].max(other[half]));
        });
        let exp = |v: f32, half: usize| T::from_f64((v - rounded[half]) as f64).exp_below();
        sums = [exp(a, 0) + exp(b, 0), exp(c, 1) + exp(d, 1)];
    } else {
        tops = least_of_quads([key(a).max(key(b)), key(c).max(key(d))]);
        let exp = |v: f64, half: usize| T::from_f64(v - tops[half]).exp_below();
        sums = [exp(a, 0) + exp(b, 0), exp(c, 1) + exp(d, 1)];
    }
    each(2, |i| {
        let other = sums.map(|sum| warp::shuffle_xor(sum, 1 << i));
        each(2, |half| sums[half] += other[half]);
    });
    [0, 1].map(|half| Density { top: tops[half], rounded: rounded[half], sum: sums[half] })
}

/// Of the components of both.
#[inline(always)]
fn of_both<T: Real, R: Rows>(a: Density<T>, b: Density<T>) -> Density<T> {
    if is_rounded::<T, R>() {
        let rounded = a.rounded.max(b.rounded);
        let by = |v: f32| T::from_f64((v - rounded) as f64).exp_below();
        return Density { top: 0.0, rounded, sum: a.sum * by(a.rounded) + b.sum * by(b.rounded) };
    }
    let top = larger(a.top, b.top);
    let by = |v: f64| T::from_f64(v - top).exp_below();
    Density { top, rounded: 0.0, sum: a.sum * by(a.top) + b.sum * by(b.top) }
}

/// Adds the components of eight more, or the first eight.
#[inline(always)]
fn merge<T: Real, R: Rows, const TILES: usize>(densities: &mut Densities<T>, joint: &[[f64; 4]; TILES], first: bool) {
    let eight = of_eight::<T, R, TILES>(joint);
    if first {
        *densities = eight;
    } else {
        // Without a word to the warp compilers would compute it where it is not wanted, and choose afterwards.
        warp::sync_warp();
        every::<TILES>(|half, odd| densities[half][odd] = of_both::<T, R>(densities[half][odd], eight[half][odd]));
    }
}

/// Adds what a group's rows weigh of their logarithms; nothing of rows past the last.
#[inline(always)]
fn add<T: Real, R: Rows, const TILES: usize>(
    a: &Scores<T>,
    logs: &mut [Logs<T>; 2],
    group: u32,
    lane: u32,
    densities: Densities<T>,
) {
    let inside = [0, 8].map(|half| lane / 4 + half);
    if a.row_weights.is_null() {
        let left = a.n as i64 - (group as u64 * GROUP as u64) as i64;
        let [first, second] = densities;
        each(of_a_lane::<TILES>(), |odd| {
            let counts = inside.map(|row| (row as i64) < left);
            logs[odd].add(is_rounded::<T, R>(), counts, [first[odd], second[odd]]);
        });
    } else {
        each(2, |half| {
            let row = group as u64 * GROUP as u64 + inside[half] as u64;
            // SAFETY: the weights are as the arguments' field says.
            let weight = unsafe { row_weight(a.row_weights, a.n, row) };
            each(of_a_lane::<TILES>(), |odd| logs[odd].add_weighted(weight, densities[half][odd]));
        });
    }
}

/// Groups of rows of a warp that may be on their way.
const AHEAD: usize = 2;

/// How many are: one mixture's products take much less time than rows need to arrive, those of eight more, and features of
/// many columns leave no room for any. With 14 entries and their squares a second would cost a sixth block on Hopper, which
/// brings more.
const fn ahead<T: Real, R: Rows, const TILES: usize>() -> usize {
    match TILES {
        1 if T::BYTES == 4 && (R::FOURS <= 8 && R::FOURS != 7 || R::SHARED > 0) => AHEAD,
        8 if R::FOURS >= 16 && R::SHARED == 0 => 0,
        _ => 1,
    }
}

/// The kernel: `TILES` is 1 where columns are components, and 8 where they are mixtures.
///
/// # Safety
/// As the fields of [`Scores`] say.
#[inline(always)]
pub(crate) unsafe fn body<T: Real, R: Rows, const TILES: usize>(a: Scores<T>) {
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
    // Read where it is wanted, so that no register holds it.
    let step = || thread::grid_dim_x_anew() * WARPS;
    let mut group = thread::block_idx_x() * WARPS + me;
    // A group that is not there has rows of weight 0 alone: it may as well be the last.
    let there = |group: u32| if group < groups { group } else { groups - 1 };
    // SAFETY: one of the groups.
    let arrive = |group: u32, lane: u32| unsafe { R::arrive(&a, there(group), lane) };
    let ahead = const { ahead::<T, R, TILES>() };
    let part = TILES as u32 * tile_len(R::FOURS);
    let mut arriving = [arrive(group, lane); AHEAD];
    each(ahead.saturating_sub(1), |i| arriving[i + 1] = arrive(group + (i + 1) as u32 * step(), lane));
    copies::arrive();
    thread::sync_threads();

    let products = |rows: R, lane: u32, at: u32| {
        let tiles = Shared::<f64>::at(8 * at);
        let mut joint = [[0.0; 4]; TILES];
        each(TILES, |tile| {
            let constants = (tile as u32 + 1) * tile_len(R::FOURS) - 8;
            let [even, odd] = tiles.load2(constants + lane % 4 * 2);
            joint[tile] = [even, odd, even, odd];
        });
        rows.multiply(x, lane, tiles, &mut joint);
        joint
    };
    let mut logs = [Logs::<T>::START; 2];
    while group < groups {
        each(if ahead > 1 { ahead } else { 1 }, |round| {
            // What follows from it is found anew for each group, and takes no register in between.
            let lane = device::unknown(lane);
            let arrived = if ahead > 0 { arriving[round] } else { arrive(group, lane) };
            let rows = R::stage(&a, arrived, x, lane);
            if ahead > 0 {
                arriving[round] = arrive(group + ahead as u32 * step(), lane);
            }
            let mut densities = no_densities();
            let mut at = 0;
            while at < len {
                merge::<T, R, TILES>(&mut densities, &products(rows, lane, at), at == 0);
                at += part;
            }
            add::<T, R, TILES>(&a, &mut logs, group, lane, densities);
            group += step();
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
