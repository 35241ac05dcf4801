//! The pass that all forms share.

use crate::Real;
use crate::deconvolution::pivots::Density;
use crate::deconvolution::sums::Stage;
use crate::deconvolution::{Deconvolution, FAILURE, LOG_LIKELIHOOD, TOTALS};
use crate::device::{self, WARP, thread, warp};
use crate::each::each;
use crate::em::lanes::row_weight;
use crate::math::ln_f64;

/// ½ ln 2π.
const HALF_LN_TAU: f64 = 0.918_938_533_204_672_7;

/// Log responsibilities below this count as 0 in sums: 50,000 of them change a sum by less than one rounding.
const LEAST: f64 = -50.0;

/// A row as its thread sees it, in one of the forms.
pub(super) trait NoisyRow: Sized {
    /// Numbers of a component's record, as many as it has sums.
    fn record(a: &Deconvolution) -> u32;

    /// Reads a row. One that is not below `n` counts nowhere, and may be read as `last`, a true row of the warp.
    ///
    /// # Safety
    /// The buffers in `a` are as its fields document, and `row` is one of a padded tile, or `n` if there are
    /// [`groups`](Deconvolution::groups).
    unsafe fn load(a: &Deconvolution, row: u64, last: u64) -> Self;

    /// How many values are measured.
    fn measured(&self) -> u32;

    /// The density of the row in component `c`, whose record is at `record`.
    ///
    /// # Safety
    /// The record is live, and that of `c`.
    unsafe fn condition(&self, a: &Deconvolution, c: u32, record: *const f64) -> Density;

    /// Adds the expected moments of the warp's true rows to the component's sums. All lanes call it together, right
    /// after [`condition`](Self::condition).
    ///
    /// # Safety
    /// Record and sums are live and those of `c`, and only this warp uses the sums.
    unsafe fn add(&self, a: &Deconvolution, c: u32, record: *const f64, stage: Stage, sums: *mut f64);
}

/// A component's record.
#[inline(always)]
fn record<R: NoisyRow>(a: &Deconvolution, c: u32) -> *const f64 {
    a.records.wrapping_add((c as u64 * R::record(a) as u64) as usize)
}

/// The normaliser of a row.
struct Normaliser {
    /// `−o/2 ln 2π` for `o` measured values.
    constant: f64,
    log_density: f64,
}

/// Body of the kernels.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Deconvolution`] document.
#[inline(always)]
pub(super) unsafe fn body<R: NoisyRow>(a: Deconvolution) {
    device::await_previous_grid();
    let (block, blocks, lane) = (thread::block_idx_x() as u64, thread::grid_dim_x() as u64, thread::thread_idx_x());
    let len = TOTALS as u64 + if a.with_sums != 0 { a.k as u64 * R::record(&a) as u64 } else { 0 };
    let partials = a.partials.wrapping_add((block * len) as usize);
    let failures = a.failures.wrapping_add((block * FAILURE as u64) as usize);
    let mut i = lane as u64;
    while i < len {
        // SAFETY: `i < len`, in the block's part.
        unsafe { device::store(partials, i, 0.0) };
        i += WARP as u64;
    }
    if lane == 0 {
        // SAFETY: the block has a failure.
        unsafe { device::store(failures, 0, 0.0) };
    }
    warp::sync_warp();
    let groups = if a.groups.is_null() { a.n.div_ceil(WARP as u64) } else { a.group_count };
    let each_block = groups.div_ceil(blocks);
    let mut group = block * each_block;
    let end = if group + each_block < groups { group + each_block } else { groups };
    let sums = partials.wrapping_add(TOTALS as usize);
    let (mut totals, mut failed) = ([0.0; TOTALS as usize], false);
    while group < end {
        // SAFETY: `group` is below their number; the row's tile exists and is padded; sums and failures are this block's.
        unsafe {
            let (row, last) = rows_of(&a, group);
            let weight = row_weight(a.row_weights, a.n, row);
            let own = R::load(&a, row, last);
            let found = normalise(&a, &own, failures, &mut failed);
            let counted = if own.measured() > 0 { weight } else { 0.0 };
            if counted > 0.0 {
                totals[LOG_LIKELIHOOD as usize] += counted * found.log_density;
                totals[2] += counted;
            }
            totals[1] += weight * share_out(&a, &own, row, counted, found, sums);
        }
        group += 1;
    }
    each(TOTALS as usize, |i| {
        let mut step = WARP / 2;
        while step > 0 {
            totals[i] += warp::shuffle_xor(totals[i], step);
            step /= 2;
        }
    });
    if lane == 0 {
        // SAFETY: the totals are this block's.
        each(TOTALS as usize, |i| unsafe { device::store(partials, i as u64, totals[i]) });
    }
}

/// The thread's row of a group, which may be past the last, and the last true row.
///
/// # Safety
/// As for [`body`]; `group` is below the number of groups.
#[inline(always)]
unsafe fn rows_of(a: &Deconvolution, group: u64) -> (u64, u64) {
    let (lane, all) = (thread::thread_idx_x() as u64, WARP as u64);
    if a.groups.is_null() {
        let end = (group + 1) * all;
        return (group * all + lane, (if end < a.n { end } else { a.n }) - 1);
    }
    // SAFETY: there is a number more than groups.
    let [base, first, end] = unsafe { [0, group, group + 1].map(|i| device::load(a.groups, i)) };
    let row = first - base + lane;
    (if row < end - base { row } else { a.n }, end - base - 1)
}

/// Finds the log density of the thread's row, and writes it if it is wanted.
///
/// # Safety
/// As for [`body`]; the failure is this block's.
#[inline(always)]
unsafe fn normalise<R: NoisyRow>(a: &Deconvolution, own: &R, failures: *mut f64, failed: &mut bool) -> Normaliser {
    let constant = -(own.measured() as f64) * HALF_LN_TAU;
    let (mut top, mut total) = (f64::NEG_INFINITY, 0.0);
    let mut c = 0;
    while c < a.k {
        let record = record::<R>(a, c);
        // SAFETY: the record of a component below `k`.
        let (density, log_weight) = unsafe { (own.condition(a, c, record), device::load(record, 0)) };
        let failing = warp::ballot(density.failed());
        if failing != 0 && !*failed {
            *failed = true;
            if warp::lane_id() == failing.trailing_zeros() {
                let (column, pivot) = density.failure();
                // SAFETY: the failure is this block's, and one thread writes it.
                unsafe {
                    device::store(failures, 0, (c + 1) as f64);
                    device::store(failures, 1, column as f64);
                    device::store(failures, 2, pivot);
                }
            }
        }
        let joint = log_weight + (constant + density.exponent);
        if joint > top {
            total = Real::fma(total, (top - joint).exp_below(), 1.0);
            top = joint;
        } else if joint > f64::NEG_INFINITY {
            total += (joint - top).exp_below();
        }
        c += 1;
    }
    let log_density = if top > f64::NEG_INFINITY { top + ln_f64(total) } else { top };
    Normaliser { constant, log_density }
}

/// Finds the responsibilities of the thread's row, writes what is wanted of them, and adds the warp's rows to the sums.
/// Returns the entropy of the row's assignment.
///
/// # Safety
/// As for [`body`]; the sums are this block's.
#[inline(always)]
unsafe fn share_out<R: NoisyRow>(
    a: &Deconvolution,
    own: &R,
    row: u64,
    weight: f64,
    Normaliser { constant, log_density }: Normaliser,
    sums: *mut f64,
) -> f64 {
    let underflows = log_density == f64::NEG_INFINITY;
    let (mut most, mut label, mut entropy) = (-1.0, 0, 0.0);
    let mut c = 0;
    while c < a.k {
        let record = record::<R>(a, c);
        // SAFETY: the record of a component below `k`.
        let (density, log_weight) = unsafe { (own.condition(a, c, record), device::load(record, 0)) };
        let mut log = log_weight + (constant + density.exponent) - log_density;
        let mut share = log.exp_below();
        if underflows {
            log = log_weight;
            // SAFETY: `c < k`.
            share = unsafe { device::load(a.weights, c as u64) };
        }
        if share > most {
            (most, label) = (share, c);
        }
        if share > 0.0 {
            entropy -= share * log;
        }
        if !a.responsibilities.is_null() && row < a.n {
            // SAFETY: `row < n` and `c < k`.
            unsafe { device::store(a.responsibilities, row * a.k as u64 + c as u64, share) };
        }
        if a.with_sums != 0 {
            // Negated, so that NaN counts: it must reach the sums.
            let small = log < LEAST && !underflows;
            let counted = if small { 0.0 } else { share * weight };
            let counts = !small && weight > 0.0 && share != 0.0;
            if warp::any(counts) {
                let of_component = sums.wrapping_add((c as u64 * R::record(a) as u64) as usize);
                // SAFETY: the component has as many sums as numbers in its record.
                unsafe { own.add(a, c, record, Stage::new(counts, counted), of_component) };
            }
        }
        c += 1;
    }
    if row < a.n {
        // SAFETY: `row < n`.
        unsafe {
            if !a.log_densities.is_null() {
                device::store(a.log_densities, row, log_density);
            }
            if !a.labels.is_null() {
                device::store(a.labels, row, label);
            }
        }
    }
    entropy
}
