//! The M-step of one component: its parameters from the sums.

use crate::Real;
use crate::device::{self, Shared, WARP, thread};
use crate::each::each;
use crate::em::m_step::work::{HELD, ROWS, brings_scatter, pooled_stride, together};
use crate::em::m_step::{Component, ONE, OWN_THREADS, has_matrix, kind, share, share_triangle, sums};
use crate::layout::packed_index;
use crate::math::reciprocal;

impl Component<'_> {
    /// Loads the current parameters into shared memory. Returns the number of moments that lost precision, which is 0.
    #[inline(always)]
    pub(crate) unsafe fn recall(&self) -> f64 {
        let (a, w, at) = (self.a, self.w, self.covariance_at());
        Shared::arrive();
        // SAFETY: `j ≤ i < d` and `k < a.k`, so positions are within the arrays that `Update` documents.
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
        0.0
    }

    /// Starts the copies of the component's sums and of everything else known by now. Each thread copies the entries
    /// that it will use itself, after [`arrive`](Shared::arrive).
    #[inline(always)]
    pub(crate) unsafe fn send(&self) {
        let (a, w, p) = (self.a, self.w, self.place);
        let sum = |at: u64| a.sums.wrapping_add(at as usize);
        // SAFETY: positions from `FeatureLayout` are within the sums, and packed indices of `j ≤ i < d` within the
        // scatter matrix.
        unsafe {
            if brings_scatter(a.kind, a.d) {
                share_triangle(a.d, |i, j| {
                    let at = packed_index(i, j);
                    w.scatter.send(at as u32, a.scatter.wrapping_add(at as usize));
                });
            }
            if a.iteration == 0 {
                return;
            }
            share(a.d, |j| {
                w.mean.send(j, sum(if p.classes > 0 { p.entry_sum(j, self.k) } else { p.column_sum(j, self.k) }));
            });
            match a.kind {
                kind::FULL => share_triangle(a.d, |i, j| {
                    w.a.send(packed_index(i, j) as u32, sum(p.product_sum(i, j, self.k)));
                }),
                kind::TIED => {}
                kind::DIAG => share(a.d, |j| w.variance.send(j, sum(p.column_sum(p.square(j), self.k)))),
                _ => share(1, |i| w.pivot.send(i, sum(p.column_sum(a.d, self.k)))),
            }
        }
    }

    /// Entry `(i, j)` of the scatter matrix, one of those that this thread prefetched.
    #[inline(always)]
    pub(crate) unsafe fn scatter(&self, i: u32, j: u32) -> f64 {
        if brings_scatter(self.a.kind, self.a.d) {
            self.w.scatter.load(packed_index(i, j) as u32)
        } else {
            // SAFETY: the caller passes `j ≤ i < d`.
            unsafe { self.scatter_there(i, j) }
        }
    }

    /// Entry `(i, j)` of the scatter matrix, from device memory.
    #[inline(always)]
    pub(crate) unsafe fn scatter_there(&self, i: u32, j: u32) -> f64 {
        // SAFETY: the caller passes `j ≤ i < d`, so the position is within the scatter matrix.
        unsafe { device::load(self.a.scatter, packed_index(i, j)) }
    }

    /// Runs the M-step after [`send`](Self::send). Returns the component's weight, and the number of moments of this
    /// thread that lost too much precision.
    #[inline(always)]
    pub(crate) unsafe fn maximise(&self) -> (f64, f64) {
        let (a, w, t) = (self.a, self.w, thread::thread_idx_x());
        let (d, at) = (a.d, self.covariance_at());
        // SAFETY: `j ≤ i < d`, so positions are within the sums and the arrays; each entry is written by one thread.
        unsafe {
            let (weight, empty) = self.weight(self.k);
            let share_of_all = weight / a.total_weight;
            if t == ONE {
                device::store(a.weights, self.k as u64, share_of_all);
                device::store(a.empty, self.k as u64, empty as u32);
            }
            if empty && a.kind != kind::TIED {
                return (share_of_all, self.recall());
            }
            let about_means = a.about_means != 0;
            if a.kind == kind::TIED && !about_means {
                self.pool::<false>();
            }
            let (of_component, of_all) = (reciprocal(weight), reciprocal(a.total_weight));
            let mut lost = 0.0;
            Shared::arrive();
            // From what the moments are about to the mean.
            share(d, |j| {
                let moved = w.mean.load(j) * of_component;
                let mean = if empty || about_means {
                    let before = device::load(a.means.cast_const(), self.mean_at(j));
                    if empty { before } else { before + moved }
                } else {
                    moved
                };
                device::store(a.means, self.mean_at(j), mean);
                w.mean.store(j, if about_means { moved } else { mean });
            });
            thread::sync_threads();
            let left = |about: f64, moved: f64, lost: &mut f64| self.left(about, moved, lost);
            match a.kind {
                kind::FULL | kind::TIED => share_triangle(d, |i, j| {
                    let there = || w.a.load(packed_index(i, j) as u32);
                    let (about, moved) = if a.kind == kind::FULL {
                        (there() * of_component, w.mean.load(i) * w.mean.load(j))
                    } else {
                        (self.scatter(i, j) * of_all, if about_means { 0.0 } else { there() * of_all })
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
                    let about = w.variance.load(j) * of_component;
                    let v = left(about, w.mean.load(j) * w.mean.load(j), &mut lost) + a.reg_covar;
                    w.variance.store(j, v);
                    device::store(a.covariances, at + j as u64, v);
                }),
                _ => {
                    let mut squares = 0.0;
                    share(d, |j| squares += w.mean.load(j) * w.mean.load(j));
                    let [moved] = sums([squares], w.sum);
                    let about = w.pivot.load(0) * of_component;
                    let v = left(about, moved, &mut lost) / d as f64 + a.reg_covar;
                    share(d, |j| w.variance.store(j, v));
                    if t == 0 {
                        device::store(a.covariances, at, v);
                    }
                }
            }
            thread::sync_threads();
            if about_means {
                share(d, |j| w.mean.store(j, device::load(a.means.cast_const(), self.mean_at(j))));
                thread::sync_threads();
            }
            (share_of_all, lost)
        }
    }

    /// Returns the central moment `about − moved`: a moment about the shift less the means' squares. Increments `lost`
    /// if less than `least_left` of the moment remains.
    #[inline(always)]
    pub(crate) fn left(&self, about: f64, moved: f64, lost: &mut f64) -> f64 {
        let v = about - moved;
        let enough = v >= self.a.least_left * about;
        // Negated, so that NaN counts as lost.
        if about != 0.0 && !enough {
            *lost += 1.0;
        }
        v
    }

    /// For a tied covariance, sums each component's weight times the outer square of its mean into `w.a`; with a prior,
    /// those of the posterior.
    #[inline(always)]
    pub(crate) unsafe fn pool<const BAYES: bool>(&self) {
        let (w, d, t) = (self.w, self.a.d, thread::thread_idx_x());
        let (stride, together) = (pooled_stride(d), together(d));
        let (first, j) = (t / WARP * ROWS as u32, t % WARP);
        let mut held = [0.0; ROWS];
        let mut from = 0;
        while from < self.a.k {
            thread::sync_threads();
            // SAFETY: `from < a.k`.
            unsafe { self.gather::<BAYES>(from) };
            thread::sync_threads();
            let mut c = 0;
            if d <= HELD {
                while c < together {
                    let at = c * stride;
                    let across = w.some.load(at + j) * w.some.load(at + stride - 2);
                    each(ROWS / 2, |two| {
                        let down = w.some.load2(at + first + 2 * two as u32);
                        each(2, |odd| held[2 * two + odd] = Real::fma(down[odd], across, held[2 * two + odd]));
                    });
                    c += 1;
                }
            } else {
                share_triangle(d, |i, j| {
                    let place = packed_index(i, j) as u32;
                    let mut moved = if from == 0 { 0.0 } else { w.a.load(place) };
                    let mut c = 0;
                    while c < together {
                        let at = c * stride;
                        moved += w.some.load(at + stride - 2) * (w.some.load(at + i) * w.some.load(at + j));
                        c += 1;
                    }
                    w.a.store(place, moved);
                });
            }
            from += together;
        }
        if d <= HELD {
            each(ROWS, |r| {
                let i = first + r as u32;
                if i < d && j <= i {
                    w.a.store(packed_index(i, j) as u32, held[r]);
                }
            });
        }
    }

    /// The weight of component `c` among those [pooled](Self::pool): 0 for an empty one; with a prior β + N.
    #[inline(always)]
    pub(crate) unsafe fn pooled_weight<const BAYES: bool>(&self, c: u32) -> f64 {
        // SAFETY: the caller passes `c < a.k`.
        let (weight, empty) = unsafe { self.weight(c) };
        match BAYES {
            true => self.a.mean_precision + weight,
            false if empty => 0.0,
            false => weight,
        }
    }

    /// That weight times the component's mean in column `j`.
    #[inline(always)]
    pub(crate) unsafe fn pooled_sum<const BAYES: bool>(&self, j: u32, c: u32) -> f64 {
        // SAFETY: the caller passes `j < d` and `c < a.k`.
        unsafe {
            let sum = self.sum_at(self.place.column_sum(j, c));
            if BAYES { self.a.mean_precision * self.prior_mean_there(j) + sum } else { sum }
        }
    }

    /// Writes some components' means, padded with zeros, and after each its weight to shared memory; zeros for empty
    /// components and those past the last.
    #[inline(always)]
    unsafe fn gather<const BAYES: bool>(&self, from: u32) {
        let (d, stride, t) = (self.a.d, pooled_stride(self.a.d), thread::thread_idx_x());
        let mine = together(d) / (OWN_THREADS / WARP);
        let (lane, me) = (t % WARP, t / WARP * mine);
        // All loads first, so that their latencies overlap.
        let there = |i: usize| from + me + (i as u32) < self.a.k && (i as u32) < mine;
        let first = |j: u32| {
            let mut some = [0.0; EACH];
            each(EACH, |i| {
                if there(i) && j < d {
                    // SAFETY: the component is below `a.k` and `j < d`.
                    some[i] = unsafe { self.pooled_sum::<BAYES>(j, from + me + i as u32) };
                }
            });
            some
        };
        let mut some = first(lane);
        let mut weights = [0.0; EACH];
        each(EACH, |i| {
            if there(i) {
                // SAFETY: the component is below `a.k`.
                weights[i] = unsafe { self.pooled_weight::<BAYES>(from + me + i as u32) };
            }
        });
        let mut j = lane;
        while j < stride - 2 {
            if j != lane {
                some = first(j);
            }
            each(EACH, |i| {
                let v = if weights[i] > 0.0 { some[i] * reciprocal(weights[i]) } else { 0.0 };
                if (i as u32) < mine {
                    self.w.some.store((me + i as u32) * stride + j, v);
                }
            });
            j += WARP;
        }
        each(EACH, |i| {
            if lane == 0 && (i as u32) < mine {
                self.w.some.store((me + i as u32) * stride + stride - 2, weights[i]);
            }
        });
    }
}

/// Maximum number of components whose means one warp loads.
const EACH: usize = (together(0) * WARP / OWN_THREADS) as usize;
