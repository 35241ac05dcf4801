//! Sums over a warp's rows: each thread stages numbers of its row, and then adds up some of them over all rows.

use crate::device::{self, Shared, WARP, anew, warp};
use crate::each::each;

/// From one number to the next: odd, so that threads at different numbers use different banks.
pub(super) const STRIDE: u32 = WARP + 1;

/// Bytes of shared memory for `count` numbers of each row.
#[cfg(not(target_arch = "nvptx64"))]
pub(super) fn bytes(count: u32) -> u64 {
    u64::from(8 * count * STRIDE).next_multiple_of(16)
}

/// Numbers of a warp's rows in shared memory, `(count, STRIDE)`.
#[derive(Clone, Copy)]
pub(super) struct Stage {
    numbers: Shared<f64>,
    lane: u32,
    /// Whether this thread's row counts.
    counts: bool,
    /// The weight of this thread's row.
    weight: f64,
}

impl Stage {
    #[inline(always)]
    pub(super) fn new(counts: bool, weight: f64) -> Self {
        Self { numbers: Shared::at(0), lane: warp::lane_id(), counts, weight }
    }

    /// The numbers from `i` on.
    #[inline(always)]
    pub(super) fn skip(self, i: u32) -> Self {
        Self { numbers: self.numbers.skip(i * STRIDE), ..self }
    }

    /// The first byte after the numbers.
    #[inline(always)]
    pub(super) const fn end(count: u32) -> u32 {
        (8 * count * STRIDE).next_multiple_of(16)
    }

    /// Sets number `at` of this thread's row to `value` times its weight.
    #[inline(always)]
    pub(super) fn put(self, at: u32, value: f64) {
        // The values of a row that does not count may be infinite.
        self.numbers.store(at * STRIDE + self.lane, if self.counts { self.weight * value } else { 0.0 });
    }

    /// Number `at` of this thread's row.
    #[inline(always)]
    pub(super) fn get(self, at: u32) -> f64 {
        self.numbers.load(at * STRIDE + self.lane)
    }

    /// Sets number `at` of this thread's row.
    #[inline(always)]
    pub(super) fn set(self, at: u32, value: f64) {
        self.numbers.store(at * STRIDE + self.lane, value);
    }

    /// Number `at` of all rows.
    #[inline(always)]
    pub(super) fn of_all_rows(self, at: u32) -> Shared<f64> {
        self.numbers.skip(at * STRIDE)
    }

    /// Whether this thread's row counts.
    #[inline(always)]
    pub(super) const fn counts(&self) -> bool {
        self.counts
    }

    /// Adds number `i` of all rows to `sums[first + i]`, for each `i` below `count`. All lanes call it together.
    ///
    /// # Safety
    /// The sums are live, and only this warp uses them.
    #[inline(always)]
    pub(super) unsafe fn add_up(self, count: u32, sums: *mut f64, first: u64) {
        // Several threads share the rows of a sum if there are few sums.
        let mut bits = WARP.ilog2();
        while bits >= 3 && 1 << bits >= 2 * count {
            bits -= 1;
        }
        let width = 1 << bits;
        let (own, part, rows) = (self.lane & (width - 1), self.lane >> bits, width);
        warp::sync_warp();
        let mut from = 0;
        while from < count {
            let i = from + own;
            let mut sum = 0.0;
            if i < count {
                let staged = self.numbers.skip(i * STRIDE + part * rows);
                let mut parts = [0.0; 4];
                let mut row = 0;
                while row < rows {
                    each(4, |j| parts[j] += staged.load(row + j as u32));
                    row += 4;
                }
                sum = (parts[0] + parts[1]) + (parts[2] + parts[3]);
            }
            let mut step = width;
            while step < WARP {
                sum += warp::shuffle_xor(sum, step);
                step *= 2;
            }
            if anew(i < count) && part == 0 {
                // SAFETY: the caller upholds `# Safety`; each sum always has the same thread.
                unsafe {
                    let at = first + i as u64;
                    device::store(sums, at, device::load(sums.cast_const(), at) + sum);
                }
            }
            from += width;
        }
        warp::sync_warp();
    }
}
