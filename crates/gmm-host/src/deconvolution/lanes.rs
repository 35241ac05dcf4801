//! Operations on the values of a block's rows: arrays with the row in the last index, two vectors at a time.

use super::layout::WIDTH;
use crate::cpu::simd::Words;

/// Accumulators per sum: half of a block's rows, whatever the instruction set.
pub(super) const SLOTS: usize = WIDTH / 2;

/// Two vectors: the values of `2*LANES` rows.
pub(super) type Pair<W> = [<W as Words<f64>>::V; 2];

/// Which rows of a block a step computes: `2*LANES` of them, from `first`.
#[derive(Clone, Copy)]
pub(super) struct Rows<W> {
    w: W,
    first: usize,
}

impl<W: Words<f64>> Rows<W> {
    /// The groups of rows of a block, in order.
    #[inline(always)]
    pub(super) fn all(w: W) -> impl Iterator<Item = Self> {
        (0..WIDTH).step_by(2 * W::LANES).map(move |first| Self { w, first })
    }

    #[inline(always)]
    pub(super) fn splat(self, v: f64) -> Pair<W> {
        [self.w.splat(v); 2]
    }

    /// Reads entry `at` of an array `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn load(self, from: &[f64], at: usize) -> Pair<W> {
        let rows = &from[at * WIDTH..][..WIDTH];
        // SAFETY: `rows` has WIDTH values, and `first + 2*LANES` is at most WIDTH (`all`).
        unsafe {
            let start = rows.as_ptr().add(self.first);
            [self.w.load(start), self.w.load(start.add(W::LANES))]
        }
    }

    /// Writes entry `at` of an array `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn store(self, to: &mut [f64], at: usize, v: Pair<W>) {
        let rows = &mut to[at * WIDTH..][..WIDTH];
        // SAFETY: as in `load`.
        unsafe {
            let start = rows.as_mut_ptr().add(self.first);
            self.w.store(start, v[0]);
            self.w.store(start.add(W::LANES), v[1]);
        }
    }

    #[inline(always)]
    fn each(self, of: impl Fn(usize) -> W::V) -> Pair<W> {
        [of(0), of(1)]
    }

    #[inline(always)]
    pub(super) fn add(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.add(a[g], b[g]),
        )
    }

    #[inline(always)]
    pub(super) fn sub(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.sub(a[g], b[g]),
        )
    }

    #[inline(always)]
    pub(super) fn mul(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.mul(a[g], b[g]),
        )
    }

    #[inline(always)]
    pub(super) fn div(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.div(a[g], b[g]),
        )
    }

    #[inline(always)]
    pub(super) fn max(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.max(a[g], b[g]),
        )
    }

    #[inline(always)]
    pub(super) fn sqrt(self, a: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.sqrt(a[g]),
        )
    }

    /// `a*b + c`.
    #[inline(always)]
    pub(super) fn fma(self, a: Pair<W>, b: Pair<W>, c: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.fma(a[g], b[g], c[g]),
        )
    }

    /// `c − a*b`.
    #[inline(always)]
    pub(super) fn neg_fma(self, a: Pair<W>, b: Pair<W>, c: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.neg_fma(a[g], b[g], c[g]),
        )
    }

    /// `a < b ? x : y`.
    #[inline(always)]
    pub(super) fn select_lt(self, a: Pair<W>, b: Pair<W>, x: Pair<W>, y: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| self.w.select_lt(a[g], b[g], x[g], y[g]),
        )
    }

    /// The first row, within the block, for which not `a < b`.
    #[inline(always)]
    pub(super) fn first_not_lt(self, a: Pair<W>, b: Pair<W>) -> Option<usize> {
        let full = (1u32 << W::LANES) - 1;
        let bits = [!self.w.lt_bits(a[0], b[0]) & full, !self.w.lt_bits(a[1], b[1]) & full];
        let group = (0..2).find(|&g| bits[g] != 0)?;
        Some(self.first + group * W::LANES + bits[group].trailing_zeros() as usize)
    }

    /// Whether `a > 0` for some row.
    #[inline(always)]
    pub(super) fn any_positive(self, a: Pair<W>) -> bool {
        let zero = self.w.splat(0.0);
        self.w.lt_bits(zero, a[0]) | self.w.lt_bits(zero, a[1]) != 0
    }

    /// Exponents and significands of positive numbers.
    #[inline(always)]
    pub(super) fn split(self, a: Pair<W>) -> (Pair<W>, Pair<W>) {
        let (low, high) = (self.w.split(a[0]), self.w.split(a[1]));
        ([low.0, high.0], [low.1, high.1])
    }

    #[inline(always)]
    pub(super) fn ln(self, a: Pair<W>) -> Pair<W> {
        self.each(
            #[inline(always)]
            |g| crate::cpu::math::ln(self.w, a[g]),
        )
    }

    #[inline(always)]
    pub(super) fn exp(self, a: Pair<W>) -> Pair<W> {
        crate::cpu::math::exp(self.w, a)
    }

    /// `Σ_l a[l] b[l]` over entries of arrays `(.., WIDTH)` of equal length, from `sum` on, subtracted from it.
    #[inline(always)]
    pub(super) fn minus_dot(self, mut sum: Pair<W>, a: &[f64], b: &[f64]) -> Pair<W> {
        for (a, b) in a.chunks_exact(WIDTH).zip(b.chunks_exact(WIDTH)) {
            sum = self.neg_fma(self.load(a, 0), self.load(b, 0), sum);
        }
        sum
    }

    /// `Σ_l c[l] a[l]` with numbers `c` common to all rows, added to `sum`.
    #[inline(always)]
    pub(super) fn plus_common_dot(self, mut sum: Pair<W>, c: &[f64], a: &[f64]) -> Pair<W> {
        for (c, a) in c.iter().zip(a.chunks_exact(WIDTH)) {
            sum = self.fma(self.splat(*c), self.load(a, 0), sum);
        }
        sum
    }

    /// Adds `a*b` of each row to the accumulators of sum `at`, of an array `(.., SLOTS)`.
    #[inline(always)]
    pub(super) fn accumulate(self, sums: &mut [f64], at: usize, a: Pair<W>, b: Pair<W>) {
        let slots = &mut sums[at * SLOTS..][..SLOTS];
        // SAFETY: `slots` has WIDTH/2 values, and `first/2 + LANES` is at most WIDTH/2.
        unsafe {
            let slot = slots.as_mut_ptr().add(self.first / 2);
            let sum = self.w.fma(a[0], b[0], self.w.load(slot));
            self.w.store(slot, self.w.fma(a[1], b[1], sum));
        }
    }
}
