//! Missing values under full and tied covariances: a row takes the factors of its set of observed columns (`factors`).
//!
//! Rows are in the order of their patterns, so that the threads of a warp read the same factors, or those of a few patterns.
//! The sums of a component are products of the vectors `(1, b)` of its rows, taken by one thread for each, and of every
//! pattern in the warp the covariance of the missing columns, times the pattern's responsibilities.

use crate::Real;
use crate::deconvolution::factors::{self, BLOCK, factors_len, gains, pitch, rest};
use crate::deconvolution::pass::NoisyRow;
use crate::deconvolution::pivots::Density;
use crate::deconvolution::sums::{STRIDE, Stage};
use crate::deconvolution::{Deconvolution, Form};
use crate::device::{self, WARP, warp};
use crate::each::few;
use crate::layout::{packed_index, packed_len, tiled_index};

/// Length of the vector `(1, b)`, rounded up to an even number.
#[inline(always)]
const fn even(d: u32) -> u32 {
    (d + 1).next_multiple_of(2)
}

/// Numbers before the vector `(1, b)` in shared memory: what is new in each column, which the vector `(r, r b)` replaces.
#[inline(always)]
const fn before(d: u32) -> u32 {
    let (news, products) = (pitch(d), even(d));
    if news > products { news } else { products }
}

/// Numbers of a row in shared memory.
#[inline(always)]
pub(super) const fn staged(d: u32) -> u32 {
    before(d) + even(d)
}

/// Patterns whose covariances are read at a time: more would take registers, and so warps.
const AT_ONCE: usize = 2;

/// A row, which its thread reads again for each component.
pub(super) struct Row {
    row: u64,
    /// Counted from the first of [`Deconvolution::factors`].
    pattern: u32,
    mask: u64,
}

/// The factors of a pattern and component.
#[derive(Clone, Copy)]
struct Factors(*const f64);

impl Factors {
    /// Number `i`.
    ///
    /// # Safety
    /// `i` is below `factors_len`.
    #[inline(always)]
    unsafe fn get(self, i: u32) -> f64 {
        // SAFETY: the factors are live, as those of a row that was loaded.
        unsafe { device::load(self.0, i as u64) }
    }

    /// Numbers `l` to `l + 3` of row `row` of `g`.
    ///
    /// # Safety
    /// `row` and `l` are below `pitch`, and `l` is a multiple of 4.
    #[inline(always)]
    unsafe fn gains(self, d: u32, row: u32, l: u32) -> [f64; BLOCK as usize] {
        // SAFETY: as for `get`; rows of `g` begin at multiples of 16 bytes, and are whole blocks.
        unsafe { f64::global_load4(self.0.wrapping_add((gains(d) + row * pitch(d) + l) as usize)) }
    }
}

impl Row {
    #[inline(always)]
    fn is_observed(&self, j: u32) -> bool {
        self.mask >> j & 1 == 1
    }

    /// The factors of the pattern and component `c`.
    #[inline(always)]
    fn factors(pattern: u32, a: &Deconvolution, c: u32) -> Factors {
        let first = (pattern as u64 * a.k as u64 + c as u64) * factors_len(a.d);
        Factors(a.factors.wrapping_add(first as usize))
    }

    /// The distance of an observed value from the component's mean.
    #[inline(always)]
    unsafe fn difference(&self, a: &Deconvolution, record: *const f64, j: u32) -> f64 {
        // SAFETY: `j < d`.
        unsafe { device::load(a.x, tiled_index(self.row, j, a.d)) - device::load(record, (1 + j) as u64) }
    }
}

impl NoisyRow for Row {
    #[inline(always)]
    fn record(a: &Deconvolution) -> u32 {
        Form::Patterns.record(a.d)
    }

    #[inline(always)]
    unsafe fn load(a: &Deconvolution, row: u64, last: u64) -> Self {
        // A row past the last has weight 0, and no pattern that the others of the warp do not have.
        let row = if row < a.n { row } else { last };
        // SAFETY: `row < n`, and the pattern of a row has a mask.
        let (pattern, mask) = unsafe {
            let pattern = device::load(a.patterns, row);
            (pattern, device::load(a.masks, pattern as u64))
        };
        Self { row, pattern: pattern - a.first_pattern, mask }
    }

    #[inline(always)]
    fn measured(&self) -> u32 {
        self.mask.count_ones()
    }

    /// Leaves what is new in each column in shared memory.
    #[inline(always)]
    unsafe fn condition(&self, a: &Deconvolution, c: u32, record: *const f64) -> Density {
        let (d, all, news) = (a.d, Self::factors(self.pattern, a, c), Stage::new(true, 1.0));
        let mut distance = 0.0;
        let mut first = 0;
        while first < d {
            // SAFETY: `g` has whole blocks of rows, and 0 in columns past its `d`.
            let gain = |row: usize, l: u32| unsafe { all.gains(d, first + row as u32, l) };
            let mut expected = [0.0; BLOCK as usize];
            let mut l = 0;
            while l < first {
                let mut new = [0.0; BLOCK as usize];
                few(BLOCK as usize, |step| new[step] = news.get(l + step as u32));
                few(BLOCK as usize, |row| {
                    let gain = gain(row, l);
                    few(BLOCK as usize, |step| expected[row] = Real::fma(gain[step], new[step], expected[row]));
                });
                l += BLOCK;
            }
            let mut own = [0.0; BLOCK as usize];
            few(BLOCK as usize, |row| {
                let i = first + row as u32;
                let gain = gain(row, first);
                few(row, |before| expected[row] = Real::fma(gain[before], own[before], expected[row]));
                // Past column `d` nothing is observed.
                if self.is_observed(i) {
                    // SAFETY: `i < d`; a position of a reciprocal.
                    unsafe {
                        own[row] = self.difference(a, record, i) - expected[row];
                        let scaled = own[row] * all.get(factors::reciprocals() + i);
                        distance = Real::fma(scaled, own[row], distance);
                    }
                }
                news.set(i, own[row]);
            });
            first += BLOCK;
        }
        // SAFETY: the head.
        unsafe { Density::of_factor(all.get(0), factors::failure(all.get(1), all.get(2)), distance) }
    }

    #[inline(always)]
    unsafe fn add(&self, a: &Deconvolution, c: u32, record: *const f64, stage: Stage, sums: *mut f64) {
        let (d, all, vector) = (a.d, Self::factors(self.pattern, a, c), stage.skip(before(a.d)));
        vector.set(0, 1.0);
        // Perhaps past the last column.
        vector.set(even(d) - 1, 0.0);
        let mut i = 0;
        while i < d {
            let mut value = 0.0;
            // SAFETY: positions within the factors; `i < d`.
            unsafe {
                if self.is_observed(i) {
                    value = self.difference(a, record, i);
                } else {
                    let mut j = 0;
                    while j < d {
                        let gain = all.gains(d, i, j);
                        few(BLOCK as usize, |step| value = Real::fma(gain[step], stage.get(j + step as u32), value));
                        j += BLOCK;
                    }
                }
            }
            // The values of a row that does not count may be infinite.
            vector.set(1 + i, if stage.counts() { value } else { 0.0 });
            i += 1;
        }
        i = 0;
        while i < even(d) {
            stage.put(i, vector.get(i));
            i += 1;
        }
        // The first row of each pattern.
        let above = warp::shuffle_idx_u32(self.pattern, warp::lane_id().wrapping_sub(1) % WARP);
        let heads = warp::ballot(warp::lane_id() == 0 || above != self.pattern);
        warp::sync_warp();
        // A block of two by two sums for each thread.
        let blocks = packed_len(even(d) / 2) as u32;
        let (mut from, mut row_of, mut start, mut whole) = (0, 0, 0, 0.0);
        while from < blocks {
            // All lanes take part in each step.
            let own = from + warp::lane_id();
            let at = if own < blocks { own } else { blocks - 1 };
            while at > start + row_of {
                start += row_of + 1;
                row_of += 1;
            }
            let (i, j) = (2 * row_of, 2 * (at - start));
            let (left, right, weights) = (stage.of_all_rows(i), vector.of_all_rows(j), stage.of_all_rows(0));
            let (mut sum, mut row) = ([0.0; 4], 0);
            while row < WARP {
                let (upper, lower) = (left.load(row), left.load(STRIDE + row));
                let (first, second) = (right.load(row), right.load(STRIDE + row));
                sum[0] = Real::fma(upper, first, sum[0]);
                sum[1] = Real::fma(upper, second, sum[1]);
                sum[2] = Real::fma(lower, first, sum[2]);
                sum[3] = Real::fma(lower, second, sum[3]);
                row += 1;
            }
            let of_missing = |pattern: u32, entry: usize| {
                let (row, column) = (i + (entry as u32 >> 1), j + (entry as u32 & 1));
                if column > 0 && column <= row && row <= d {
                    // SAFETY: a position of a covariance of missing columns.
                    unsafe { Self::factors(pattern, a, c).get(rest(d) + second_at(row, column)) }
                } else {
                    0.0
                }
            };
            if heads == 1 {
                // Σ r of all rows is the first of the first thread's sums.
                if from == 0 {
                    whole = Real::shuffle_idx(sum[0], 0);
                }
                if self.measured() < d && whole != 0.0 {
                    few(4, |entry| sum[entry] = Real::fma(whole, of_missing(self.pattern, entry), sum[entry]));
                }
            } else {
                // Of several patterns at a time, so that the loads do not wait for each other.
                let mut head = 0;
                while head < WARP {
                    let (mut weight, mut rests) = ([0.0; AT_ONCE], [[0.0; 4]; AT_ONCE]);
                    few(AT_ONCE, |turn| {
                        if head < WARP {
                            let others = heads & !(u32::MAX >> (WARP - 1 - head));
                            let end = if others == 0 { WARP } else { others.trailing_zeros() };
                            let pattern = warp::shuffle_idx_u32(self.pattern, head);
                            few(4, |entry| rests[turn][entry] = of_missing(pattern, entry));
                            while head < end {
                                weight[turn] += weights.load(head);
                                head += 1;
                            }
                        }
                    });
                    few(AT_ONCE, |turn| {
                        // A pattern whose factors failed may have rests that are not finite.
                        if weight[turn] != 0.0 {
                            few(4, |entry| sum[entry] = Real::fma(weight[turn], rests[turn][entry], sum[entry]));
                        }
                    });
                }
            }
            few(4, |entry| {
                let (row, column) = (i + (entry as u32 >> 1), j + (entry as u32 & 1));
                if own < blocks && column <= row && row <= d {
                    // Weight, first moments, packed second moments.
                    let to = if column == 0 { row } else { 1 + d + second_at(row, column) } as u64;
                    // SAFETY: the component has `1 + d + d*(d+1)/2` sums; each always has the same thread.
                    unsafe { device::store(sums, to, device::load(sums.cast_const(), to) + sum[entry]) };
                }
            });
            from += WARP;
        }
        warp::sync_warp();
    }
}

/// The packed second moment whose row and column of the vector `(1, b)` these are, both above 0.
#[inline(always)]
const fn second_at(row: u32, column: u32) -> u32 {
    packed_index(row - 1, column - 1) as u32
}
