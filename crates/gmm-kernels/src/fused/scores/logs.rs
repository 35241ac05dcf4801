//! Σ w ln p(x) as a lane keeps it.

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

    /// A row: a number near the largest of its joint densities' logarithms, and the sum of all in terms of that, at least 1.
    #[inline(always)]
    pub(super) fn add(&mut self, weighted: bool, weight: f64, top: f64, sum: f64) {
        if weighted {
            if weight > 0.0 {
                self.total += weight * (top + ln_f64(sum));
            }
            return;
        }
        let counts = weight > 0.0;
        self.total += if counts { top } else { 0.0 };
        self.product *= if counts { sum } else { 1.0 };
        // Once in some hundred rows.
        if self.product > Self::LARGE {
            self.product *= Self::SMALLER;
            self.total += 256.0 * core::f64::consts::LN_2;
        }
    }

    #[inline(always)]
    pub(super) fn total(self) -> f64 {
        self.total + ln_f64(self.product)
    }
}
