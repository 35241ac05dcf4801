//! Nearest centre of each row: products with all centres on the tensor cores; a lane keeps only the best.
//!
//! A warp takes 32 rows of a tile and loops over the centres in pieces of up to 32. The coefficients are in shared
//! memory: all of them permanently if they fit, otherwise one step at a time for the whole block, with the next step in
//! flight. Rows are read from the caches again for each piece; those of the next step are also in flight.

use crate::device::{self, Prefetch, Shared, WARP, mma, thread, warp};
use crate::each::each;
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::seeding::lloyd::{GROUP_LEN, NONE};
use crate::{Real, THREADS};

kernels! {
    /// `n` rows; any number of blocks along `x`, which stride over their tiles.
    Assign<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this begins, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// [`CentreLayout::steps`](crate::seeding::lloyd::CentreLayout::steps).
        steps: u32,
        /// [`CentreLayout::groups`](crate::seeding::lloyd::CentreLayout::groups).
        groups: u32,
        /// If not 0, all coefficients stay in shared memory.
        resident: u32,
        /// [`CentreLayout::coefficients`](crate::seeding::lloyd::CentreLayout::coefficients): centres less the shift, 0
        /// past the last centre and past `d`.
        coefficients: *const f64,
        /// `(8*groups,)`: `−|c|²/2`, −∞ past the last centre.
        constants: *const f64,
        /// `labels_len(n)`, written: the nearest centre, the first among equals, or [`NONE`].
        labels: *mut u32,
    }
    /// Eight centres at a time.
    assign_1 => lloyd_assign_1_f32, lloyd_assign_1_f64, body::<T, 1>, shared_bytes::<T, 1>;
    /// Sixteen centres at a time.
    assign_2 => lloyd_assign_2_f32, lloyd_assign_2_f64, body::<T, 2>, shared_bytes::<T, 2>;
    /// Thirty-two centres at a time.
    assign_4 => lloyd_assign_4_f32, lloyd_assign_4_f64, body::<T, 4>, shared_bytes::<T, 4>;
}

/// Returns the kernel that processes `at_once` groups together.
///
/// # Panics
/// Panics if there is none; [`CentreLayout::of`](crate::seeding::lloyd::CentreLayout::of) uses 1, 2 or 4.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel<T: Real>(at_once: u32) -> crate::Kernel<Assign<T>> {
    match at_once {
        1 => assign_1::<T>(),
        2 => assign_2::<T>(),
        4 => assign_4::<T>(),
        _ => panic!("no kernel takes {at_once} groups at once"),
    }
}

/// Bytes of shared memory: all coefficients, or two entries of them.
pub const fn shared_len(place: crate::seeding::lloyd::CentreLayout, resident: bool) -> u64 {
    let entries = if resident { place.groups / place.at_once * place.steps } else { 2 };
    8 * GROUP_LEN as u64 * place.at_once as u64 * entries as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(a: &Assign<T>) -> u64 {
    shared_len(
        crate::seeding::lloyd::CentreLayout { at_once: G as u32, groups: a.groups, steps: a.steps },
        a.resident != 0,
    )
}

/// Rows per warp.
const ROWS: u32 = 32;

/// Length of an entry: a piece's coefficients of one step.
const fn entry_len(at_once: usize) -> u32 {
    GROUP_LEN * at_once as u32
}

/// Starts copying `len` coefficients to the block's shared memory; all threads must call this.
#[inline(always)]
unsafe fn send(to: u32, from: *const f64, len: u32) {
    let mut i = 2 * thread::thread_idx_x();
    while i < len {
        // SAFETY: within the coefficients; pairs start at a multiple of 16 bytes.
        unsafe { Prefetch::send_shared(to + 8 * i, from.wrapping_add(i as usize)) };
        i += 2 * THREADS;
    }
}

/// A lane's four rows in its four columns of a step.
type Raw<T> = [T; 16];

/// Body of the kernels: `G` groups of eight centres at a time.
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`Assign`].
#[inline(always)]
pub unsafe fn body<T: Real, const G: usize>(a: Assign<T>) {
    device::await_previous_grid();
    // SAFETY: `state` is null or has `STATE_LEN` numbers.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let lane = warp::lane_id();
    let (g, t) = (lane / 4, lane % 4);
    let (pieces, all) = (a.groups / G as u32, tiles(a.n));
    let entries = pieces * a.steps;
    let first = thread::thread_idx_x() / WARP * ROWS + g;
    let len = entry_len(G);
    // SAFETY: `entries*len` is the number of coefficients, and there is at least one entry.
    unsafe {
        if a.resident != 0 {
            send(0, a.coefficients, entries * len);
            Prefetch::arrive_shared();
            thread::sync_threads();
        } else {
            send(0, a.coefficients, len);
        }
    }
    let mut tile = thread::block_idx_x() as u64;
    let mut half = 0;
    // SAFETY: the tile is clamped to the last one.
    let mut raw = unsafe { load(&a, smaller(tile, all - 1), 0, first, t) };
    while tile < all {
        let mut best = Best::NONE;
        let mut piece = 0;
        while piece < pieces {
            let mut joint = [[[0.0; 4]; G]; 2];
            each(G, |i| {
                let at = a.constants.wrapping_add((8 * (piece * G as u32 + i as u32) + 2 * t) as usize);
                // SAFETY: `constants` has 8*groups numbers, of which these are two of a group.
                let (even, odd) = unsafe { (device::load(at, 0), device::load(at, 1)) };
                joint[0][i] = [even, odd, even, odd];
                joint[1][i] = joint[0][i];
            });
            let mut step = 0;
            while step < a.steps {
                let mut left = [[0.0; 8]; 2];
                each(16, |i| left[i / 2 % 2][i / 4 * 2 + i % 2] = raw[i].to_f64());
                let (next_step, done) = if step + 1 < a.steps { (step + 1, false) } else { (0, piece + 1 == pieces) };
                let next_tile = if done { smaller(tile + thread::grid_dim_x() as u64, all - 1) } else { tile };
                // SAFETY: the tile is clamped to the last one, and `next_step < steps`.
                raw = unsafe { load(&a, next_tile, next_step, first, t) };
                let entry = piece * a.steps + step;
                let at = if a.resident != 0 {
                    entry * len
                } else {
                    Prefetch::arrive_shared();
                    // All threads' copies have arrived, and all threads have finished reading the other half.
                    thread::sync_threads();
                    let next = if entry + 1 < entries { entry + 1 } else { 0 };
                    // SAFETY: `next < entries`.
                    unsafe { send(8 * len * (1 - half), a.coefficients.wrapping_add((next * len) as usize), len) };
                    half = 1 - half;
                    len * (1 - half)
                };
                let right = Shared::<f64>::at(8 * (at + 2 * lane));
                each(G, |i| {
                    let ([p, q], [r, s]) =
                        (right.load2(i as u32 * GROUP_LEN), right.load2(i as u32 * GROUP_LEN + GROUP_LEN / 2));
                    mma::f64_16x8x16(&mut joint[0][i], left[0], [p, q, r, s]);
                    mma::f64_16x8x16(&mut joint[1][i], left[1], [p, q, r, s]);
                });
                step += 1;
            }
            best.compare(&joint, 8 * piece * G as u32 + 2 * t);
            piece += 1;
        }
        let label = best.of_quads();
        if t == 0 {
            // SAFETY: `tile < all`.
            unsafe { store(&a, tile, first, &label) };
        }
        tile += thread::grid_dim_x() as u64;
    }
    Prefetch::arrive_shared();
}

/// The best centre so far of each of a lane's four rows, with its value.
struct Best {
    value: [f64; 4],
    label: [u32; 4],
}

impl Best {
    const NONE: Self = Self { value: [f64::NEG_INFINITY; 4], label: [0; 4] };

    /// Compares with the centres of a piece, of which this lane's start at `first`, in order: the first of equals is
    /// kept.
    #[inline(always)]
    fn compare<const G: usize>(&mut self, joint: &[[[f64; 4]; G]; 2], first: u32) {
        each(8 * G, |e| {
            let (r, i, odd) = (e % 4, e / 8, e / 4 % 2);
            let value = joint[r / 2][i][2 * (r % 2) + odd];
            if value > self.value[r] {
                (self.value[r], self.label[r]) = (value, 8 * i as u32 + first + odd as u32);
            }
        });
    }

    /// The best of four lanes, which have the same rows.
    #[inline(always)]
    fn of_quads(mut self) -> [u32; 4] {
        each(8, |e| {
            let (r, by) = (e % 4, 1 + e as u32 / 4);
            let (value, other) = (warp::shuffle_xor(self.value[r], by), warp::shuffle_xor_u32(self.label[r], by));
            // No short-circuit operators: a branch would diverge the warp between two shuffles.
            if (value > self.value[r]) | ((value == self.value[r]) & (other < self.label[r])) {
                (self.value[r], self.label[r]) = (value, other);
            }
        });
        self.label
    }
}

/// Writes the labels of four rows of a tile, eight apart from row `first` on; [`NONE`] for rows that do not count.
///
/// # Safety
/// `tile` must be one of the rows' tiles.
#[inline(always)]
unsafe fn store<T: Real>(a: &Assign<T>, tile: u64, first: u32, label: &[u32; 4]) {
    each(4, |r| {
        let row = tile * TILE_ROWS as u64 + (first + 8 * r as u32) as u64;
        // SAFETY: labels are padded to whole tiles, and weights are read only for `row < n`.
        unsafe {
            let counts = row < a.n && (a.row_weights.is_null() || device::load(a.row_weights, row) > 0.0);
            device::store(a.labels, row, if counts { label[r] } else { NONE });
        }
    });
}

#[inline(always)]
fn smaller(a: u64, b: u64) -> u64 {
    if a < b { a } else { b }
}

/// Loads rows `first + 8r` in columns `16 step + t + 4q` as number `4q + r`. Past the last column, loads the last one:
/// its coefficient is 0, and a branch would stall on the loads.
#[inline(always)]
unsafe fn load<T: Real>(a: &Assign<T>, tile: u64, step: u32, first: u32, t: u32) -> Raw<T> {
    let x = a.x.wrapping_add((tile * (TILE_ROWS as u64 * a.d as u64) + first as u64) as usize);
    let mut raw = [T::ZERO; 16];
    each(16, |i| {
        let j = 16 * step + t + 4 * (i as u32 / 4);
        let j = if j < a.d { j } else { a.d - 1 };
        // SAFETY: `j < d`, and tiles are padded to 128 rows.
        raw[i] = unsafe { device::load(x, (j * TILE_ROWS + 8 * (i as u32 % 4)) as u64) };
    });
    raw
}

const _: () = assert!(THREADS / WARP * ROWS == TILE_ROWS);
