//! The sums of each component over the rows that list it.

use crate::Real;
use crate::device::{self, Shared, anew, thread};
use crate::each::each;
use crate::em::lanes::row_weight;
use crate::em::nearby::coordinate;
use crate::layout::{TILE_ROWS, packed_index, packed_len, tiled_index};
use crate::truncated::{STAGED, Truncated, divided, form};

/// Writes where the entries of each component begin.
///
/// # Safety
/// The buffers in `a` are as the fields of [`Truncated`] document.
#[inline(always)]
pub(super) unsafe fn starts(a: Truncated) {
    device::await_previous_grid();
    let (i, len) = (thread::index_1d(), a.n * a.listed as u64);
    if i >= len {
        return;
    }
    // SAFETY: `i < len`, and keys are below `k`.
    unsafe {
        let key = device::load(a.keys, i);
        let mut c = if i == 0 { 0 } else { device::load(a.keys, i - 1) + 1 };
        while c <= key {
            device::store(a.starts, c as u64, i as u32);
            c += 1;
        }
        if i + 1 == len {
            let mut c = key + 1;
            while c <= a.k {
                device::store(a.starts, c as u64, len as u32);
                c += 1;
            }
        }
    }
}

/// The entries of a block's component.
struct Own<'a> {
    a: &'a Truncated,
    c: u64,
    first: u32,
    end: u32,
    /// The mean less the shift, `(d,)`.
    mean: Shared<f64>,
    rest: Shared<f64>,
}

/// # Safety
/// The buffers in `a` are as the fields of [`Truncated`] document.
#[inline(always)]
pub(super) unsafe fn body(a: Truncated) {
    device::await_previous_grid();
    let (c, t) = (thread::block_idx_x() as u64, thread::thread_idx_x());
    let (mean, rest) = (Shared::<f64>::at(0), Shared::<f64>::at(8 * a.d));
    // SAFETY: `c < k`, and columns are below `d`.
    unsafe {
        let mut j = t;
        while j < a.d {
            mean.store(j, device::load(a.means, c * a.padded as u64 + j as u64));
            j += TILE_ROWS;
        }
        thread::sync_threads();
        let start = |c: u64| device::load(a.starts.cast_const(), c);
        let own = Own { a: &a, c, first: start(c), end: start(c + 1), mean, rest };
        if a.form == form::FULL || a.form == form::FACTORS {
            own.products();
        } else {
            own.squares();
        }
    }
}

impl Own<'_> {
    /// The row of an entry, and its responsibility times the row's weight.
    #[inline(always)]
    unsafe fn entry(&self, i: u32) -> (u64, f64) {
        let a = self.a;
        // SAFETY: `i` is below the number of entries, and entries are places in the lists.
        unsafe {
            let entry = device::load(a.entries, i as u64);
            let row = device::load(a.order, divided(entry, a.listed).0 as u64) as u64;
            let weight = row_weight(a.row_weights, a.n, row);
            (row, device::load(a.responsibilities.cast_const(), entry as u64) * weight)
        }
    }

    /// Column `j` of a row, less the mean.
    #[inline(always)]
    unsafe fn z(&self, row: u64, j: u32) -> f64 {
        let a = self.a;
        // SAFETY: `row < n` and `j < d`.
        unsafe { coordinate(a.x, a.number_bytes, tiled_index(row, j, a.d)) - self.mean.load(j) }
    }

    /// Sums of squares: a thread has a column and every so many of the entries.
    #[inline(always)]
    unsafe fn squares(&self) {
        let (a, t) = (self.a, thread::thread_idx_x());
        let mut bits = 0;
        while 1 << bits < a.d && bits < TILE_ROWS.ilog2() {
            bits += 1;
        }
        let (wide, teams) = (1 << bits, TILE_ROWS >> bits);
        let mut from = 0;
        let mut norm = 0.0;
        while from < a.d {
            let (j, team) = (from + (t & (wide - 1)), t >> bits);
            let mut sums = [0.0; 3];
            let mut i = self.first + team;
            while i < self.end {
                // SAFETY: the entry is one of the component's, and `j < d`.
                unsafe {
                    let (row, r) = self.entry(i);
                    if j < a.d && r != 0.0 {
                        let z = self.z(row, j);
                        let scaled = r * z;
                        sums[0] += r;
                        sums[1] += scaled;
                        sums[2] = Real::fma(scaled, z, sums[2]);
                    }
                }
                i += teams;
            }
            thread::sync_threads();
            each(3, |s| self.rest.store(3 * t + s as u32, sums[s]));
            thread::sync_threads();
            if anew(team == 0 && j < a.d) {
                let mut sums = [0.0; 3];
                let mut other = 0;
                while other < teams {
                    each(3, |s| sums[s] += self.rest.load(3 * (other * wide + t) + s as u32));
                    other += 1;
                }
                // SAFETY: `c < k` and `j < d`.
                unsafe {
                    if j == 0 {
                        device::store(a.counts, self.c, sums[0]);
                    }
                    device::store(a.first, self.c * a.d as u64 + j as u64, sums[1]);
                    if a.form == form::DIAG {
                        device::store(a.second, self.c * a.d as u64 + j as u64, sums[2]);
                    } else {
                        norm += sums[2];
                    }
                }
            }
            from += wide;
        }
        if a.form == form::DIAG {
            return;
        }
        thread::sync_threads();
        self.rest.store(t, norm);
        thread::sync_threads();
        if t == 0 {
            let (mut sum, mut i) = (0.0, 0);
            while i < wide {
                sum += self.rest.load(i);
                i += 1;
            }
            // SAFETY: `c < k`.
            unsafe { device::store(a.second, self.c, sum) };
        }
    }

    /// Sums of products of all pairs of columns: a thread has some of the pairs, for all entries, which are staged some at a time.
    #[inline(always)]
    unsafe fn products(&self) {
        const PAIRS: usize = 16;
        let (a, t, d) = (self.a, thread::thread_idx_x(), self.a.d);
        let pairs = packed_len(d) as u32;
        let mut from = 0;
        while from < pairs || from == 0 {
            let mut at = [(0, 0); PAIRS];
            each(PAIRS, |p| at[p] = pair(from + p as u32 * TILE_ROWS + t, pairs));
            let mut sums = [0.0; PAIRS];
            let (mut count, mut first) = (0.0, [0.0; (super::COLUMNS / TILE_ROWS) as usize]);
            let mut i = self.first;
            while i < self.end {
                let some = if self.end - i < STAGED { self.end - i } else { STAGED };
                thread::sync_threads();
                let mut cell = t;
                while cell < some * (d + 1) {
                    // SAFETY: the entry is one of the component's, and `j < d` where a column is read.
                    unsafe {
                        let (one, j) = divided(cell, d + 1);
                        let (row, r) = self.entry(i + one);
                        self.rest.store(cell, if j == d { r } else { self.z(row, j) });
                    }
                    cell += TILE_ROWS;
                }
                thread::sync_threads();
                let mut one = 0;
                while one < some {
                    let z = self.rest.skip(one * (d + 1));
                    let r = z.load(d);
                    if r != 0.0 {
                        each(PAIRS, |p| sums[p] = Real::fma(r * z.load(at[p].0), z.load(at[p].1), sums[p]));
                        if from == 0 {
                            count += r;
                            each(first.len(), |s| {
                                let j = s as u32 * TILE_ROWS + t;
                                if j < d {
                                    first[s] = Real::fma(r, z.load(j), first[s]);
                                }
                            });
                        }
                    }
                    one += 1;
                }
                i += some;
            }
            // SAFETY: `c < k`, pairs are below their number, and columns below `d`.
            unsafe {
                each(PAIRS, |p| {
                    let place = from + p as u32 * TILE_ROWS + t;
                    if place < pairs {
                        device::store(a.second, self.c * pairs as u64 + place as u64, sums[p]);
                    }
                });
                if from == 0 {
                    each(first.len(), |s| {
                        let j = s as u32 * TILE_ROWS + t;
                        if j < d {
                            device::store(a.first, self.c * d as u64 + j as u64, first[s]);
                        }
                    });
                    if t == 0 {
                        device::store(a.counts, self.c, count);
                    }
                }
            }
            from += PAIRS as u32 * TILE_ROWS;
        }
    }
}

/// The columns of a packed pair; the first for those past the last.
#[inline(always)]
fn pair(place: u32, pairs: u32) -> (u32, u32) {
    if place >= pairs {
        return (0, 0);
    }
    let mut i = 0;
    while packed_index(i + 1, 0) <= place as u64 {
        i += 1;
    }
    (i, place - packed_index(i, 0) as u32)
}
