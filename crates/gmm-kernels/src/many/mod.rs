//! Many small fits: a block per fit, from the rows to the last iteration, without the host.
//!
//! ```text
//! rows          x - shift in f64, in shared memory, a column after the other
//! start         k-means++, Lloyd's iterations, hard assignments; or given parameters        start
//! iteration     for each row:      log joint densities -> responsibilities                  em: expect
//!               for each sum:      over the rows, one thread or a few per sum               sums
//!               for each entry:    weights, means, covariances, Cholesky factors            em: maximise, factor
//! end           log-likelihood and entropy under the last parameters
//! ```
//!
//! All is computed in `f64`, as differences from the means, since the time goes into latencies and not into products.
//! Every number is made by one thread in a defined order, so that the bits of a fit depend on nothing but its own rows
//! and options. Whatever the host treats in a way of its own (a singular covariance, a constant column, a component
//! without rows at the start, a number that is not finite) ends the fit with [`TROUBLE`]; the host then fits these rows.

mod em;
mod start;
mod sums;

use crate::device::{self, Shared, WARP, block_sums_of, thread};
use crate::layout::{Kind, packed_len};

/// Most rows of a fit: as many as k-means++ draws from in one step.
pub const MOST_ROWS: u32 = 1024;

/// Most warps of a block.
pub const MOST_WARPS: u32 = 4;

/// Numbers in [`ManyFits::outcomes`] before the variances of the columns.
pub const OUTCOME: u32 = 5;

/// Position within an outcome: 1 if the host is to fit these rows, else 0.
pub const TROUBLE: u32 = 0;
/// Position within an outcome: number of iterations.
pub const ITERATIONS: u32 = 1;
/// Position within an outcome: 1 if the last change was below the tolerance, else 0.
pub const CONVERGED: u32 = 2;
/// Position within an outcome: Σ w ln p(x) under the last parameters.
pub const LOG_LIKELIHOOD: u32 = 3;
/// Position within an outcome: −Σ w Σ r ln r under the last parameters.
pub const ENTROPY: u32 = 4;

/// The codes of [`ManyFits::start`].
pub mod start_code {
    /// The parameters are given.
    pub const GIVEN: u32 = 0;
    /// Rows are assigned to the nearest of the centres of k-means++.
    pub const SEEDS: u32 = 1;
    /// As `SEEDS`, after Lloyd's iterations.
    pub const K_MEANS: u32 = 2;
}

kernels! {
    /// One block per fit; all have the same number of components and columns.
    ManyFits {
        /// `(n, d)` row after row: all rows in single precision; or null.
        single: *const f32,
        /// As `single`, in double precision.
        double: *const f64,
        /// `(n,)`: positive weights; or null if every row has weight 1.
        row_weights: *const f64,
        /// `(fits,)`: the first row of each fit.
        firsts: *const u64,
        /// `(fits,)`: the number of rows of each fit, from 2 to `most_rows`, and at least `k`.
        lens: *const u32,
        /// At most [`MOST_ROWS`].
        most_rows: u32,
        /// Dimensions.
        d: u32,
        /// Components.
        k: u32,
        /// A [`Kind`], as a number.
        kind: u32,
        /// Warps of a block, from 1 to [`MOST_WARPS`].
        warps: u32,
        /// `(fits, d)`: subtracted from the rows.
        shifts: *const f64,
        /// One of [`start_code`].
        start: u32,
        /// Numbers in `[0, 1)`, from `draws[fit]` on `2 + 2 * trials * (k - 1)` for each fit; null if the start is given.
        uniforms: *const f64,
        /// `(fits,)`.
        draws: *const u32,
        /// Candidates for each centre after the first.
        trials: u32,
        /// Added to variances; positive.
        reg_covar: f64,
        /// A change of the mean log-likelihood below this ends a fit.
        tol: f64,
        /// Most iterations.
        max_iter: u32,
        /// `(fits, parameters_len)`: weights `(k,)`, means less the shift `(k, d)`, covariances as [`entries_len`]
        /// numbers for each of [`matrices`]. Read if the start is given; written.
        parameters: *mut f64,
        /// `(fits, max_iter)`, written: the mean log-likelihood before each iteration's M-step.
        traces: *mut f64,
        /// `(fits, OUTCOME + d)`, written: how the fit ended; then the variance of each column.
        outcomes: *mut f64,
    }
    /// The kernel.
    many_fits => body, shared_bytes, threads;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &ManyFits) -> u64 {
    u64::from(SharedLayout::of(a).end) * 8
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(a: &ManyFits) -> u32 {
    a.warps * WARP
}

/// Number of covariances that are stored: `k`, or 1 if tied.
#[inline(always)]
pub const fn matrices(kind: u32, k: u32) -> u32 {
    if kind == Kind::Tied as u32 { 1 } else { k }
}

/// Numbers of a stored covariance: a packed triangle, `d` variances, or one.
#[inline(always)]
pub const fn entries_len(kind: u32, d: u32) -> u32 {
    if has_matrix(kind) {
        packed_len(d) as u32
    } else if kind == Kind::Diag as u32 {
        d
    } else {
        1
    }
}

/// Length of the parameters of a fit.
#[inline(always)]
pub const fn parameters_len(kind: u32, k: u32, d: u32) -> u32 {
    k + k * d + matrices(kind, k) * entries_len(kind, d)
}

/// Sums of a component: its weight, first moments, and second moments.
#[inline(always)]
const fn sums_of(kind: u32, d: u32) -> u32 {
    1 + d + if has_matrix(kind) { packed_len(d) as u32 } else { d }
}

#[inline(always)]
const fn has_matrix(kind: u32) -> bool {
    kind == Kind::Full as u32 || kind == Kind::Tied as u32
}

/// Where things lie in shared memory, in `f64`.
#[derive(Clone, Copy)]
struct SharedLayout {
    rows: u32,
    row_weights: u32,
    responsibilities: u32,
    solved: u32,
    weights: u32,
    means: u32,
    covariances: u32,
    factors: u32,
    constants: u32,
    sums: u32,
    parts: u32,
    scratch: u32,
    end: u32,
    /// From one column to the next: odd, so that threads at different columns use different banks.
    stride: u32,
}

impl SharedLayout {
    #[inline(always)]
    const fn of(a: &ManyFits) -> Self {
        let (stride, threads) = (a.most_rows | 1, a.warps * WARP);
        let matrices = matrices(a.kind, a.k) * entries_len(a.kind, a.d);
        let row_weights = a.d * stride;
        let responsibilities = row_weights + stride;
        let solved = responsibilities + a.k * stride;
        let weights = solved + a.d * threads;
        let means = weights + a.k;
        let covariances = means + a.k * a.d;
        let factors = covariances + matrices;
        let constants = factors + matrices;
        let sums = constants + a.k;
        let parts = sums + a.k * sums_of(a.kind, a.d);
        let scratch = parts + threads;
        let end = scratch + 4 * MOST_WARPS;
        Self {
            rows: 0,
            row_weights,
            responsibilities,
            solved,
            weights,
            means,
            covariances,
            factors,
            constants,
            sums,
            parts,
            scratch,
            end,
            stride,
        }
    }
}

/// A fit as its block sees it.
#[derive(Clone, Copy)]
struct Block<'a> {
    a: &'a ManyFits,
    /// This thread.
    t: u32,
    /// Threads of the block.
    threads: u32,
    /// Rows.
    n: u32,
    stride: u32,
    /// Σ w.
    total: f64,
    /// `(d, stride)`: rows less the shift.
    rows: Shared<f64>,
    /// `(n,)`.
    row_weights: Shared<f64>,
    /// `(k, stride)`: log joint densities, then responsibilities times the row's weight.
    responsibilities: Shared<f64>,
    /// `(d, threads)`: what a thread solves for.
    solved: Shared<f64>,
    weights: Shared<f64>,
    means: Shared<f64>,
    covariances: Shared<f64>,
    /// As the covariances: Cholesky factors with reciprocal diagonals, or reciprocal standard deviations.
    factors: Shared<f64>,
    /// `(k,)`: what a log joint density has besides the distance.
    constants: Shared<f64>,
    /// `(k, sums of a component)`.
    sums: Shared<f64>,
    /// `(threads,)`.
    parts: Shared<f64>,
    scratch: Shared<f64>,
}

impl<'a> Block<'a> {
    /// # Safety
    /// Pointers and lengths must be as documented on the fields of [`ManyFits`].
    #[inline(always)]
    unsafe fn of(a: &'a ManyFits) -> Self {
        let at = SharedLayout::of(a);
        let place = |at: u32| Shared::<f64>::at(8 * at);
        Self {
            a,
            t: thread::thread_idx_x(),
            threads: a.warps * WARP,
            // SAFETY: the grid has a block for each fit.
            n: unsafe { device::load(a.lens, thread::block_idx_x() as u64) },
            stride: at.stride,
            total: 0.0,
            rows: place(at.rows),
            row_weights: place(at.row_weights),
            responsibilities: place(at.responsibilities),
            solved: place(at.solved),
            weights: place(at.weights),
            means: place(at.means),
            covariances: place(at.covariances),
            factors: place(at.factors),
            constants: place(at.constants),
            sums: place(at.sums),
            parts: place(at.parts),
            scratch: place(at.scratch),
        }
    }

    /// Calls `f` with each number below `len`, shared among the threads.
    #[inline(always)]
    fn share(&self, len: u32, mut f: impl FnMut(u32)) {
        let mut i = self.t;
        while i < len {
            f(i);
            i += self.threads;
        }
    }

    #[inline(always)]
    fn add_up<const M: usize>(&self, values: [f64; M]) -> [f64; M] {
        const { assert!(M <= 4) };
        block_sums_of(values, self.scratch, self.a.warps)
    }

    /// This fit's part of an output of `len` numbers each.
    #[inline(always)]
    fn own(&self, out: *mut f64, len: u32) -> *mut f64 {
        out.wrapping_add((thread::block_idx_x() as u64 * len as u64) as usize)
    }

    /// Loads the rows less the shift, and their weights; sums these.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    #[inline(always)]
    unsafe fn load(&mut self) {
        let (a, fit) = (self.a, thread::block_idx_x() as u64);
        let mut total = 0.0;
        // SAFETY: rows from the fit's first on are in the table, and each fit has `d` shifts.
        unsafe {
            let first = device::load(a.firsts, fit);
            self.share(self.n * a.d, |at| {
                let (row, j) = split(at, a.d);
                let from = first * a.d as u64 + at as u64;
                let value =
                    if a.single.is_null() { device::load(a.double, from) } else { device::load(a.single, from) as f64 };
                self.rows.store(j * self.stride + row, value - device::load(a.shifts, fit * a.d as u64 + j as u64));
            });
            self.share(self.n, |row| {
                let weight =
                    if a.row_weights.is_null() { 1.0 } else { device::load(a.row_weights, first + row as u64) };
                self.row_weights.store(row, weight);
                total += weight;
            });
        }
        [self.total] = self.add_up([total]);
    }

    /// Writes the variance of each column, and returns their mean. Sums are about the mean.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    #[inline(always)]
    unsafe fn spread(&self) -> f64 {
        let a = self.a;
        let out = self.own(a.outcomes, OUTCOME + a.d);
        let mut own = 0.0;
        self.share(a.d, |j| {
            let column = self.rows.skip(j * self.stride);
            let (mut sum, mut row) = (0.0, 0);
            while row < self.n {
                sum += self.row_weights.load(row) * column.load(row);
                row += 1;
            }
            let mean = sum / self.total;
            (sum, row) = (0.0, 0);
            while row < self.n {
                let z = column.load(row) - mean;
                sum += self.row_weights.load(row) * z * z;
                row += 1;
            }
            let variance = sum / self.total;
            // SAFETY: the fit's outcome has a variance for each column, each written by one thread.
            unsafe { device::store(out, (OUTCOME + j) as u64, variance) };
            own += variance;
        });
        let [sum] = self.add_up([own]);
        sum / a.d as f64
    }

    /// Copies the parameters from or to device memory.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    #[inline(always)]
    unsafe fn copy(&self, out: bool) {
        let a = self.a;
        let len = parameters_len(a.kind, a.k, a.d);
        let there = self.own(a.parameters, len);
        // Weights, means and covariances follow one another in shared memory too.
        self.share(len, |at| {
            // SAFETY: the fit has `len` parameters, each handled by one thread.
            unsafe {
                if out {
                    device::store(there, at as u64, self.weights.load(at));
                } else {
                    self.weights.store(at, device::load(there.cast_const(), at as u64));
                }
            }
        });
    }
}

/// Body of [`many_fits`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`ManyFits`]; the grid has a block for each fit.
#[inline(always)]
pub unsafe fn body(a: ManyFits) {
    // SAFETY: the fields are as documented.
    unsafe {
        let mut block = Block::of(&a);
        block.load();
        let variance = block.spread();
        let is_given = a.start == start_code::GIVEN;
        if is_given {
            block.copy(false);
        } else {
            block.start(variance);
        }
        let trace = block.own(a.traces, a.max_iter);
        let (mut iteration, mut before, mut converged, mut trouble) = (0, 0.0, false, false);
        // The start is an M-step without an iteration.
        let mut is_start = true;
        let [log_likelihood, entropy] = loop {
            if !is_start {
                let [log_likelihood, entropy] = block.expect();
                trouble |= !(is_finite(log_likelihood) && is_finite(entropy));
                if trouble || converged || iteration == a.max_iter {
                    break [log_likelihood, entropy];
                }
                let mean = log_likelihood / block.total;
                if block.t == 0 {
                    device::store(trace, iteration as u64, mean);
                }
                let change = if mean < before { before - mean } else { mean - before };
                converged = iteration > 0 && change < a.tol;
                before = mean;
                iteration += 1;
            }
            if !(is_start && is_given) {
                block.sum_up(sums_of(a.kind, a.d));
                trouble |= block.maximise(is_start);
            }
            trouble |= block.factor();
            is_start = false;
        };
        block.copy(true);
        if block.t == 0 {
            let out = block.own(a.outcomes, OUTCOME + a.d);
            device::store(out, TROUBLE as u64, trouble as u32 as f64);
            device::store(out, ITERATIONS as u64, iteration as f64);
            device::store(out, CONVERGED as u64, converged as u32 as f64);
            device::store(out, LOG_LIKELIHOOD as u64, log_likelihood);
            device::store(out, ENTROPY as u64, entropy);
        }
    }
}

/// Quotient and remainder. A plain division would need a panic for a divisor of 0, which does not occur.
#[inline(always)]
fn split(at: u32, by: u32) -> (u32, u32) {
    let quotient = at.checked_div(by).unwrap_or(0);
    (quotient, at - quotient * by)
}

/// Whether a number is neither NaN nor infinite.
#[inline(always)]
fn is_finite(value: f64) -> bool {
    value > f64::NEG_INFINITY && value < f64::INFINITY
}
