//! Squared distances to the nearest centre, by which k-means++ samples: adding a centre, and the potential that each
//! candidate for the next centre would leave.

use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::each::each;
use crate::layout::{TILE_ROWS, tiles};
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;
use crate::seeding::nearest::squared_distance;
use crate::{Real, THREADS};

/// Rows per partial sum of weighted distances: few, so that about ten thousand rows occupy all multiprocessors.
pub const SUMMED_ROWS: u64 = TILES * TILE_ROWS as u64;
const TILES: u64 = 2;

/// Most candidates per launch.
pub const CANDIDATES: usize = 8;

kernels! {
    /// `n` rows; any number of blocks along `x`, which stride over groups of [`SUMMED_ROWS`] rows.
    AddCentre<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d,)`: the centre less the shift.
        centre_high: *const T,
        /// `(d,)`: the rounding error of `centre_high`.
        centre_low: *const T,
        /// If not 0, this is the first centre, and `near` is uninitialised.
        first: u32,
        /// `(n,)`, read and written: `min(near, |x − centre|²)`.
        near: *mut f64,
        /// `(ceil(n/256),)`, written: Σ weight near of each group of rows.
        sums: *mut f64,
    }
    /// The kernel.
    add_centre => add_centre_f32, add_centre_f64, add_centre_body, add_centre_shared;
}

kernels! {
    /// `n` rows and `C` candidates, 4 or 8; any number of blocks along `x`, which stride over groups of [`SUMMED_ROWS`]
    /// rows.
    Potentials<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d, 2, C)`, 16-byte aligned: candidates less the shift, and their rounding errors.
        candidates: *const T,
        /// `(n,)`: squared distances to the nearest centre; read, and with `lower_by` also written.
        near: *mut f64,
        /// `(C, n)`, or null, written: `|x − candidate|²`.
        distances: *mut T,
        /// Index of the previous candidate that became a centre, or null. Its row of `distances`, from the previous
        /// launch, lowers `near` before the new candidates' distances overwrite it.
        lower_by: *const u64,
        /// `(C, ceil(n/256))`, written: Σ weight min(near, |x − candidate|²) of each group of rows.
        sums: *mut f64,
    }
    /// Up to four candidates.
    potentials_4 => potentials_4_f32, potentials_4_f64, potentials_body::<T, 4>, potentials_shared::<T, 4>;
    /// Up to eight candidates.
    potentials_8 => potentials_8_f32, potentials_8_f64, potentials_body::<T, 8>, potentials_shared::<T, 8>;
}

kernels! {
    /// `n` rows, one per thread; any grid in `x`.
    Lower<T> {
        /// Rows.
        n: u64,
        /// `(n,)`: squared distances to a new centre.
        distances: *const T,
        /// `(n,)`, read and written: `min(near, distance)`.
        near: *mut f64,
    }
    /// The kernel.
    lower => lower_f32, lower_f64, lower_body, no_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn add_centre_shared<T: Real>(_: &AddCentre<T>) -> u64 {
    u64::from(SUM_BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn potentials_shared<T: Real, const C: usize>(_: &Potentials<T>) -> u64 {
    u64::from(THREADS / WARP * 8) * C as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn no_shared<T: Real>(_: &Lower<T>) -> u64 {
    0
}

/// Columns of a row that are read together, so that their latencies overlap.
const AT_ONCE: u32 = 8;

/// `weight value`, or 0 if the weight is 0, even for an infinite distance.
///
/// # Safety
/// `row_weights` must have `n` weights or be null, and `row < n`.
#[inline(always)]
pub(crate) unsafe fn weighted(row_weights: *const f64, row: u64, value: f64) -> f64 {
    if row_weights.is_null() {
        return value;
    }
    // SAFETY: `row < n`, and the weights are not null.
    let weight = unsafe { device::load(row_weights, row) };
    if weight > 0.0 { weight * value } else { 0.0 }
}

/// Body of [`add_centre`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`AddCentre`].
#[inline(always)]
pub unsafe fn add_centre_body<T: Real>(a: AddCentre<T>) {
    device::await_previous_grid();
    let (rows, lane) = (TILE_ROWS as u64, thread::thread_idx_x() as u64);
    let mut group = thread::block_idx_x() as u64;
    while group * TILES < tiles(a.n) {
        let mut sum = 0.0;
        let mut tile = group * TILES;
        while tile < (group + 1) * TILES {
            let row = tile * rows + lane;
            if row < a.n {
                // SAFETY: `row < n`, and only this thread reads and writes `near` of this row.
                unsafe {
                    let x = a.x.wrapping_add((tile * rows * a.d as u64 + lane) as usize);
                    let mut near = squared_distance(x, a.d, a.centre_high, a.centre_low, 0).to_f64();
                    if a.first == 0 {
                        let before = device::load(a.near.cast_const(), row);
                        near = if before < near { before } else { near };
                    }
                    device::store(a.near, row, near);
                    sum += weighted(a.row_weights, row, near);
                }
            }
            tile += 1;
        }
        let total = block_sum(sum, Shared::at(0));
        if lane == 0 {
            // SAFETY: `sums` has one number per group, and only this thread writes it.
            unsafe { device::store(a.sums, group, total) };
        }
        group += thread::grid_dim_x() as u64;
    }
}

/// Body of [`potentials_4`] and [`potentials_8`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Potentials`].
#[inline(always)]
pub unsafe fn potentials_body<T: Real, const C: usize>(a: Potentials<T>) {
    device::await_previous_grid();
    let (rows, lane, d) = (TILE_ROWS as u64, thread::thread_idx_x() as u64, a.d);
    let groups = tiles(a.n).div_ceil(TILES);
    let of_warps = Shared::<f64>::at(0);
    // SAFETY: `lower_by` is one number.
    let best = if a.lower_by.is_null() { 0 } else { unsafe { device::load(a.lower_by, 0) } };
    let mut group = thread::block_idx_x() as u64;
    while group < groups {
        let mut sums = [0.0; C];
        let mut tile = group * TILES;
        while tile < (group + 1) * TILES {
            let row = tile * rows + lane;
            if row < a.n {
                // SAFETY: `row < n`, `j < d` and `best < C`; only this thread accesses this row's `near` and
                // `distances`.
                unsafe {
                    let x = a.x.wrapping_add((tile * rows * d as u64 + lane) as usize);
                    let mut squares = [T::ZERO; C];
                    let mut j = 0;
                    while j + AT_ONCE <= d {
                        let mut some = [T::ZERO; AT_ONCE as usize];
                        each(AT_ONCE as usize, |i| some[i] = device::load(x, (j + i as u32) as u64 * rows));
                        each(AT_ONCE as usize, |i| add_squares(&a, j + i as u32, some[i], &mut squares));
                        j += AT_ONCE;
                    }
                    while j < d {
                        add_squares(&a, j, device::load(x, j as u64 * rows), &mut squares);
                        j += 1;
                    }
                    let mut near = device::load(a.near.cast_const(), row);
                    if !a.lower_by.is_null() {
                        let distance = device::load(a.distances.cast_const(), best * a.n + row).to_f64();
                        near = if distance < near { distance } else { near };
                        device::store(a.near, row, near);
                    }
                    each(C, |c| {
                        let distance = squares[c].to_f64();
                        sums[c] += weighted(a.row_weights, row, if distance < near { distance } else { near });
                        if !a.distances.is_null() {
                            device::store(a.distances, c as u64 * a.n + row, squares[c]);
                        }
                    });
                }
            }
            tile += 1;
        }
        // Add up the block's sums together: within warps, then over the warps in order.
        each(C, |c| {
            each(5, |by| sums[c] += warp::shuffle_xor(sums[c], 1 << by));
            if warp::lane_id() == 0 {
                of_warps.store(c as u32 * (THREADS / WARP) + thread::thread_idx_x() / WARP, sums[c]);
            }
        });
        thread::sync_threads();
        if lane < C as u64 {
            let mut sum = 0.0;
            each((THREADS / WARP) as usize, |w| sum += of_warps.load(lane as u32 * (THREADS / WARP) + w as u32));
            // SAFETY: `sums` has one number per candidate and group, and only this thread writes it.
            unsafe { device::store(a.sums, lane * groups + group, sum) };
        }
        thread::sync_threads();
        group += thread::grid_dim_x() as u64;
    }
}

/// `squares + (value − candidates)²` for column `j`.
#[inline(always)]
unsafe fn add_squares<T: Real, const C: usize>(a: &Potentials<T>, j: u32, value: T, squares: &mut [T; C]) {
    let at = a.candidates.wrapping_add(2 * C * j as usize);
    each(C / 4, |q| {
        // SAFETY: `j < d`; the four numbers start at a multiple of 16 bytes.
        let (high, low) =
            unsafe { (T::global_load4(at.wrapping_add(4 * q)), T::global_load4(at.wrapping_add(C + 4 * q))) };
        let z =
            [value - high[0] - low[0], value - high[1] - low[1], value - high[2] - low[2], value - high[3] - low[3]];
        squares[4 * q] = z[0].fma(z[0], squares[4 * q]);
        squares[4 * q + 1] = z[1].fma(z[1], squares[4 * q + 1]);
        squares[4 * q + 2] = z[2].fma(z[2], squares[4 * q + 2]);
        squares[4 * q + 3] = z[3].fma(z[3], squares[4 * q + 3]);
    });
}

/// Body of [`lower`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Lower`].
#[inline(always)]
pub unsafe fn lower_body<T: Real>(a: Lower<T>) {
    let mut row = thread::index_1d();
    while row < a.n {
        // SAFETY: `row < n`.
        unsafe {
            let distance = device::load(a.distances, row).to_f64();
            if distance < device::load(a.near.cast_const(), row) {
                device::store(a.near, row, distance);
            }
        }
        row += thread::count_1d();
    }
}
