//! Responsibilities among the components of largest density of each row, from those of all components: between
//! [`densities()`](super::densities()) and [`moments()`](super::moments()).
//!
//! A warp takes sixteen rows; two lanes share a row, one has the components of even number, the other those of odd number.
//! Bisection over the bits of the responsibilities, which have their order, finds the least that stays. Most rows end after
//! some twenty counts, when exactly as many are above.

use crate::device::{self, WARP, thread, warp};
use crate::em::chunked::double_precision::column;
use crate::em::features::{GROUP, each};
use crate::em::lanes::row_weight;
use crate::layout::{TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// Any grid size in `x`; a warp processes sixteen rows at a time.
    Largest<T> {
        /// Rows of the chunk.
        n: u64,
        /// [`FeatureLayout::groups`](crate::em::layout::FeatureLayout::groups).
        groups: u32,
        /// Groups of a piece, of which `groups` is a multiple.
        at_once: u32,
        /// Components that each row keeps, at least 1; of equal responsibilities those of lower number.
        count: u32,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// As [`Densities`](super::densities::Densities) has it; 0 is written for components that are not kept.
        exponentials: *mut T,
        /// As there; multiplied so that a row's responsibilities add up to its weight again.
        factors: *mut f64,
        /// As there; those of the kept components alone are written.
        likelihoods: *mut f64,
    }
    /// Selects and rescales in place.
    largest => chunked_f64_largest_f32, chunked_f64_largest_f64, body::<T>, shared_bytes::<T>;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &Largest<T>) -> u64 {
    0
}

/// A lane's half of a row.
#[derive(Clone, Copy)]
struct Half<T> {
    exponentials: *mut T,
    /// One for each piece, [`TILE_ROWS`] apart.
    factors: *mut f64,
    pieces: u32,
    at_once: u32,
    /// Columns of the lane's four components of a group.
    columns: [u32; 4],
}

impl<T: Real> Half<T> {
    /// Calls `f(at, factor)` for the lane's components in the order of their numbers: `at` is the place of the exponential.
    #[inline(always)]
    unsafe fn for_each(self, mut f: impl FnMut(u64, f64)) {
        let (mut piece, mut group) = (0, 0);
        while piece < self.pieces {
            // SAFETY: a factor for each piece.
            let factor = unsafe { device::load(self.factors.cast_const(), (piece * TILE_ROWS) as u64) };
            let end = group + self.at_once;
            while group < end {
                each(4, |i| f((128 * group + 16 * self.columns[i]) as u64, factor));
                group += 1;
            }
            piece += 1;
        }
    }

    /// Calls `f` with the lane's responsibilities.
    #[inline(always)]
    unsafe fn responsibilities(self, mut f: impl FnMut(f64)) {
        // SAFETY: the exponentials of the row, for each component of the groups.
        unsafe { self.for_each(|at, factor| f(device::load(self.exponentials.cast_const(), at).to_f64() * factor)) };
    }
}

/// The sum of both lanes of a row.
#[inline(always)]
fn both(count: u32) -> u32 {
    count + warp::shuffle_xor_u32(count, GROUP)
}

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Largest`] document.
#[inline(always)]
unsafe fn body<T: Real>(a: Largest<T>) {
    let warps = THREADS / WARP;
    let mut sixteen = (thread::block_idx_x() * warps + thread::thread_idx_x() / WARP) as u64;
    while sixteen < tiles(a.n) * (TILE_ROWS / GROUP) as u64 {
        // SAFETY: sixteen rows of the chunk's tiles.
        unsafe { sixteen_rows(&a, sixteen) };
        sixteen += (thread::grid_dim_x() * warps) as u64;
    }
}

#[inline(always)]
unsafe fn sixteen_rows<T: Real>(a: &Largest<T>, sixteen: u64) {
    let (row, odd) = (warp::lane_id() % GROUP, warp::lane_id() / GROUP);
    let per_tile = (TILE_ROWS / GROUP) as u64;
    let mut pieces = 0;
    while pieces * a.at_once < a.groups {
        pieces += 1;
    }
    let in_tile = (sixteen % per_tile) as u32 * GROUP + row;
    let half = Half {
        exponentials: a.exponentials.wrapping_add((sixteen * (128 * a.groups) as u64 + row as u64) as usize),
        factors: a.factors.wrapping_add((sixteen / per_tile * (TILE_ROWS * pieces) as u64 + in_tile as u64) as usize),
        pieces,
        at_once: a.at_once,
        columns: [odd, 2 + odd, 4 + odd, 6 + odd].map(column),
    };
    // SAFETY: `row_weight` reads rows below `n` only.
    let weight = unsafe { row_weight(a.row_weights, a.n, sixteen * GROUP as u64 + row as u64) };

    // At least `count` responsibilities have the bits `low` or more, and fewer than that have `high` or more.
    let (mut low, mut high) = (0, 0);
    // SAFETY: as the caller's.
    unsafe {
        half.responsibilities(|r| {
            if r.to_bits() >= high {
                high = r.to_bits() + 1;
            }
        });
    }
    let other = warp::shuffle_xor(f64::from_bits(high), GROUP).to_bits();
    if other > high {
        high = other;
    }
    let mut at_low = u32::MAX;
    while warp::any(high - low > 1 && at_low != a.count) {
        let middle = low + (high - low) / 2;
        let mut count = 0;
        // SAFETY: as the caller's.
        unsafe { half.responsibilities(|r| count += u32::from(r.to_bits() >= middle)) };
        let count = both(count);
        if high - low > 1 && at_low != a.count {
            if count >= a.count {
                (low, at_low) = (middle, count);
            } else {
                high = middle;
            }
        }
    }

    // How many of those that equal the least one stay.
    let mut above = 0;
    // SAFETY: as the caller's.
    unsafe { half.responsibilities(|r| above += u32::from(r.to_bits() > low)) };
    let above = both(above);
    let mut left = if above < a.count { a.count - above } else { 0 };
    let mut kept = 0.0;
    // SAFETY: as the caller's; each lane writes the exponentials of its own components.
    unsafe {
        half.for_each(|at, factor| {
            let r = device::load(half.exponentials.cast_const(), at).to_f64() * factor;
            let equal = u32::from(r.to_bits() == low);
            let of_other = warp::shuffle_xor_u32(equal, GROUP);
            // The even one of a pair comes first.
            let before = if odd == 1 { of_other } else { 0 };
            if r.to_bits() > low || equal == 1 && before < left {
                kept += r;
            } else {
                device::store(half.exponentials, at, T::from_f64(0.0));
            }
            let taken = equal + of_other;
            left = if taken < left { left - taken } else { 0 };
        });
    }
    kept += warp::shuffle_xor(kept, GROUP);
    // NaN stays: it reaches the sums, and the host takes another way.
    let scaled = weight > 0.0;
    let by = if scaled { weight / kept } else { 0.0 };
    let mut piece = odd;
    while scaled && piece < pieces {
        let at = (piece * TILE_ROWS) as u64;
        // SAFETY: a factor for each piece, which only this lane changes; all lanes have read it.
        unsafe { device::store(half.factors, at, device::load(half.factors.cast_const(), at) * by) };
        piece += 2;
    }
    let mut less = if scaled && odd == 0 { weight * ln_f64(by) } else { 0.0 };
    each(WARP.ilog2() as usize, |i| less += warp::shuffle_xor(less, 1 << i));
    if warp::lane_id() == 0 {
        // SAFETY: one for each sixteen rows, which no other warp changes.
        unsafe {
            device::store(a.likelihoods, sixteen, device::load(a.likelihoods.cast_const(), sixteen) - less);
        }
    }
}
