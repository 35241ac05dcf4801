//! The log-likelihood as a lane of a pass keeps it.

use crate::device::{Shared, WARP};
use crate::math::ln_f64;

/// Σ w ln p(x) of a lane's rows. Rows of weight 1 need no logarithm each: that of a product is the sum of theirs.
#[derive(Clone, Copy)]
pub(crate) struct Likelihood {
    total: f64,
    product: f64,
    /// How often the product was made smaller by 2²⁵⁶.
    lowered: u32,
}

impl Likelihood {
    /// The upper half of a number's bits, from which on a product is made smaller, and by how much: without arithmetic on `f64`,
    /// for which a warp waits where others multiply matrices.
    const LARGE: u32 = (1023 + 256) << 20;
    const SMALLER: u64 = 256 << 52;

    /// The same of infinity, and of what is no number where it is positive.
    const NUMBERS: u32 = 0x7ff << 20;

    /// Numbers that a warp's lanes leave.
    pub(crate) const LEFT: u32 = 5 * WARP / 2;

    pub(crate) const START: Self = Self { total: 0.0, product: 1.0, lowered: 0 };

    /// Puts it into shared memory, where each lane has its own.
    #[inline(always)]
    pub(crate) fn leave(self, at: Shared<f64>, lane: u32) {
        at.store(lane, self.total);
        at.store(lane + WARP, self.product);
        at.skip(2 * WARP).as_f32().store(lane, f32::from_bits(self.lowered));
    }

    #[inline(always)]
    pub(crate) fn fetch(at: Shared<f64>, lane: u32) -> Self {
        let lowered = at.skip(2 * WARP).as_f32().load(lane).to_bits();
        Self { total: at.load(lane), product: at.load(lane + WARP), lowered }
    }

    /// A row: a number near the largest of its joint densities' logarithms, and the sum of all in terms of that, so that it
    /// is neither near 0 nor beyond 2²⁵⁶.
    #[inline(always)]
    pub(crate) fn add(&mut self, weighted: bool, weight: f64, top: f64, sum: f64) {
        if weighted {
            if weight > 0.0 {
                self.total += weight * (top + ln_f64(sum));
            }
            return;
        }
        // It is 1 or 0.
        let counts = weight.to_bits() != 0;
        self.total += if counts { top } else { 0.0 };
        self.product *= if counts { sum } else { 1.0 };
        // Infinity and what is no number stay.
        let high = (self.product.to_bits() >> 32) as u32;
        let large = (Self::LARGE..Self::NUMBERS).contains(&high);
        self.product = f64::from_bits(self.product.to_bits() - if large { Self::SMALLER } else { 0 });
        self.lowered += large as u32;
    }

    #[inline(always)]
    pub(crate) fn total(self) -> f64 {
        self.total + (self.lowered as f64 * (256.0 * core::f64::consts::LN_2) + ln_f64(self.product))
    }
}
