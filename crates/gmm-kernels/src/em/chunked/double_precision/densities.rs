//! Exponentials of the log joint densities of a chunk of rows, and their factors.
//!
//! A warp takes 32 rows, as two operands of sixteen, so that each coefficient that it reads is used twice; and the four warps of
//! a block go through the same steps, so that a step's coefficients come once for all, while the step before is worked on.
//! Components come in pieces; the exponentials of a piece are about the largest density of the row so far, and the factor of row
//! and piece sets that right, normalises and has the row's weight: exponential times factor is the responsibility. So
//! exponentials are written once, rounded to `T`, and nothing of size `n×k` is read again here.

use crate::device::{self, Shared, WARP, copies, mma, thread, warp};
use crate::em::chunked::double_precision::across::{Across, Columns, END, Products, Rows, Waiting};
use crate::em::features::{GROUP, each};
use crate::em::lanes::{larger, quad, row_weight};
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// Any grid in `x`; a block takes a tile of 128 rows at a time.
    Densities<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(ceil(n/128)*128,)`: squared norms of the rows, where they are a feature; else null.
        norms: *const f64,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::em::features::derive).
        derive: u32,
        /// [`Place::steps`](crate::em::chunked::double_precision::Place::steps).
        steps: u32,
        /// [`Place::groups`](crate::em::chunked::double_precision::Place::groups), a multiple of the groups that a warp takes at a time.
        groups: u32,
        /// [`Place::classes`](crate::em::chunked::double_precision::Place::classes), a multiple of 4.
        classes: u32,
        /// [`Place::coefficients`](crate::em::chunked::double_precision::Place::coefficients): of the log joint densities; 16-byte aligned.
        coefficients: *const f64,
        /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
        constants: *const f64,
        /// [`Large::exponentials`](crate::em::chunked::double_precision::Large::exponentials), written: for each sixteen rows, in the order of the sums' columns.
        exponentials: *mut T,
        /// [`Large::factors`](crate::em::chunked::double_precision::Large::factors), written: for each tile, piece by piece, 128 rows.
        factors: *mut f64,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods), written: Σ w ln p(x) of each sixteen rows.
        likelihoods: *mut f64,
    }
    /// Products of entries, up to 16 components.
    full_few => densities_full_few_f32, densities_full_few_f64, body::<T, Products, 2>, shared_bytes::<T, 2>;
    /// Products of entries, up to 32 components at a time.
    full_narrow => densities_full_narrow_f32, densities_full_narrow_f64, body::<T, Products, 4>, shared_bytes::<T, 4>;
    /// Products of entries, up to 64 components at a time.
    full_wide => densities_full_wide_f32, densities_full_wide_f64, body::<T, Products, 8>, shared_bytes::<T, 8>;
    /// Columns, up to 16 components.
    linear_few => densities_linear_few_f32, densities_linear_few_f64, body::<T, Columns, 2>, shared_bytes::<T, 2>;
    /// Columns, up to 32 components at a time.
    linear_narrow => densities_linear_narrow_f32, densities_linear_narrow_f64, body::<T, Columns, 4>, shared_bytes::<T, 4>;
    /// Columns, up to 64 components at a time.
    linear_wide => densities_linear_wide_f32, densities_linear_wide_f64, body::<T, Columns, 8>, shared_bytes::<T, 8>;
}

/// Shared memory: each thread keeps, of four rows, the largest density, the sum and four entries, which registers have no
/// room for; and the block the coefficients of two steps.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(groups: u32) -> u64 {
    (COEFFICIENTS_AT + 2 * step_bytes(groups)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(_: &Densities<T>) -> u64 {
    shared_len(G as u32)
}

/// Where the coefficients of a step arrive, and behind them, in turn, those of the next.
const COEFFICIENTS_AT: u32 = (2 + 4) * 4 * THREADS * 8;

/// Bytes of a step's coefficients of so many groups.
const fn step_bytes(groups: u32) -> u32 {
    8 * 128 * groups
}

/// Rows of a warp.
const ROWS: u32 = 2 * GROUP;

/// What is less than every density, and finite, so that a difference to −∞ is a number.
const LOWEST: f64 = -1e300;

/// The kernel: `G` groups of components at a time.
///
/// # Safety
/// As the fields of [`Densities`] say.
#[inline(always)]
unsafe fn body<T: Real, F: Across, const G: usize>(a: Densities<T>) {
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let mut tile = thread::block_idx_x() as u64;
    // SAFETY: the first step's coefficients.
    let mut steps = unsafe { Steps::<G>::start(a.coefficients) };
    while tile < tiles(a.n) {
        // SAFETY: a tile of the chunk's.
        unsafe { rows_of_warp::<T, F, G>(&a, &mut steps, tile, me * ROWS, lane) };
        tile += thread::grid_dim_x() as u64;
    }
    copies::arrive();
}

/// Coefficients of `G` groups, step by step, as all warps of a block read them.
struct Steps<const G: usize> {
    /// Where those of the step are that is taken next, in bytes from those of the other.
    at: u32,
}

impl<const G: usize> Steps<G> {
    /// Sends for those of the first step.
    #[inline(always)]
    unsafe fn start(from: *const f64) -> Self {
        let steps = Self { at: 0 };
        // SAFETY: the caller's promise.
        unsafe { steps.send(from) };
        steps
    }

    #[inline(always)]
    unsafe fn send(&self, from: *const f64) {
        let t = thread::thread_idx_x();
        // SAFETY: the caller's promise; 16 bytes for each thread at a time.
        each(G / 2, |i| unsafe {
            let part = i as u32 * THREADS + t;
            copies::send(COEFFICIENTS_AT + self.at + 16 * part, from.wrapping_add(2 * part as usize).cast());
        });
    }

    /// Those of a step that were sent for, for all groups; `next` are sent for. All threads of the block take the same.
    #[inline(always)]
    unsafe fn take(&mut self, next: *const f64) -> Shared<f64> {
        copies::arrive();
        // What each thread waited for is there for all; and nobody reads any more of the step before, where the next goes.
        thread::sync_threads();
        let here = Shared::at(COEFFICIENTS_AT + self.at);
        self.at ^= step_bytes(G as u32);
        // SAFETY: the caller's promise.
        unsafe { self.send(next) };
        here
    }
}

#[inline(always)]
unsafe fn rows_of_warp<T: Real, F: Across, const G: usize>(
    a: &Densities<T>,
    steps: &mut Steps<G>,
    tile: u64,
    first: u32,
    lane: u32,
) {
    let (g, t) = (lane / 4, lane % 4);
    let pieces = a.groups / G as u32;
    let row = tile * TILE_ROWS as u64 + (first + g) as u64;
    let rows = Rows {
        x: a.x.wrapping_add((tile * (TILE_ROWS * a.d) as u64 + (first + g) as u64) as usize),
        norm: a.norms.wrapping_add(row as usize),
        d: a.d,
        derive: a.derive,
        classes: a.classes,
        steps: a.steps,
    };
    // Sixteen rows of a component are neighbours, as are the components of a group and the groups.
    let sixteen = tile * (TILE_ROWS / GROUP) as u64 + (first / GROUP) as u64;
    let exponentials = a.exponentials.wrapping_add((sixteen * (128 * a.groups) as u64 + g as u64) as usize);
    let columns =
        [crate::em::chunked::double_precision::column(2 * t), crate::em::chunked::double_precision::column(2 * t + 1)];
    let own = Exponentials { to: exponentials, groups: a.groups, columns };
    let factors = a.factors.wrapping_add((tile * (TILE_ROWS * pieces) as u64 + (first + g) as u64) as usize);

    let (top, sum) = (Waiting::at(0), Waiting::at(1));
    each(4, |r| {
        top.set(r, LOWEST);
        sum.set(r, 0.0);
    });
    let mut piece = 0;
    while piece < pieces {
        let group = piece * G as u32;
        let mut joint = [[[0.0; 4]; G]; 2];
        each(G, |i| {
            let at = a.constants.wrapping_add((8 * (group + i as u32) + 2 * t) as usize);
            // SAFETY: two constants of a group.
            let (even, odd) = unsafe { (device::load(at, 0), device::load(at, 1)) };
            joint[0][i] = [even, odd, even, odd];
            joint[1][i] = joint[0][i];
        });
        let coefficients = a.coefficients.wrapping_add(128 * group as usize);
        // SAFETY: the rows are the chunk's; steps and groups are the coefficients'.
        unsafe {
            F::across(rows, lane, |_, next, left| {
                // After the last step comes the first of the next piece, or of the next rows.
                let after = if piece + 1 < pieces { coefficients.wrapping_add(128 * G) } else { a.coefficients };
                let next = if next == END {
                    after
                } else {
                    coefficients.wrapping_add((next as u64 * (128 * a.groups) as u64) as usize)
                };
                let here = steps.take(next);
                each(G, |i| {
                    let at = 128 * i as u32 + 2 * lane;
                    let ([p, q], [r, s]) = (here.load2(at), here.load2(at + 64));
                    mma::f64_16x8x16(&mut joint[0][i], left[0], [p, q, r, s]);
                    mma::f64_16x8x16(&mut joint[1][i], left[1], [p, q, r, s]);
                });
            });
        }
        // Written out: a closure of that size stays a call.
        // SAFETY: the lane's rows; `piece` is one of the pieces.
        unsafe {
            own.settle(0, group, &joint, top, sum);
            own.settle(1, group, &joint, top, sum);
            own.settle(2, group, &joint, top, sum);
            own.settle(3, group, &joint, top, sum);
        }
        // A lane finishes the pieces that it keeps here.
        if piece % 4 == t {
            // SAFETY: rows of the tile.
            each(4, |r| unsafe { device::store(factors, (piece * TILE_ROWS + 8 * r as u32) as u64, top.get(r)) });
        }
        piece += 1;
    }

    let mut likelihood = [0.0; 2];
    each(4, |r| {
        let (top, sum) = (top.get(r), sum.get(r));
        // SAFETY: `row` is below `n` where it is read.
        let weight = unsafe { row_weight(a.row_weights, a.n, row + 8 * r as u64) };
        if weight > 0.0 {
            likelihood[r / 2] += weight * (top + ln_f64(sum));
        }
        // Not a number where a density is: it shows in the sums.
        let share = weight / sum;
        let mut piece = t;
        while piece < pieces {
            let at = (piece * TILE_ROWS + 8 * r as u32) as u64;
            // SAFETY: what this lane wrote above.
            unsafe {
                let below = device::load(factors.cast_const(), at) - top;
                device::store(factors, at, below.exp_below() * share);
            }
            piece += 4;
        }
    });
    each(2, |i| {
        let mut v = likelihood[i];
        each(3, |by| v += warp::shuffle_xor(v, 4 << by));
        if lane == 0 {
            // SAFETY: sixteen rows of the tile.
            unsafe { device::store(a.likelihoods, sixteen + i as u64, v) };
        }
    });
}

/// Where a lane leaves its exponentials.
#[derive(Clone, Copy)]
struct Exponentials<T> {
    /// Of its first row.
    to: *mut T,
    groups: u32,
    /// Of its two components of each group.
    columns: [u32; 2],
}

impl<T: Real> Exponentials<T> {
    /// Exponentials of one of four rows, for the groups of a piece that starts with `group`.
    #[inline(always)]
    unsafe fn settle<const G: usize>(
        self,
        r: usize,
        group: u32,
        joint: &[[[f64; 4]; G]; 2],
        top: Waiting,
        sum: Waiting,
    ) {
        let of = |i: usize, odd: usize| joint[r / 2][i][2 * (r % 2) + odd];
        let before = top.get(r);
        let mut most = before;
        each(G, |i| most = larger(larger(most, of(i, 0)), of(i, 1)));
        let most = quad(most, larger);
        let mut new = 0.0;
        let start = (r / 2 * 128) as u64 * self.groups as u64 + (128 * group + 8 * (r as u32 % 2)) as u64;
        each(G, |i| {
            each(2, |odd| {
                let e = T::from_f64(of(i, odd) - most).exp_below();
                new += e.to_f64();
                let at = start + (128 * i as u32 + 16 * self.columns[odd]) as u64;
                // SAFETY: each lane has rows and components of its own.
                unsafe { device::store(self.to, at, e) };
            });
        });
        sum.set(r, sum.get(r) * (before - most).exp_below() + quad(new, core::ops::Add::add));
        top.set(r, most);
    }
}

const _: () = assert!(THREADS / WARP * ROWS == TILE_ROWS);
