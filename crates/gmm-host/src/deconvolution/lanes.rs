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
    /// Number of groups of rows of a block.
    pub(super) const GROUPS: usize = WIDTH / (2 * W::LANES);

    /// The rows of one group.
    #[inline(always)]
    pub(super) fn group(w: W, group: usize) -> Self {
        assert!(group < Self::GROUPS, "a group of the block");
        Self { w, first: group * 2 * W::LANES }
    }

    #[inline(always)]
    pub(super) fn splat(self, v: f64) -> Pair<W> {
        [self.w.splat(v); 2]
    }

    /// Reads entry `at` of an array `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn load(self, from: &[f64], at: usize) -> Pair<W> {
        assert!((at + 1) * WIDTH <= from.len(), "an entry of the array");
        // SAFETY: as asserted.
        unsafe { self.load_unchecked(from, at) }
    }

    /// Writes entry `at` of an array `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn store(self, to: &mut [f64], at: usize, v: Pair<W>) {
        assert!((at + 1) * WIDTH <= to.len(), "an entry of the array");
        // SAFETY: the array has WIDTH values of that entry, and `first + 2*LANES` is at most WIDTH (`group`).
        unsafe {
            let start = to.as_mut_ptr().add(at * WIDTH + self.first);
            self.w.store(start, v[0]);
            self.w.store(start.add(W::LANES), v[1]);
        }
    }

    #[inline(always)]
    pub(super) fn add(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        [self.w.add(a[0], b[0]), self.w.add(a[1], b[1])]
    }

    #[inline(always)]
    pub(super) fn sub(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        [self.w.sub(a[0], b[0]), self.w.sub(a[1], b[1])]
    }

    #[inline(always)]
    pub(super) fn mul(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        [self.w.mul(a[0], b[0]), self.w.mul(a[1], b[1])]
    }

    #[inline(always)]
    pub(super) fn div(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        [self.w.div(a[0], b[0]), self.w.div(a[1], b[1])]
    }

    #[inline(always)]
    pub(super) fn max(self, a: Pair<W>, b: Pair<W>) -> Pair<W> {
        [self.w.max(a[0], b[0]), self.w.max(a[1], b[1])]
    }

    #[inline(always)]
    pub(super) fn sqrt(self, a: Pair<W>) -> Pair<W> {
        [self.w.sqrt(a[0]), self.w.sqrt(a[1])]
    }

    /// `a*b + c`.
    #[inline(always)]
    pub(super) fn fma(self, a: Pair<W>, b: Pair<W>, c: Pair<W>) -> Pair<W> {
        [self.w.fma(a[0], b[0], c[0]), self.w.fma(a[1], b[1], c[1])]
    }

    /// `c − a*b`.
    #[inline(always)]
    pub(super) fn neg_fma(self, a: Pair<W>, b: Pair<W>, c: Pair<W>) -> Pair<W> {
        [self.w.neg_fma(a[0], b[0], c[0]), self.w.neg_fma(a[1], b[1], c[1])]
    }

    /// `a < b ? x : y`.
    #[inline(always)]
    pub(super) fn select_lt(self, a: Pair<W>, b: Pair<W>, x: Pair<W>, y: Pair<W>) -> Pair<W> {
        [self.w.select_lt(a[0], b[0], x[0], y[0]), self.w.select_lt(a[1], b[1], x[1], y[1])]
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
        [crate::cpu::math::ln(self.w, a[0]), crate::cpu::math::ln(self.w, a[1])]
    }

    #[inline(always)]
    pub(super) fn exp(self, a: Pair<W>) -> Pair<W> {
        crate::cpu::math::exp(self.w, a)
    }

    /// Reads entry `at` of an array `(.., WIDTH)`.
    ///
    /// # Safety
    /// The array has that entry.
    #[inline(always)]
    unsafe fn load_unchecked(self, from: &[f64], at: usize) -> Pair<W> {
        // SAFETY: the caller guarantees `WIDTH` values from there on, and `first + 2*LANES` is at most WIDTH (`group`).
        unsafe {
            let start = from.as_ptr().add(at * WIDTH + self.first);
            [self.w.load(start), self.w.load(start.add(W::LANES))]
        }
    }

    /// `sum − Σ_l a[l] b[l]` over the entries of arrays `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn minus_dot(self, mut sum: Pair<W>, a: &[f64], b: &[f64]) -> Pair<W> {
        for l in 0..a.len().min(b.len()) / WIDTH {
            // SAFETY: both arrays have entry `l`.
            let (a, b) = unsafe { (self.load_unchecked(a, l), self.load_unchecked(b, l)) };
            sum = self.neg_fma(a, b, sum);
        }
        sum
    }

    /// `sum + Σ_l a[l] b[l]` over the entries of arrays `(.., WIDTH)`.
    #[inline(always)]
    pub(super) fn plus_dot(self, mut sum: Pair<W>, a: &[f64], b: &[f64]) -> Pair<W> {
        for l in 0..a.len().min(b.len()) / WIDTH {
            // SAFETY: both arrays have entry `l`.
            let (a, b) = unsafe { (self.load_unchecked(a, l), self.load_unchecked(b, l)) };
            sum = self.fma(a, b, sum);
        }
        sum
    }

    /// `sum + Σ_l c[l] a[l]` with numbers `c` common to all rows.
    #[inline(always)]
    pub(super) fn plus_common_dot(self, mut sum: Pair<W>, c: &[f64], a: &[f64]) -> Pair<W> {
        for l in 0..c.len().min(a.len() / WIDTH) {
            // SAFETY: the array has entry `l`.
            let a = unsafe { self.load_unchecked(a, l) };
            sum = self.fma(self.splat(c[l]), a, sum);
        }
        sum
    }

    /// Adds `a*b` of each row to the accumulators of sum `at`, of an array `(.., SLOTS)`.
    #[inline(always)]
    pub(super) fn accumulate(self, sums: &mut [f64], at: usize, a: Pair<W>, b: Pair<W>) {
        assert!((at + 1) * SLOTS <= sums.len(), "an entry of the sums");
        // SAFETY: the array has WIDTH/2 values of that entry, and `first/2 + LANES` is at most WIDTH/2.
        unsafe {
            let slot = sums.as_mut_ptr().add(at * SLOTS + self.first / 2);
            let sum = self.w.fma(a[0], b[0], self.w.load(slot));
            self.w.store(slot, self.w.fma(a[1], b[1], sum));
        }
    }
}
