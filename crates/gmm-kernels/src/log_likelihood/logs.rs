//! A lane's running sum of Σ w ln p(x).

use crate::Real;
use crate::each::each;
use crate::log_likelihood::pass::Density;
use crate::math::ln_f64;

/// As [`Likelihood`](crate::em::likelihood::Likelihood), but without `f64` arithmetic if densities are rounded to
/// `f32`: the `f64` unit of the tensor cores performs it, and a warp that needs it for one number waits for another
/// warp's products.
#[derive(Clone, Copy)]
pub(crate) struct Logs<T> {
    total: f64,
    /// Sum of rounded densities that are not in `total`, and its accumulated rounding error.
    sum: f32,
    lost: f32,
    /// Product of the sums of rows with weight 1; its logarithm is the sum of theirs.
    product: T,
    /// Number of times that the product was scaled by 2⁻⁶⁴.
    lowered: u32,
}

const LARGE: f64 = f64::from_bits((1023 + 64) << 52);
const SMALLER: f64 = f64::from_bits((1023 - 64) << 52);

impl<T: Real> Logs<T> {
    pub(crate) const START: Self = Self { total: 0.0, sum: 0.0, lost: 0.0, product: T::ONE, lowered: 0 };

    /// Adds two rows of weight 1; rows that do not count add 0.
    #[inline(always)]
    pub(crate) fn add(&mut self, rounded: bool, counts: [bool; 2], densities: [Density<T>; 2]) {
        let mut product = self.product;
        each(2, |half| {
            let Density { top, rounded: short, sum } = densities[half];
            if rounded {
                self.add_rounded(if counts[half] { short } else { 0.0 });
            } else {
                self.total += if counts[half] { top } else { 0.0 };
            }
            product = product * if counts[half] { sum } else { T::ONE };
        });
        // A select and not a branch, which would keep the compiler from interleaving other rows.
        let large = product > T::from_f64(LARGE);
        self.product = product * if large { T::from_f64(SMALLER) } else { T::ONE };
        self.lowered += large as u32;
    }

    /// Adds with error compensation (Knuth's TwoSum, exact whichever summand is larger).
    #[inline(always)]
    fn add_rounded(&mut self, v: f32) {
        let sum = self.sum + v;
        let of_v = sum - self.sum;
        self.lost += (self.sum - (sum - of_v)) + (v - of_v);
        self.sum = sum;
    }

    /// Adds a row with a weight.
    #[inline(always)]
    pub(crate) fn add_weighted(&mut self, weight: f64, Density { top, rounded, sum }: Density<T>) {
        if weight > 0.0 {
            self.total += weight * (top + rounded as f64 + ln_f64(sum.to_f64()));
        }
    }

    #[inline(always)]
    pub(crate) fn total(self) -> f64 {
        let logarithm = self.lowered as f64 * (64.0 * core::f64::consts::LN_2) + ln_f64(self.product.to_f64());
        self.total + (self.sum as f64 + self.lost as f64) + logarithm
    }
}
