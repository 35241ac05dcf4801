//! Log densities, responsibilities and labels of a chunk of rows under a mixture: one thread per row.
//!
//! For row `x` and component `c`, with `L` the Cholesky factor of the covariance and `L y = x − μ` solved by forward
//! substitution: `ln w N(x) = log_scale − ½|y|²`. Then log-sum-exp with the exact maximum, and the responsibilities.
//! The maximum is `f64`, because the log density of many columns is too large for `f32` to leave enough digits after
//! the point. If every density of a row underflows, its log density is −∞ and its responsibilities are the component
//! weights.

pub mod diag;
pub mod full;
pub mod precision;
pub mod spherical;
pub mod tied;

use crate::device::{self, Shared, WARP, block_sum, thread};
use crate::layout::{PANEL, TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// One chunk of `n` rows. Blocks stride over the tiles; the grid may have any size in `x`.
    EStep<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// `(k, d)`: means less the shift.
        mean_high: *const T,
        /// `(k, d)`: rounding errors of `mean_high`.
        mean_low: *const T,
        /// `factor_len(kind, k, d)`, 16-byte aligned.
        factor: *const T,
        /// `(k,)`: `ln w − (d/2) ln 2π − ½ ln det Σ`.
        log_scale: *const T,
        /// `(k,)`: rounding errors of `log_scale`, which would affect all rows alike.
        log_scale_low: *const T,
        /// `(k,)`: component weights.
        weights: *const T,
        /// `(n, k)` tiled, written: scratch first, then responsibilities. Rows past `n` are not written. If
        /// `want_responsibilities` is 0 and there are no labels, the scratch values remain.
        responsibilities: *mut T,
        /// Nonzero: compute responsibilities. Implied by `labels`.
        want_responsibilities: u32,
        /// Nonzero: multiply responsibilities by the row's weight (0 for a row of weight 0, whatever its density).
        weighted: u32,
        /// `(n,)`, or null: ln p(x).
        log_densities: *mut f64,
        /// `(n,)`, or null: component of largest responsibility, the first if several are equal.
        labels: *mut u32,
        /// `(blocks, 3)`: Σ w ln p(x), −Σ w Σ r ln r, Σ w over the block's rows.
        partials: *mut f64,
        /// `(blocks, 128 * solved_columns(d))` for the `_large` kernels; else null.
        scratch: *mut T,
    }
    /// Full covariances; solved columns are in shared memory.
    full => e_step_full_f32, e_step_full_f64, full::in_shared, shared_bytes_solved;
    /// Full covariances of any `d`; solved columns are in `scratch`.
    full_large => e_step_full_large_f32, e_step_full_large_f64, full::in_scratch, shared_bytes;
    /// A tied covariance; solved columns are in shared memory.
    tied => e_step_tied_f32, e_step_tied_f64, tied::in_shared, shared_bytes_solved;
    /// A tied covariance of any `d`; solved columns are in `scratch`.
    tied_large => e_step_tied_large_f32, e_step_tied_large_f64, tied::in_scratch, shared_bytes;
    /// Diagonal covariances.
    diag => e_step_diag_f32, e_step_diag_f64, diag::body, shared_bytes;
    /// Full covariances, from factors of the precisions.
    precision_full => e_step_precision_full_f32, e_step_precision_full_f64, precision::full, shared_bytes;
    /// A tied covariance, from a factor of the precision.
    precision_tied => e_step_precision_tied_f32, e_step_precision_tied_f64, precision::tied, shared_bytes;
    /// Spherical covariances.
    spherical => e_step_spherical_f32, e_step_spherical_f64, spherical::body, shared_bytes;
}

/// Bytes of scratch for a block sum.
const SUM_BYTES: u32 = THREADS / WARP * 8;

/// Columns of a row that are stored while later ones are solved: all but the last panel, `8*(ceil(d/8)−1)`.
pub const fn solved_columns(d: u32) -> u32 {
    (d.div_ceil(PANEL) - 1) * PANEL
}

/// Bytes of shared memory: one `f64` per warp.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: Real>(_: &EStep<T>) -> u64 {
    SUM_BYTES.into()
}

/// Bytes of shared memory: one `f64` per warp, and for each row of a tile the columns solved so far.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes_solved<T: Real>(a: &EStep<T>) -> u64 {
    u64::from(SUM_BYTES) + u64::from(solved_columns(a.d)) * u64::from(TILE_ROWS * T::BYTES)
}

/// Columns of this thread's row that are solved so far: `y` of `L y = x − μ`.
trait Solved<T>: Copy {
    unsafe fn get(self, j: u32) -> T;
    unsafe fn set(self, j: u32, value: T);
}

/// In shared memory, after the scratch of the block sum; the threads of a warp are adjacent.
#[derive(Clone, Copy)]
struct InShared<T>(Shared<T>);

impl<T: Real> InShared<T> {
    #[inline(always)]
    fn new() -> Self {
        Self(Shared::at(SUM_BYTES))
    }
}

impl<T: Real> Solved<T> for InShared<T> {
    #[inline(always)]
    unsafe fn get(self, j: u32) -> T {
        self.0.load(j * TILE_ROWS + thread::thread_idx_x())
    }
    #[inline(always)]
    unsafe fn set(self, j: u32, value: T) {
        self.0.store(j * TILE_ROWS + thread::thread_idx_x(), value);
    }
}

/// In global memory, with one section per block.
#[derive(Clone, Copy)]
struct InScratch<T>(*mut T);

impl<T: Real> InScratch<T> {
    #[inline(always)]
    fn new(a: &EStep<T>) -> Self {
        let piece = solved_columns(a.d) as u64 * TILE_ROWS as u64;
        Self(a.scratch.wrapping_add((thread::block_idx_x() as u64 * piece) as usize))
    }
}

impl<T: Real> Solved<T> for InScratch<T> {
    #[inline(always)]
    unsafe fn get(self, j: u32) -> T {
        // SAFETY: `j < solved_columns(d)`, and the block's section of `scratch` has `128 * solved_columns(d)` elements.
        unsafe { device::load(self.0, j as u64 * TILE_ROWS as u64 + thread::thread_idx_x() as u64) }
    }
    #[inline(always)]
    unsafe fn set(self, j: u32, value: T) {
        // SAFETY: as in `get`; each thread has its own column.
        unsafe { device::store(self.0, j as u64 * TILE_ROWS as u64 + thread::thread_idx_x() as u64, value) };
    }
}

/// This thread's row: entry `j` at `x[128 j]`.
#[derive(Clone, Copy)]
struct Row<T>(*const T);

impl<T: Real> Row<T> {
    #[inline(always)]
    unsafe fn get(self, j: u32) -> T {
        // SAFETY: `j < d`, and the row is one of the chunk's.
        unsafe { device::load(self.0, j as u64 * TILE_ROWS as u64) }
    }

    /// Entry `j` less that of component `c`'s mean.
    #[inline(always)]
    unsafe fn centred(self, a: &EStep<T>, c: u32, j: u32) -> T {
        let at = c as u64 * a.d as u64 + j as u64;
        // SAFETY: `c < k` and `j < d`, so indices are within the means and the row.
        unsafe { self.get(j) - device::load(a.mean_high, at) - device::load(a.mean_low, at) }
    }
}

/// A sum of squares in runs of [`RUN`](Self::RUN) terms. The rounding errors of adding runs are kept too (compensated
/// summation), so that hundreds of columns lose no more precision than one run.
#[derive(Clone, Copy)]
struct SumOfSquares<T> {
    run: T,
    sum: T,
    lost: T,
}

impl<T: Real> SumOfSquares<T> {
    const NONE: Self = Self { run: T::ZERO, sum: T::ZERO, lost: T::ZERO };

    /// Columns per run.
    const RUN: u32 = 32;

    #[inline(always)]
    fn add(&mut self, y: T) {
        self.run = y.fma(y, self.run);
    }

    /// Adds the current run to the sum.
    #[inline(always)]
    fn end_run(&mut self) {
        // Knuth's two-sum.
        let sum = self.sum + self.run;
        let of_run = sum - self.sum;
        self.lost += (self.sum - (sum - of_run)) + (self.run - of_run);
        (self.run, self.sum) = (T::ZERO, sum);
    }

    /// Sum of the squares of `y(0)` to `y(d − 1)`; NaN if they overflow.
    #[inline(always)]
    fn of(d: u32, mut y: impl FnMut(u32) -> T) -> f64 {
        let (mut squares, mut j) = (Self::NONE, 0);
        while j < d {
            let end = if j + Self::RUN < d { j + Self::RUN } else { d };
            while j < end {
                squares.add(y(j));
                j += 1;
            }
            squares.end_run();
        }
        squares.total()
    }

    #[inline(always)]
    fn total(self) -> f64 {
        self.sum.to_f64() + self.lost.to_f64()
    }
}

/// Totals of this thread's rows.
#[derive(Clone, Copy)]
struct Totals {
    log_likelihood: f64,
    entropy: f64,
    weight: f64,
}

/// Runs the kernel, given a function for `|L⁻¹(x − μ_c)|²`.
#[inline(always)]
unsafe fn run<T: Real>(a: &EStep<T>, squared_distance: impl Fn(Row<T>, u32) -> f64) {
    let lane = thread::thread_idx_x() as u64;
    let mut totals = Totals { log_likelihood: 0.0, entropy: 0.0, weight: 0.0 };
    let mut tile = thread::block_idx_x() as u64;
    while tile < tiles(a.n) {
        if tile * TILE_ROWS as u64 + lane < a.n {
            // SAFETY: the row is below `n`.
            unsafe { one_row(a, tile, lane, &squared_distance, &mut totals) };
        }
        tile += thread::grid_dim_x() as u64;
    }
    let scratch = Shared::at(0);
    let sums = [totals.log_likelihood, totals.entropy, totals.weight].map(|v| block_sum(v, scratch));
    if lane == 0 {
        let mut i = 0;
        while i < 3 {
            // SAFETY: `partials` has three elements per block.
            unsafe { device::store(a.partials, thread::block_idx_x() as u64 * 3 + i as u64, sums[i]) };
            i += 1;
        }
    }
}

#[inline(always)]
unsafe fn one_row<T: Real>(
    a: &EStep<T>,
    tile: u64,
    lane: u64,
    squared_distance: &impl Fn(Row<T>, u32) -> f64,
    totals: &mut Totals,
) {
    let rows = TILE_ROWS as u64;
    let row = tile * rows + lane;
    let x = Row(a.x.wrapping_add((tile * rows * a.d as u64 + lane) as usize));
    // Entry `c` of this row's responsibilities is at `128 c`. Until the last loop it holds ln w N(x), then e^(ln w N(x)
    // − top).
    let r = a.responsibilities.wrapping_add((tile * rows * a.k as u64 + lane) as usize);
    // SAFETY: `row < n` and `c < k` below, and each thread has its own row.
    unsafe {
        let weight = if a.row_weights.is_null() { 1.0 } else { device::load(a.row_weights, row) };
        let mut top = f64::NEG_INFINITY;
        let mut c = 0;
        while c < a.k {
            let distance = squared_distance(x, c);
            // NaN is a difference of infinities: squares of the row overflow, so its density is 0.
            let distance = if distance >= 0.0 { distance } else { f64::INFINITY };
            let scale = device::load(a.log_scale, c as u64).to_f64() + device::load(a.log_scale_low, c as u64).to_f64();
            let joint = scale - 0.5 * distance;
            top = if joint > top { joint } else { top };
            device::store(r, c as u64 * rows, T::from_f64(joint));
            c += 1;
        }
        // `top` is never NaN: a comparison with NaN is false.
        let lost = top == f64::NEG_INFINITY;
        let rounded = T::from_f64(top);

        // Σ e and Σ e ln e, with e = exp(joint − top): the log density, and the entropy without another pass.
        let (mut sum, mut sum_log) = (0.0, 0.0);
        let mut c = 0;
        while c < a.k {
            let e = if lost {
                device::load(a.weights, c as u64)
            } else {
                let below = device::load(r.cast_const(), c as u64 * rows) - rounded;
                let e = below.exp();
                sum_log += if e > T::ZERO { (e * below).to_f64() } else { 0.0 };
                e
            };
            if lost && e > T::ZERO {
                sum_log += (e * e.ln()).to_f64();
            }
            sum += e.to_f64();
            device::store(r, c as u64 * rows, e);
            c += 1;
        }
        let ln_sum = ln_f64(sum);
        let log_density = if lost { f64::NEG_INFINITY } else { top + ln_sum };

        if !a.log_densities.is_null() {
            device::store(a.log_densities, row, log_density);
        }
        // A row of weight 0 does not count, not even a log density of −∞.
        if weight > 0.0 {
            totals.log_likelihood += weight * log_density;
            totals.entropy += weight * (ln_sum - sum_log / sum);
            totals.weight += weight;
        }
        if a.want_responsibilities != 0 || !a.labels.is_null() {
            normalise(a, row, r, weight, sum);
        }
    }
}

/// Computes a row's responsibilities from its exponentials at `r` and their sum; and its label, the first of the
/// largest.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document; `row < n`, and `r` points to the row's responsibilities.
#[inline(always)]
unsafe fn normalise<T: Real>(a: &EStep<T>, row: u64, r: *mut T, weight: f64, sum: f64) {
    let rows = TILE_ROWS as u64;
    let share = 1.0 / sum;
    let scale = if a.weighted != 0 { weight } else { 1.0 };
    let (mut best, mut label) = (T::NEG_INFINITY, 0);
    let mut c = 0;
    // SAFETY: the caller passes `row < n` and the row's `r`; `c < k`.
    unsafe {
        while c < a.k {
            let unweighted = T::from_f64(device::load(r.cast_const(), c as u64 * rows).to_f64() * share);
            if unweighted > best {
                (best, label) = (unweighted, c);
            }
            device::store(r, c as u64 * rows, unweighted * T::from_f64(scale));
            c += 1;
        }
        if !a.labels.is_null() {
            device::store(a.labels, row, label);
        }
    }
}
