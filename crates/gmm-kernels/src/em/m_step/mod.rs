//! Between two passes: sums into a new component, its precision, and the coefficients of the next densities.
//!
//! One block per component, everything in `f64` and in shared memory ([`update`]); of many columns with matrices in device memory
//! ([`update_wide`]). All moments are about the rows' shift, so a mean's square is taken out of them here; and densities are
//! expanded about it, so that a component's own terms cancel there. Both lose digits where a component is narrow and far from
//! the shift. The block measures both losses; where one is too large it reports trouble, as it does for a covariance that is not
//! positive definite or a sum that is not finite, and the host goes on from the last good mixture by passes about the means.

mod blocked_cholesky;
mod convergence;
mod expand;
mod maximise;

use crate::em::m_step::convergence::Seen;

use crate::device::{self, Shared, WARP, block_sums_of, thread};
use crate::em::layout::Place;
use crate::em::state::{TROUBLE, stopped};
use crate::layout::{Kind, packed_index, packed_len};

/// The kinds of covariance as numbers.
pub mod kind {
    /// Own matrices.
    pub const FULL: u32 = 0;
    /// One matrix.
    pub const TIED: u32 = 1;
    /// Own variances.
    pub const DIAG: u32 = 2;
    /// One variance each.
    pub const SPHERICAL: u32 = 3;
}

kernels! {
    /// The grid is `8*groups` blocks: one per component, and those past the last write what makes them count nothing.
    Update {
        /// State of the loop, or null.
        state: *mut u32,
        /// The iteration that this ends, from 1; 0 makes coefficients of the parameters that are there, and no M-step.
        iteration: u32,
        /// The loop's last iteration.
        max_iter: u32,
        /// Stop where the mean log-likelihood changes by less.
        tol: f64,
        /// One of [`kind`].
        kind: u32,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// [`Place::steps`].
        steps: u32,
        /// [`Place::groups`].
        groups: u32,
        /// [`Place::classes`].
        classes: u32,
        /// [`Place::sums`]; not read at iteration 0.
        sums: *const f64,
        /// Packed Σ w x xᵀ, `(d*(d+1)/2,)`, for a tied covariance; else null.
        scatter: *const f64,
        /// Σ w.
        total_weight: f64,
        /// Added to variances.
        reg_covar: f64,
        /// The most that a component's terms may add up to before they cancel.
        most_terms: f64,
        /// The least that may be left of a moment when the mean's square is taken out, as a share of it.
        least_left: f64,
        /// `(k,)`: component weights; read and written.
        weights: *mut f64,
        /// `(k, d)`: means less the shift; read and written.
        means: *mut f64,
        /// Packed covariances or variances; read and written.
        covariances: *mut f64,
        /// `(k,)`, written: 1 where the component was empty.
        empty: *mut u32,
        /// [`Place::coefficients`], written where they are not 0 for good: zeroed beforehand. With `roots` nothing is written.
        coefficients: *mut f64,
        /// `(8*groups,)`, written: what a log joint density is at the shift.
        constants: *mut f64,
        /// Packed inverses of the Cholesky factors of full covariances, `(k, d*(d+1)/2)`, written; or null. Constants are then
        /// what a log joint density is at the mean.
        roots: *mut f64,
        /// `(2,)`: for a tied covariance, by iteration's parity, the part of Σ w ln p(x) that all components share.
        carry: *mut f64,
        /// `(TRACE,)`: mean log-likelihood of iteration `i` at `(i − 1) % TRACE`, written.
        trace: *mut f64,
        /// `(k, wide_matrix(d))`, overwritten: for [`update_wide`] alone, a matrix for each component whatever the kind.
        matrices: *mut f64,
    }
    /// Matrices in shared memory.
    update => body::<false>, shared_bytes, threads;
    /// Matrices in device memory.
    update_wide => body::<true>, wide_shared_bytes, threads;
}

pub use crate::em::m_step::blocked_cholesky::{shared_len as wide_shared_len, wide_matrix};

/// Where an M-step has its matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Matrices {
    /// In shared memory, or it has none: [`update`].
    Shared,
    /// In device memory: [`update_wide`].
    Device,
}

impl Matrices {
    /// Where there is `room` for so many bytes of shared memory; else what would be wanted.
    ///
    /// # Errors
    /// The bytes.
    pub const fn of(of: Kind, d: u32, room: u64) -> Result<Self, u64> {
        let (wanted, wide) = (shared_len(number(of), d), wide_shared_len(d));
        match of {
            Kind::Full if d >= WIDE_FROM && wide <= room => Ok(Self::Device),
            _ if wanted <= room => Ok(Self::Shared),
            // Each block pools the same matrix, which many of them would do in the second cache.
            Kind::Tied if wide <= room => Ok(Self::Device),
            Kind::Full | Kind::Tied => Err(wide),
            Kind::Diag | Kind::Spherical => Err(wanted),
        }
    }
}

/// Columns from which on full covariances are faster in device memory: panels of them go to the tensor cores.
pub const WIDE_FROM: u32 = 56;

/// Threads of a block: with eight warps, two of a scheduler's wait in turns.
const OWN_THREADS: u32 = 256;

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Update) -> u32 {
    OWN_THREADS
}

/// The thread that sees to the constants, and the one that books likelihoods: not of the same warp.
const ONE: u32 = OWN_THREADS - WARP;
const BOOKS: u32 = OWN_THREADS - 2 * WARP;

/// Iterations whose likelihoods a loop remembers.
pub const TRACE: u64 = 256;

/// Whether the kind has matrices.
const fn has_matrix(kind: u32) -> bool {
    kind == kind::FULL || kind == kind::TIED
}

/// Numbers of the scratch in which threads' sums meet, five at once at most.
const SUMS: u32 = 5 * OWN_THREADS / WARP;

/// Sums over the block's threads; every thread gets them.
#[inline(always)]
fn sums<const M: usize>(values: [f64; M], scratch: Shared<f64>) -> [f64; M] {
    block_sums_of(values, scratch, OWN_THREADS / WARP)
}

/// Columns up to which a block has a matrix in its registers while it is inverted.
const HELD: u32 = 32;

/// Length of a column of the matrix, filled up with zeros.
const fn padded(d: u32) -> u32 {
    if d < HELD { HELD } else { d.next_multiple_of(2) }
}

/// Rows of a warp where a block holds a matrix in its registers; a lane has a column.
const ROWS: usize = (HELD * WARP / OWN_THREADS) as usize;

/// Components whose means are in shared memory together, for a tied covariance.
const fn together(d: u32) -> u32 {
    if d <= 64 { 32 } else { 16 }
}

/// Numbers of each of those: its mean, filled up, its weight, and one that keeps the next aligned.
const fn pooled_stride(d: u32) -> u32 {
    padded(d) + 2
}

/// Whether the block brings the scatter matrix into shared memory before it is asked for.
const fn brings_scatter(kind: u32, d: u32) -> bool {
    kind == kind::TIED && d <= HELD
}

/// Bytes of shared memory: the sums' scratch, for full and tied covariances two columns of a matrix, for tied ones some
/// components' means and weights, four vectors, the matrix, packed, and the scatter matrix where it is brought.
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

/// The number of a kind.
pub const fn number(of: Kind) -> u32 {
    match of {
        Kind::Full => kind::FULL,
        Kind::Tied => kind::TIED,
        Kind::Diag => kind::DIAG,
        Kind::Spherical => kind::SPHERICAL,
    }
}

/// A block's memory.
#[derive(Clone, Copy)]
struct Work {
    sum: Shared<f64>,
    /// The component's mean.
    mean: Shared<f64>,
    /// Its variances, with regularisation.
    variance: Shared<f64>,
    /// How far from the shift its rows are, about.
    reach: Shared<f64>,
    /// Pivots of the covariance; where it has one variance, before that what its second moment is made of.
    pivot: Shared<f64>,
    /// A column of the matrix, in turn in one and the other, [`padded`] and 16-byte aligned.
    column: [Shared<f64>; 2],
    /// The covariance, then its negative inverse: packed.
    a: Shared<f64>,
    /// Some components' means and weights, `(together, pooled_stride)`.
    some: Shared<f64>,
    /// The scatter matrix, where it [is brought](brings_scatter).
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
    // A step that the compiler does not know keeps it from writing loops out: what this kernel waits for is its own
    // instructions, most of which run once.
    let (mut i, step) = (thread::thread_idx_x(), device::unknown(OWN_THREADS));
    while i < n {
        f(i);
        i += step;
    }
}

/// Lanes that share a row of a matrix.
const LANES_OF_ROW: u32 = 8;

/// Calls `f(i, from, step)` for this thread's part of the rows `0..n`: entries `from`, `from + step`, ... of row `i`. Threads
/// of a warp are called equally often, with rows past the last too.
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

/// The kernel; `WIDE`: of matrices in device memory.
///
/// # Safety
/// As the fields of [`Update`] say.
#[inline(always)]
pub unsafe fn body<const WIDE: bool>(a: Update) {
    device::await_previous_grid();
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let k = thread::block_idx_x();
    let one = Component { a: &a, place, k, w: if WIDE { Work::wide(a.d) } else { Work::new(a.kind, a.d) } };
    // SAFETY: the caller's promise; the same branch in all threads.
    unsafe {
        if !WIDE && k < a.k {
            one.send();
        }
        let books = k == 0 && a.iteration > 0 && thread::thread_idx_x() == BOOKS;
        let seen = if books { one.look() } else { Seen::NOTHING };
        // All that is on its way meanwhile.
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
    place: Place,
    k: u32,
    w: Work,
}

impl Component<'_> {
    #[inline(always)]
    unsafe fn sum_at(&self, at: u64) -> f64 {
        // SAFETY: a place within the sums.
        unsafe { device::load(self.a.sums, at) }
    }

    /// Σ r of a component, and whether that is nothing.
    #[inline(always)]
    unsafe fn weight(&self, k: u32) -> (f64, bool) {
        // SAFETY: `k` is a component.
        let weight = unsafe { self.sum_at(self.place.weight(k)) };
        (weight, weight <= f64::EPSILON * self.a.total_weight)
    }

    #[inline(always)]
    fn mean_at(&self, j: u32) -> u64 {
        self.k as u64 * self.a.d as u64 + j as u64
    }

    /// Where the component's covariances start.
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
