//! Between two passes: from the sums to a new component, its precision, and the coefficients of the next densities. With
//! a prior, to the posterior of a component ([`bayes`]).
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
mod work;

use crate::em::m_step::bayes::Counts;
use crate::em::m_step::convergence::Progress;
pub use crate::em::m_step::work::shared_len;
use crate::em::m_step::work::{HELD, SUMS, Work};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::m_step::work::{shared_bytes, wide_shared_bytes};

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
        /// Packed Σ w x xᵀ, `(d*(d+1)/2,)`, for a tied covariance; else null. With `about_means`, Σ r (x − mean)(x − mean)ᵀ about
        /// the next means.
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
        /// Whether the sums of a component are about its mean (1) and not about the shift (0). The densities are then complete,
        /// and no coefficients are written.
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
        /// Not written with `roots` or `about_means`.
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
        /// `(k, wide_matrix(d))`, overwritten; the wide kernels only: one matrix per component, for every kind.
        matrices: *mut f64,
        /// The rest belongs to [`bayes`], and is 0 or null in the kernels of EM. The prior: m less the shift, then C,
        /// packed as a covariance of the kind, `(d + scale_len,)`.
        prior: *const f64,
        /// Whether the prior of the weights is a Dirichlet process (1) or a symmetric Dirichlet distribution (0).
        process: u32,
        /// α of the weights' prior.
        concentration: f64,
        /// β of the prior.
        mean_precision: f64,
        /// ν of the prior of a precision: for a tied covariance `k` times that of a component.
        degrees_of_freedom: f64,
        /// The part of the divergence that depends only on the prior, of all components.
        divergence_constant: f64,
        /// `(k,)`: Σ r of the pass from which the posterior was made; read at iteration 0, then written.
        counts: *mut f64,
        /// `(2, k)`: each component's part of the divergence of the posterior from the prior, at the iteration's parity.
        divergences: *mut f64,
    }
    /// Matrices in shared memory.
    update => body::<false, false>, shared_bytes, threads;
    /// Matrices in device memory.
    update_wide => body::<true, false>, wide_shared_bytes, threads;
    /// The next parameters are those of a posterior; `weights` and `empty` are not used.
    bayes_update => body::<false, true>, shared_bytes, threads;
    /// The same with matrices in device memory.
    bayes_update_wide => body::<true, true>, wide_shared_bytes, threads;
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
pub(crate) const fn has_matrix(kind: u32) -> bool {
    kind == kind::FULL || kind == kind::TIED
}

/// Sums over the block's threads; every thread gets the results.
#[inline(always)]
fn sums<const M: usize>(values: [f64; M], scratch: Shared<f64>) -> [f64; M] {
    block_sums_of(values, scratch, OWN_THREADS / WARP)
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

/// Body of the kernel; `WIDE`: matrices are in device memory; `BAYES`: there is a prior.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Update`] document.
#[inline(always)]
pub unsafe fn body<const WIDE: bool, const BAYES: bool>(a: Update) {
    device::await_previous_grid();
    let place = FeatureLayout { steps: a.steps, groups: a.groups, classes: a.classes };
    let k = thread::block_idx_x();
    let one = Component { a: &a, place, k, w: if WIDE { Work::wide(a.d) } else { Work::new(a.kind, a.d) } };
    // SAFETY: the caller upholds `# Safety`; `k < a.k` wherever a component is read; all threads take the same
    // branches.
    unsafe {
        if !WIDE && k < a.k {
            one.send();
            if BAYES {
                one.send_prior();
            }
        }
        let of_books = k == 0 && a.iteration > 0 && thread::thread_idx_x() / WARP == BOOKS / WARP;
        let books = of_books && thread::thread_idx_x() == BOOKS;
        let seen = if books { one.look() } else { Progress::NOTHING };
        let before = if BAYES && of_books { one.divergences_before() } else { 0.0 };
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
        let (well, before) = if BAYES { one.posterior::<WIDE>(before) } else { (one.mixture::<WIDE>(), 0.0) };
        if thread::thread_idx_x() == ONE && !well {
            device::store(a.state, TROUBLE, a.iteration.max(1));
        }
        if books {
            one.book(if BAYES { seen.less(before + a.divergence_constant) } else { seen });
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
    /// The component of a mixture, and its coefficients. Returns whether they can be used.
    #[inline(always)]
    unsafe fn mixture<const WIDE: bool>(&self) -> bool {
        // SAFETY: as `body`.
        unsafe {
            let before = || device::load(self.a.weights.cast_const(), self.k as u64);
            let (weight, lost) = match (self.a.iteration == 0, WIDE) {
                (true, false) => (before(), self.recall()),
                (true, true) => (before(), self.recall_wide()),
                (false, false) => self.maximise(),
                (false, true) => self.maximise_wide(),
            };
            self.expand::<WIDE, false>(weight, lost, &Counts::NONE)
        }
    }

    /// The same with a prior. Also returns the sum of `before`, each lane's part of the divergences before, in the first lanes
    /// of a warp.
    #[inline(always)]
    unsafe fn posterior<const WIDE: bool>(&self, before: f64) -> (bool, f64) {
        // SAFETY: as `body`.
        unsafe {
            let counts = self.counts();
            // Here all loads are in flight, and at the end the block would wait for it.
            let before = self.sum_before(before);
            let lost = match (self.a.iteration == 0, WIDE) {
                (true, false) => self.recall(),
                (true, true) => self.recall_wide(),
                (false, false) => self.update_posterior(counts.own),
                (false, true) => self.update_posterior_wide(counts.own),
            };
            if self.a.iteration > 0 && thread::thread_idx_x() == ONE {
                device::store(self.a.counts, self.k as u64, counts.own);
            }
            if !WIDE && self.a.iteration == 0 {
                self.recall_prior();
            }
            (self.expand::<WIDE, true>(0.0, lost, &counts), before)
        }
    }

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
