//! The start: k-means++ and Lloyd's iterations, as the host makes them with the same random numbers.

use super::{Block, split, start_code};
use crate::device::{self, thread};
use crate::seeding::draw_rows::is_beyond;

/// Lloyd's iteration stops when the squared moves of the centres sum to at most this times the mean column variance.
const TOLERANCE: f64 = 1e-4;

/// Most of Lloyd's passes.
const MOST_PASSES: u32 = 300;

impl Block<'_> {
    /// Gives each row to a component, by its responsibilities; `variance` is the mean of the columns'.
    ///
    /// # Safety
    /// As for [`Block::of`].
    #[inline(always)]
    pub(super) unsafe fn start(&self, variance: f64) {
        // SAFETY: the caller upholds `# Safety`.
        unsafe { self.seed() };
        self.lloyd(TOLERANCE * variance);
    }

    /// The squared distance between a row and a point whose columns are `step` apart.
    #[inline(always)]
    fn distance(&self, row: u32, point: impl Fn(u32) -> f64) -> f64 {
        let (mut sum, mut j) = (0.0, 0);
        while j < self.a.d {
            let difference = self.rows.load(j * self.stride + row) - point(j);
            sum += difference * difference;
            j += 1;
        }
        sum
    }

    /// Column `j` of a row.
    #[inline(always)]
    fn entry(&self, row: u32, j: u32) -> f64 {
        self.rows.load(j * self.stride + row)
    }

    /// Sets centre `c` to a row, and lowers each row's distance to the nearest centre; `is_first` if there was none.
    /// Returns Σ w near.
    #[inline(always)]
    fn add_centre(&self, c: u32, chosen: u32, is_first: bool) -> f64 {
        let near = self.responsibilities;
        thread::sync_threads();
        self.share(self.a.d, |j| self.means.store(c * self.a.d + j, self.entry(chosen, j)));
        let mut left = 0.0;
        self.share(self.n, |row| {
            let distance = self.distance(row, |j| self.entry(chosen, j));
            let before = if is_first { f64::INFINITY } else { near.load(row) };
            let nearest = if distance < before { distance } else { before };
            near.store(row, nearest);
            left += self.row_weights.load(row) * nearest;
        });
        self.add_up([left])[0]
    }

    /// Greedy k-means++.
    ///
    /// # Safety
    /// As for [`Block::of`].
    #[inline(always)]
    unsafe fn seed(&self) {
        let a = self.a;
        // SAFETY: the grid has a block for each fit.
        let mut at = unsafe { device::load(a.draws, thread::block_idx_x() as u64) };
        let near = self.responsibilities;
        let (mut c, mut potential) = (0, 0.0);
        while c < a.k {
            let apart = c > 0 && potential > 0.0 && potential < f64::INFINITY;
            let count = if apart { a.trials } else { 1 };
            let (mut best, mut least, mut s) = (0, f64::INFINITY, 0);
            while s < count {
                // First come numbers that select groups of rows, of which there is one.
                // SAFETY: each centre takes at most twice as many numbers as there are trials.
                let uniform = unsafe { device::load(a.uniforms, (at + count + s) as u64) };
                let row = self.draw(uniform, apart);
                if apart {
                    let mut left = 0.0;
                    self.share(self.n, |other| {
                        let distance = self.distance(other, |j| self.entry(row, j));
                        let before = near.load(other);
                        left += self.row_weights.load(other) * if distance < before { distance } else { before };
                    });
                    let [left] = self.add_up([left]);
                    best = if left < least { row } else { best };
                    least = if left < least { left } else { least };
                } else {
                    best = row;
                }
                s += 1;
            }
            at += 2 * count;
            potential = self.add_centre(c, best, c == 0);
            c += 1;
        }
    }

    /// The row that `uniform` selects; each has a probability in proportion to its weight, times its distance to the
    /// nearest centre if `apart`.
    ///
    /// Each thread adds up consecutive rows, and the threads' sums are added in order: so the running sums never fall,
    /// and exactly one row contains the mark.
    #[inline(always)]
    fn draw(&self, uniform: f64, apart: bool) -> u32 {
        let each = split(self.n + self.threads - 1, self.threads).0;
        let (from, to) = (self.t * each, if (self.t + 1) * each < self.n { (self.t + 1) * each } else { self.n });
        let value = |row: u32| {
            let weight = self.row_weights.load(row);
            if apart { weight * self.responsibilities.load(row) } else { weight }
        };
        let (mut own, mut row) = (0.0, from);
        while row < to {
            own += value(row);
            row += 1;
        }
        thread::sync_threads();
        self.parts.store(self.t, own);
        let found = self.scratch;
        if self.t == 0 {
            found.store(0, 0.0);
        }
        thread::sync_threads();
        let (mut before, mut total, mut s) = (0.0, 0.0, 0);
        while s < self.threads {
            before = if s == self.t { total } else { before };
            total += self.parts.load(s);
            s += 1;
        }
        if is_beyond(before + own, uniform, total) && !is_beyond(before, uniform, total) {
            let (mut sum, mut row) = (0.0, from);
            while row + 1 < to {
                sum += value(row);
                if is_beyond(before + sum, uniform, total) {
                    break;
                }
                row += 1;
            }
            found.store(0, row as f64);
        }
        thread::sync_threads();
        let row = found.load(0) as u32;
        thread::sync_threads();
        row
    }

    /// Gives each row to its nearest centre, the first among equals.
    #[inline(always)]
    fn assign(&self) {
        let (k, d) = (self.a.k, self.a.d);
        thread::sync_threads();
        self.share(self.n, |row| {
            let (mut nearest, mut least, mut c) = (0, f64::INFINITY, 0);
            while c < k {
                let distance = self.distance(row, |j| self.means.load(c * d + j));
                nearest = if distance < least { c } else { nearest };
                least = if distance < least { distance } else { least };
                c += 1;
            }
            let weight = self.row_weights.load(row);
            c = 0;
            while c < k {
                self.responsibilities.store(c * self.stride + row, if c == nearest { weight } else { 0.0 });
                c += 1;
            }
        });
    }

    /// Lloyd's iterations, if asked for, until the squared moves of the centres sum to at most `rest`; then assigns each
    /// row to its nearest centre.
    #[inline(always)]
    fn lloyd(&self, rest: f64) {
        let (k, d, per) = (self.a.k, self.a.d, 1 + self.a.d);
        let (mut passes, mut ended) = (0, self.a.start == start_code::SEEDS);
        loop {
            self.assign();
            if ended || passes == MOST_PASSES {
                return;
            }
            self.sum_up(per);
            let (mut moved, mut empty) = (0.0, 0.0);
            self.share(k * d, |at| {
                let (c, j) = split(at, d);
                let weight = self.sums.load(c * per);
                if weight > 0.0 {
                    let step = self.sums.load(c * per + 1 + j) / weight;
                    self.means.store(at, self.means.load(at) + step);
                    moved += step * step;
                } else if j == 0 {
                    empty += 1.0;
                }
            });
            let [moved, empty] = self.add_up([moved, empty]);
            let revived = empty > 0.0 && self.revive(per);
            ended = !revived && moved <= rest;
            passes += 1;
        }
    }

    /// Moves each centre without rows to the row farthest from all others. Returns whether any moved.
    #[inline(always)]
    fn revive(&self, per: u32) -> bool {
        let (k, d) = (self.a.k, self.a.d);
        let near = self.responsibilities;
        self.share(self.n, |row| {
            let (mut least, mut c) = (f64::INFINITY, 0);
            while c < k {
                if self.sums.load(c * per) > 0.0 {
                    let distance = self.distance(row, |j| self.means.load(c * d + j));
                    least = if distance < least { distance } else { least };
                }
                c += 1;
            }
            near.store(row, least);
        });
        let (mut revived, mut c) = (false, 0);
        while c < k {
            if self.sums.load(c * per) == 0.0 {
                let far = self.farthest_row();
                if near.load(far) > 0.0 {
                    self.add_centre(c, far, false);
                    revived = true;
                }
            }
            c += 1;
        }
        thread::sync_threads();
        revived
    }

    /// The row farthest from its nearest centre, the first among equals.
    #[inline(always)]
    fn farthest_row(&self) -> u32 {
        let near = self.responsibilities;
        thread::sync_threads();
        let (mut best, mut far) = (-1.0, 0);
        self.share(self.n, |row| {
            if near.load(row) > best {
                (best, far) = (near.load(row), row);
            }
        });
        self.parts.store(self.t, best);
        self.solved.store(self.t, far as f64);
        thread::sync_threads();
        let (mut best, mut far, mut s) = (-1.0, 0.0, 0);
        while s < self.threads {
            let (value, row) = (self.parts.load(s), self.solved.load(s));
            if value > best || (value == best && row < far) {
                (best, far) = (value, row);
            }
            s += 1;
        }
        thread::sync_threads();
        far as u32
    }
}
