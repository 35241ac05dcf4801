//! Sums of squares that lose little however many columns there are.

use crate::Real;
use crate::each::each;

/// A sum of squares in runs of [`RUN`](Self::RUN) terms. The rounding errors of adding runs are kept too (compensated
/// summation), so that hundreds of columns lose no more precision than one run.
#[derive(Clone, Copy)]
pub(super) struct SumOfSquares<T> {
    run: T,
    sum: T,
    lost: T,
}

impl<T: Real> SumOfSquares<T> {
    pub(super) const NONE: Self = Self { run: T::ZERO, sum: T::ZERO, lost: T::ZERO };

    /// Columns per run.
    pub(super) const RUN: u32 = 32;

    #[inline(always)]
    pub(super) fn add(&mut self, y: T) {
        self.run = y.fma(y, self.run);
    }

    /// Adds the current run to the sum.
    #[inline(always)]
    pub(super) fn end_run(&mut self) {
        // Knuth's two-sum.
        let sum = self.sum + self.run;
        let of_run = sum - self.sum;
        self.lost += (self.sum - (sum - of_run)) + (self.run - of_run);
        (self.run, self.sum) = (T::ZERO, sum);
    }

    /// Sums of the squares of `y(0)` to `y(d − 1)`; NaN if they overflow.
    #[inline(always)]
    pub(super) fn of<const R: usize>(d: u32, mut y: impl FnMut(u32) -> [T; R]) -> [f64; R] {
        let (mut squares, mut j) = ([Self::NONE; R], 0);
        while j < d {
            let end = if j + Self::RUN < d { j + Self::RUN } else { d };
            while j < end {
                let y = y(j);
                each(R, |i| squares[i].add(y[i]));
                j += 1;
            }
            each(R, |i| squares[i].end_run());
        }
        Self::totals(squares)
    }

    #[inline(always)]
    pub(super) fn totals<const R: usize>(all: [Self; R]) -> [f64; R] {
        let mut out = [0.0; R];
        each(R, |i| out[i] = all[i].total());
        out
    }

    #[inline(always)]
    fn total(self) -> f64 {
        self.sum.to_f64() + self.lost.to_f64()
    }
}
