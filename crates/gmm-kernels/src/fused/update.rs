//! Between two passes: sums into a new component, its precision, and the coefficients of the next densities.
//!
//! One block per component, everything in shared memory and `f64`. All moments are about the rows' shift, so a mean's
//! square is taken out of them here; and densities are expanded about it, so that a component's own terms cancel there.
//! Both lose digits where a component is narrow and far from the shift. The block measures both losses; where one is
//! too large it reports trouble, as it does for a covariance that is not positive definite or a sum that is not finite,
//! and the host goes on from the last good mixture by passes about the means.

use super::place::Place;
use super::state::{DONE, FINISHED, TROUBLE, stopped};
use crate::device::{self, Shared, WARP, block_sum, thread};
use crate::layout::{Kind, packed_index, packed_len};
use crate::math::ln_f64;
use crate::{Real, THREADS};

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
        /// [`Place::coefficients`], written where they are not 0 for good: zeroed beforehand.
        coefficients: *mut f64,
        /// `(8*groups,)`, written: what a log joint density is at the shift.
        constants: *mut f64,
        /// `(2,)`: for a tied covariance, by iteration's parity, the part of Σ w ln p(x) that all components share.
        carry: *mut f64,
        /// `(TRACE,)`: mean log-likelihood of iteration `i` at `(i − 1) % TRACE`, written.
        trace: *mut f64,
    }
    /// The kernel.
    update => body, shared_bytes;
}

/// Iterations whose likelihoods a loop remembers.
pub const TRACE: u64 = 256;

const LN_2PI: f64 = 1.837_877_066_409_345_5;

/// Whether the kind has matrices.
const fn has_matrix(kind: u32) -> bool {
    kind == kind::FULL || kind == kind::TIED
}

/// Bytes of shared memory: a sum's scratch, six vectors, for full and tied covariances a packed matrix, and for tied
/// ones all components' means and weights.
pub const fn shared_len(kind: u32, k: u32, d: u32) -> u64 {
    let matrix = if has_matrix(kind) { packed_len(d) } else { 0 };
    let means = if kind == kind::TIED { k as u64 * (d as u64 + 1) } else { 0 };
    8 * (4 + 6 * d as u64 + matrix + means)
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes(a: &Update) -> u64 {
    shared_len(a.kind, a.k, a.d)
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
    /// Pivots of the covariance.
    pivot: Shared<f64>,
    /// A column of the matrix, in turn in one and the other.
    column: [Shared<f64>; 2],
    /// The covariance, then its negative inverse: packed.
    a: Shared<f64>,
    /// All components' weights and means, `(k, d+1)`.
    all: Shared<f64>,
}

impl Work {
    #[inline(always)]
    fn new(kind: u32, d: u32) -> Self {
        let vector = |i: u32| Shared::at(8 * (4 + i * d));
        let matrix = if has_matrix(kind) { packed_len(d) as u32 } else { 0 };
        Self {
            sum: Shared::at(0),
            mean: vector(0),
            variance: vector(1),
            reach: vector(2),
            pivot: vector(3),
            column: [vector(4), vector(5)],
            a: vector(6),
            all: Shared::at(8 * (4 + 6 * d + matrix)),
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
    let mut i = thread::thread_idx_x();
    while i < n {
        f(i);
        i += THREADS;
    }
}

/// Calls `f(i, j)` for this thread's part of the entries `j ≤ i < n`.
#[inline(always)]
fn share_triangle(n: u32, mut f: impl FnMut(u32, u32)) {
    let t = thread::thread_idx_x();
    let mut i = t / 8;
    while i < n {
        let mut j = t % 8;
        while j <= i {
            f(i, j);
            j += 8;
        }
        i += THREADS / 8;
    }
}

/// The kernel.
///
/// # Safety
/// As the fields of [`Update`] say.
#[inline(always)]
pub unsafe fn body(a: Update) {
    // SAFETY: the state is as `state` says.
    if unsafe { stopped(a.state.cast_const(), a.iteration) } {
        return;
    }
    let place = Place { steps: a.steps, groups: a.groups, classes: a.classes };
    let k = thread::block_idx_x();
    let one = Component { a: &a, place, k, w: Work::new(a.kind, a.d) };
    // SAFETY: the caller's promise; the same branch in all threads.
    unsafe {
        if k >= a.k {
            if thread::thread_idx_x() == 0 {
                device::store(a.constants, k as u64, f64::NEG_INFINITY);
            }
            return;
        }
        let well = if a.iteration == 0 { one.recall() } else { one.maximise() };
        let well = one.expand() && well;
        if thread::thread_idx_x() == 0 && !well {
            device::store(a.state, TROUBLE, a.iteration.max(1));
        }
        if k == 0 && a.iteration > 0 && thread::thread_idx_x() == 0 {
            one.book();
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

    /// Σ r x of a component and an entry.
    #[inline(always)]
    unsafe fn first(&self, k: u32, j: u32) -> f64 {
        let p = self.place;
        // SAFETY: `k` is a component, `j < d`.
        unsafe { self.sum_at(if p.classes > 0 { p.entry_sum(j, k) } else { p.column_sum(j, k) }) }
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

    /// The parameters that are there, into shared memory.
    #[inline(always)]
    unsafe fn recall(&self) -> bool {
        let (a, w, at) = (self.a, self.w, self.covariance_at());
        // SAFETY: `j < d`, places within the arrays.
        unsafe {
            share(a.d, |j| w.mean.store(j, device::load(a.means.cast_const(), self.mean_at(j))));
            if has_matrix(a.kind) {
                share_triangle(a.d, |i, j| {
                    let v = device::load(a.covariances.cast_const(), at + packed_index(i, j));
                    w.a.store(packed_index(i, j) as u32, v);
                    if i == j {
                        w.variance.store(i, v);
                    }
                });
            } else {
                let each = if a.kind == kind::DIAG { 1 } else { 0 };
                share(a.d, |j| {
                    w.variance.store(j, device::load(a.covariances.cast_const(), at + each * j as u64));
                });
            }
        }
        thread::sync_threads();
        true
    }

    /// The M-step; whether its digits are good.
    #[inline(always)]
    unsafe fn maximise(&self) -> bool {
        let (a, w, p, t) = (self.a, self.w, self.place, thread::thread_idx_x());
        let (d, at) = (a.d, self.covariance_at());
        // SAFETY: `j < d`, places within the sums and the arrays; each entry is written by one thread.
        unsafe {
            let (weight, empty) = self.weight(self.k);
            if t == 0 {
                device::store(a.weights, self.k as u64, weight / a.total_weight);
                device::store(a.empty, self.k as u64, empty as u32);
            }
            if empty && a.kind != kind::TIED {
                return self.recall();
            }
            if a.kind == kind::TIED {
                self.gather();
            }
            let mut lost = 0.0;
            share(d, |j| {
                let old = device::load(a.means.cast_const(), self.mean_at(j));
                let mean = if empty { old } else { self.first(self.k, j) / weight };
                device::store(a.means, self.mean_at(j), mean);
                w.mean.store(j, mean);
            });
            thread::sync_threads();
            // `about` the shift, `moved` by the means' squares.
            let left = |about: f64, moved: f64, lost: &mut f64| {
                let v = about - moved;
                // Also where one is not a number.
                if about != 0.0 && !(v >= a.least_left * about) {
                    *lost += 1.0;
                }
                v
            };
            match a.kind {
                kind::FULL | kind::TIED => share_triangle(d, |i, j| {
                    let (about, moved) = if a.kind == kind::FULL {
                        let raw = self.sum_at(p.product_sum(i, j, self.k));
                        (raw / weight, w.mean.load(i) * w.mean.load(j))
                    } else {
                        let raw = device::load(a.scatter, packed_index(i, j));
                        (raw / a.total_weight, self.pooled(i, j))
                    };
                    let v = if i == j { left(about, moved, &mut lost) + a.reg_covar } else { about - moved };
                    w.a.store(packed_index(i, j) as u32, v);
                    if i == j {
                        w.variance.store(i, v);
                    }
                    if a.kind == kind::FULL || self.k == 0 {
                        device::store(a.covariances, at + packed_index(i, j), v);
                    }
                }),
                kind::DIAG => share(d, |j| {
                    let about = self.sum_at(p.column_sum(p.square(j), self.k)) / weight;
                    let v = left(about, w.mean.load(j) * w.mean.load(j), &mut lost) + a.reg_covar;
                    w.variance.store(j, v);
                    device::store(a.covariances, at + j as u64, v);
                }),
                _ => {
                    let mut squares = 0.0;
                    share(d, |j| squares += w.mean.load(j) * w.mean.load(j));
                    let moved = block_sum(squares, w.sum);
                    let about = self.sum_at(p.column_sum(d, self.k)) / weight;
                    let v = left(about, moved, &mut lost) / d as f64 + a.reg_covar;
                    share(d, |j| w.variance.store(j, v));
                    if t == 0 {
                        device::store(a.covariances, at, v);
                    }
                }
            }
            block_sum(lost, w.sum) == 0.0
        }
    }

    /// All components' weights, 0 for the empty, and means into shared memory, a component per warp.
    #[inline(always)]
    unsafe fn gather(&self) {
        let (d, t) = (self.a.d, thread::thread_idx_x());
        let mut c = t / WARP;
        while c < self.a.k {
            // SAFETY: `c` is a component, `j < d`.
            unsafe {
                let (weight, empty) = self.weight(c);
                let mut j = t % WARP;
                while j <= d {
                    let v = match (empty, j == d) {
                        (true, _) => 0.0,
                        (false, true) => weight,
                        (false, false) => self.first(c, j) / weight,
                    };
                    self.w.all.store(c * (d + 1) + j, v);
                    j += WARP;
                }
            }
            c += THREADS / WARP;
        }
        thread::sync_threads();
    }

    /// Σ over components of their share of the squares of the means, for a tied covariance, after [`gather`](Self::gather).
    #[inline(always)]
    fn pooled(&self, i: u32, j: u32) -> f64 {
        let (all, d) = (self.w.all, self.a.d);
        let one = |c: u32| {
            let at = c * (d + 1);
            all.load(at + d) * (all.load(at + i) * all.load(at + j))
        };
        let mut moved = 0.0;
        let mut c = 0;
        // Eight at a time, so that their latencies pass together.
        while c + 8 <= self.a.k {
            let [a, b, e, f] = [one(c), one(c + 1), one(c + 2), one(c + 3)];
            let [g, h, l, m] = [one(c + 4), one(c + 5), one(c + 6), one(c + 7)];
            moved += ((a + b) + (e + f)) + ((g + h) + (l + m));
            c += 8;
        }
        while c < self.a.k {
            moved += one(c);
            c += 1;
        }
        moved / self.a.total_weight
    }

    /// Coefficients of the densities; whether they can be used.
    #[inline(always)]
    unsafe fn expand(&self) -> bool {
        let (a, w) = (self.a, self.w);
        // How far from the shift rows of the component reach.
        share(a.d, |j| {
            let v = w.variance.load(j);
            let sd = if v > 0.0 { Real::sqrt(v) } else { 0.0 };
            let mean = w.mean.load(j);
            w.reach.store(j, (if mean < 0.0 { -mean } else { mean }) + 4.0 * sd);
        });
        thread::sync_threads();
        // SAFETY: the caller's promise; the same branch in all threads.
        let (half_ln_det, square, terms, well) =
            unsafe { if has_matrix(a.kind) { self.expand_matrix() } else { self.expand_variances() } };
        let well = well && terms <= a.most_terms;
        if thread::thread_idx_x() == 0 {
            // SAFETY: `k` is a component.
            unsafe {
                let weight = device::load(a.weights.cast_const(), self.k as u64);
                let log_scale = ln_f64(weight) - 0.5 * a.d as f64 * LN_2PI - half_ln_det;
                device::store(a.constants, self.k as u64, log_scale - 0.5 * square);
            }
        }
        well
    }

    #[inline(always)]
    unsafe fn expand_variances(&self) -> (f64, f64, f64, bool) {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        let (mut ln_det, mut square, mut terms, mut bad) = (0.0, 0.0, 0.0, 0.0);
        share(d, |j| {
            let (v, mean, reach) = (w.variance.load(j), w.mean.load(j), w.reach.load(j));
            if !(v > 0.0 && v < f64::INFINITY) {
                bad += 1.0;
            }
            ln_det += ln_f64(v);
            square += mean * mean / v;
            terms += reach * reach / v;
            // SAFETY: places within the coefficients.
            unsafe {
                device::store(a.coefficients, p.column_coefficient(j, self.k), mean / v);
                if a.kind == kind::DIAG {
                    device::store(a.coefficients, p.column_coefficient(p.square(j), self.k), -0.5 / v);
                } else if j == 0 {
                    device::store(a.coefficients, p.column_coefficient(d, self.k), -0.5 / v);
                }
            }
        });
        let all = |v: f64| block_sum(v, w.sum);
        let (ln_det, square, terms, bad) = (all(ln_det), all(square), all(terms), all(bad));
        (0.5 * ln_det, square, terms, bad == 0.0)
    }

    #[inline(always)]
    unsafe fn expand_matrix(&self) -> (f64, f64, f64, bool) {
        let (a, w, p, d) = (self.a, self.w, self.place, self.a.d);
        if !self.invert() {
            return (0.0, 0.0, 0.0, false);
        }
        let mut ln_det = 0.0;
        share(d, |j| ln_det += ln_f64(w.pivot.load(j)));
        let (mut terms, mut log_share) = (0.0, 0.0);
        share_triangle(d, |i, j| {
            let v = -w.a.load(packed_index(i, j) as u32);
            let twice = if i == j { 1.0 } else { 2.0 };
            terms += twice * (if v < 0.0 { -v } else { v }) * w.reach.load(i) * w.reach.load(j);
            // SAFETY: places within the arrays.
            unsafe {
                if a.kind == kind::FULL {
                    device::store(a.coefficients, p.product_coefficient(i, j, self.k), -0.5 * twice * v);
                } else if self.k == 0 {
                    log_share += 0.5 * twice * v * device::load(a.scatter, packed_index(i, j));
                }
            }
        });
        let mut square = 0.0;
        share(d, |i| {
            let mut v = 0.0;
            let mut j = 0;
            while j < d {
                v -= w.a.load(symmetric(i, j)) * w.mean.load(j);
                j += 1;
            }
            square += v * w.mean.load(i);
            let at =
                if a.kind == kind::FULL { p.entry_coefficient(i, self.k) } else { p.column_coefficient(i, self.k) };
            // SAFETY: a place within the coefficients.
            unsafe { device::store(a.coefficients, at, v) };
        });
        let all = |v: f64| block_sum(v, w.sum);
        let (ln_det, terms, square) = (all(ln_det), all(terms), all(square));
        if a.kind == kind::TIED && self.k == 0 {
            let log_share = all(log_share);
            if thread::thread_idx_x() == 0 {
                // SAFETY: two numbers.
                unsafe { device::store(a.carry, (a.iteration % 2) as u64, log_share) };
            }
        }
        (0.5 * ln_det, square, terms, true)
    }

    /// The covariance's negative inverse in its place, and its pivots; whether it was positive definite, the same in all
    /// threads.
    ///
    /// A sweep for each column: with `v` what is left of column `m` and `p` its pivot, the entry `(i, j)` loses `vᵢvⱼ/p`,
    /// and row and column `m` become `v/p`, the pivot `−1/p`. The pivots are those of the Cholesky factor, squared, and
    /// one barrier a column is enough: who changes an entry of the next column also writes it where all will read it.
    #[inline(always)]
    fn invert(&self) -> bool {
        let (w, d) = (self.w, self.a.d);
        share(d, |i| w.column[0].store(i, w.a.load(packed_index(i, 0) as u32)));
        let mut m = 0;
        while m < d {
            let odd = m % 2 == 1;
            let (now, next) = if odd { (w.column[1], w.column[0]) } else { (w.column[0], w.column[1]) };
            thread::sync_threads();
            let pivot = now.load(m);
            // Also false where it is not a number. What is that small the host judges.
            if !(pivot > 1e-9 * w.variance.load(m) && pivot > 0.0 && pivot < f64::INFINITY) {
                return false;
            }
            let share_of = 1.0 / pivot;
            if thread::thread_idx_x() == 0 {
                w.pivot.store(m, pivot);
            }
            share_triangle(d, |i, j| {
                let at = packed_index(i, j) as u32;
                let (vi, vj) = (now.load(i), now.load(j));
                let v = match (i == m, j == m) {
                    (true, true) => -share_of,
                    (true, false) => vj * share_of,
                    (false, true) => vi * share_of,
                    (false, false) => Real::fma(-vi, vj * share_of, w.a.load(at)),
                };
                w.a.store(at, v);
                if i == m + 1 {
                    next.store(j, v);
                } else if j == m + 1 {
                    next.store(i, v);
                }
            });
            m += 1;
        }
        thread::sync_threads();
        true
    }

    /// The likelihood of the pass that this ends, and whether to go on; one thread of one block.
    #[inline(always)]
    unsafe fn book(&self) {
        let a = self.a;
        // SAFETY: places within the sums, the trace and the state.
        unsafe {
            let mut total = self.sum_at(self.place.log_likelihood());
            if a.kind == kind::TIED {
                total -= device::load(a.carry.cast_const(), ((a.iteration - 1) % 2) as u64);
            }
            let mean = total / a.total_weight;
            let at = (a.iteration - 1) as u64;
            device::store(a.trace, at % TRACE, mean);
            if !(mean > f64::NEG_INFINITY && mean < f64::INFINITY) {
                device::store(a.state, TROUBLE, a.iteration);
            }
            let change =
                if at > 0 { mean - device::load(a.trace.cast_const(), (at - 1) % TRACE) } else { f64::INFINITY };
            let size = if change < 0.0 { -change } else { change };
            device::store(a.state, FINISHED, a.iteration);
            if size < a.tol || a.iteration == a.max_iter {
                device::store(a.state, DONE, a.iteration);
            }
        }
    }
}

const _: () = assert!(THREADS.is_multiple_of(WARP));
