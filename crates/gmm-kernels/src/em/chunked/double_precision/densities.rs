//! Exponentials of the log joint densities of a chunk of rows, and their factors.
//!
//! A warp takes 32 rows, as two operands of sixteen, so that each coefficient it loads is used twice. The four warps of
//! a block go through the same steps, so each step's coefficients are loaded once for all, and the next step's are
//! prefetched meanwhile. Components are processed in pieces. The exponentials of a piece are relative to the largest
//! density of the row so far. The factor of row and piece corrects that, normalises, and includes the row's weight:
//! exponential times factor is the responsibility. So exponentials are written once, rounded to `T`, and nothing of
//! size `n×k` is read again here.

use crate::device::{self, Shared, WARP, copies, mma, thread, warp};
use crate::em::chunked::double_precision::across::{Across, Columns, END, Products, Rows, Waiting};
use crate::em::chunked::double_precision::column;
use crate::em::features::{GROUP, each};
use crate::em::lanes::{larger, quad, row_weight};
use crate::em::state::stopped;
use crate::layout::{TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// Any grid size in `x`; a block processes a tile of 128 rows at a time.
    Densities<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this pass belongs to, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(ceil(n/128)*128,)`: squared norms of the rows if they are a feature; else null.
        norms: *const f64,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions.
        d: u32,
        /// One of [`derive`](crate::em::features::derive).
        derive: u32,
        /// [`FeatureLayout::steps`](crate::em::chunked::double_precision::FeatureLayout::steps).
        steps: u32,
        /// [`FeatureLayout::groups`](crate::em::chunked::double_precision::FeatureLayout::groups), a multiple of the
        /// groups that a warp processes at a time.
        groups: u32,
        /// [`FeatureLayout::classes`](crate::em::chunked::double_precision::FeatureLayout::classes), a multiple of 4.
        classes: u32,
        /// [`FeatureLayout::coefficients`](crate::em::chunked::double_precision::FeatureLayout::coefficients) elements,
        /// of the log joint densities; 16-byte aligned.
        coefficients: *const f64,
        /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
        constants: *const f64,
        /// [`DoublePrecision::exponentials`](crate::em::chunked::double_precision::DoublePrecision::exponentials)
        /// elements, written: for each sixteen rows, in the column order of the sums.
        exponentials: *mut T,
        /// [`DoublePrecision::factors`](crate::em::chunked::double_precision::DoublePrecision::factors) elements,
        /// written: for each tile and piece, 128 rows.
        factors: *mut f64,
        /// [`likelihoods`](crate::em::chunked::double_precision::likelihoods) elements, written: Σ w ln p(x) of each
        /// sixteen rows.
        likelihoods: *mut f64,
    }
    /// Products of entries, up to 16 components.
    full_few => chunked_f64_densities_full_few_f32, chunked_f64_densities_full_few_f64, body::<T, Products, 2>, shared_bytes::<T, 2>;
    /// Products of entries, up to 32 components at a time.
    full_narrow => chunked_f64_densities_full_narrow_f32, chunked_f64_densities_full_narrow_f64, body::<T, Products, 4>, shared_bytes::<T, 4>;
    /// Products of entries, up to 64 components at a time.
    full_wide => chunked_f64_densities_full_wide_f32, chunked_f64_densities_full_wide_f64, body::<T, Products, 8>, shared_bytes::<T, 8>;
    /// Columns, up to 16 components.
    linear_few => chunked_f64_densities_linear_few_f32, chunked_f64_densities_linear_few_f64, body::<T, Columns, 2>, shared_bytes::<T, 2>;
    /// Columns, up to 32 components at a time.
    linear_narrow => chunked_f64_densities_linear_narrow_f32, chunked_f64_densities_linear_narrow_f64, body::<T, Columns, 4>, shared_bytes::<T, 4>;
    /// Columns, up to 64 components at a time.
    linear_wide => chunked_f64_densities_linear_wide_f32, chunked_f64_densities_linear_wide_f64, body::<T, Columns, 8>, shared_bytes::<T, 8>;
}

/// Bytes of shared memory: for each thread the largest density, the sum and four entries of its four rows, for which
/// registers do not suffice; for the block the coefficients of two steps.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) const fn shared_len(groups: u32) -> u64 {
    (COEFFICIENTS_AT + 2 * step_bytes(groups)) as u64
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real, const G: usize>(_: &Densities<T>) -> u64 {
    shared_len(G as u32)
}

/// Offset of a step's coefficients; double-buffered with those of the next step.
const COEFFICIENTS_AT: u32 = (2 + 4) * 4 * THREADS * 8;

/// Bytes of a step's coefficients of `groups` groups.
const fn step_bytes(groups: u32) -> u32 {
    8 * 128 * groups
}

/// Rows per warp.
const ROWS: u32 = 2 * GROUP;

/// Below every density, and finite, so that its difference from −∞ is not NaN.
const LOWEST: f64 = -1e300;

/// Body of the kernel: `G` groups of components at a time.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Densities`] document.
#[inline(always)]
unsafe fn body<T: Real, F: Across, const G: usize>(a: Densities<T>) {
    // SAFETY: `state` is null or a loop's state, as `Densities` documents.
    if unsafe { stopped(a.state, a.iteration) } {
        return;
    }
    let (lane, me) = (warp::lane_id(), thread::thread_idx_x() / WARP);
    let mut tile = thread::block_idx_x() as u64;
    // SAFETY: the coefficients of the first step exist.
    let mut steps = unsafe { Steps::<G>::start(a.coefficients) };
    while tile < tiles(a.n) {
        // SAFETY: `tile < tiles(n)`.
        unsafe { rows_of_warp::<T, F, G>(&a, &mut steps, tile, me * ROWS, lane) };
        tile += thread::grid_dim_x() as u64;
    }
    copies::arrive();
}

/// Coefficients of `G` groups, streamed step by step to all warps of a block.
struct Steps<const G: usize> {
    /// Byte offset of the buffer of the next step to take, 0 or one step.
    at: u32,
}

impl<const G: usize> Steps<G> {
    /// Starts the copy of the first step's coefficients.
    #[inline(always)]
    unsafe fn start(from: *const f64) -> Self {
        let steps = Self { at: 0 };
        // SAFETY: the caller passes the coefficients of a step.
        unsafe { steps.send(from) };
        steps
    }

    #[inline(always)]
    unsafe fn send(&self, from: *const f64) {
        let t = thread::thread_idx_x();
        // SAFETY: the caller passes the coefficients of a step; each thread copies 16 bytes at a time of them.
        each(G / 2, |i| unsafe {
            let part = i as u32 * THREADS + t;
            copies::send(COEFFICIENTS_AT + self.at + 16 * part, from.wrapping_add(2 * part as usize).cast());
        });
    }

    /// Waits for the step copied last and returns its coefficients, for all groups; starts the copy of step `next`. All
    /// threads of the block call it.
    #[inline(always)]
    unsafe fn take(&mut self, next: *const f64) -> Shared<f64> {
        copies::arrive();
        // Makes all threads' copies visible, and ensures that no thread still reads the buffer of the previous step,
        // which is overwritten next.
        thread::sync_threads();
        let here = Shared::at(COEFFICIENTS_AT + self.at);
        self.at ^= step_bytes(G as u32);
        // SAFETY: the caller passes the coefficients of a step.
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
    // The sixteen rows of a component are contiguous, then the components of a group, then the groups.
    let sixteen = tile * (TILE_ROWS / GROUP) as u64 + (first / GROUP) as u64;
    let exponentials = a.exponentials.wrapping_add((sixteen * (128 * a.groups) as u64 + g as u64) as usize);
    let columns = [2 * t, 2 * t + 1].map(column);
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
            // SAFETY: `group + i < groups`, so the two constants exist.
            let (even, odd) = unsafe { (device::load(at, 0), device::load(at, 1)) };
            joint[0][i] = [even, odd, even, odd];
            joint[1][i] = joint[0][i];
        });
        let coefficients = a.coefficients.wrapping_add(128 * group as usize);
        // SAFETY: the rows are in the chunk; step and group are below `steps` and `groups`.
        unsafe {
            F::across(rows, lane, |_, next, left| {
                // The last step is followed by the first step of the next piece, or of the next rows.
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
        // Unrolled by hand: the compiler does not inline a closure of this size.
        // SAFETY: each lane has its own rows and components, and `piece < pieces`.
        unsafe {
            own.settle(0, group, &joint, top, sum);
            own.settle(1, group, &joint, top, sum);
            own.settle(2, group, &joint, top, sum);
            own.settle(3, group, &joint, top, sum);
        }
        // Each of the four lanes of a row stores every fourth piece, and finishes it in `finish`.
        if piece % 4 == t {
            // SAFETY: the rows are in the tile, for which `factors` has 128 elements per piece.
            each(4, |r| unsafe { device::store(factors, (piece * TILE_ROWS + 8 * r as u32) as u64, top.get(r)) });
        }
        piece += 1;
    }

    // SAFETY: the rows are in the chunk.
    unsafe { finish(a, pieces, row, sixteen, factors, top, sum) };
}

/// Computes the factors of a lane's rows, which turn exponentials into responsibilities, from the maxima stored in
/// their place after each piece; and the log-likelihoods of each sixteen rows.
///
/// # Safety
/// `row` is the lane's first row, `sixteen` the index of its sixteen rows, and `factors` points to that row's factors.
#[inline(always)]
unsafe fn finish<T: Real>(
    a: &Densities<T>,
    pieces: u32,
    row: u64,
    sixteen: u64,
    factors: *mut f64,
    top: Waiting,
    sum: Waiting,
) {
    let lane = warp::lane_id();
    let mut likelihood = [0.0; 2];
    each(4, |r| {
        let (top, sum) = (top.get(r), sum.get(r));
        // SAFETY: `row_weight` reads rows below `n` only.
        let weight = unsafe { row_weight(a.row_weights, a.n, row + 8 * r as u64) };
        if weight > 0.0 {
            likelihood[r / 2] += weight * (top + ln_f64(sum));
        }
        // NaN if a density is NaN: it reaches the sums, and the host takes another path.
        let share = weight / sum;
        let mut piece = lane % 4;
        while piece < pieces {
            let at = (piece * TILE_ROWS + 8 * r as u32) as u64;
            // SAFETY: this lane wrote the same element in `rows_of_warp`.
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
            // SAFETY: sixteen rows of the tile, so the index is below `likelihoods(n)`.
            unsafe { device::store(a.likelihoods, sixteen + i as u64, v) };
        }
    });
}

/// Destination of a lane's exponentials.
#[derive(Clone, Copy)]
struct Exponentials<T> {
    /// Exponentials of its first row.
    to: *mut T,
    groups: u32,
    /// Columns of its two components of each group.
    columns: [u32; 2],
}

impl<T: Real> Exponentials<T> {
    /// Writes the exponentials of row `r` of the lane's four, for the piece that starts at `group`, and updates the
    /// row's maximum and sum.
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
                // SAFETY: each lane has its own rows and components, within the tile's exponentials.
                unsafe { device::store(self.to, at, e) };
            });
        });
        sum.set(r, sum.get(r) * (before - most).exp_below() + quad(new, core::ops::Add::add));
        top.set(r, most);
    }
}

const _: () = assert!(THREADS / WARP * ROWS == TILE_ROWS);
