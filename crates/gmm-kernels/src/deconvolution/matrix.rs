//! Any errors under any covariance: a factor `T = L D Lᵀ` and then `T⁻¹`, in shared memory.
//!
//! With `t = T⁻¹ z` the true row has the mean `m + V t = w − S t` and the covariance `B = G V`, `G = S T⁻¹`. Of the two
//! forms of the mean, each column takes the one in which less cancels; `B` vanishes with the errors. Where a value is
//! missing, the limit of large errors applies: its row of `G` is that of `I − V T⁻¹` over the measured columns.
//!
//! Each thread has a column of its own: entry `i` of all threads' scratch is contiguous.

use crate::Real;
use crate::deconvolution::pass::NoisyRow;
use crate::deconvolution::pivots::{Density, Pivots};
use crate::deconvolution::sums::Stage;
use crate::deconvolution::{Deconvolution, Form};
use crate::device::{self, Shared, WARP, warp};
use crate::layout::{packed_index, packed_len, tiled_index};
use crate::math::reciprocal;

/// Numbers of a row that are staged at a time: its weight and first moments, or a row of second moments.
#[inline(always)]
pub(super) const fn staged(d: u32) -> u32 {
    1 + d
}

/// Numbers of scratch per thread: a triangle and two vectors.
#[inline(always)]
pub(super) const fn scratch(d: u32) -> u32 {
    packed_len(d) as u32 + 2 * d
}

/// A row, which its thread reads again for each component.
pub(super) struct Row {
    row: u64,
    /// A bit for each column: whether its value is missing.
    missing: u32,
    measured: u32,
    /// The first byte of the scratch of this thread.
    scratch: u32,
}

/// Position of entry `(i, j)` or `(j, i)` in a packed lower triangle.
#[inline(always)]
const fn either(i: u32, j: u32) -> u32 {
    (if i > j { packed_index(i, j) } else { packed_index(j, i) }) as u32
}

/// `start + Σ f(l)` over `l` from `from` to `to − 1`.
#[inline(always)]
fn sum(start: f64, from: u32, to: u32, f: impl Fn(u32) -> (f64, f64)) -> f64 {
    let (mut total, mut l) = (start, from);
    while l < to {
        let (x, y) = f(l);
        total = Real::fma(x, y, total);
        l += 1;
    }
    total
}

impl Row {
    /// Reads entry `i` of the scratch.
    #[inline(always)]
    fn get(&self, i: u32) -> f64 {
        Shared::<f64>::at(self.scratch).load(i * WARP)
    }

    #[inline(always)]
    fn set(&self, i: u32, value: f64) {
        Shared::<f64>::at(self.scratch).store(i * WARP, value);
    }

    /// The first of two vectors behind the triangle.
    #[inline(always)]
    fn vector(d: u32) -> u32 {
        packed_len(d) as u32
    }

    #[inline(always)]
    fn is_missing(&self, j: u32) -> bool {
        self.missing >> j & 1 == 1
    }

    /// Entry `(i, j)` of the error covariance.
    #[inline(always)]
    unsafe fn error(&self, a: &Deconvolution, i: u32, j: u32) -> f64 {
        // SAFETY: `i` and `j` are below `d`, and the row is one of a padded tile.
        unsafe {
            if a.is_correlated != 0 {
                device::load(a.errors, tiled_index(self.row, either(i, j), packed_len(a.d) as u32))
            } else if i == j {
                device::load(a.errors, tiled_index(self.row, i, a.d))
            } else {
                0.0
            }
        }
    }

    /// The distance of a measured value from the component's mean; 0 where it is missing.
    #[inline(always)]
    unsafe fn difference(&self, a: &Deconvolution, record: *const f64, j: u32) -> f64 {
        // SAFETY: `j < d`.
        let z = unsafe { device::load(a.x, tiled_index(self.row, j, a.d)) - device::load(record, (1 + j) as u64) };
        if self.is_missing(j) { 0.0 } else { z }
    }

    /// Replaces factor and `L⁻¹ z` by `T⁻¹` and `T⁻¹ z`.
    #[inline(always)]
    fn invert(&self, d: u32) {
        let (at, y) = (|i: u32, j: u32| packed_index(i, j) as u32, Self::vector(d));
        let get = |i: u32, j: u32| self.get(at(i, j));
        let mut i = 0;
        while i < d {
            let mut j = 0;
            while j < i {
                // Of row `i` of the factor, the entries that are still needed lie behind column `j`.
                self.set(at(i, j), sum(-get(i, j), j + 1, i, |l| (-get(i, l), get(l, j))));
                j += 1;
            }
            self.set(y + i, self.get(y + i) * get(i, i));
            i += 1;
        }
        i = 0;
        while i < d {
            self.set(y + i, sum(self.get(y + i), i + 1, d, |l| (get(l, i), self.get(y + l))));
            let pivot = get(i, i);
            let mut j = 0;
            while j < i {
                let product = sum(get(i, j) * pivot, i + 1, d, |l| (get(l, i) * get(l, l), get(l, j)));
                self.set(at(i, j), product);
                j += 1;
            }
            let square = sum(pivot, i + 1, d, |l| (get(l, i) * get(l, l), get(l, i)));
            self.set(at(i, i), if self.is_missing(i) { 0.0 } else { square });
            i += 1;
        }
    }

    /// Column `i` of the true row's mean, less the component's.
    #[inline(always)]
    unsafe fn moved(&self, a: &Deconvolution, record: *const f64, i: u32) -> f64 {
        let (d, t) = (a.d, Self::vector(a.d));
        // SAFETY: indices are below `d`.
        unsafe {
            let covariance = |l: u32| device::load(record, (1 + d + either(i, l)) as u64);
            if self.error(a, i, i) < covariance(i) {
                sum(self.difference(a, record, i), 0, d, |l| (-self.error(a, i, l), self.get(t + l)))
            } else {
                sum(0.0, 0, d, |l| (covariance(l), self.get(t + l)))
            }
        }
    }
}

impl NoisyRow for Row {
    #[inline(always)]
    fn record(a: &Deconvolution) -> u32 {
        Form::Matrix.record(a.d)
    }

    #[inline(always)]
    unsafe fn load(a: &Deconvolution, row: u64, _last: u64) -> Self {
        let mut own = Self { row, missing: 0, measured: 0, scratch: Stage::end(staged(a.d)) + 8 * warp::lane_id() };
        let mut j = 0;
        while j < a.d {
            // SAFETY: `j < d`.
            let there = unsafe { own.error(a, j, j) } < f64::INFINITY;
            own.measured += there as u32;
            own.missing |= (!there as u32) << j;
            j += 1;
        }
        own
    }

    #[inline(always)]
    fn measured(&self) -> u32 {
        self.measured
    }

    /// Leaves `L`, with the reciprocals of the pivots on its diagonal, and `L⁻¹ z` in the scratch.
    #[inline(always)]
    unsafe fn condition(&self, a: &Deconvolution, _: u32, record: *const f64) -> Density {
        let (d, y) = (a.d, Self::vector(a.d));
        let (at, mut pivots) = (|i: u32, j: u32| packed_index(i, j) as u32, Pivots::new(d));
        let get = |i: u32, j: u32| self.get(at(i, j));
        let mut i = 0;
        while i < d {
            // SAFETY: indices are below `d`.
            let entry = |j: u32| unsafe {
                if self.is_missing(i) || self.is_missing(j) {
                    (i == j) as u32 as f64
                } else {
                    device::load(record, (1 + d + at(i, j)) as u64) + self.error(a, i, j)
                }
            };
            let mut j = 0;
            while j < i {
                self.set(at(i, j), sum(entry(j), 0, j, |l| (-get(i, l), get(j, l))));
                j += 1;
            }
            let diagonal = entry(i);
            // SAFETY: `i < d`.
            let (mut pivot, mut rest) = (diagonal, unsafe { self.difference(a, record, i) });
            let mut l = 0;
            while l < i {
                let (before, value) = (get(i, l), get(i, l) * get(l, l));
                pivot = Real::fma(-before, value, pivot);
                rest = Real::fma(-value, self.get(y + l), rest);
                self.set(at(i, l), value);
                l += 1;
            }
            let one_of = reciprocal(pivot);
            pivots.multiply(i, pivot, diagonal);
            pivots.add_distance(rest, one_of);
            self.set(at(i, i), one_of);
            self.set(y + i, rest);
            i += 1;
        }
        pivots.finish()
    }

    #[inline(always)]
    unsafe fn add(&self, a: &Deconvolution, _: u32, record: *const f64, stage: Stage, sums: *mut f64) {
        let d = a.d;
        let (row, moved) = (Self::vector(d), Self::vector(d) + d);
        self.invert(d);
        stage.put(0, 1.0);
        let mut i = 0;
        while i < d {
            // SAFETY: `i < d`.
            let value = unsafe { self.moved(a, record, i) };
            self.set(moved + i, value);
            stage.put(1 + i, value);
            i += 1;
        }
        // SAFETY: the component has `1 + d + d*(d+1)/2` sums.
        unsafe { stage.add_up(1 + d, sums, 0) };
        i = 0;
        while i < d {
            // SAFETY: indices are below `d`.
            let covariance = |l: u32, j: u32| unsafe { device::load(record, (1 + d + either(l, j)) as u64) };
            // SAFETY: as above.
            let error = |l: u32| unsafe { self.error(a, i, l) };
            let mut j = 0;
            while j < d {
                let value = if self.is_missing(i) {
                    sum((i == j) as u32 as f64, 0, d, |l| (-covariance(i, l), self.get(either(l, j))))
                } else if a.is_correlated != 0 {
                    sum(0.0, 0, d, |l| (error(l), self.get(either(l, j))))
                } else {
                    error(i) * self.get(either(i, j))
                };
                self.set(row + j, value);
                j += 1;
            }
            j = 0;
            while j <= i {
                let product = self.get(moved + i) * self.get(moved + j);
                stage.put(j, sum(product, 0, d, |l| (self.get(row + l), covariance(l, j))));
                j += 1;
            }
            // SAFETY: as above.
            unsafe { stage.add_up(1 + i, sums, 1 + d as u64 + packed_index(i, 0)) };
            i += 1;
        }
    }
}
