//! Log densities, responsibilities and labels of a chunk of rows under a mixture: one thread per row, or, in chunks that
//! still fill the device then, one thread for [`AT_ONCE`] rows: each number of the model is loaded once for all of them,
//! and those loads are what limits these kernels.
//!
//! For row `x` and component `c`, with `L` the Cholesky factor of the covariance and `L y = x − μ` solved by forward
//! substitution: `ln w N(x) = log_scale − ½|y|²`. Then log-sum-exp with the exact maximum, and the responsibilities.
//! The maximum is `f64`, because the log density of many columns is too large for `f32` to leave enough digits after
//! the point. If every density of a row underflows, its log density is −∞ and its responsibilities are the component
//! weights.

pub mod diag;
pub mod full;
pub mod precision;
mod rows;
mod solved;
pub mod spherical;
mod squares;
pub mod tied;
pub mod whitened;

use crate::device::{self, Shared, WARP, block_sum, thread};
use crate::each::each;
use crate::layout::{PANEL, TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};
use rows::{Group, load_rows, store_rows};

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
        /// `want_responsibilities` is 0, the scratch values remain.
        responsibilities: *mut T,
        /// Nonzero: compute responsibilities.
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
        /// Rows that a thread computes together: [`AT_ONCE`] for the `_rows` kernels, either for `diag` and `spherical`,
        /// and 1 for all others, whose threads then have fewer registers each.
        rows_of_thread: u32,
        /// [`Whitening::count`](whitened::Whitening::count) numbers for the `whitened` kernels, which read them in place of means,
        /// factors and scales; else null.
        whitening: *const f64,
    }
    /// Full covariances; solved columns are in shared memory.
    full => e_step_full_f32, e_step_full_f64, full::in_shared, shared_bytes_solved;
    /// As `full`, several rows per thread.
    full_rows => e_step_full_rows_f32, e_step_full_rows_f64, full::rows_in_shared, shared_bytes_solved;
    /// Full covariances of any `d`; solved columns are in `scratch`.
    full_large => e_step_full_large_f32, e_step_full_large_f64, full::in_scratch, shared_bytes;
    /// A tied covariance; solved columns are in shared memory.
    tied => e_step_tied_f32, e_step_tied_f64, tied::in_shared, shared_bytes_solved;
    /// As `tied`, several rows per thread.
    tied_rows => e_step_tied_rows_f32, e_step_tied_rows_f64, tied::rows_in_shared, shared_bytes_solved;
    /// A tied covariance of any `d`; solved columns are in `scratch`.
    tied_large => e_step_tied_large_f32, e_step_tied_large_f64, tied::in_scratch, shared_bytes;
    /// Diagonal covariances.
    diag => e_step_diag_f32, e_step_diag_f64, diag::body, shared_bytes;
    /// Full covariances, from factors of the precisions.
    precision_full => e_step_precision_full_f32, e_step_precision_full_f64, precision::full, shared_bytes;
    /// As `precision_full`, several rows per thread.
    precision_full_rows => e_step_precision_full_rows_f32, e_step_precision_full_rows_f64, precision::full_rows,
        shared_bytes;
    /// A tied covariance, from a factor of the precision.
    precision_tied => e_step_precision_tied_f32, e_step_precision_tied_f64, precision::tied, shared_bytes;
    /// As `precision_tied`, several rows per thread.
    precision_tied_rows => e_step_precision_tied_rows_f32, e_step_precision_tied_rows_f64, precision::tied_rows,
        shared_bytes;
    /// Full covariances of 1 to 8 columns, on the tensor cores.
    whitened_full_1 => e_step_whitened_full_1_f32, e_step_whitened_full_1_f64, whitened::full_1, whitened::shared_bytes;
    /// Full covariances of 9 to 16 columns, on the tensor cores.
    whitened_full_2 => e_step_whitened_full_2_f32, e_step_whitened_full_2_f64, whitened::full_2, whitened::shared_bytes;
    /// Full covariances of 17 to 24 columns, on the tensor cores.
    whitened_full_3 => e_step_whitened_full_3_f32, e_step_whitened_full_3_f64, whitened::full_3, whitened::shared_bytes;
    /// Full covariances of 25 to 32 columns, on the tensor cores.
    whitened_full_4 => e_step_whitened_full_4_f32, e_step_whitened_full_4_f64, whitened::full_4, whitened::shared_bytes;
    /// A tied covariance of 1 to 8 columns, on the tensor cores.
    whitened_tied_1 => e_step_whitened_tied_1_f32, e_step_whitened_tied_1_f64, whitened::tied_1, whitened::shared_bytes;
    /// A tied covariance of 9 to 16 columns, on the tensor cores.
    whitened_tied_2 => e_step_whitened_tied_2_f32, e_step_whitened_tied_2_f64, whitened::tied_2, whitened::shared_bytes;
    /// A tied covariance of 17 to 24 columns, on the tensor cores.
    whitened_tied_3 => e_step_whitened_tied_3_f32, e_step_whitened_tied_3_f64, whitened::tied_3, whitened::shared_bytes;
    /// A tied covariance of 25 to 32 columns, on the tensor cores.
    whitened_tied_4 => e_step_whitened_tied_4_f32, e_step_whitened_tied_4_f64, whitened::tied_4, whitened::shared_bytes;
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

/// Bytes of shared memory: one `f64` per warp, and for each row of the tiles in work the columns solved so far.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes_solved<T: Real>(a: &EStep<T>) -> u64 {
    u64::from(SUM_BYTES) + u64::from(solved_columns(a.d)) * u64::from(TILE_ROWS * T::BYTES * a.rows_of_thread)
}

/// Rows that a thread computes together if a chunk has enough of them: as many as it reads at a time.
pub const AT_ONCE: u32 = 4;

/// Totals of this thread's rows.
#[derive(Clone, Copy)]
struct Totals {
    log_likelihood: f64,
    entropy: f64,
    weight: f64,
}

/// Squared distances `|L⁻¹(x − μ_c)|²` of `R` rows from component `c`.
trait SquaredDistances<T> {
    /// Whether the kernel computes several rows if it is told so.
    const SEVERAL: bool;

    unsafe fn of<const R: usize>(&self, x: Group<T, R>, c: u32) -> [f64; R];
}

/// Runs the kernel, given the squared distances.
#[inline(always)]
unsafe fn run<T: Real, D: SquaredDistances<T>>(a: &EStep<T>, distances: &D) {
    let lane = thread::thread_idx_x() as u64;
    let mut totals = Totals { log_likelihood: 0.0, entropy: 0.0, weight: 0.0 };
    let rows = TILE_ROWS as u64;
    let mut tile = thread::block_idx_x() as u64;
    if D::SEVERAL && a.rows_of_thread > 1 {
        // Groups of whole tiles, then the tiles that are left. A warp takes a tile of its own.
        let groups = a.n / rows / AT_ONCE as u64;
        let mut group = tile;
        while group < groups {
            let first = lane * AT_ONCE as u64;
            let tile = group * AT_ONCE as u64 + first / rows;
            // SAFETY: the tiles of the group hold only rows below `n`.
            unsafe { group_of_rows::<T, { AT_ONCE as usize }>(a, tile, first % rows, distances, &mut totals) };
            group += thread::grid_dim_x() as u64;
        }
        tile += groups * AT_ONCE as u64;
        // The rows that are left use shared memory in another order.
        thread::sync_threads();
    }
    while tile < tiles(a.n) {
        if tile * rows + lane < a.n {
            // SAFETY: the row is below `n`.
            unsafe { group_of_rows::<T, 1>(a, tile, lane, distances, &mut totals) };
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

/// `R` successive rows of a tile, beginning with its row `first`.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document; all `R` rows are below `n`.
#[inline(always)]
unsafe fn group_of_rows<T: Real, const R: usize>(
    a: &EStep<T>,
    tile: u64,
    first: u64,
    distances: &impl SquaredDistances<T>,
    totals: &mut Totals,
) {
    let rows = TILE_ROWS as u64;
    let x = Group::<T, R>(a.x.wrapping_add((tile * rows * a.d as u64 + first) as usize));
    // Entry `c` of the rows' responsibilities is at `128 c`. Until the last loop it holds ln w N(x), then e^(ln w N(x) −
    // top).
    let r = a.responsibilities.wrapping_add((tile * rows * a.k as u64 + first) as usize);
    let mut top = [f64::NEG_INFINITY; R];
    let mut c = 0;
    while c < a.k {
        // SAFETY: `c < k`, and each thread has its own rows, which are below `n`.
        unsafe {
            let distance = distances.of(x, c);
            let scale = device::load(a.log_scale, c as u64).to_f64() + device::load(a.log_scale_low, c as u64).to_f64();
            let mut rounded = [T::ZERO; R];
            each(R, |i| {
                // NaN is a difference of infinities: squares of the row overflow, so its density is 0.
                let distance = if distance[i] >= 0.0 { distance[i] } else { f64::INFINITY };
                let joint = scale - 0.5 * distance;
                top[i] = if joint > top[i] { joint } else { top[i] };
                rounded[i] = T::from_f64(joint);
            });
            store_rows(r, c * TILE_ROWS, rounded);
        }
        c += 1;
    }
    // SAFETY: the rows are below `n`, and `r` are their responsibilities.
    unsafe { end_rows(a, tile * rows + first, r, top, totals) };
}

/// The log densities of `R` rows, their responsibilities and their part of the totals, from the logarithms of their
/// densities at `r` and the largest of them.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document; the rows from `row` on are below `n`, and `r` points to
/// their responsibilities.
#[inline(always)]
unsafe fn end_rows<T: Real, const R: usize>(a: &EStep<T>, row: u64, r: *mut T, top: [f64; R], totals: &mut Totals) {
    // SAFETY: the caller passes rows below `n` and their `r`; `c < k`.
    unsafe {
        // Σ e and Σ e ln e, with e = exp(joint − top): the log density, and the entropy without another pass.
        let (mut sum, mut sum_log) = ([0.0; R], [0.0; R]);
        let mut c = 0;
        while c < a.k {
            let mut e = load_rows::<T, R>(r.cast_const(), c * TILE_ROWS);
            each(R, |i| {
                // `top` is never NaN: a comparison with NaN is false.
                if top[i] == f64::NEG_INFINITY {
                    e[i] = device::load(a.weights, c as u64);
                    sum_log[i] += if e[i] > T::ZERO { (e[i] * e[i].ln()).to_f64() } else { 0.0 };
                } else {
                    let below = e[i] - T::from_f64(top[i]);
                    e[i] = below.exp();
                    sum_log[i] += if e[i] > T::ZERO { (e[i] * below).to_f64() } else { 0.0 };
                }
                sum[i] += e[i].to_f64();
            });
            store_rows(r, c * TILE_ROWS, e);
            c += 1;
        }
        let mut i = 0;
        while i < R as u32 {
            end_row(a, row + i as u64, [pick(&top, i), pick(&sum, i), pick(&sum_log, i)], totals);
            i += 1;
        }
        if a.want_responsibilities != 0 || !a.labels.is_null() {
            normalise(a, row, r, sum);
        }
    }
}

/// `all[i]`. An array that is indexed at run time would leave the registers.
#[inline(always)]
fn pick<const R: usize>(all: &[f64; R], i: u32) -> f64 {
    let mut out = all[0];
    each(R, |other| out = if other as u32 == i { all[other] } else { out });
    out
}

/// Writes a row's log density and adds its part to the totals.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document; `row < n`.
#[inline(always)]
unsafe fn end_row<T: Real>(a: &EStep<T>, row: u64, [top, sum, sum_log]: [f64; 3], totals: &mut Totals) {
    // SAFETY: the caller passes `row < n`.
    unsafe {
        let weight = if a.row_weights.is_null() { 1.0 } else { device::load(a.row_weights, row) };
        let ln_sum = ln_f64(sum);
        let log_density = if top == f64::NEG_INFINITY { top } else { top + ln_sum };
        if !a.log_densities.is_null() {
            device::store(a.log_densities, row, log_density);
        }
        // A row of weight 0 does not count, not even a log density of −∞.
        if weight > 0.0 {
            totals.log_likelihood += weight * log_density;
            totals.entropy += weight * (ln_sum - sum_log / sum);
            totals.weight += weight;
        }
    }
}

/// Computes responsibilities of `R` rows from their exponentials at `r` and their sums; and the rows' labels, the first of
/// the largest.
///
/// # Safety
/// As for [`end_rows`].
#[inline(always)]
unsafe fn normalise<T: Real, const R: usize>(a: &EStep<T>, row: u64, r: *mut T, sum: [f64; R]) {
    let (mut share, mut scale) = ([0.0; R], [T::ONE; R]);
    let (mut best, mut label) = ([T::NEG_INFINITY; R], [0; R]);
    let mut c = 0;
    // SAFETY: the caller passes rows below `n` and their `r`; `c < k`.
    unsafe {
        each(R, |i| {
            share[i] = 1.0 / sum[i];
            if a.weighted != 0 && !a.row_weights.is_null() {
                scale[i] = T::from_f64(device::load(a.row_weights, row + i as u64));
            }
        });
        while c < a.k {
            let mut values = load_rows::<T, R>(r.cast_const(), c * TILE_ROWS);
            each(R, |i| {
                let unweighted = T::from_f64(values[i].to_f64() * share[i]);
                if unweighted > best[i] {
                    (best[i], label[i]) = (unweighted, c);
                }
                values[i] = unweighted * scale[i];
            });
            if a.want_responsibilities != 0 {
                store_rows(r, c * TILE_ROWS, values);
            }
            c += 1;
        }
        if !a.labels.is_null() {
            each(R, |i| device::store(a.labels, row + i as u64, label[i]));
        }
    }
}

/// The kernel of full covariances or a tied one of `d` columns on the tensor cores, for at most 32 columns.
#[cfg(not(target_arch = "nvptx64"))]
pub fn whitened_kernel<T: Real>(is_tied: bool, d: u32) -> Option<crate::Kernel<EStep<T>>> {
    Some(match (is_tied, d.div_ceil(PANEL)) {
        (false, 1) => whitened_full_1(),
        (false, 2) => whitened_full_2(),
        (false, 3) => whitened_full_3(),
        (false, 4) => whitened_full_4(),
        (true, 1) => whitened_tied_1(),
        (true, 2) => whitened_tied_2(),
        (true, 3) => whitened_tied_3(),
        (true, 4) => whitened_tied_4(),
        _ => return None,
    })
}
