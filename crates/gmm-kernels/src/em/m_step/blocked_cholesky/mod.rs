//! The M-step of a component whose matrix does not fit into shared memory. The matrix is in device memory, and so in
//! the L2 cache; it is stored as a square of which the lower triangle is used.

mod panel;

use crate::device::{self, Shared, WARP, thread, warp};
use crate::each::each;
use crate::em::m_step::expand::Expanded;
use crate::em::m_step::work::{BEFORE_WARPS, SUMS, Work};
use crate::em::m_step::{Component, ONE, OWN_THREADS, kind, share};
use crate::layout::packed_index;
use crate::math::reciprocal;

/// Elements per row of a panel, which has as many columns as a warp has lanes: 4 more, against bank conflicts of mma
/// operand loads.
const STRIDE: u32 = WARP + 4;

const WARPS: u32 = OWN_THREADS / WARP;

/// Components whose means are in shared memory at once, for a tied covariance.
const TOGETHER: u32 = 16;
const _: () = assert!(TOGETHER <= STRIDE && TOGETHER <= WARP);

/// Rows and columns of a matrix, padded to whole panels.
const fn side(d: u32) -> u32 {
    d.next_multiple_of(WARP)
}

/// Length of a component's matrix.
pub const fn wide_matrix(d: u32) -> u64 {
    side(d) as u64 * side(d) as u64
}

/// Bytes of shared memory: scratch for sums, five vectors, the reciprocals of a panel's pivots, and the panel.
pub const fn shared_len(d: u32) -> u64 {
    let side = (d as u64).next_multiple_of(WARP as u64);
    8 * (SUMS as u64 + WARP as u64 + (5 + STRIDE as u64) * side)
}

impl Work {
    /// As [`new`](Self::new), but `column` is the product of precision and mean, and the reciprocals of a panel's
    /// pivots; `a` is a panel.
    #[inline(always)]
    pub(crate) fn wide(d: u32) -> Self {
        let vector = |i: u32| Shared::at(8 * (SUMS + i * side(d)));
        let panel = Shared::at(8 * (SUMS + 5 * side(d) + WARP));
        Self {
            sum: Shared::at(0),
            of_warps: Shared::at(BEFORE_WARPS),
            mean: vector(0),
            variance: vector(1),
            reach: vector(2),
            pivot: vector(3),
            column: [vector(4), vector(5)],
            a: panel,
            some: panel,
            scatter: panel,
            centre: panel,
        }
    }
}

/// Calls `f(i, lane)` for this warp's part of the rows `from..to`.
#[inline(always)]
fn rows_of_warp(from: u32, to: u32, mut f: impl FnMut(u32, u32)) {
    let (mut i, lane) = (from + thread::thread_idx_x() / WARP, warp::lane_id());
    while i < to {
        f(i, lane);
        i += WARPS;
    }
}

/// Values that a lane loads before it uses any, so that their latencies overlap.
const AT_ONCE: usize = 4;

/// Calls `f(i, read(i))` for `i = from, from + step, ...` while `is_there(i)`; `N` values are read before the first is
/// used.
#[inline(always)]
fn read_together<const N: usize>(
    from: u32,
    step: u32,
    is_there: impl Fn(u32) -> bool,
    read: impl Fn(u32) -> f64,
    mut f: impl FnMut(u32, f64),
) {
    let mut first = from;
    while is_there(first) {
        let mut some = [0.0; N];
        each(N, |more| {
            let i = first + more as u32 * step;
            if is_there(i) {
                some[more] = read(i);
            }
        });
        each(N, |more| {
            let i = first + more as u32 * step;
            if is_there(i) {
                f(i, some[more]);
            }
        });
        first += N as u32 * step;
    }
}

/// Calls `f(j, read(j))` for this lane's part of the columns `j ≤ i`.
#[inline(always)]
fn of_row(i: u32, lane: u32, read: impl Fn(u32) -> f64, f: impl FnMut(u32, f64)) {
    read_together::<AT_ONCE>(lane, WARP, |j| j <= i, read, f);
}

impl Component<'_> {
    #[inline(always)]
    fn matrix(&self) -> *mut f64 {
        self.a.matrices.wrapping_add((self.k as u64 * wide_matrix(self.a.d)) as usize)
    }

    /// Position of entry `(i, j)`, `j ≤ i`.
    #[inline(always)]
    fn entry(&self, i: u32, j: u32) -> u64 {
        i as u64 * side(self.a.d) as u64 + j as u64
    }

    /// Calls `f(i, j, read(i, j))` for this thread's part of the entries `j ≤ i < d`: a warp takes a row and reads
    /// several of its entries at a time.
    #[inline(always)]
    fn entries(&self, read: impl Fn(u32, u32) -> f64, mut f: impl FnMut(u32, u32, f64)) {
        rows_of_warp(0, self.a.d, |i, lane| of_row(i, lane, |j| read(i, j), |j, v| f(i, j, v)));
    }

    /// As [`recall`](Self::recall), for a matrix in device memory.
    #[inline(always)]
    pub(crate) unsafe fn recall_wide(&self) -> f64 {
        let (a, w, at, matrix) = (self.a, self.w, self.covariance_at(), self.matrix());
        // SAFETY: `j ≤ i < d` and `k < a.k`, so positions are within the arrays that `Update` documents.
        unsafe {
            share(a.d, |j| w.mean.store(j, device::load(a.means.cast_const(), self.mean_at(j))));
            let there = |i, j| device::load(a.covariances.cast_const(), at + packed_index(i, j));
            self.entries(there, |i, j, v| {
                device::store(matrix, self.entry(i, j), v);
                if i == j {
                    w.variance.store(i, v);
                }
            });
        }
        thread::sync_threads();
        0.0
    }

    /// As [`maximise`](Self::maximise), for a matrix in device memory and without prefetched sums.
    #[inline(always)]
    pub(crate) unsafe fn maximise_wide(&self) -> (f64, f64) {
        let (a, w, p, at) = (self.a, self.w, self.place, self.covariance_at());
        let full = a.kind == kind::FULL;
        // SAFETY: `j ≤ i < d`, so positions are within the sums and the arrays; each entry is written by one thread.
        unsafe {
            let (weight, empty) = self.weight(self.k);
            let share_of_all = weight / a.total_weight;
            if thread::thread_idx_x() == ONE {
                device::store(a.weights, self.k as u64, share_of_all);
                device::store(a.empty, self.k as u64, empty as u32);
            }
            if empty && full {
                return (share_of_all, self.recall_wide());
            }
            if !full {
                self.pool_wide::<false>();
            }
            let (of_component, of_all) = (reciprocal(weight), reciprocal(a.total_weight));
            let mut lost = 0.0;
            share(a.d, |j| {
                let sum = if full { p.entry_sum(j, self.k) } else { p.column_sum(j, self.k) };
                let mean = if empty {
                    device::load(a.means.cast_const(), self.mean_at(j))
                } else {
                    self.sum_at(sum) * of_component
                };
                device::store(a.means, self.mean_at(j), mean);
                w.mean.store(j, mean);
            });
            thread::sync_threads();
            self.replace_entries(|i, j, v| {
                let (about, moved) = if full {
                    (v * of_component, w.mean.load(i) * w.mean.load(j))
                } else {
                    (self.scatter_there(i, j) * of_all, v * of_all)
                };
                let mut v = about - moved;
                if i == j {
                    v = self.left(about, moved, &mut lost) + a.reg_covar;
                    w.variance.store(i, v);
                }
                if full || self.k == 0 {
                    device::store(a.covariances, at + packed_index(i, j), v);
                }
                v
            });
            thread::sync_threads();
            (share_of_all, lost)
        }
    }

    /// Writes the entries of the matrix: `f(i, j, v)` of the component's moments about the shift, for a tied covariance
    /// of what [`pool_wide`](Self::pool_wide) left.
    #[inline(always)]
    pub(crate) unsafe fn replace_entries(&self, mut f: impl FnMut(u32, u32, f64) -> f64) {
        let matrix = self.matrix();
        let there = |i, j| {
            // SAFETY: `j ≤ i < d`, so positions are within the sums and the component's matrix.
            unsafe {
                if self.a.kind == kind::FULL {
                    self.sum_at(self.place.product_sum(i, j, self.k))
                } else {
                    device::load(matrix.cast_const(), self.entry(i, j))
                }
            }
        };
        // SAFETY: as above; each entry is written by one thread, which has read it before.
        self.entries(there, |i, j, v| unsafe { device::store(matrix, self.entry(i, j), f(i, j, v)) });
    }

    /// As [`pool`](Self::pool); the means of some components are stored where a panel will be.
    #[inline(always)]
    pub(crate) unsafe fn pool_wide<const BAYES: bool>(&self) {
        let (a, w, matrix) = (self.a, self.w, self.matrix());
        let weights = w.column[1];
        let mean_of = |c: u32| w.a.skip(c * side(a.d));
        let mut from = 0;
        while from < a.k {
            let some = if a.k - from < TOGETHER { a.k - from } else { TOGETHER };
            thread::sync_threads();
            rows_of_warp(0, some, |c, lane| {
                // SAFETY: `from + c < a.k`.
                let weight = unsafe { self.pooled_weight::<BAYES>(from + c) };
                let of_component = if weight > 0.0 { reciprocal(weight) } else { 0.0 };
                let mut j = lane;
                while j < a.d {
                    // SAFETY: `from + c < a.k` and `j < d`.
                    let sum = unsafe { self.pooled_sum::<BAYES>(j, from + c) };
                    // 0 for an empty component even if its sum is NaN.
                    mean_of(c).store(j, if weight > 0.0 { sum * of_component } else { 0.0 });
                    j += WARP;
                }
                if lane == 0 {
                    weights.store(c, weight);
                }
            });
            thread::sync_threads();
            // SAFETY: `j ≤ i < d`; the same thread wrote this entry.
            let before = |i, j| unsafe { device::load(matrix.cast_const(), self.entry(i, j)) };
            let there = |i, j| if from == 0 { 0.0 } else { before(i, j) };
            self.entries(there, |i, j, mut moved| {
                let mut c = 0;
                while c < some {
                    moved += weights.load(c) * (mean_of(c).load(i) * mean_of(c).load(j));
                    c += 1;
                }
                // SAFETY: `j ≤ i < d`; only this thread writes this entry.
                unsafe { device::store(matrix, self.entry(i, j), moved) };
            });
            from += some;
        }
    }

    /// As [`expand_matrix`](Self::expand_matrix), for a matrix in device memory.
    #[inline(always)]
    pub(crate) unsafe fn expand_wide<const BAYES: bool>(&self, lost: f64) -> Expanded {
        let (a, w, p, d, matrix) = (self.a, self.w, self.place, self.a.d, self.matrix());
        let product = w.column[0];
        // SAFETY: the caller upholds that buffers are as `Update` documents; all threads take the same branch.
        unsafe { self.invert_by_panels() };
        let (ln_det, bad) = self.judge_pivots(lost);
        let full = a.kind == kind::FULL;
        let (mut terms, mut log_share, mut half_trace) = (0.0, 0.0, 0.0);
        rows_of_warp(0, d, |i, lane| {
            let mut dot = 0.0;
            // SAFETY: `j ≤ i < d`, so the entry is within the component's matrix.
            let there = |j| -unsafe { device::load(matrix.cast_const(), self.entry(i, j)) };
            of_row(i, lane, there, |j, v| {
                let twice = if i == j { 1.0 } else { 2.0 };
                terms += twice * (if v < 0.0 { -v } else { v }) * w.reach.load(i) * w.reach.load(j);
                dot += v * w.mean.load(j);
                // SAFETY: `j ≤ i < d` and `k < a.k`, so positions are within the coefficients and the scatter matrix.
                unsafe {
                    if BAYES && full {
                        half_trace += 0.5 * twice * v * self.about_prior::<true>(i, j);
                    }
                    if !full {
                        if self.k == 0 {
                            log_share += 0.5 * twice * v * self.scatter_there(i, j);
                        }
                    } else if a.roots.is_null() {
                        device::store(a.coefficients, p.product_coefficient(i, j, self.k), -0.5 * twice * v);
                    }
                }
            });
            each(5, |by| dot += warp::shuffle_xor(dot, 1 << by));
            if lane == 0 {
                product.store(i, dot);
            }
        });
        thread::sync_threads();
        let mut square = 0.0;
        share(d, |j| {
            let mut v = product.load(j);
            // Entries below the diagonal. All lanes of a warp read the same row, in which neighbouring lanes have
            // neighbouring entries.
            let mut first = j - j % WARP + 1;
            while first < d {
                let mut some = [0.0; 2 * AT_ONCE];
                each(2 * AT_ONCE, |more| {
                    let i = first + more as u32;
                    if i > j && i < d {
                        // SAFETY: `j < i < d`, so the entry is within the component's matrix.
                        some[more] = -unsafe { device::load(matrix.cast_const(), self.entry(i, j)) } * w.mean.load(i);
                    }
                });
                each(2 * AT_ONCE, |more| v += some[more]);
                first += 2 * AT_ONCE as u32;
            }
            square += v * w.mean.load(j);
            if BAYES && !full {
                // SAFETY: `j < d`.
                half_trace += unsafe { self.about_tied::<true>(v, j) };
            }
            if a.roots.is_null() {
                let at = if full { p.entry_coefficient(j, self.k) } else { p.column_coefficient(j, self.k) };
                // SAFETY: `j < d` and `k < a.k`, so the position is within the coefficients.
                unsafe { device::store(a.coefficients, at, v) };
            }
        });
        Expanded { ln_det, square, terms, log_share, bad, half_trace }
    }
}
