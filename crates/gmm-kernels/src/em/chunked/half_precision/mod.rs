//! The two kernels of [`large`](crate::em::chunked::double_precision) for `f32` rows, on the tensor cores for half precision.
//!
//! A number is two halves: its head, and what the head leaves. Three products of them, head by head, head by tail, tail
//! by head, are a product to 22 bits, and a product of halves costs an eighth of one in `f64`. What makes that safe:
//! - columns are scaled by powers of two, and coefficients by one for each component, so that halves do not overflow
//!   ([`scales`]); a component so narrow beside its columns' largest entries that they would lose what counts is told
//!   ([`encode`]);
//! - the tensor cores round towards zero, so a sum is taken out of them after each sixteen terms and goes on in `f32`
//!   rounded to nearest, and in `f64` after some thousand rows;
//! - densities of full covariances are |W(x − μ)|², with `WᵀW` the precision matrix, and not features times coefficients:
//!   what cancels there is no square ([`mod@densities`]).
//!
//! Where speed counts more than digits, heads alone do: one product, to 11 bits, summed where it comes out. Constants then
//! belong to the coefficients as they were rounded, so that what is lost is a share of a row's distance from the mean.
//!
//! The M-step's losses are told as in the other variants; their limits are tighter here, and the host goes on with those
//! where they are passed.

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
use crate::em::chunked::double_precision::{FEW, Large, NARROW, WIDE};
#[cfg(not(target_arch = "nvptx64"))]
use crate::em::features::Family;
use crate::layout::Kind;

/// Which kernels, and the shape they are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// Where things lie.
    pub of: Large,
    /// Of each number its head alone: one product for three, to 11 bits.
    pub one: bool,
}

impl Halves {
    /// For a shape; there is one for every shape.
    pub const fn of(kind: Kind, k: u32, d: u32, one: bool) -> Self {
        let mut of = Large::of(kind, k, d);
        // With fewer of more columns two blocks of the densities have room on a Hopper. Heads of the fewest are as cheap.
        let wide = of.at_once == WIDE && matches!(kind, Kind::Full) && d > 64 && !one;
        if wide || (one && of.at_once == FEW) {
            of.at_once = NARROW;
            of.place.groups = k.div_ceil(8 * NARROW) * NARROW;
        }
        Self { of, one }
    }

    /// Words of the coefficients of the densities.
    pub const fn operands(self, kind: Kind, d: u32) -> u64 {
        let count = match kind {
            Kind::Full => order::Full::of(d).all(8 * self.of.place.groups),
            _ => self.of.place.steps * self.of.place.groups,
        };
        // Filled up to what is sent for at a time.
        let units = if self.one { count / 2 } else { count };
        units.next_multiple_of(16) as u64 * (OPERAND / 4) as u64
    }

    /// Numbers in the offsets of full covariances' densities.
    pub const fn offsets(self, kind: Kind, d: u32) -> u64 {
        match kind {
            Kind::Full => (8 * self.of.place.groups) as u64 * order::Full::of(d).rows() as u64,
            _ => 0,
        }
    }

    /// Steps of sixteen columns that the densities take.
    pub const fn steps(self, kind: Kind, d: u32) -> u32 {
        match kind {
            Kind::Full => d.div_ceil(16),
            _ => self.of.place.steps,
        }
    }

    /// Words of a chunk's exponentials.
    pub const fn exponentials(self, n: u64) -> u64 {
        let numbers = self.of.exponentials(n);
        if self.one { numbers / 2 } else { numbers }
    }

    /// The kernel for densities.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn densities(self, d: u32) -> crate::Kernel<densities::Densities> {
        let full = matches!(self.of.family, Family::Full | Family::FullAndOne);
        let tiles = if full { order::Full::of(d).tiles } else { 0 };
        match (self.one, tiles, self.of.at_once) {
            (false, 0, FEW) => densities::halves_densities_linear_few(),
            (false, 0, NARROW) => densities::halves_densities_linear_narrow(),
            (false, 0, _) => densities::halves_densities_linear_wide(),
            (false, 2, FEW) => densities::halves_densities_full_2_few(),
            (false, 2, NARROW) => densities::halves_densities_full_2_narrow(),
            (false, 2, _) => densities::halves_densities_full_2_wide(),
            (false, 4, FEW) => densities::halves_densities_full_4_few(),
            (false, 4, NARROW) => densities::halves_densities_full_4_narrow(),
            (false, 4, _) => densities::halves_densities_full_4_wide(),
            (false, _, FEW) => densities::halves_densities_full_8_few(),
            (false, _, NARROW) => densities::halves_densities_full_8_narrow(),
            (false, _, _) => densities::halves_densities_full_8_wide(),
            (true, 0, NARROW) => densities::heads_densities_linear_narrow(),
            (true, 0, _) => densities::heads_densities_linear_wide(),
            (true, 2, NARROW) => densities::heads_densities_full_2_narrow(),
            (true, 2, _) => densities::heads_densities_full_2_wide(),
            (true, 4, NARROW) => densities::heads_densities_full_4_narrow(),
            (true, 4, _) => densities::heads_densities_full_4_wide(),
            (true, _, NARROW) => densities::heads_densities_full_8_narrow(),
            (true, _, _) => densities::heads_densities_full_8_wide(),
        }
    }

    /// The kernel for moments.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn moments(self) -> crate::Kernel<moments::Moments> {
        let full = matches!(self.of.family, Family::Full | Family::FullAndOne);
        match (self.one, full, self.of.at_once) {
            (false, true, FEW) => moments::halves_moments_full_few(),
            (false, true, NARROW) if self.of.place.classes > 16 => moments::halves_moments_full_deep(),
            (false, true, NARROW) => moments::halves_moments_full_narrow(),
            (false, true, _) => moments::halves_moments_full_wide(),
            (false, false, FEW) => moments::halves_moments_linear_few(),
            (false, false, NARROW) => moments::halves_moments_linear_narrow(),
            (false, false, _) => moments::halves_moments_linear_wide(),
            (true, true, NARROW) => moments::heads_moments_full_narrow(),
            (true, true, _) => moments::heads_moments_full_wide(),
            (true, false, NARROW) => moments::heads_moments_linear_narrow(),
            (true, false, _) => moments::heads_moments_linear_wide(),
        }
    }

    /// Shared memory of a block of the densities and of one of the moments, in bytes.
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

    /// Partial results that a block of the moments leaves.
    pub const fn lanes(self, d: u32) -> u32 {
        moments::lanes(self.of, d, self.one)
    }

    /// Blocks of the moments that share a split's rows.
    pub const fn blocks_of_split(self, d: u32) -> u32 {
        moments::blocks(self.of, d, self.one)
    }
}
