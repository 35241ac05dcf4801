//! Σ w ln p(x) as a lane keeps it.

use crate::Real;
use crate::each::each;
use crate::log_likelihood::pass::Density;
use crate::math::ln_f64;

/// As [`Likelihood`](crate::em::likelihood::Likelihood), without arithmetic on `f64` where densities are rounded to `f32`:
/// the tensor cores' unit does that, and a warp that wants it for one number waits for another's products.
#[derive(Clone, Copy)]
pub(crate) struct Logs<T> {
    total: f64,
    /// Of rounded densities, what is not in `total`: a sum, and what rounding took from it.
    sum: f32,
    lost: f32,
    /// Of the rows of weight 1: the logarithm of a product is the sum of theirs.
    product: T,
    /// How often the product was made smaller by 2⁶⁴.
    lowered: u32,
}

const LARGE: f64 = f64::from_bits((1023 + 64) << 52);
const SMALLER: f64 = f64::from_bits((1023 - 64) << 52);

impl<T: Real> Logs<T> {
    pub(crate) const START: Self = Self { total: 0.0, sum: 0.0, lost: 0.0, product: T::ONE, lowered: 0 };

    /// Two rows of weight 1, or 0 where one does not count.
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
        // Without a branch, which would keep the compiler from going on with other rows meanwhile.
        let large = product > T::from_f64(LARGE);
        self.product = product * if large { T::from_f64(SMALLER) } else { T::ONE };
        self.lowered += large as u32;
    }

    /// What rounding takes from the sum of two numbers is one, whichever is the larger.
    #[inline(always)]
    fn add_rounded(&mut self, v: f32) {
        let sum = self.sum + v;
        let of_v = sum - self.sum;
        self.lost += (self.sum - (sum - of_v)) + (v - of_v);
        self.sum = sum;
    }

    /// A row that has a weight.
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
