//! The log-likelihood as a lane of a pass keeps it.

use crate::device::{Shared, WARP};
use crate::math::ln_f64;

/// Σ w ln p(x) of a lane's rows. Rows of weight 1 need no logarithm each: that of a product is the sum of theirs.
#[derive(Clone, Copy)]
pub(super) struct Likelihood {
    total: f64,
    product: f64,
    /// How often the product was made smaller by 2²⁵⁶.
    lowered: f64,
}

impl Likelihood {
    const LARGE: f64 = f64::from_bits((1023 + 256) << 52);
    const SMALLER: f64 = f64::from_bits((1023 - 256) << 52);

    pub(super) const START: Self = Self { total: 0.0, product: 1.0, lowered: 0.0 };

    /// Puts it into shared memory, where each lane has its own.
    #[inline(always)]
    pub(super) fn leave(self, at: Shared<f64>, lane: u32) {
        at.store(lane, self.total);
        at.store(lane + WARP, self.product);
        at.store(lane + 2 * WARP, self.lowered);
    }

    #[inline(always)]
    pub(super) fn fetch(at: Shared<f64>, lane: u32) -> Self {
        Self { total: at.load(lane), product: at.load(lane + WARP), lowered: at.load(lane + 2 * WARP) }
    }

    /// A row: a number near the largest of its joint densities' logarithms, and the sum of all in terms of that, so that it
    /// is neither near 0 nor beyond 2²⁵⁶.
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
        let large = self.product > Self::LARGE;
        self.product *= if large { Self::SMALLER } else { 1.0 };
        self.lowered += if large { 1.0 } else { 0.0 };
    }

    #[inline(always)]
    pub(super) fn total(self) -> f64 {
        self.total + (self.lowered * (256.0 * core::f64::consts::LN_2) + ln_f64(self.product))
    }
}
