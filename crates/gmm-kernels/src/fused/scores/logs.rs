//! Σ w ln p(x) as a lane keeps it.

use crate::each::each;
use crate::math::ln_f64;

/// As [`Likelihood`](crate::fused::likelihood::Likelihood), in two numbers where it has three: registers are scarce here.
#[derive(Clone, Copy)]
pub(super) struct Logs {
    total: f64,
    /// Of the rows of weight 1: the logarithm of a product is the sum of theirs.
    product: f64,
}

impl Logs {
    const LARGE: f64 = f64::from_bits((1023 + 256) << 52);
    const SMALLER: f64 = f64::from_bits((1023 - 256) << 52);

    pub(super) const START: Self = Self { total: 0.0, product: 1.0 };

    /// Two rows of weight 1, or 0 where one does not count: of each a number near the largest of its joint densities'
    /// logarithms, and the sum of all in terms of that, at least 1.
    #[inline(always)]
    pub(super) fn add(&mut self, counts: [bool; 2], densities: [(f64, f64); 2]) {
        each(2, |half| {
            let (top, sum) = densities[half];
            self.total += if counts[half] { top } else { 0.0 };
            self.product *= if counts[half] { sum } else { 1.0 };
        });
        // Without a branch, which would keep the compiler from going on with other rows meanwhile.
        let large = self.product > Self::LARGE;
        self.product *= if large { Self::SMALLER } else { 1.0 };
        self.total += if large { 256.0 * core::f64::consts::LN_2 } else { 0.0 };
    }

    /// A row that has a weight.
    #[inline(always)]
    pub(super) fn add_weighted(&mut self, weight: f64, (top, sum): (f64, f64)) {
        if weight > 0.0 {
            self.total += weight * (top + ln_f64(sum));
        }
    }

    #[inline(always)]
    pub(super) fn total(self) -> f64 {
        self.total + ln_f64(self.product)
    }
}
