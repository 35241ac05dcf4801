//! What follows the logarithms of the densities: their sums, responsibilities and labels.

use super::TOGETHER;
use crate::device::{self, Shared, thread, warp};
use crate::each::each;
use crate::em::simple::e_step::{EStep, SUM_BYTES, Totals, end_row};
use crate::layout::TILE_ROWS;
use crate::{Real, THREADS};

/// A lane's four values of a group of components: in its own slots of shared memory, or with the responsibilities.
#[derive(Clone, Copy)]
pub(super) struct Slots<T> {
    pub(super) in_shared: bool,
    /// Responsibilities of the tile.
    pub(super) r: *mut T,
    /// First row, and this lane's place among those of a row.
    pub(super) first: u32,
    pub(super) t: u32,
    pub(super) k: u32,
}

impl<T: Real> Slots<T> {
    /// Slots in shared memory; four values of `f64` are two pairs of 16 bytes.
    #[inline(always)]
    fn at(group: u32) -> Shared<T> {
        Shared::at(SUM_BYTES).skip((group * THREADS + thread::thread_idx_x()) * 4)
    }

    /// Stores values of component `4 group + t` for rows `first + 8 i`.
    #[inline(always)]
    pub(super) unsafe fn put(self, group: u32, values: [T; 4]) {
        if self.in_shared {
            Self::at(group).store4(0, values);
        } else {
            // SAFETY: as for `write`.
            unsafe { self.write(group, values, u32::MAX) };
        }
    }

    #[inline(always)]
    unsafe fn get(self, group: u32) -> [T; 4] {
        if self.in_shared {
            return Self::at(group).load4(0);
        }
        let (c, mut out) = (group * TOGETHER + self.t, [T::NEG_INFINITY; 4]);
        if c < self.k {
            // SAFETY: `c < k`, and tiles are padded to whole rows.
            each(4, |i| out[i] = unsafe { device::load(self.r, (c * TILE_ROWS + self.first + 8 * i as u32) as u64) });
        }
        out
    }

    /// Writes responsibilities of the tile's rows below `rows`.
    #[inline(always)]
    unsafe fn write(self, group: u32, values: [T; 4], rows: u32) {
        let c = group * TOGETHER + self.t;
        each(4, |i| {
            let row = self.first + 8 * i as u32;
            if c < self.k && row < rows {
                // SAFETY: `c < k`, tiles are padded to whole rows, and this lane alone has these.
                unsafe { device::store(self.r, (c * TILE_ROWS + row) as u64, values[i]) };
            }
        });
    }
}

/// Combines the values of the four lanes of each row.
#[inline(always)]
pub(super) fn of_quad(mut values: [f64; 4], combine: impl Fn(f64, f64) -> f64) -> [f64; 4] {
    each(8, |e| values[e % 4] = combine(values[e % 4], warp::shuffle_xor(values[e % 4], 1 + e as u32 / 4)));
    values
}

/// The log densities of a tile's rows, their responsibilities, their labels and their part of the totals, from the logarithms
/// of their densities in `slots` and the largest of them.
///
/// # Safety
/// The buffers in `a` are as the fields of [`EStep`] document; `tile` is one of its tiles, and `slots` are filled.
#[inline(always)]
pub(super) unsafe fn end_rows<T: Real>(a: &EStep<T>, tile: u64, slots: Slots<T>, top: [f64; 4], totals: &mut Totals) {
    let (Slots { first, t, .. }, row) = (slots, tile * TILE_ROWS as u64);
    // Rows of the tile.
    let rows = if a.n - row < TILE_ROWS as u64 { (a.n - row) as u32 } else { TILE_ROWS };
    // Σ e and Σ e ln e, with e = exp(joint − top): the log density, and the entropy without another pass.
    let (mut sum, mut sum_log) = ([0.0; 4], [0.0; 4]);
    let wants_shares = a.want_responsibilities != 0 || !a.labels.is_null();
    let (mut reference, mut underflows) = ([T::ZERO; 4], false);
    each(4, |i| {
        // `top` is never NaN: a comparison with NaN is false.
        let is_none = top[i] == f64::NEG_INFINITY;
        reference[i] = if is_none { T::ZERO } else { T::from_f64(top[i]) };
        underflows |= is_none;
    });
    // SAFETY: the caller passes filled slots.
    unsafe {
        let mut group = 0;
        while group * TOGETHER < a.k {
            let mut e = slots.get(group);
            each(4, |i| {
                let below = e[i] - reference[i];
                e[i] = below.exp_below();
                sum_log[i] += if e[i] > T::ZERO { (e[i] * below).to_f64() } else { 0.0 };
                sum[i] += e[i].to_f64();
            });
            if wants_shares {
                slots.put(group, e);
            }
            group += 1;
        }
        if underflows {
            take_weights(a, slots, top, wants_shares, &mut sum, &mut sum_log);
        }
        let (sum, sum_log) = (of_quad(sum, |a, b| a + b), of_quad(sum_log, |a, b| a + b));
        // Each of a row's four lanes ends one of the four rows.
        let mine = first + 8 * t;
        if mine < rows {
            end_row(a, row + mine as u64, [pick(top, t), pick(sum, t), pick(sum_log, t)], totals);
        }
        if wants_shares {
            share_out(a, row, rows, slots, sum);
        }
    }
}

/// Takes the component weights as densities of rows whose densities all underflow.
///
/// # Safety
/// As for [`end_rows`].
#[inline(always)]
unsafe fn take_weights<T: Real>(
    a: &EStep<T>,
    slots: Slots<T>,
    top: [f64; 4],
    wants_shares: bool,
    sum: &mut [f64; 4],
    sum_log: &mut [f64; 4],
) {
    let mut group = 0;
    while group * TOGETHER < a.k {
        let c = group * TOGETHER + slots.t;
        // SAFETY: the caller passes filled slots, and the weight is that of a component below `k`.
        unsafe {
            let weight = if c < a.k { device::load(a.weights, c as u64) } else { T::ZERO };
            let log = if weight > T::ZERO { (weight * weight.ln()).to_f64() } else { 0.0 };
            // The exponentials of such a row, and their sums, are 0.
            let mut e = if wants_shares { slots.get(group) } else { [T::ZERO; 4] };
            each(4, |i| {
                if top[i] == f64::NEG_INFINITY {
                    e[i] = weight;
                    sum[i] += weight.to_f64();
                    sum_log[i] += log;
                }
            });
            if wants_shares {
                slots.put(group, e);
            }
        }
        group += 1;
    }
}

/// `all[i]`. An array that is indexed at run time would leave the registers.
#[inline(always)]
fn pick<A: Copy>(all: [A; 4], i: u32) -> A {
    let mut out = all[0];
    each(4, |other| out = if other as u32 == i { all[other] } else { out });
    out
}

/// Computes responsibilities of the rows from row `row` on, from the exponentials in `slots` and their sums; and the rows' labels,
/// the first of the largest.
///
/// # Safety
/// As for [`end_rows`]; the tile has `rows` rows.
#[inline(always)]
unsafe fn share_out<T: Real>(a: &EStep<T>, row: u64, rows: u32, slots: Slots<T>, sum: [f64; 4]) {
    let Slots { first, t, .. } = slots;
    let (mut share, mut scale) = ([0.0; 4], [T::ONE; 4]);
    let (mut best, mut label) = ([T::NEG_INFINITY; 4], [0; 4]);
    // SAFETY: the caller passes filled slots; row weights are read only of rows below `n`.
    unsafe {
        each(4, |i| {
            share[i] = 1.0 / sum[i];
            let here = first + 8 * i as u32;
            if a.weighted != 0 && !a.row_weights.is_null() && here < rows {
                scale[i] = T::from_f64(device::load(a.row_weights, row + here as u64));
            }
        });
        let mut group = 0;
        while group * TOGETHER < a.k {
            let mut values = slots.get(group);
            let c = group * TOGETHER + t;
            each(4, |i| {
                let unweighted = T::from_f64(values[i].to_f64() * share[i]);
                if unweighted > best[i] && c < a.k {
                    (best[i], label[i]) = (unweighted, c);
                }
                values[i] = unweighted * scale[i];
            });
            if a.want_responsibilities != 0 {
                slots.write(group, values, rows);
            }
            group += 1;
        }
        if a.labels.is_null() {
            return;
        }
        each(8, |e| {
            let (i, by) = (e % 4, 1 + e as u32 / 4);
            let (value, other) = (warp::shuffle_xor(best[i], by), warp::shuffle_xor_u32(label[i], by));
            // No short-circuit operators: a branch would diverge the warp between two shuffles.
            if (value > best[i]) | ((value == best[i]) & (other < label[i])) {
                (best[i], label[i]) = (value, other);
            }
        });
        let mine = first + 8 * t;
        if mine < rows {
            device::store(a.labels, row + mine as u64, pick(label, t));
        }
    }
}
