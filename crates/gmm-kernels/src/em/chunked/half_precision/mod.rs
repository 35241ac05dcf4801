//! The two kernels of [`double_precision`](crate::em::chunked::double_precision) for `f32` rows, on fp16 tensor cores.
//!
//! Split fp16: a value is the sum of two fp16 values, hi (the value rounded) and lo (the rounding error, rounded).
//! Three products, hi·hi, hi·lo and lo·hi, give a product to 22 bits, and an fp16 product costs an eighth of one in
//! `f64`. Measures for accuracy:
//! - columns are scaled by powers of two, and coefficients by one power of two per component, so that fp16 does not
//!   overflow ([`scales`]). If a component is too narrow relative to its columns' largest entries for fp16 to resolve,
//!   [`encode`] sets `TROUBLE`;
//! - the tensor cores round towards zero, so sums are moved out of them after every sixteen terms, then accumulated in
//!   `f32` with rounding to nearest, and in `f64` after some thousand rows;
//! - densities of full covariances are |W(x − μ)|², with `WᵀW` the precision matrix, and not features times
//!   coefficients: the cancellation happens before squaring ([`mod@densities`]).
//!
//! For more speed at less precision, the hi parts suffice: one product, to 11 bits, accumulated in the tensor cores.
//! The constants are then computed from the rounded coefficients, so that the error is proportional to a row's distance
//! from the mean.
//!
//! The M-step reports losses of precision as on the other paths. The limits are tighter here; if one is exceeded, the
//! host falls back to the other paths.

mod block_share;
pub(crate) mod columns;
pub mod densities;
pub mod encode;
pub mod moments;
pub(crate) mod operand;
mod order;
mod rows;
pub mod scales;
mod softmax;
mod staged;

use crate::device::ring::OPERAND;
use crate::em::chunked::double_precision::{DoublePrecision, FEW, NARROW, WIDE};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::features::Family;
use crate::layout::Kind;

/// Choice of kernels, and the layout that they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalfPrecision {
    /// Layout and groups at a time.
    pub of: DoublePrecision,
    /// Whether only the hi part of each value is used: one product instead of three, to 11 bits.
    pub one: bool,
}

impl HalfPrecision {
    /// Returns the choice for a shape; every shape is supported.
    pub const fn of(kind: Kind, k: u32, d: u32, one: bool) -> Self {
        let mut of = DoublePrecision::of(kind, k, d);
        // With more than 64 columns, taking fewer components at a time lets two densities blocks fit on a Hopper
        // multiprocessor. With hi parts only, the narrow kernels cost no more than those for few components.
        let wide = of.at_once == WIDE && matches!(kind, Kind::Full) && d > 64 && !one;
        if wide || (one && of.at_once == FEW) {
            of.at_once = NARROW;
            of.place.groups = k.div_ceil(8 * NARROW) * NARROW;
        }
        Self { of, one }
    }

    /// Length of the coefficients of the densities, in 32-bit words.
    pub const fn operands(self, kind: Kind, d: u32) -> u64 {
        let count = match kind {
            Kind::Full => order::Full::of(d).all(8 * self.of.place.groups),
            _ => self.of.place.steps * self.of.place.groups,
        };
        // Padded to the amount copied at a time.
        let units = if self.one { count / 2 } else { count };
        units.next_multiple_of(16) as u64 * (OPERAND / 4) as u64
    }

    /// Length of the offsets of full covariances' densities.
    pub const fn offsets(self, kind: Kind, d: u32) -> u64 {
        match kind {
            Kind::Full => (8 * self.of.place.groups) as u64 * order::Full::of(d).rows() as u64,
            _ => 0,
        }
    }

    /// Number of steps of sixteen columns in the densities.
    pub const fn steps(self, kind: Kind, d: u32) -> u32 {
        match kind {
            Kind::Full => d.div_ceil(16),
            _ => self.of.place.steps,
        }
    }

    /// Length of a chunk's exponentials, in 32-bit words.
    pub const fn exponentials(self, n: u64) -> u64 {
        let numbers = self.of.exponentials(n);
        if self.one { numbers / 2 } else { numbers }
    }

    /// Returns the kernel for densities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn densities(self, d: u32) -> crate::Kernel<densities::Densities> {
        let full = matches!(self.of.family, Family::Full | Family::FullAndOne);
        let tiles = if full { order::Full::of(d).tiles } else { 0 };
        match (self.one, tiles, self.of.at_once) {
            (false, 0, FEW) => densities::chunked_split_fp16_densities_linear_few(),
            (false, 0, NARROW) => densities::chunked_split_fp16_densities_linear_narrow(),
            (false, 0, _) => densities::chunked_split_fp16_densities_linear_wide(),
            (false, 2, FEW) => densities::chunked_split_fp16_densities_full_2_few(),
            (false, 2, NARROW) => densities::chunked_split_fp16_densities_full_2_narrow(),
            (false, 2, _) => densities::chunked_split_fp16_densities_full_2_wide(),
            (false, 4, FEW) => densities::chunked_split_fp16_densities_full_4_few(),
            (false, 4, NARROW) => densities::chunked_split_fp16_densities_full_4_narrow(),
            (false, 4, _) => densities::chunked_split_fp16_densities_full_4_wide(),
            (false, _, FEW) => densities::chunked_split_fp16_densities_full_8_few(),
            (false, _, NARROW) => densities::chunked_split_fp16_densities_full_8_narrow(),
            (false, _, _) => densities::chunked_split_fp16_densities_full_8_wide(),
            (true, 0, NARROW) => densities::chunked_fp16_densities_linear_narrow(),
            (true, 0, _) => densities::chunked_fp16_densities_linear_wide(),
            (true, 2, NARROW) => densities::chunked_fp16_densities_full_2_narrow(),
            (true, 2, _) => densities::chunked_fp16_densities_full_2_wide(),
            (true, 4, NARROW) => densities::chunked_fp16_densities_full_4_narrow(),
            (true, 4, _) => densities::chunked_fp16_densities_full_4_wide(),
            (true, _, NARROW) => densities::chunked_fp16_densities_full_8_narrow(),
            (true, _, _) => densities::chunked_fp16_densities_full_8_wide(),
        }
    }

    /// Returns the kernel for moments.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn moments(self) -> crate::Kernel<moments::Moments> {
        let full = matches!(self.of.family, Family::Full | Family::FullAndOne);
        match (self.one, full, self.of.at_once) {
            (false, true, FEW) => moments::chunked_split_fp16_moments_full_few(),
            (false, true, NARROW) if self.of.place.classes > 16 => moments::chunked_split_fp16_moments_full_deep(),
            (false, true, NARROW) => moments::chunked_split_fp16_moments_full_narrow(),
            (false, true, _) => moments::chunked_split_fp16_moments_full_wide(),
            (false, false, FEW) => moments::chunked_split_fp16_moments_linear_few(),
            (false, false, NARROW) => moments::chunked_split_fp16_moments_linear_narrow(),
            (false, false, _) => moments::chunked_split_fp16_moments_linear_wide(),
            (true, true, NARROW) => moments::chunked_fp16_moments_full_narrow(),
            (true, true, _) => moments::chunked_fp16_moments_full_wide(),
            (true, false, NARROW) => moments::chunked_fp16_moments_linear_narrow(),
            (true, false, _) => moments::chunked_fp16_moments_linear_wide(),
        }
    }

    /// Bytes of shared memory of a densities block and of a moments block.
    #[cfg(not(target_arch = "nvptx64"))]
    pub const fn shared_bytes(self, kind: Kind, d: u32) -> (u64, u64) {
        let (of, full, derive) = (self.of, matches!(kind, Kind::Full), crate::em::features::derived(kind));
        let (steps, groups) = (self.steps(kind, d), of.at_once);
        if self.one {
            let densities = densities::shared_len::<true>(full, derive, steps, groups);
            (densities, moments::shared_len::<true>(of.family, groups, d))
        } else {
            let densities = densities::shared_len::<false>(full, derive, steps, groups);
            (densities, moments::shared_len::<false>(of.family, groups, d))
        }
    }

    /// Number of partial results that a moments block writes.
    pub const fn lanes(self, d: u32) -> u32 {
        moments::lanes(self.of, d, self.one)
    }

    /// Number of moments blocks that share a split's rows.
    pub const fn blocks_of_split(self, d: u32) -> u32 {
        moments::blocks(self.of, d, self.one)
    }
}
