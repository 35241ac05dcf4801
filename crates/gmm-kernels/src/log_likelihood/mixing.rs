//! The log density of a mixture from those of its components, which stay on the device: for steps that change one
//! component.

use crate::device::{self, Shared, block_sum, thread};
use crate::each::each;
use crate::math::{exp_below_f64, ln_f64};
#[cfg(not(target_arch = "nvptx64"))]
use crate::reduce::SUM_BYTES;
use crate::seeding::squared_distances::weighted;

kernels! {
    /// Combines `k` columns of `n` rows; any grid in `x`.
    MixColumns {
        /// `(k,)`: address of each component's column, `(n,)` of `f64`: ln N(x | c), neither NaN nor +∞.
        columns: *const u64,
        /// `(k,)`: logarithms of the component weights.
        log_weights: *const f64,
        /// Components.
        k: u32,
        /// Rows.
        n: u64,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// `(n,)`, written, or null: ln p(x); −∞ if all components are −∞.
        log_densities: *mut f64,
        /// `(blocks,)`, written: Σ w ln p(x) over the block's rows.
        partials: *mut f64,
    }
    /// The kernel.
    mix_columns => body, shared;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared(_: &MixColumns) -> u64 {
    u64::from(SUM_BYTES)
}

/// Columns of a row that are read together, so that their latencies overlap.
const AT_ONCE: u32 = 8;

/// Body of [`mix_columns`].
///
/// # Safety
/// Pointers and lengths must be as documented on the fields of [`MixColumns`].
#[inline(always)]
pub unsafe fn body(a: MixColumns) {
    let mut sum = 0.0;
    let mut row = thread::index_1d();
    while row < a.n {
        // SAFETY: `row < n`; `log_densities` and `row_weights` have `n` numbers if they are not null.
        unsafe {
            let value = log_density(&a, row);
            if !a.log_densities.is_null() {
                device::store(a.log_densities, row, value);
            }
            sum += weighted(a.row_weights, row, value);
        }
        row += thread::count_1d();
    }
    let total = block_sum(sum, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: `partials` has one number per block, and only this thread writes this block's.
        unsafe { device::store(a.partials, thread::block_idx_x() as u64, total) };
    }
}

/// Returns ln Σ exp(joint) of a row, computed relative to the running maximum of the columns seen so far.
///
/// # Safety
/// `row < n`, and pointers must be as documented on the fields of [`MixColumns`].
#[inline(always)]
unsafe fn log_density(a: &MixColumns, row: u64) -> f64 {
    // The lowest finite number and not −∞: −∞ less this is −∞ and not NaN.
    let (mut top, mut sum) = (-f64::MAX, 0.0);
    let mut first = 0;
    while first < a.k {
        let mut joint = [f64::NEG_INFINITY; AT_ONCE as usize];
        each(AT_ONCE as usize, |i| {
            // Past the end, read the last column again instead of branching, so that no read waits.
            let (c, last) = (first + i as u32, a.k - 1);
            let there = if c < a.k { c } else { last } as u64;
            // SAFETY: `there < k` and `row < n`.
            let value = unsafe {
                let column = device::load(a.columns, there) as *const f64;
                device::load(a.log_weights, there) + device::load(column, row)
            };
            joint[i] = if c < a.k { value } else { f64::NEG_INFINITY };
        });
        let mut largest = top;
        each(AT_ONCE as usize, |i| largest = if joint[i] > largest { joint[i] } else { largest });
        sum *= exp_below_f64(top - largest);
        top = largest;
        each(AT_ONCE as usize, |i| {
            if first + (i as u32) < a.k {
                sum += exp_below_f64(joint[i] - top);
            }
        });
        first += AT_ONCE;
    }
    // A sum below 1 means that all densities are 0.
    if sum < 0.5 { f64::NEG_INFINITY } else { top + ln_f64(sum) }
}
