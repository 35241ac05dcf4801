//! EM without a host: one kernel for a whole pass, one for the M-step, and a state that says when to stop.
//!
//! A loop enqueues, per iteration, a pass ([`pass`]), the reduction
//! of its blocks' partial results ([`reduce_blocks`](crate::reduce::reduce_blocks)), and [`update`]; the host looks at
//! [`state`] when it likes. A launch after the end finds that out and returns.
//!
//! In [`pass`] and [`large`] everything between the rows and the new parameters is `f64` (only the exponential is in the
//! rows' precision), on the tensor cores, where that costs what `f32` costs elsewhere. For `f32` rows there are two faster
//! ways, which add up some hundred ([`narrow`]) or thousand ([`halves`]) rows in `f32` before they go on in `f64`, and say so
//! where they would lose digits by what they do.

pub mod features;
pub mod halves;
mod lanes;
pub mod large;
mod likelihood;
pub mod narrow;
pub mod pass;
pub mod place;
pub mod scores;
mod staging;
pub mod state;
mod top;
pub mod update;

use features::{Full, FullAndOne, Linear, Squares};
use place::Place;

use crate::layout::Kind;

kernels! {
    /// One pass over a chunk of rows; any grid in `x`.
    Pass<T> {
        /// State of the loop, or null.
        state: *const u32,
        /// The iteration that this begins, from 1.
        iteration: u32,
        /// `(n, d)` tiled: rows less the shift. Read while the grid before this one may still run.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows of the chunk.
        n: u64,
        /// Dimensions, at most the family's entries less what is derived.
        d: u32,
        /// One of [`derive`](pass::derive).
        derive: u32,
        /// [`Place::coefficients`]: of the log joint densities.
        coefficients: *const f64,
        /// `(8*groups,)`: constants of the log joint densities; −∞ past the last component.
        constants: *const f64,
        /// `(blocks, Place::sums)`, written.
        partials: *mut f64,
    }
    /// Up to 4 entries and their products, up to 8 components.
    full_1_1 => pass_full_1_1_f32, pass_full_1_1_f64, pass::body::<T, Full<1>, 1, 1>, pass::shared_bytes::<T, Full<1>, 1>;
    /// Up to 4 entries and their products, up to 16 components.
    full_1_2 => pass_full_1_2_f32, pass_full_1_2_f64, pass::body::<T, Full<1>, 1, 2>, pass::shared_bytes::<T, Full<1>, 2>;
    /// Up to 4 entries and their products, up to 32 components.
    full_1_4 => pass_full_1_4_f32, pass_full_1_4_f64, pass::body::<T, Full<1>, 1, 4>, pass::shared_bytes::<T, Full<1>, 4>;
    /// Up to 4 entries and their products, up to 64 components.
    full_1_8 => pass_full_1_8_f32, pass_full_1_8_f64, pass::body::<T, Full<1>, 1, 8>, pass::shared_bytes::<T, Full<1>, 8>;
    /// Up to 4 entries and their products, up to 104 components.
    full_1_13 => pass_full_1_13_f32, pass_full_1_13_f64, pass::body::<T, Full<1>, 1, 13>, pass::shared_bytes::<T, Full<1>, 13>;
    /// Up to 8 entries and their products, up to 8 components.
    full_2_1 => pass_full_2_1_f32, pass_full_2_1_f64, pass::body::<T, Full<2>, 3, 1>, pass::shared_bytes::<T, Full<2>, 1>;
    /// Up to 8 entries and their products, up to 16 components.
    full_2_2 => pass_full_2_2_f32, pass_full_2_2_f64, pass::body::<T, Full<2>, 3, 2>, pass::shared_bytes::<T, Full<2>, 2>;
    /// Up to 8 entries and their products, up to 32 components.
    full_2_4 => pass_full_2_4_f32, pass_full_2_4_f64, pass::body::<T, Full<2>, 3, 4>, pass::shared_bytes::<T, Full<2>, 4>;
    /// Up to 12 entries and their products, up to 8 components.
    full_3_1 => pass_full_3_1_f32, pass_full_3_1_f64, pass::body::<T, Full<3>, 6, 1>, pass::shared_bytes::<T, Full<3>, 1>;
    /// Up to 12 entries and their products, up to 16 components.
    full_3_2 => pass_full_3_2_f32, pass_full_3_2_f64, pass::body::<T, Full<3>, 6, 2>, pass::shared_bytes::<T, Full<3>, 2>;
    /// Up to 16 entries and their products, up to 8 components.
    full_4_1 => pass_full_4_1_f32, pass_full_4_1_f64, pass::body::<T, Full<4>, 10, 1>, pass::shared_bytes::<T, Full<4>, 1>;
    /// Up to 16 entries and their products, up to 16 components.
    full_4_2 => pass_full_4_2_f32, pass_full_4_2_f64, pass::of_block::body::<T, Full<4>, 10, 2, 5, 4>, pass::of_block::shared_bytes::<T, Full<4>, 2, 4>;
    /// Up to 16 entries and their products, up to 24 components.
    full_4_3 => pass_full_4_3_f32, pass_full_4_3_f64, pass::of_block::body::<T, Full<4>, 10, 3, 8, 4>, pass::of_block::shared_bytes::<T, Full<4>, 3, 4>;
    /// Up to 16 entries and their products, up to 32 components.
    full_4_4 => pass_full_4_4_f32, pass_full_4_4_f64, pass::of_block::body::<T, Full<4>, 10, 4, 10, 4>, pass::of_block::shared_bytes::<T, Full<4>, 4, 4>;
    /// Up to 16 entries and their products, up to 48 components.
    full_4_6 => pass_full_4_6_f32, pass_full_4_6_f64, pass::of_block::body::<T, Full<4>, 10, 6, 15, 4>, pass::of_block::shared_bytes::<T, Full<4>, 6, 4>;
    /// Up to 16 entries and their products, up to 64 components.
    full_4_8 => pass_full_4_8_f32, pass_full_4_8_f64, pass::of_block::body::<T, Full<4>, 10, 8, 10, 8>, pass::of_block::shared_bytes::<T, Full<4>, 8, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 16 entries and their products, up to 80 components.
    full_4_10 => pass_full_4_10_f32, pass_full_4_10_f64, pass::of_block::body::<T, Full<4>, 10, 10, 13, 8>, pass::of_block::shared_bytes::<T, Full<4>, 10, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 20 entries and their products, up to 8 components.
    full_5_1 => pass_full_5_1_f32, pass_full_5_1_f64, pass::of_block::body::<T, Full<5>, 15, 1, 4, 4>, pass::of_block::shared_bytes::<T, Full<5>, 1, 4>;
    /// Up to 20 entries and their products, up to 16 components.
    full_5_2 => pass_full_5_2_f32, pass_full_5_2_f64, pass::of_block::body::<T, Full<5>, 15, 2, 8, 4>, pass::of_block::shared_bytes::<T, Full<5>, 2, 4>;
    /// Up to 20 entries and their products, up to 32 components.
    full_5_4 => pass_full_5_4_f32, pass_full_5_4_f64, pass::of_block::body::<T, Full<5>, 15, 4, 15, 4>, pass::of_block::shared_bytes::<T, Full<5>, 4, 4>;
    /// Up to 24 entries and their products, up to 8 components.
    full_6_1 => pass_full_6_1_f32, pass_full_6_1_f64, pass::of_block::body::<T, Full<6>, 21, 1, 6, 4>, pass::of_block::shared_bytes::<T, Full<6>, 1, 4>;
    /// Up to 24 entries and their products, up to 16 components.
    full_6_2 => pass_full_6_2_f32, pass_full_6_2_f64, pass::of_block::body::<T, Full<6>, 21, 2, 11, 4>, pass::of_block::shared_bytes::<T, Full<6>, 2, 4>;
    /// Up to 24 entries and their products, up to 32 components.
    full_6_4 => pass_full_6_4_f32, pass_full_6_4_f64, pass::of_block::body::<T, Full<6>, 21, 4, 11, 8>, pass::of_block::shared_bytes::<T, Full<6>, 4, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 28 entries and their products, up to 8 components.
    full_7_1 => pass_full_7_1_f32, pass_full_7_1_f64, pass::of_block::body::<T, Full<7>, 28, 1, 7, 4>, pass::of_block::shared_bytes::<T, Full<7>, 1, 4>;
    /// Up to 28 entries and their products, up to 16 components.
    full_7_2 => pass_full_7_2_f32, pass_full_7_2_f64, pass::of_block::body::<T, Full<7>, 28, 2, 14, 4>, pass::of_block::shared_bytes::<T, Full<7>, 2, 4>;
    /// Up to 28 entries and their products, up to 32 components.
    full_7_4 => pass_full_7_4_f32, pass_full_7_4_f64, pass::of_block::body::<T, Full<7>, 28, 4, 14, 8>, pass::of_block::shared_bytes::<T, Full<7>, 4, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 32 entries and their products, up to 8 components.
    full_8_1 => pass_full_8_1_f32, pass_full_8_1_f64, pass::of_block::body::<T, Full<8>, 36, 1, 9, 4>, pass::of_block::shared_bytes::<T, Full<8>, 1, 4>;
    /// Up to 32 entries and their products, up to 16 components.
    full_8_2 => pass_full_8_2_f32, pass_full_8_2_f64, pass::of_block::body::<T, Full<8>, 36, 2, 18, 4>, pass::of_block::shared_bytes::<T, Full<8>, 2, 4>;
    /// The same by eight warps, which want more shared memory.
    full_8_2_wide => pass_full_8_2_wide_f32, pass_full_8_2_wide_f64, pass::of_block::body::<T, Full<8>, 36, 2, 9, 8>, pass::of_block::shared_bytes::<T, Full<8>, 2, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 32 entries and their products, up to 32 components.
    full_8_4 => pass_full_8_4_f32, pass_full_8_4_f64, pass::of_block::body::<T, Full<8>, 36, 4, 18, 8>, pass::of_block::shared_bytes::<T, Full<8>, 4, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 36 entries and their products, up to 8 components.
    full_9_1 => pass_full_9_1_f32, pass_full_9_1_f64, pass::of_block::body::<T, Full<9>, 45, 1, 12, 4>, pass::of_block::shared_bytes::<T, Full<9>, 1, 4>;
    /// Up to 36 entries and their products, up to 16 components.
    full_9_2 => pass_full_9_2_f32, pass_full_9_2_f64, pass::of_block::body::<T, Full<9>, 45, 2, 12, 8>, pass::of_block::shared_bytes::<T, Full<9>, 2, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 40 entries and their products, up to 8 components.
    full_10_1 => pass_full_10_1_f32, pass_full_10_1_f64, pass::of_block::body::<T, Full<10>, 55, 1, 14, 4>, pass::of_block::shared_bytes::<T, Full<10>, 1, 4>;
    /// Up to 40 entries and their products, up to 16 components.
    full_10_2 => pass_full_10_2_f32, pass_full_10_2_f64, pass::of_block::body::<T, Full<10>, 55, 2, 14, 8>, pass::of_block::shared_bytes::<T, Full<10>, 2, 8>, pass::of_block::threads::<T, 8>;
    /// Up to 5 entries and their products, up to 8 components.
    full_and_one_1_1 => pass_full_and_one_1_1_f32, pass_full_and_one_1_1_f64, pass::body::<T, FullAndOne<1>, 2, 1>, pass::shared_bytes::<T, FullAndOne<1>, 1>;
    /// Up to 5 entries and their products, up to 16 components.
    full_and_one_1_2 => pass_full_and_one_1_2_f32, pass_full_and_one_1_2_f64, pass::body::<T, FullAndOne<1>, 2, 2>, pass::shared_bytes::<T, FullAndOne<1>, 2>;
    /// Up to 5 entries and their products, up to 32 components.
    full_and_one_1_4 => pass_full_and_one_1_4_f32, pass_full_and_one_1_4_f64, pass::body::<T, FullAndOne<1>, 2, 4>, pass::shared_bytes::<T, FullAndOne<1>, 4>;
    /// Up to 9 entries and their products, up to 8 components.
    full_and_one_2_1 => pass_full_and_one_2_1_f32, pass_full_and_one_2_1_f64, pass::body::<T, FullAndOne<2>, 4, 1>, pass::shared_bytes::<T, FullAndOne<2>, 1>;
    /// Up to 9 entries and their products, up to 16 components.
    full_and_one_2_2 => pass_full_and_one_2_2_f32, pass_full_and_one_2_2_f64, pass::body::<T, FullAndOne<2>, 4, 2>, pass::shared_bytes::<T, FullAndOne<2>, 2>;
    /// Up to 13 entries and their products, up to 8 components.
    full_and_one_3_1 => pass_full_and_one_3_1_f32, pass_full_and_one_3_1_f64, pass::body::<T, FullAndOne<3>, 7, 1>, pass::shared_bytes::<T, FullAndOne<3>, 1>;
    /// Up to 13 entries and their products, up to 16 components.
    full_and_one_3_2 => pass_full_and_one_3_2_f32, pass_full_and_one_3_2_f64, pass::body::<T, FullAndOne<3>, 7, 2>, pass::shared_bytes::<T, FullAndOne<3>, 2>;
    /// Up to 16 columns, up to 8 components.
    linear_1_1 => pass_linear_1_1_f32, pass_linear_1_1_f64, pass::body::<T, Linear<1>, 1, 1>, pass::shared_bytes::<T, Linear<1>, 1>;
    /// Up to 16 columns, up to 16 components.
    linear_1_2 => pass_linear_1_2_f32, pass_linear_1_2_f64, pass::body::<T, Linear<1>, 1, 2>, pass::shared_bytes::<T, Linear<1>, 2>;
    /// Up to 16 columns, up to 32 components.
    linear_1_4 => pass_linear_1_4_f32, pass_linear_1_4_f64, pass::body::<T, Linear<1>, 1, 4>, pass::shared_bytes::<T, Linear<1>, 4>;
    /// Up to 16 columns, up to 64 components.
    linear_1_8 => pass_linear_1_8_f32, pass_linear_1_8_f64, pass::body::<T, Linear<1>, 1, 8>, pass::shared_bytes::<T, Linear<1>, 8>;
    /// Up to 16 columns, up to 104 components.
    linear_1_13 => pass_linear_1_13_f32, pass_linear_1_13_f64, pass::body::<T, Linear<1>, 1, 13>, pass::shared_bytes::<T, Linear<1>, 13>;
    /// Up to 32 columns, up to 8 components.
    linear_2_1 => pass_linear_2_1_f32, pass_linear_2_1_f64, pass::body::<T, Linear<2>, 2, 1>, pass::shared_bytes::<T, Linear<2>, 1>;
    /// Up to 32 columns, up to 16 components.
    linear_2_2 => pass_linear_2_2_f32, pass_linear_2_2_f64, pass::body::<T, Linear<2>, 2, 2>, pass::shared_bytes::<T, Linear<2>, 2>;
    /// Up to 32 columns, up to 32 components.
    linear_2_4 => pass_linear_2_4_f32, pass_linear_2_4_f64, pass::of_block::body::<T, Linear<2>, 2, 4, 2, 4>, pass::of_block::shared_bytes::<T, Linear<2>, 4, 4>;
    /// Up to 32 columns, up to 64 components.
    linear_2_8 => pass_linear_2_8_f32, pass_linear_2_8_f64, pass::of_block::body::<T, Linear<2>, 2, 8, 4, 4>, pass::of_block::shared_bytes::<T, Linear<2>, 8, 4>;
    /// Up to 48 columns, up to 16 components.
    linear_3_2 => pass_linear_3_2_f32, pass_linear_3_2_f64, pass::of_block::body::<T, Linear<3>, 3, 2, 2, 4>, pass::of_block::shared_bytes::<T, Linear<3>, 2, 4>;
    /// Up to 48 columns, up to 32 components.
    linear_3_4 => pass_linear_3_4_f32, pass_linear_3_4_f64, pass::of_block::body::<T, Linear<3>, 3, 4, 3, 4>, pass::of_block::shared_bytes::<T, Linear<3>, 4, 4>;
    /// Up to 64 columns, up to 16 components.
    linear_4_2 => pass_linear_4_2_f32, pass_linear_4_2_f64, pass::of_block::body::<T, Linear<4>, 4, 2, 2, 4>, pass::of_block::shared_bytes::<T, Linear<4>, 2, 4>;
    /// Up to 64 columns, up to 32 components.
    linear_4_4 => pass_linear_4_4_f32, pass_linear_4_4_f64, pass::of_block::body::<T, Linear<4>, 4, 4, 4, 4>, pass::of_block::shared_bytes::<T, Linear<4>, 4, 4>;
    /// Up to 80 columns, up to 16 components.
    linear_5_2 => pass_linear_5_2_f32, pass_linear_5_2_f64, pass::of_block::body::<T, Linear<5>, 5, 2, 3, 4>, pass::of_block::shared_bytes::<T, Linear<5>, 2, 4>;
    /// Up to 96 columns, up to 16 components.
    linear_6_2 => pass_linear_6_2_f32, pass_linear_6_2_f64, pass::of_block::body::<T, Linear<6>, 6, 2, 3, 4>, pass::of_block::shared_bytes::<T, Linear<6>, 2, 4>;
    /// Up to 16 entries and their squares, up to 8 components.
    squares_1_1 => pass_squares_1_1_f32, pass_squares_1_1_f64, pass::body::<T, Squares<1>, 2, 1>, pass::shared_bytes::<T, Squares<1>, 1>;
    /// Up to 16 entries and their squares, up to 16 components.
    squares_1_2 => pass_squares_1_2_f32, pass_squares_1_2_f64, pass::body::<T, Squares<1>, 2, 2>, pass::shared_bytes::<T, Squares<1>, 2>;
    /// Up to 16 entries and their squares, up to 32 components.
    squares_1_4 => pass_squares_1_4_f32, pass_squares_1_4_f64, pass::body::<T, Squares<1>, 2, 4>, pass::shared_bytes::<T, Squares<1>, 4>;
    /// Up to 16 entries and their squares, up to 48 components.
    squares_1_6 => pass_squares_1_6_f32, pass_squares_1_6_f64, pass::of_block::body::<T, Squares<1>, 2, 6, 3, 4>, pass::of_block::shared_bytes::<T, Squares<1>, 6, 4>;
    /// Up to 16 entries and their squares, up to 64 components.
    squares_1_8 => pass_squares_1_8_f32, pass_squares_1_8_f64, pass::of_block::body::<T, Squares<1>, 2, 8, 4, 4>, pass::of_block::shared_bytes::<T, Squares<1>, 8, 4>;
    /// Up to 16 entries and their squares, up to 80 components.
    squares_1_10 => pass_squares_1_10_f32, pass_squares_1_10_f64, pass::of_block::body::<T, Squares<1>, 2, 10, 5, 4>, pass::of_block::shared_bytes::<T, Squares<1>, 10, 4>;
    /// Up to 32 entries and their squares, up to 8 components.
    squares_2_1 => pass_squares_2_1_f32, pass_squares_2_1_f64, pass::body::<T, Squares<2>, 4, 1>, pass::shared_bytes::<T, Squares<2>, 1>;
    /// Up to 32 entries and their squares, up to 16 components.
    squares_2_2 => pass_squares_2_2_f32, pass_squares_2_2_f64, pass::body::<T, Squares<2>, 4, 2>, pass::shared_bytes::<T, Squares<2>, 2>;
    /// Up to 32 entries and their squares, up to 32 components.
    squares_2_4 => pass_squares_2_4_f32, pass_squares_2_4_f64, pass::body::<T, Squares<2>, 4, 4>, pass::shared_bytes::<T, Squares<2>, 4>;
    /// Up to 32 entries and their squares, up to 64 components.
    squares_2_8 => pass_squares_2_8_f32, pass_squares_2_8_f64, pass::of_block::body::<T, Squares<2>, 4, 8, 8, 4>, pass::of_block::shared_bytes::<T, Squares<2>, 8, 4>;
    /// Up to 48 entries and their squares, up to 16 components.
    squares_3_2 => pass_squares_3_2_f32, pass_squares_3_2_f64, pass::of_block::body::<T, Squares<3>, 6, 2, 3, 4>, pass::of_block::shared_bytes::<T, Squares<3>, 2, 4>;
    /// Up to 64 entries and their squares, up to 16 components.
    squares_4_2 => pass_squares_4_2_f32, pass_squares_4_2_f64, pass::of_block::body::<T, Squares<4>, 8, 2, 4, 4>, pass::of_block::shared_bytes::<T, Squares<4>, 2, 4>;
    /// Up to 64 entries and their squares, up to 32 components.
    squares_4_4 => pass_squares_4_4_f32, pass_squares_4_4_f64, pass::of_block::body::<T, Squares<4>, 8, 4, 8, 4>, pass::of_block::shared_bytes::<T, Squares<4>, 4, 4>;
    /// Up to 80 entries and their squares, up to 16 components.
    squares_5_2 => pass_squares_5_2_f32, pass_squares_5_2_f64, pass::of_block::body::<T, Squares<5>, 10, 2, 5, 4>, pass::of_block::shared_bytes::<T, Squares<5>, 2, 4>;
    /// Up to 96 entries and their squares, up to 16 components.
    squares_6_2 => pass_squares_6_2_f32, pass_squares_6_2_f64, pass::of_block::body::<T, Squares<6>, 12, 2, 6, 4>, pass::of_block::shared_bytes::<T, Squares<6>, 2, 4>;
}

/// What features are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Entries and their products: full covariances.
    Full,
    /// The same, one entry more than a multiple of four.
    FullAndOne,
    /// Entries, and what is derived of them: spherical and tied covariances.
    Linear,
    /// Entries and their squares: diagonal covariances.
    Squares,
}

impl Family {
    /// All.
    const ALL: [Self; 4] = [Self::Full, Self::FullAndOne, Self::Linear, Self::Squares];

    /// Sizes, each with the groups of components that there are kernels for.
    const fn sizes(self) -> &'static [(u32, &'static [u32])] {
        match self {
            Self::Full => &[
                (1, &[1, 2, 4, 8, 13]),
                (2, &[1, 2, 4]),
                (3, &[1, 2]),
                (4, &[1, 2, 3, 4, 6, 8, 10]),
                (5, &[1, 2, 4]),
                (6, &[1, 2, 4]),
                (7, &[1, 2, 4]),
                (8, &[1, 2, 4]),
                (9, &[1, 2]),
                (10, &[1, 2]),
            ],
            Self::FullAndOne => &[(1, &[1, 2, 4]), (2, &[1, 2]), (3, &[1, 2])],
            Self::Linear => {
                &[(1, &[1, 2, 4, 8, 13]), (2, &[1, 2, 4, 8]), (3, &[2, 4]), (4, &[2, 4]), (5, &[2]), (6, &[2])]
            }
            Self::Squares => {
                &[(1, &[1, 2, 4, 6, 8, 10]), (2, &[1, 2, 4, 8]), (3, &[2]), (4, &[2, 4]), (5, &[2]), (6, &[2])]
            }
        }
    }
}

/// A kernel of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What its features are made of.
    pub family: Family,
    /// Columns of a class, or groups of sixteen columns.
    pub size: u32,
    /// Groups of eight components.
    pub groups: u32,
    /// Whether it is the one with blocks of more warps, of two that differ in that.
    pub wide: bool,
}

impl Variant {
    /// The smallest that takes a shape, if one does, and of two alike the wide one.
    pub fn of(kind: Kind, k: u32, d: u32) -> Option<Self> {
        let of = |family: Family, size: u32| {
            // A size more at most: what would be of no use is little then, but not where there are many components.
            const MANY: u32 = 8;
            let fits = family.sizes().iter().filter(|(s, _)| (size..=size + 1).contains(s));
            let all = fits.flat_map(|(size, groups)| groups.iter().map(|groups| (*size, *groups)));
            let mut all = all.filter(|(s, groups)| *s == size || family != Family::Full || *groups < MANY);
            let (size, groups) = all.find(|(_, groups)| 8 * groups >= k)?;
            Some(Self { family, size, groups, wide: Self::comes_wide(family, size, groups) })
        };
        match kind {
            Kind::Full if d % 4 == 1 && d > 1 => {
                of(Family::FullAndOne, d / 4).filter(|v| v.size == d / 4).or_else(|| of(Family::Full, d.div_ceil(4)))
            }
            Kind::Full => of(Family::Full, d.div_ceil(4)),
            Kind::Tied => of(Family::Linear, d.div_ceil(16)),
            Kind::Diag => of(Family::Squares, d.div_ceil(16)),
            Kind::Spherical => of(Family::Linear, (d + 1).div_ceil(16)),
        }
    }

    /// Where its features lie.
    pub const fn place(self) -> Place {
        match self.family {
            Family::Full => Place::full(self.size, self.groups),
            Family::FullAndOne => Place::full_and_one(self.size, self.groups),
            Family::Linear => Place::linear(self.size, self.groups),
            Family::Squares => Place::linear(2 * self.size, self.groups),
        }
    }

    /// All there are.
    pub fn all() -> impl Iterator<Item = Self> {
        Family::ALL.into_iter().flat_map(|family| {
            family.sizes().iter().flat_map(move |(size, groups)| {
                groups.iter().flat_map(move |&groups| {
                    let wide = Self::comes_wide(family, *size, groups).then_some(true);
                    let of = move |wide| Self { family, size: *size, groups, wide };
                    wide.into_iter().chain([false]).map(of)
                })
            })
        })
    }

    /// Whether there are two that differ in the warps of a block: where four with their sums fill the registers and no second
    /// block has room beside them, so that eight are faster wherever they have it.
    const fn comes_wide(family: Family, size: u32, groups: u32) -> bool {
        matches!((family, size, groups), (Family::Full, 8, 2))
    }

    /// Itself, or the one alike with fewer warps where a block has no more than `room` bytes of shared memory.
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn fitting<T: crate::Real>(self, room: u64) -> Self {
        Self { wide: self.wide && block::<T>(self).1 <= room, ..self }
    }
}

/// What is derived of a row for a kind.
pub const fn derived(kind: Kind) -> u32 {
    match kind {
        Kind::Full | Kind::Tied => pass::derive::NOTHING,
        Kind::Diag => pass::derive::SQUARES,
        Kind::Spherical => pass::derive::NORM,
    }
}

/// The kernel of a variant.
///
/// # Panics
/// Where there is no such variant; [`Variant::of`] and [`Variant::all`] give those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel<T: crate::Real>(variant: Variant) -> crate::Kernel<Pass<T>> {
    match (variant.family, variant.size, variant.groups) {
        (Family::Full, 1, 1) => full_1_1::<T>(),
        (Family::Full, 1, 2) => full_1_2::<T>(),
        (Family::Full, 1, 4) => full_1_4::<T>(),
        (Family::Full, 1, 8) => full_1_8::<T>(),
        (Family::Full, 1, 13) => full_1_13::<T>(),
        (Family::Full, 2, 1) => full_2_1::<T>(),
        (Family::Full, 2, 2) => full_2_2::<T>(),
        (Family::Full, 2, 4) => full_2_4::<T>(),
        (Family::Full, 3, 1) => full_3_1::<T>(),
        (Family::Full, 3, 2) => full_3_2::<T>(),
        (Family::Full, 4, 1) => full_4_1::<T>(),
        (Family::Full, 4, 2) => full_4_2::<T>(),
        (Family::Full, 4, 3) => full_4_3::<T>(),
        (Family::Full, 4, 4) => full_4_4::<T>(),
        (Family::Full, 4, 6) => full_4_6::<T>(),
        (Family::Full, 4, 8) => full_4_8::<T>(),
        (Family::Full, 4, 10) => full_4_10::<T>(),
        (Family::Full, 5, 1) => full_5_1::<T>(),
        (Family::Full, 5, 2) => full_5_2::<T>(),
        (Family::Full, 5, 4) => full_5_4::<T>(),
        (Family::Full, 6, 1) => full_6_1::<T>(),
        (Family::Full, 6, 2) => full_6_2::<T>(),
        (Family::Full, 6, 4) => full_6_4::<T>(),
        (Family::Full, 7, 1) => full_7_1::<T>(),
        (Family::Full, 7, 2) => full_7_2::<T>(),
        (Family::Full, 7, 4) => full_7_4::<T>(),
        (Family::Full, 8, 1) => full_8_1::<T>(),
        (Family::Full, 8, 2) if variant.wide => full_8_2_wide::<T>(),
        (Family::Full, 8, 2) => full_8_2::<T>(),
        (Family::Full, 8, 4) => full_8_4::<T>(),
        (Family::Full, 9, 1) => full_9_1::<T>(),
        (Family::Full, 9, 2) => full_9_2::<T>(),
        (Family::Full, 10, 1) => full_10_1::<T>(),
        (Family::Full, 10, 2) => full_10_2::<T>(),
        (Family::FullAndOne, 1, 1) => full_and_one_1_1::<T>(),
        (Family::FullAndOne, 1, 2) => full_and_one_1_2::<T>(),
        (Family::FullAndOne, 1, 4) => full_and_one_1_4::<T>(),
        (Family::FullAndOne, 2, 1) => full_and_one_2_1::<T>(),
        (Family::FullAndOne, 2, 2) => full_and_one_2_2::<T>(),
        (Family::FullAndOne, 3, 1) => full_and_one_3_1::<T>(),
        (Family::FullAndOne, 3, 2) => full_and_one_3_2::<T>(),
        (Family::Linear, 1, 1) => linear_1_1::<T>(),
        (Family::Linear, 1, 2) => linear_1_2::<T>(),
        (Family::Linear, 1, 4) => linear_1_4::<T>(),
        (Family::Linear, 1, 8) => linear_1_8::<T>(),
        (Family::Linear, 1, 13) => linear_1_13::<T>(),
        (Family::Linear, 2, 1) => linear_2_1::<T>(),
        (Family::Linear, 2, 2) => linear_2_2::<T>(),
        (Family::Linear, 2, 4) => linear_2_4::<T>(),
        (Family::Linear, 2, 8) => linear_2_8::<T>(),
        (Family::Linear, 3, 2) => linear_3_2::<T>(),
        (Family::Linear, 3, 4) => linear_3_4::<T>(),
        (Family::Linear, 4, 2) => linear_4_2::<T>(),
        (Family::Linear, 4, 4) => linear_4_4::<T>(),
        (Family::Linear, 5, 2) => linear_5_2::<T>(),
        (Family::Linear, 6, 2) => linear_6_2::<T>(),
        (Family::Squares, 1, 1) => squares_1_1::<T>(),
        (Family::Squares, 1, 2) => squares_1_2::<T>(),
        (Family::Squares, 1, 4) => squares_1_4::<T>(),
        (Family::Squares, 1, 6) => squares_1_6::<T>(),
        (Family::Squares, 1, 8) => squares_1_8::<T>(),
        (Family::Squares, 1, 10) => squares_1_10::<T>(),
        (Family::Squares, 2, 1) => squares_2_1::<T>(),
        (Family::Squares, 2, 2) => squares_2_2::<T>(),
        (Family::Squares, 2, 4) => squares_2_4::<T>(),
        (Family::Squares, 2, 8) => squares_2_8::<T>(),
        (Family::Squares, 3, 2) => squares_3_2::<T>(),
        (Family::Squares, 4, 2) => squares_4_2::<T>(),
        (Family::Squares, 4, 4) => squares_4_4::<T>(),
        (Family::Squares, 5, 2) => squares_5_2::<T>(),
        (Family::Squares, 6, 2) => squares_6_2::<T>(),
        _ => panic!("{variant:?} is not there"),
    }
}

/// Threads and shared memory, in bytes, of a variant's blocks.
#[cfg(not(target_arch = "nvptx64"))]
pub fn block<T: crate::Real>(variant: Variant) -> (u32, u64) {
    use core::ptr::{null, null_mut};
    // They depend on the variant alone.
    let any = Pass {
        state: null(),
        iteration: 0,
        x: null(),
        row_weights: null(),
        n: 0,
        d: 0,
        derive: 0,
        coefficients: null(),
        constants: null(),
        partials: null_mut(),
    };
    let kernel = kernel::<T>(variant);
    ((kernel.threads)(&any), (kernel.shared_bytes)(&any))
}

/// Rows that a block of so many threads takes at a time: sixteen for each of its warps.
pub const fn rows_of_block(threads: u32) -> u64 {
    (features::GROUP * threads / crate::device::WARP) as u64
}
