//! One component: the parameters that a lane uses, and the sums over its rows.

use crate::Real;
use crate::device::{self, Shared, WARP, thread, warp};
use crate::em::features::each;
use crate::em::lanes::larger;
use crate::em::small_d::memory::{SHARES, TOP, ThreadShare, of_component, parameters, sums_len};
use crate::em::small_d::{CROSSING, SmallDPass};

/// A component's parameters, as a lane uses them.
pub(crate) struct Terms<const D: usize, const S: usize> {
    /// The mean, rounded to `f32`.
    mean: [f32; D],
    /// −`W` times the rounding error of the mean.
    rest: [f32; D],
    /// Binary logarithm of the weighted density at the mean, less the largest of all components.
    constant: f32,
    /// `W`, the inverse of the covariance's Cholesky factor, times √(½ log₂ e).
    root: [f32; S],
}

impl<const D: usize, const S: usize> Terms<D, S> {
    #[inline(always)]
    pub(crate) fn load(at: Shared<f32>) -> Self {
        let mut all = [0.0; 16];
        each(parameters(D as u32) as usize / 4, |four| {
            let some = at.load4(4 * four as u32);
            each(4, |i| all[4 * four + i] = some[i]);
        });
        let mut out = Self { mean: [0.0; D], rest: [0.0; D], constant: all[2 * D], root: [0.0; S] };
        each(D, |j| (out.mean[j], out.rest[j]) = (all[j], all[D + j]));
        each(S, |i| out.root[i] = all[2 * D + 1 + i]);
        out
    }

    /// Binary logarithm of a row's weighted density, relative to the largest that any row can have.
    #[inline(always)]
    pub(crate) fn density(&self, x: [f32; D]) -> f32 {
        let mut log = self.constant;
        each(D, |i| {
            let mut t = self.rest[i];
            each(i + 1, |j| t = Real::fma(self.root[i * (i + 1) / 2 + j], x[j] - self.mean[j], t));
            log = Real::fma(-t, t, log);
        });
        log
    }
}

/// Sums over a lane's rows for the components of its warp.
pub(crate) struct Sums<const D: usize, const S: usize, const C: usize> {
    pub(crate) weight: [f32; C],
    pub(crate) first: [[f32; D]; C],
    pub(crate) second: [[f32; S]; C],
}

impl<const D: usize, const S: usize, const C: usize> Sums<D, S, C> {
    pub(crate) const NOTHING: Self = Self { weight: [0.0; C], first: [[0.0; D]; C], second: [[0.0; S]; C] };

    #[inline(always)]
    pub(crate) fn add(&mut self, c: usize, r: f32, from: [f32; D]) {
        self.weight[c] += r;
        each(D, |i| {
            let part = r * from[i];
            self.first[c][i] += part;
            each(i + 1, |j| {
                let at = i * (i + 1) / 2 + j;
                self.second[c][at] = Real::fma(part, from[j], self.second[c][at]);
            });
        });
    }

    /// Adds the lanes' sums to the warp's `f64` sums and resets them: 32 values at a time pass through shared memory,
    /// and each lane adds up one of them.
    #[inline(always)]
    pub(crate) fn flush(&mut self, ThreadShare { totals: to, crossing, lane, .. }: ThreadShare) {
        let mut i = 0;
        let last = (C as u32) * sums_len(D as u32) - 1;
        let mut one = |v: f32| {
            crossing.store(i % WARP * CROSSING + lane, v);
            if i % WARP == WARP - 1 || i == last {
                let at = i - i % WARP + lane;
                warp::sync_warp();
                if at <= last {
                    let mut sum = to.load(at);
                    let mut from = 0;
                    while from < WARP {
                        sum += crossing.load(lane * CROSSING + from).to_f64();
                        from += 1;
                    }
                    to.store(at, sum);
                }
                warp::sync_warp();
            }
            i += 1;
        };
        each(C, |c| {
            one(self.weight[c]);
            each(D, |i| one(self.first[c][i]));
            each(S, |i| one(self.second[c][i]));
        });
        *self = Self::NOTHING;
    }
}

/// Writes the parameters that [`Terms`] loads, and the largest constant, to shared memory. All threads call it.
#[inline(always)]
pub(crate) unsafe fn prepare<const D: usize, const S: usize, const C: usize, const R: usize>(a: &SmallDPass) {
    let t = thread::thread_idx_x();
    let scratch = Shared::<f64>::at(SHARES);
    let mut top = f64::NEG_INFINITY;
    let mut c = t;
    while c < a.k {
        // SAFETY: `c < k`.
        top = larger(top, unsafe { device::load(a.constants, c as u64) });
        c += thread::block_dim_x();
    }
    each(5, |by| top = larger(top, warp::shuffle_xor(top, 1 << by)));
    if t.is_multiple_of(WARP) {
        scratch.store(t / WARP, top);
    }
    thread::sync_threads();
    let mut w = 0;
    while w < a.warps {
        top = larger(top, scratch.load(w));
        w += 1;
    }
    let mut c = t;
    while c < C as u32 * a.warps {
        let (to, _) = of_component::<D, C, R>(c);
        let mut mean = [0.0; D];
        let mut rest = [0.0; D];
        let mut root = [0.0; S];
        let mut constant = f32::NEG_INFINITY;
        if c < a.k {
            // SAFETY: `c < k`.
            unsafe {
                constant = ((device::load(a.constants, c as u64) - top) * core::f64::consts::LOG2_E) as f32;
                let mut left = [0.0; D];
                each(D, |j| {
                    let exact = device::load(a.means, c as u64 * D as u64 + j as u64);
                    mean[j] = exact as f32;
                    left[j] = exact - mean[j].to_f64();
                });
                each(D, |i| {
                    each(i + 1, |j| {
                        let entry = i * (i + 1) / 2 + j;
                        // √(½ log₂ e), so that the square is half a squared distance in binary logarithms.
                        let v = device::load(a.roots, c as u64 * S as u64 + entry as u64) * 0.849_321_800_288_019_3;
                        root[entry] = v as f32;
                        rest[i] -= v * left[j];
                    });
                });
            }
        }
        each(D, |j| {
            to.store(j as u32, mean[j]);
            to.store((D + j) as u32, rest[j] as f32);
        });
        to.store(2 * D as u32, constant);
        each(S, |i| to.store((2 * D + 1 + i) as u32, root[i]));
        let mut i = (2 * D + 1 + S) as u32;
        while i < parameters(D as u32) {
            to.store(i, 0.0);
            i += 1;
        }
        c += thread::block_dim_x();
    }
    if t == 0 {
        Shared::<f64>::at(TOP).store(0, top * core::f64::consts::LOG2_E);
    }
    thread::sync_threads();
}
