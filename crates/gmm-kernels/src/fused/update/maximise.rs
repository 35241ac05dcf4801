//! The M-step of a component: its parameters from the sums.

use super::{Component, has_matrix, kind, share, share_triangle};
use crate::THREADS;
use crate::device::{self, WARP, block_sum, thread};
use crate::layout::packed_index;
use crate::math::reciprocal;

impl Component<'_> {
    /// The parameters that are there, into shared memory.
    #[inline(always)]
    pub(super) unsafe fn recall(&self) -> bool {
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
    pub(super) unsafe fn maximise(&self) -> bool {
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
            let (of_component, of_all) = (reciprocal(weight), reciprocal(a.total_weight));
            let mut lost = 0.0;
            share(d, |j| {
                let old = device::load(a.means.cast_const(), self.mean_at(j));
                let mean = if empty { old } else { self.first(self.k, j) * of_component };
                device::store(a.means, self.mean_at(j), mean);
                w.mean.store(j, mean);
            });
            thread::sync_threads();
            // `about` the shift, `moved` by the means' squares.
            let left = |about: f64, moved: f64, lost: &mut f64| {
                let v = about - moved;
                let enough = v >= a.least_left * about;
                // Also where one is not a number.
                if about != 0.0 && !enough {
                    *lost += 1.0;
                }
                v
            };
            match a.kind {
                kind::FULL | kind::TIED => share_triangle(d, |i, j| {
                    let (about, moved) = if a.kind == kind::FULL {
                        let raw = self.sum_at(p.product_sum(i, j, self.k));
                        (raw * of_component, w.mean.load(i) * w.mean.load(j))
                    } else {
                        let raw = device::load(a.scatter, packed_index(i, j));
                        (raw * of_all, self.pooled(i, j) * of_all)
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
                    let about = self.sum_at(p.column_sum(p.square(j), self.k)) * of_component;
                    let v = left(about, w.mean.load(j) * w.mean.load(j), &mut lost) + a.reg_covar;
                    w.variance.store(j, v);
                    device::store(a.covariances, at + j as u64, v);
                }),
                _ => {
                    let mut squares = 0.0;
                    share(d, |j| squares += w.mean.load(j) * w.mean.load(j));
                    let moved = block_sum(squares, w.sum);
                    let about = self.sum_at(p.column_sum(d, self.k)) * of_component;
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
                let of_component = reciprocal(weight);
                let mut j = t % WARP;
                while j <= d {
                    let v = match (empty, j == d) {
                        (true, _) => 0.0,
                        (false, true) => weight,
                        (false, false) => self.first(c, j) * of_component,
                    };
                    self.w.all.store(c * (d + 1) + j, v);
                    j += WARP;
                }
            }
            c += THREADS / WARP;
        }
        thread::sync_threads();
    }

    /// Σ over components of their weight times the squares of the means, for a tied covariance, after [`gather`](Self::gather).
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
        moved
    }
}
