//! The pass: densities of 16 rows at a time under the mixtures of a unit, and the sums of their logarithms.

use crate::device::{self, Shared, WARP, copies, thread, warp};
use crate::each::each;
use crate::em::approx_max::{key, least, least_of_quads};
use crate::em::features::GROUP;
use crate::em::lanes::{larger, row_weight};
use crate::log_likelihood::logs::Logs;
use crate::log_likelihood::{LogLikelihoods, tile_len};
use crate::{Real, THREADS};

const WARPS: u32 = THREADS / WARP;

/// The features of one group of rows.
pub(crate) trait Rows: Copy {
    /// Number of features in groups of four.
    const FOURS: usize;
    /// Whether products with the coefficients are complete densities, to which nothing is added elsewhere.
    const WHOLE: bool;
    /// Numbers of shared memory per warp.
    const SHARED: u32;
    /// Entries being loaded.
    type Arriving<T: Real>: Copy;

    /// Initialises a warp's shared memory.
    fn begin(x: Shared<f64>, lane: u32);

    /// Starts loading a group of rows.
    ///
    /// # Safety
    /// `group` must be within the rows, and the fields of `a` must be as [`LogLikelihoods`] documents.
    unsafe fn arrive<T: Real>(a: &LogLikelihoods<T>, group: u32, lane: u32) -> Self::Arriving<T>;

    /// Computes the features of the loaded entries.
    fn stage<T: Real>(a: &LogLikelihoods<T>, arrived: Self::Arriving<T>, x: Shared<f64>, lane: u32) -> Self;

    /// Adds the products of the features with the coefficients of `TILES` consecutive tiles.
    fn multiply<const TILES: usize>(&self, x: Shared<f64>, lane: u32, tiles: Shared<f64>, sums: &mut [[f64; 4]; TILES]);
}

/// Length of a unit's tiles, in numbers.
#[inline(always)]
fn unit_len<R: Rows, const TILES: usize>(k: u32) -> u32 {
    k.div_ceil(8) * TILES as u32 * tile_len(R::FOURS)
}

/// Bytes of shared memory: a unit's tiles and each warp's staged columns.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn shared_bytes<T: Real, R: Rows, const TILES: usize>(a: &LogLikelihoods<T>) -> u64 {
    let unit = u64::from(a.k.div_ceil(8)) * TILES as u64 * u64::from(tile_len(R::FOURS));
    8 * (unit + u64::from(WARPS * R::SHARED))
}

/// Number of mixtures for which a lane holds values.
const fn of_a_lane<const TILES: usize>() -> usize {
    if TILES == 1 { 1 } else { 2 }
}

/// A row's density: an approximate maximum of the joint log densities, in either `top` or `rounded` (the other is 0),
/// and the sum of exponentials relative to it, at least 1.
#[derive(Clone, Copy)]
pub(crate) struct Density<T> {
    pub(crate) top: f64,
    pub(crate) rounded: f32,
    pub(crate) sum: T,
}

/// Densities of this lane's two rows under its two mixtures or its single one, `[half][odd]`.
type Densities<T> = [[Density<T>; 2]; 2];

const fn no_densities<T: Real>() -> Densities<T> {
    [[Density { top: 0.0, rounded: 0.0, sum: T::ZERO }; 2]; 2]
}

/// Calls `f(half, odd)` for every density that a lane holds.
#[inline(always)]
fn every<const TILES: usize>(mut f: impl FnMut(usize, usize)) {
    each(2, |half| each(of_a_lane::<TILES>(), |odd| f(half, odd)));
}

/// Whether joint densities are rounded to `f32` before further use. The `f64` unit of the tensor cores performs all
/// `f64` arithmetic, and a warp that needs it for one number waits for another warp's products. The host subtracts a
/// typical row's density from the constants, so that few significant digits are spent on the integer part.
const fn is_rounded<T: Real, R: Rows>() -> bool {
    T::BYTES == 4 && R::WHOLE
}

/// Lower bound of the maximum of rounded densities; lower densities count as zero.
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

/// Density from eight components that one lane holds.
#[inline(always)]
fn of_tiles<T: Real, R: Rows>(all: [f64; 8]) -> Density<T> {
    // The same order as the four lanes of `of_columns`.
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

/// Densities of two rows from eight components, of which four lanes hold two each. The rows are processed in step, so
/// that one does not wait for the other's shuffles.
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

/// Combines two densities over disjoint components.
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

/// Adds eight more components, or sets the first eight.
#[inline(always)]
fn merge<T: Real, R: Rows, const TILES: usize>(densities: &mut Densities<T>, joint: &[[f64; 4]; TILES], first: bool) {
    let eight = of_eight::<T, R, TILES>(joint);
    if first {
        *densities = eight;
    } else {
        // Without this warp barrier the compiler would compute the sum in both cases and select afterwards.
        warp::sync_warp();
        every::<TILES>(|half, odd| densities[half][odd] = of_both::<T, R>(densities[half][odd], eight[half][odd]));
    }
}

/// Adds the weighted logarithms of a group's rows; rows past the last add nothing.
#[inline(always)]
fn add<T: Real, R: Rows, const TILES: usize>(
    a: &LogLikelihoods<T>,
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
            // SAFETY: `row_weights` is not null and has `n` weights; `row_weight` checks `row` against `n`.
            let weight = unsafe { row_weight(a.row_weights, a.n, row) };
            each(of_a_lane::<TILES>(), |odd| logs[odd].add_weighted(weight, densities[half][odd]));
        });
    }
}

/// Most groups of rows that a warp has in flight.
const AHEAD: usize = 2;

/// Groups of rows in flight. The products of one mixture take much less time than loading rows; those of eight mixtures
/// take longer, and features of many columns leave no registers for any. With 14 entries and their squares, a second
/// group would cost the sixth block per multiprocessor on Hopper, which gains more.
const fn ahead<T: Real, R: Rows, const TILES: usize>() -> usize {
    match TILES {
        1 if T::BYTES == 4 && (R::FOURS <= 8 && R::FOURS != 7 || R::SHARED > 0) => AHEAD,
        8 if R::FOURS >= 16 && R::SHARED == 0 => 0,
        _ => 1,
    }
}

/// The kernel: `TILES` is 1 if columns are components, and 8 if they are mixtures.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`LogLikelihoods`].
#[inline(always)]
pub(crate) unsafe fn body<T: Real, R: Rows, const TILES: usize>(a: LogLikelihoods<T>) {
    const { assert!(TILES == 1 || TILES == 8) };
    device::await_previous_grid();
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let (unit, len) = (thread::block_idx_y(), unit_len::<R, TILES>(a.k));
    let x = Shared::<f64>::at(8 * (len + me * R::SHARED));

    let from = a.coefficients.wrapping_add((unit as u64 * len as u64) as usize);
    let mut i = t;
    while i < len / 2 {
        // SAFETY: `2*i + 1 < len`, since unit lengths are even, so the 16 bytes are within the unit's tiles.
        unsafe { copies::send(16 * i, from.wrapping_add(2 * i as usize).cast()) };
        i += THREADS;
    }
    R::begin(x, lane);

    // No device holds so many rows that this exceeds 32 bits.
    let groups = a.n.div_ceil(GROUP as u64) as u32;
    // Read when needed, so that no register holds it.
    let step = || thread::grid_dim_x_anew() * WARPS;
    let mut group = thread::block_idx_x() * WARPS + me;
    // Groups past the last have only rows of weight 0; load the last one instead.
    let there = |group: u32| if group < groups { group } else { groups - 1 };
    // SAFETY: `there(group) < groups`, so the group is within the rows.
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
            // Recomputed for each group, so that no register holds values derived from it meanwhile.
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

    // SAFETY: the fields are as documented; all threads call this, and the coefficients are no longer needed.
    unsafe { store::<T, TILES>(&a, &logs) };
}

/// Writes the block's sum for each of the unit's mixtures.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`LogLikelihoods`]. All threads of the block must call
/// this, and the block's shared memory is overwritten.
#[inline(always)]
unsafe fn store<T: Real, const TILES: usize>(a: &LogLikelihoods<T>, logs: &[Logs<T>; 2]) {
    let (t, lane, me) = (thread::thread_idx_x(), warp::lane_id(), thread::thread_idx_x() / WARP);
    let unit = thread::block_idx_y();
    // The warps' sums overwrite the coefficients.
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
        // SAFETY: `at` is one of the unit's mixtures in this block's `stride` partial results.
        unsafe { device::store(a.partials, at, sum) };
    }
}
