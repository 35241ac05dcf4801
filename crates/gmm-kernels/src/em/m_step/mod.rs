//! Between two passes: from the sums to a new component, its precision, and the coefficients of the next densities.
//!
//! One block per component. Everything is `f64` in shared memory ([`update`]), or, with many columns, the matrices are
//! in device memory ([`update_wide`]). Most paths' moments are about the rows' shift, so the square of the mean is subtracted
//! from them here. Densities are expanded about the shift too, so the terms of a component cancel there. Both lose
//! precision if a component is narrow and far from the shift. The block measures both losses. It sets `TROUBLE` if one
//! is too large, if a covariance is not positive definite, or if a sum is not finite; the host then continues from the
//! last valid mixture on a path that takes differences from the means.

pub mod bayes;
mod blocked_cholesky;
mod convergence;
mod expand;
mod maximise;

use crate::em::m_step::convergence::Progress;

use crate::device::{self, Shared, WARP, block_sums_of, thread};
use crate::em::layout::FeatureLayout;
use crate::em::state::{TROUBLE, stopped};
use crate::layout::{Kind, packed_index, packed_len};

/// Covariance kinds as integers.
pub mod kind {
    /// One matrix per component.
    pub const FULL: u32 = 0;
    /// One matrix for all components.
    pub const TIED: u32 = 1;
    /// One vector of variances per component.
    pub const DIAG: u32 = 2;
    /// One variance per component.
    pub const SPHERICAL: u32 = 3;
}

kernels! {
    /// The grid is `8*groups` blocks: one per component; the blocks past the last component write constants of −∞.
    Update {
        /// State of the loop, or null.
        state: *mut u32,
        /// The iteration that this ends, from 1. At 0 there is no M-step: coefficients are computed from the given
        /// parameters.
        iteration: u32,
        /// The loop's last iteration.
        max_iter: u32,
        /// The loop stops if the mean log-likelihood changes by less.
        tol: f64,
        /// One of [`kind`].
        kind: u32,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`FeatureLayout::steps`].
        steps: u32,
        /// [`FeatureLayout::groups`].
        groups: u32,
        /// [`FeatureLayout::classes`].
        classes: u32,
        /// [`FeatureLayout::sums`] elements; not read at iteration 0.
        sums: *const f64,
        /// Packed Σ w x xᵀ, `(d*(d+1)/2,)`, for a tied covariance; else null.
        scatter: *const f64,
        /// Σ w.
        total_weight: f64,
        /// Added to variances.
        reg_covar: f64,
        /// Upper bound of the sum of a component's absolute terms, before they cancel.
        most_terms: f64,
        /// Lower bound of what must remain of a moment after the mean's square is subtracted, as a fraction of the
        /// moment.
        least_left: f64,
        /// Whether the sums of a component are about its mean (1) and not about the shift (0). Not for a tied covariance.
        about_means: u32,
        /// `(k,)`: component weights; read and written.
        weights: *mut f64,
        /// `(k, d)`: means less the shift; read and written.
        means: *mut f64,
        /// Packed covariances or variances; read and written.
        covariances: *mut f64,
        /// `(k,)`, written: 1 for an empty component, else 0.
        empty: *mut u32,
        /// [`FeatureLayout::coefficients`] elements; zeroed beforehand, only those that are not always 0 are written.
        /// Not written with `roots`.
        coefficients: *mut f64,
        /// `(8*groups,)`, written: the log joint density at the shift.
        constants: *mut f64,
        /// Packed inverses of the Cholesky factors of full covariances, `(k, d*(d+1)/2)`, written; or null. With it,
        /// the constants are the log joint densities at the mean.
        roots: *mut f64,
        /// `(2,)`, for a tied covariance: the part of Σ w ln p(x) that all components share, at the iteration's parity.
        carry: *mut f64,
        /// `(TRACE,)`, written: mean log-likelihood of iteration `i` at `(i − 1) % TRACE`.
        trace: *mut f64,
        /// `(k, wide_matrix(d))`, overwritten; [`update_wide`] only: one matrix per component, for every kind.
        matrices: *mut f64,
    }
    /// Matrices in shared memory.
    update => body::<false>, shared_bytes, threads;
    /// Matrices in device memory.
    update_wide => body::<true>, wide_shared_bytes, threads;
}

pub use crate::em::m_step::blocked_cholesky::{shared_len as wide_shared_len, wide_matrix};

/// Where an M-step stores its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrices {
    /// In shared memory, or there are none: [`update`].
    Shared,
    /// In device memory: [`update_wide`].
    Device,
}

impl Matrices {
    /// Returns where the matrices are stored if a block may use `room` bytes of shared memory.
    ///
    /// # Errors
    /// Returns the bytes of shared memory needed if `room` is too small.
    pub const fn of(of: Kind, d: u32, room: u64) -> Result<Self, u64> {
        let (wanted, wide) = (shared_len(number(of), d), wide_shared_len(d));
        match of {
            Kind::Full if d >= WIDE_FROM && wide <= room => Ok(Self::Device),
            _ if wanted <= room => Ok(Self::Shared),
            // Shared memory first: every block pools the same matrix, and in device memory all blocks would do so in
            // the L2 cache.
            Kind::Tied if wide <= room => Ok(Self::Device),
            Kind::Full | Kind::Tied => Err(wide),
            Kind::Diag | Kind::Spherical => Err(wanted),
        }
    }
}

/// Number of columns from which full covariances are faster in device memory, whose panels use the tensor cores.
pub const WIDE_FROM: u32 = 56;

/// Threads per block. Eight warps give each scheduler two, so that one can issue while the other waits.
const OWN_THREADS: u32 = 256;

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Update) -> u32 {
    OWN_THREADS
}

/// The thread that writes the constants, and the one that records the log-likelihood: in different warps.
const ONE: u32 = OWN_THREADS - WARP;
const BOOKS: u32 = OWN_THREADS - 2 * WARP;

/// Number of iterations whose log-likelihoods are stored.
pub const TRACE: u64 = 256;

/// Whether the kind has matrices.
const fn has_matrix(kind: u32) -> bool {
    kind == kind::FULL || kind == kind::TIED
}

/// Length of the scratch for sums over threads, at most five sums at once.
const SUMS: u32 = 5 * OWN_THREADS / WARP;

/// Sums over the block's threads; every thread gets the results.
#[inline(always)]
fn sums<const M: usize>(values: [f64; M], scratch: Shared<f64>) -> [f64; M] {
    block_sums_of(values, scratch, OWN_THREADS / WARP)
}

/// Maximum columns of a matrix that a block keeps in registers while it is inverted.
const HELD: u32 = 32;

/// Length of a column of the matrix, padded with zeros.
const fn padded(d: u32) -> u32 {
    if d < HELD { HELD } else { d.next_multiple_of(2) }
}

/// Rows per warp if a block keeps a matrix in its registers; each lane has one column.
const ROWS: usize = (HELD * WARP / OWN_THREADS) as usize;

/// Components whose means are in shared memory at once, for a tied covariance.
const fn together(d: u32) -> u32 {
    if d <= 64 { 32 } else { 16 }
}

/// Length of each of those: the padded mean, the weight, and one element that keeps the next aligned.
const fn pooled_stride(d: u32) -> u32 {
    padded(d) + 2
}

/// Whether the block prefetches the scatter matrix into shared memory.
const fn brings_scatter(kind: u32, d: u32) -> bool {
    kind == kind::TIED && d <= HELD
}

/// Bytes of shared memory: scratch for sums; for full and tied covariances, two columns of a matrix; for tied ones,
/// some components' means and weights; four vectors; the packed matrix; and the scatter matrix if it is prefetched.
pub const fn shared_len(kind: u32, d: u32) -> u64 {
    let (columns, matrix) = if has_matrix(kind) { (2 * padded(d) as u64, packed_len(d)) } else { (0, 0) };
    let means = if kind == kind::TIED { together(d) as u64 * pooled_stride(d) as u64 } else { 0 };
    let scatter = if brings_scatter(kind, d) { packed_len(d) } else { 0 };
    (SUMS as u64 + columns + means + 4 * d as u64 + matrix + scatter).saturating_mul(8)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Update) -> u64 {
    shared_len(a.kind, a.d)
}

#[cfg(not(target_arch = "nvptx64"))]
fn wide_shared_bytes(a: &Update) -> u64 {
    wide_shared_len(a.d)
}

/// Returns the integer of a kind.
pub const fn number(of: Kind) -> u32 {
    match of {
        Kind::Full => kind::FULL,
        Kind::Tied => kind::TIED,
        Kind::Diag => kind::DIAG,
        Kind::Spherical => kind::SPHERICAL,
    }
}

/// A block's shared memory.
#[derive(Clone, Copy)]
struct Work {
    sum: Shared<f64>,
    /// The component's mean.
    mean: Shared<f64>,
    /// Its variances, including regularisation.
    variance: Shared<f64>,
    /// Upper bound of how far its rows are from the shift: |mean| + 4 standard deviations.
    reach: Shared<f64>,
    /// Pivots of the covariance; for a spherical covariance, first the sum of squares.
    pivot: Shared<f64>,
    /// A column of the matrix, alternately in one and the other; [`padded`] and 16-byte aligned.
    column: [Shared<f64>; 2],
    /// The packed covariance, then its negative inverse.
    a: Shared<f64>,
    /// Means and weights of some components, `(together, pooled_stride)`.
    some: Shared<f64>,
    /// The scatter matrix, if it is [prefetched](brings_scatter).
    scatter: Shared<f64>,
}

impl Work {
    #[inline(always)]
    fn new(kind: u32, d: u32) -> Self {
        let column = if has_matrix(kind) { padded(d) } else { 0 };
        let some = SUMS + 2 * column;
        let vectors = some + if kind == kind::TIED { together(d) * pooled_stride(d) } else { 0 };
        let vector = |i: u32| Shared::at(8 * (vectors + i * d));
        Self {
            sum: Shared::at(0),
            column: [Shared::at(8 * SUMS), Shared::at(8 * (SUMS + column))],
            mean: vector(0),
            variance: vector(1),
            reach: vector(2),
            pivot: vector(3),
            a: vector(4),
            some: Shared::at(8 * some),
            scatter: Shared::at(8 * (vectors + 4 * d + packed_len(d) as u32)),
        }
    }
}

/// Position of entry `(i, j)` or `(j, i)` of a packed symmetric matrix.
#[inline(always)]
fn symmetric(i: u32, j: u32) -> u32 {
    (if j <= i { packed_index(i, j) } else { packed_index(j, i) }) as u32
}

/// Calls `f(i)` for this thread's part of `0..n`.
#[inline(always)]
fn share(n: u32, mut f: impl FnMut(u32)) {
    // The opaque step keeps the compiler from unrolling: this kernel's time goes into instruction fetches, since most
    // of its instructions run once.
    let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
    while i < n {
        f(i);
        i += step;
    }
}

/// Lanes that share a row of a matrix.
const LANES_OF_ROW: u32 = 8;

/// Calls `f(i, from, step)` for this thread's part of the rows `0..n`: entries `from`, `from + step`, ... of row `i`.
/// All threads of a warp make the same number of calls, some with rows past the last.
#[inline(always)]
fn share_rows(n: u32, mut f: impl FnMut(u32, u32, u32)) {
    let t = thread::thread_idx_x();
    let (mut first, down, right) = (0, device::unknown(OWN_THREADS / LANES_OF_ROW), device::unknown(LANES_OF_ROW));
    while first < n {
        f(first + t / LANES_OF_ROW, t % LANES_OF_ROW, right);
        first += down;
    }
}

/// Calls `f(i, j)` for this thread's part of the entries `j ≤ i < n`.
#[inline(always)]
fn share_triangle(n: u32, mut f: impl FnMut(u32, u32)) {
    share_rows(n, |i, from, step| {
        let mut j = from;
        while i < n && j <= i {
            f(i, j);
            j += step;
        }
    });
}

/// Body of the kernel; `WIDE`: matrices are in device memory.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Update`] document.
#[inline(always)]
pub unsafe fn body<const WIDE: bool>(a: Update) {
    device::await_previous_grid();
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
    let k = thread::block_idx_x();
    let one = Component { a: &a, place, k, w: if WIDE { Work::wide(a.d) } else { Work::new(a.kind, a.d) } };
    // SAFETY: the caller upholds `# Safety`; `k < a.k` wherever a component is read; all threads take the same
    // branches.
    unsafe {
        if !WIDE && k < a.k {
            one.send();
        }
        let books = k == 0 && a.iteration > 0 && thread::thread_idx_x() == BOOKS;
        let seen = if books { one.look() } else { Progress::NOTHING };
        // Read while the copies are in flight.
        let stop = stopped(a.state.cast_const(), a.iteration);
        if stop {
            Shared::<f64>::arrive();
            return;
        }
        if k >= a.k {
            if thread::thread_idx_x() == 0 {
                device::store(a.constants, k as u64, f64::NEG_INFINITY);
            }
            return;
        }
        let (weight, lost) = match (a.iteration == 0, WIDE) {
            (true, false) => (device::load(a.weights.cast_const(), k as u64), one.recall()),
            (true, true) => (device::load(a.weights.cast_const(), k as u64), one.recall_wide()),
            (false, false) => one.maximise(),
            (false, true) => one.maximise_wide(),
        };
        let well = one.expand::<WIDE>(weight, lost);
        if thread::thread_idx_x() == ONE && !well {
            device::store(a.state, TROUBLE, a.iteration.max(1));
        }
        if books {
            one.book(seen);
        }
    }
}

#[derive(Clone, Copy)]
struct Component<'a> {
    a: &'a Update,
    place: FeatureLayout,
    k: u32,
    w: Work,
}

impl Component<'_> {
    #[inline(always)]
    unsafe fn sum_at(&self, at: u64) -> f64 {
        // SAFETY: `at` comes from `FeatureLayout`, so it is below the length of the sums.
        unsafe { device::load(self.a.sums, at) }
    }

    /// Returns Σ r of a component, and whether the component counts as empty.
    #[inline(always)]
    unsafe fn weight(&self, k: u32) -> (f64, bool) {
        // SAFETY: `k < a.k`, so the position is within the sums.
        let weight = unsafe { self.sum_at(self.place.weight(k)) };
        (weight, weight <= f64::EPSILON * self.a.total_weight)
    }

    #[inline(always)]
    fn mean_at(&self, j: u32) -> u64 {
        self.k as u64 * self.a.d as u64 + j as u64
    }

    /// Position of the component's first covariance entry.
    #[inline(always)]
    fn covariance_at(&self) -> u64 {
        let (k, d) = (self.k as u64, self.a.d as u64);
        match self.a.kind {
            kind::FULL => k * packed_len(self.a.d),
            kind::TIED => 0,
            kind::DIAG => k * d,
            _ => k,
        }
    }
}

const _: () = assert!(OWN_THREADS.is_multiple_of(WARP) && HELD == WARP && SUMS.is_multiple_of(2));
