//! Squared distances to the nearest of some centres, which k-means++ draws by: one centre more, and what candidates
//! for the next would leave.

use crate::Real;
use crate::device::{self, Shared, block_sum, thread};
use crate::layout::{TILE_ROWS, tiles};
use crate::nearest::squared_distance;
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;

/// Rows of which the weighted distances are added up: eight tiles.
pub const SUMMED_ROWS: u64 = TILES * TILE_ROWS as u64;
const TILES: u64 = 8;

/// Candidates of one launch.
pub const CANDIDATES: usize = 4;

kernels! {
    /// `n` rows; a grid of any number of blocks in `x` strides over groups of 1024 of them.
    AddCentre<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// `(d,)`: the centre less the shift.
        centre_high: *const T,
        /// `(d,)`: what rounding took from it.
        centre_low: *const T,
        /// Not 0: the first centre, `near` holds nothing yet.
        first: u32,
        /// `(n,)`: `min(near, |x − centre|²)`.
        near: *mut f64,
        /// `(ceil(n/1024),)`: Σ weight near of each group of rows.
        sums: *mut f64,
    }
    /// The kernel.
    add_centre => add_centre_f32, add_centre_f64, add_centre_body, add_centre_shared;
}

kernels! {
    /// `n` rows; a grid of any number of blocks in `x` strides over their tiles.
    Potentials<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// From 1 to 4.
        candidates: u32,
        /// `(candidates, d)`: candidates less the shift.
        centre_high: *const T,
        /// `(candidates, d)`: what rounding took from them.
        centre_low: *const T,
        /// `(n,)`.
        near: *const f64,
        /// `(blocks, 4)`: Σ weight min(near, |x − candidate|²).
        partials: *mut f64,
    }
    /// The kernel.
    potentials => potentials_f32, potentials_f64, potentials_body, potentials_shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn add_centre_shared<T: Real>(_: &AddCentre<T>) -> u64 {
    u64::from(SUM_BYTES)
}

#[cfg(not(target_arch = "nvptx64"))]
fn potentials_shared<T: Real>(_: &Potentials<T>) -> u64 {
    u64::from(SUM_BYTES)
}

/// `weight value`, 0 where the row weighs nothing, however far it is.
#[inline(always)]
unsafe fn weighted(row_weights: *const f64, row: u64, value: f64) -> f64 {
    if row_weights.is_null() {
        return value;
    }
    // SAFETY: `row < n`.
    let weight = unsafe { device::load(row_weights, row) };
    if weight > 0.0 { weight * value } else { 0.0 }
}

/// [`add_centre`].
///
/// # Safety
/// As the fields of [`AddCentre`] say.
#[inline(always)]
pub unsafe fn add_centre_body<T: Real>(a: AddCentre<T>) {
    let (rows, lane) = (TILE_ROWS as u64, thread::thread_idx_x() as u64);
    let mut group = thread::block_idx_x() as u64;
    while group * TILES < tiles(a.n) {
        let mut sum = 0.0;
        let mut tile = group * TILES;
        while tile < (group + 1) * TILES {
            let row = tile * rows + lane;
            if row < a.n {
                // SAFETY: `row < n`.
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
            // SAFETY: a sum per group.
            unsafe { device::store(a.sums, group, total) };
        }
        group += thread::grid_dim_x() as u64;
    }
}

/// [`potentials`].
///
/// # Safety
/// As the fields of [`Potentials`] say.
#[inline(always)]
pub unsafe fn potentials_body<T: Real>(a: Potentials<T>) {
    let (rows, lane, d) = (TILE_ROWS as u64, thread::thread_idx_x() as u64, a.d as u64);
    let mut sums = (0.0, 0.0, 0.0, 0.0);
    // Where there are fewer candidates the last stands in for the others.
    let last = (a.candidates - 1) as u64;
    let (second, third, fourth) = (last.min(1) * d, last.min(2) * d, last.min(3) * d);
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        let row = tile * rows + lane;
        if row < a.n {
            // SAFETY: `row < n`, `j < d`.
            unsafe {
                let x = a.x.wrapping_add((tile * rows * d + lane) as usize);
                let (mut p, mut q, mut r, mut s) = (T::ZERO, T::ZERO, T::ZERO, T::ZERO);
                let mut j = 0;
                while j < d {
                    let value = device::load(x, j * rows);
                    p = add_square(value, &a, j, p);
                    q = add_square(value, &a, second + j, q);
                    r = add_square(value, &a, third + j, r);
                    s = add_square(value, &a, fourth + j, s);
                    j += 1;
                }
                let near = device::load(a.near, row);
                sums.0 += left(&a, row, near, p);
                sums.1 += left(&a, row, near, q);
                sums.2 += left(&a, row, near, r);
                sums.3 += left(&a, row, near, s);
            }
        }
        tile += thread::grid_dim_x() as u64;
    }
    let totals = [
        block_sum(sums.0, Shared::at(0)),
        block_sum(sums.1, Shared::at(0)),
        block_sum(sums.2, Shared::at(0)),
        block_sum(sums.3, Shared::at(0)),
    ];
    if lane == 0 {
        let out = a.partials.wrapping_add(thread::block_idx_x() as usize * CANDIDATES);
        // SAFETY: four numbers per block.
        unsafe {
            device::store(out, 0, totals[0]);
            device::store(out, 1, totals[1]);
            device::store(out, 2, totals[2]);
            device::store(out, 3, totals[3]);
        }
    }
}

/// `sum + (value − centre)²` in one column.
#[inline(always)]
unsafe fn add_square<T: Real>(value: T, a: &Potentials<T>, at: u64, sum: T) -> T {
    // SAFETY: `at < candidates*d`.
    let z = unsafe { value - device::load(a.centre_high, at) - device::load(a.centre_low, at) };
    z.fma(z, sum)
}

/// `weight min(near, distance)`.
#[inline(always)]
unsafe fn left<T: Real>(a: &Potentials<T>, row: u64, near: f64, distance: T) -> f64 {
    let distance = distance.to_f64();
    // SAFETY: `row < n`.
    unsafe { weighted(a.row_weights, row, if distance < near { distance } else { near }) }
}
