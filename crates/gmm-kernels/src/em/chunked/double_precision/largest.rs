//! Responsibilities among the components of largest density of each row, from those of all components: between
//! [`densities()`](super::densities()) and [`moments()`](super::moments()).
//!
//! A block takes sixteen rows, a warp four of them; eight lanes share a row, and each has one component of every group.
//! A search in quarters over the bits of the responsibilities, which have their order, finds the least that stays. Most rows
//! end after some seven reads, when exactly as many are above.

use crate::device::{self, Shared, WARP, block_sum, thread, warp};
use crate::each::each;
use crate::em::chunked::double_precision::{WIDE, column};
use crate::em::features::GROUP;
use crate::em::lanes::row_weight;
use crate::em::state::TROUBLE;
use crate::layout::{TILE_ROWS, tiles};
use crate::math::ln_f64;
use crate::{Real, THREADS};

kernels! {
    /// Any grid size in `x`; a block processes sixteen rows at a time.
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
        /// `(tiles(n)*128, count)`: the numbers of the components that are kept, in order; null to leave them out.
        components: *mut u32,
        /// State of the loop, or null without `components`: a row with fewer responsibilities above 0 than it keeps sets
        /// [`TROUBLE`], since nothing tells which of the others are larger.
        state: *mut u32,
    }
    /// Selects and rescales in place.
    largest => chunked_f64_largest_f32, chunked_f64_largest_f64, body::<T>, shared_bytes::<T>;
}

#[cfg(not(target_arch = "nvptx64"))]
fn shared_bytes<T: Real>(_: &Largest<T>) -> u64 {
    // A sum of each warp.
    8 * (THREADS / WARP) as u64
}

/// Rows of a warp; the other lanes share them.
const ROWS: u32 = GROUP / (THREADS / WARP);

/// A lane's part of a row.
#[derive(Clone, Copy)]
struct Part<T> {
    /// Of its component of the first group.
    exponentials: *mut T,
    /// One for each piece, [`TILE_ROWS`] apart.
    factors: *mut f64,
    pieces: u32,
    at_once: u32,
}

impl<T: Real> Part<T> {
    /// Calls `f(at, r)` for the lane's component of each group: the place of the exponential, and the responsibility.
    #[inline(always)]
    unsafe fn for_each(self, mut f: impl FnMut(u64, f64)) {
        let (mut piece, mut group) = (0, 0);
        while piece < self.pieces {
            // SAFETY: a factor for each piece.
            let factor = unsafe { device::load(self.factors.cast_const(), (piece * TILE_ROWS) as u64) };
            // All of a piece are in flight at the same time.
            let mut values = [0.0; WIDE as usize];
            each(WIDE as usize, |i| {
                if (i as u32) < self.at_once {
                    let at = (128 * (group + i as u32)) as u64;
                    // SAFETY: the exponentials of the row, for each component of the groups.
                    values[i] = unsafe { device::load(self.exponentials.cast_const(), at) }.to_f64();
                }
            });
            each(WIDE as usize, |i| {
                if (i as u32) < self.at_once {
                    f((128 * (group + i as u32)) as u64, values[i] * factor);
                }
            });
            group += self.at_once;
            piece += 1;
        }
    }
}

/// The sum over the lanes of a row.
#[inline(always)]
fn of_row(mut count: u32) -> u32 {
    each(LANES.ilog2() as usize, |i| count += warp::shuffle_xor_u32(count, ROWS << i));
    count
}

/// Lanes of a row.
const LANES: u32 = WARP / ROWS;

/// Body of the kernel.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Largest`] document.
#[inline(always)]
unsafe fn body<T: Real>(a: Largest<T>) {
    let mut sixteen = thread::block_idx_x() as u64;
    while sixteen < tiles(a.n) * (TILE_ROWS / GROUP) as u64 {
        // SAFETY: sixteen rows of the chunk's tiles.
        unsafe { sixteen_rows(&a, sixteen) };
        sixteen += thread::grid_dim_x() as u64;
    }
}

#[inline(always)]
unsafe fn sixteen_rows<T: Real>(a: &Largest<T>, sixteen: u64) {
    let row = thread::thread_idx_x() / WARP * ROWS + warp::lane_id() % ROWS;
    let nth = warp::lane_id() / ROWS;
    let per_tile = (TILE_ROWS / GROUP) as u64;
    let mut pieces = 0;
    while pieces * a.at_once < a.groups {
        pieces += 1;
    }
    let in_tile = (sixteen % per_tile) as u32 * GROUP + row;
    let first = sixteen * (128 * a.groups) as u64 + (16 * column(nth) + row) as u64;
    let part = Part {
        exponentials: a.exponentials.wrapping_add(first as usize),
        factors: a.factors.wrapping_add((sixteen / per_tile * (TILE_ROWS * pieces) as u64 + in_tile as u64) as usize),
        pieces,
        at_once: a.at_once,
    };
    // SAFETY: `row_weight` reads rows below `n` only.
    let weight = unsafe { row_weight(a.row_weights, a.n, sixteen * GROUP as u64 + row as u64) };

    // `at_low` responsibilities, at least `count`, have the bits `low` or more; `at_high`, fewer, have `high` or more.
    let (mut low, mut high) = (0, 0);
    // SAFETY: as the caller's.
    unsafe {
        part.for_each(|_, r| {
            if r.to_bits() >= high {
                high = r.to_bits() + 1;
            }
        });
    }
    each(LANES.ilog2() as usize, |i| {
        let other = warp::shuffle_xor(f64::from_bits(high), ROWS << i).to_bits();
        if other > high {
            high = other;
        }
    });
    let (mut at_low, mut at_high) = (u32::MAX, 0);
    // What stays is rarely below a 65,536th of the largest.
    let mut between = [16, 8, 4].map(|exponents| high.saturating_sub(exponents << (f64::MANTISSA_DIGITS - 1)));
    while warp::any(high - low > 1 && at_low != a.count) {
        let mut counts = [0; 3];
        // SAFETY: as the caller's.
        unsafe {
            part.for_each(|_, r| each(3, |i| counts[i] += u32::from(r.to_bits() >= between[i])));
        }
        each(3, |i| {
            let count = of_row(counts[i]);
            // Each is chosen by itself: a choice between the pairs would be one of addresses, and memory.
            let few = count < a.count;
            // The least of these has the largest count.
            let lowers = few && between[i] < high;
            high = if lowers { between[i] } else { high };
            at_high = if lowers { count } else { at_high };
            let raises = !few && between[i] > low && at_low != a.count;
            low = if raises { between[i] } else { low };
            at_low = if raises { count } else { at_low };
        });
        let quarter = if high - low < 4 { 1 } else { (high - low) / 4 };
        between = [low + quarter, low + 2 * quarter, low + 3 * quarter];
    }

    // How many of those that equal the least one stay.
    let mut left = if at_low == a.count { a.count } else { a.count - at_high };
    let (mut kept, mut listed) = (0.0, 0);
    // The lanes of the row, and those of them that come before this one.
    let lanes = {
        let mut lanes = 0;
        each(LANES as usize, |i| lanes |= 1 << (i as u32 * ROWS));
        lanes << (warp::lane_id() % ROWS)
    };
    let before = lanes & ((1 << warp::lane_id()) - 1);
    // SAFETY: as the caller's; each lane writes the exponentials of its own components.
    unsafe {
        part.for_each(|at, r| {
            let equal = r.to_bits() == low;
            // Lanes are in the order of the components.
            let all = warp::ballot(equal);
            let stays = r.to_bits() > low || equal && (all & before).count_ones() < left;
            if stays {
                kept += r;
            } else {
                device::store(part.exponentials, at, T::from_f64(0.0));
            }
            if !a.components.is_null() {
                let staying = warp::ballot(stays);
                if stays {
                    let place = (sixteen * GROUP as u64 + row as u64) * a.count as u64;
                    let nth_kept = listed + (staying & before).count_ones();
                    device::store(a.components, place + nth_kept as u64, at as u32 / 16 + nth);
                }
                listed += (staying & lanes).count_ones();
            }
            let taken = (all & lanes).count_ones();
            left = left.saturating_sub(taken);
        });
    }
    each(LANES.ilog2() as usize, |i| kept += warp::shuffle_xor(kept, ROWS << i));
    if !a.components.is_null() && weight > 0.0 && low == 0 && nth == 0 {
        // SAFETY: the state is there if the components are; all rows that write to it write the same.
        unsafe { device::store(a.state, TROUBLE, 1) };
    }
    // NaN stays: it reaches the sums, and the host takes another way.
    let scaled = weight > 0.0;
    let by = if scaled { weight / kept } else { 0.0 };
    let mut piece = nth;
    while scaled && piece < pieces {
        let at = (piece * TILE_ROWS) as u64;
        // SAFETY: a factor for each piece, which only this lane changes; all lanes have read it.
        unsafe { device::store(part.factors, at, device::load(part.factors.cast_const(), at) * by) };
        piece += LANES;
    }
    let less = block_sum(if scaled && nth == 0 { weight * ln_f64(by) } else { 0.0 }, Shared::at(0));
    if thread::thread_idx_x() == 0 {
        // SAFETY: one for each sixteen rows, which no other block changes.
        unsafe {
            device::store(a.likelihoods, sixteen, device::load(a.likelihoods.cast_const(), sixteen) - less);
        }
    }
}

const _: () = assert!(LANES == 8 && ROWS == 4);
