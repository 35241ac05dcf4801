//! Accumulator of the log-likelihood in one lane.

use crate::device::{Shared, WARP};
use crate::math::ln_f64;

/// Σ w ln p(x) over a lane's rows. Rows of weight 1 need no logarithm each: their densities are multiplied and one
/// logarithm is taken.
#[derive(Clone, Copy)]
pub(crate) struct Likelihood {
    total: f64,
    product: f64,
    /// How often the product was divided by 2²⁵⁶.
    lowered: u32,
}

impl Likelihood {
    /// Upper 32 bits of the smallest product that is scaled down, and the exponent bits subtracted to do so. Integer
    /// arithmetic: a warp waits for the `f64` unit while other warps use it for matrix products.
    const LARGE: u32 = (1023 + 256) << 20;
    const SMALLER: u64 = 256 << 52;

    /// Upper 32 bits of +∞; those of a positive NaN are not below.
    const NUMBERS: u32 = 0x7ff << 20;

    /// Length of the shared memory in which a warp's lanes store their accumulators, in `f64`.
    pub(crate) const LEFT: u32 = 5 * WARP / 2;

    pub(crate) const START: Self = Self { total: 0.0, product: 1.0, lowered: 0 };

    /// Stores the accumulator in shared memory, in the lane's own slots.
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

    /// Adds a row. `top` is a value near the largest of its log joint densities, and `sum` is Σ exp(log density −
    /// `top`), which is neither near 0 nor above 2²⁵⁶.
    #[inline(always)]
    pub(crate) fn add(&mut self, weighted: bool, weight: f64, top: f64, sum: f64) {
        if weighted {
            if weight > 0.0 {
                self.total += weight * (top + ln_f64(sum));
            }
            return;
        }
        // The weight is 0 or 1 here.
        let counts = weight.to_bits() != 0;
        self.total += if counts { top } else { 0.0 };
        self.product *= if counts { sum } else { 1.0 };
        // Infinity and NaN are not scaled down.
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
