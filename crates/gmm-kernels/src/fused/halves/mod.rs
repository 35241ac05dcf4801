//! The two kernels of [`large`](super::large) for `f32` rows, on the tensor cores for half precision.
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
//! The M-step's losses are told as in the other variants; their limits are tighter here, and the host goes on with those
//! where they are passed.

pub mod densities;
pub mod encode;
pub mod moments;
mod operand;
mod order;
mod rows;
pub mod scales;
mod softmax;
mod staged;

#[cfg(not(target_arch = "nvptx64"))]
use super::Family;
use super::large::Large;
use crate::device::ring::OPERAND;
use crate::layout::Kind;

/// Words of the coefficients of the densities.
pub const fn operands(of: Large, kind: Kind, d: u32) -> u64 {
    let count = match kind {
        Kind::Full => order::Full::of(d).all(8 * of.place.groups),
        _ => of.place.steps * of.place.groups,
    };
    // Filled up to what is sent for at a time.
    count.next_multiple_of(16) as u64 * (OPERAND / 4) as u64
}

/// Numbers in the offsets of full covariances' densities.
pub const fn offsets(of: Large, kind: Kind, d: u32) -> u64 {
    match kind {
        Kind::Full => (8 * of.place.groups) as u64 * order::Full::of(d).rows() as u64,
        _ => 0,
    }
}

/// Steps of sixteen columns that the densities take.
pub const fn steps(of: Large, kind: Kind, d: u32) -> u32 {
    match kind {
        Kind::Full => d.div_ceil(16),
        _ => of.place.steps,
    }
}

/// The kernel for densities.
#[cfg(not(target_arch = "nvptx64"))]
pub fn densities(of: Large, d: u32) -> crate::Kernel<densities::Densities> {
    let narrow = of.at_once == super::large::GROUPS[0];
    match (of.family, order::Full::of(d).tiles) {
        (Family::Full | Family::FullAndOne, 2) if narrow => densities::halves_densities_full_2_narrow(),
        (Family::Full | Family::FullAndOne, 2) => densities::halves_densities_full_2_wide(),
        (Family::Full | Family::FullAndOne, 4) if narrow => densities::halves_densities_full_4_narrow(),
        (Family::Full | Family::FullAndOne, 4) => densities::halves_densities_full_4_wide(),
        (Family::Full | Family::FullAndOne, _) if narrow => densities::halves_densities_full_8_narrow(),
        (Family::Full | Family::FullAndOne, _) => densities::halves_densities_full_8_wide(),
        (Family::Linear | Family::Squares, _) if narrow => densities::halves_densities_linear_narrow(),
        (Family::Linear | Family::Squares, _) => densities::halves_densities_linear_wide(),
    }
}

/// The kernel for moments.
#[cfg(not(target_arch = "nvptx64"))]
pub fn moments(of: Large) -> crate::Kernel<moments::Moments> {
    match (of.family, of.at_once == super::large::GROUPS[0]) {
        (Family::Full | Family::FullAndOne, true) => moments::halves_moments_full_narrow(),
        (Family::Full | Family::FullAndOne, false) => moments::halves_moments_full_wide(),
        (Family::Linear | Family::Squares, true) => moments::halves_moments_linear_narrow(),
        (Family::Linear | Family::Squares, false) => moments::halves_moments_linear_wide(),
    }
}

/// Shared memory of a block of the densities and of one of the moments, in bytes.
#[cfg(not(target_arch = "nvptx64"))]
pub const fn shared_bytes(of: Large, kind: Kind, d: u32) -> (u64, u64) {
    let full = matches!(kind, Kind::Full);
    let densities = densities::shared_len(full, super::derived(kind), steps(of, kind, d), of.at_once);
    (densities, moments::shared_len(of.at_once, d))
}

/// Partial results that a block of the moments leaves.
pub const fn lanes(of: Large, d: u32) -> u32 {
    moments::lanes(of, d)
}

/// Blocks of the moments that share a split's rows.
pub const fn blocks_of_split(of: Large, d: u32) -> u32 {
    moments::blocks(of, d)
}
