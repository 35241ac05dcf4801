//! Log-likelihoods of many mixtures over the same rows, and nothing else.
//!
//! A block has a *unit* of mixtures, whose coefficients it keeps in shared memory, and some of the rows; its warps take
//! sixteen rows at a time, alone: features times coefficients on the tensor cores in `f64`, log-sum-exp, and Σ w ln p(x) in
//! registers ([`pass`]). Blocks leave one number for each mixture, which
//! [`reduce_blocks`](crate::reduce::reduce_blocks) adds up in a fixed order.
//!
//! There are two ways to lie in the eight columns of a product, each a *tile* of coefficients:
//! - [`Columns::Components`]: the columns are components of one mixture. Four lanes share a row's density;
//! - [`Columns::Mixtures`]: the columns are eight mixtures, and a tile is one component of each. Eight tiles make a density
//!   within a lane, without a word to another: a third of the instructions, so that they hide behind the products.
//!
//! Rows in `f32` have densities in `f32` where a density is all that is asked of the kernel; products stay in `f64`.
//! Both ways form the same numbers in the same order, so that a mixture's value is to the bit the same in either, in a batch of
//! any size, and beside any others: what decides is the grid in `x`, which the host keeps the same for a shape.
//!
//! Of diagonal and spherical covariances over `f32` rows there are two faster ways, each with its own rounding: [`single_mixture`](super::single_mixture) for one
//! mixture, which is there as soon as the rows are read, and [`fixed_point`](super::fixed_point) for batches, by products of half-precision numbers that
//! lose nothing where large terms cancel.
//!
//! Everything about a component that would be minus infinity is [`NOTHING`]. A sum that is not finite comes out where a
//! row's features or densities leave the range of `f64`; the host then takes another way.

use crate::em::layout::Place;
use crate::layout::Kind;
use crate::log_likelihood::entries::{self, Linear, Squares};
use crate::log_likelihood::pass;
use crate::log_likelihood::staged::Staged;

kernels! {
    /// Units of mixtures over all rows; a grid of any number of blocks in `x`, and of the units in `y`.
    Scores<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null where every row weighs 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// Not 0: column `d` of the features is the sum of the entries' squares.
        norm: u32,
        /// Components.
        k: u32,
        /// `(units, tiles, Form::tile)`: of each tile the coefficients of its columns, then their constants; 16-byte aligned.
        coefficients: *const f64,
        /// Numbers between a block's partial results and those of the next.
        stride: u64,
        /// `(blocks, stride)`: of each unit's mixtures, one or eight, the first numbers of each block's, written.
        partials: *mut f64,
    }
    /// Up to 16 entries; one mixture.
    linear_4_one => scores_linear_4_one_f32, scores_linear_4_one_f64, pass::body::<T, Linear<4>, 1>, pass::shared_bytes::<T, Linear<4>, 1>;
    /// Up to 16 entries; eight mixtures.
    linear_4_eight => scores_linear_4_eight_f32, scores_linear_4_eight_f64, pass::body::<T, Linear<4>, 8>, pass::shared_bytes::<T, Linear<4>, 8>;
    /// Up to 32 entries; one mixture.
    linear_8_one => scores_linear_8_one_f32, scores_linear_8_one_f64, pass::body::<T, Linear<8>, 1>, pass::shared_bytes::<T, Linear<8>, 1>;
    /// Up to 32 entries; eight mixtures.
    linear_8_eight => scores_linear_8_eight_f32, scores_linear_8_eight_f64, pass::body::<T, Linear<8>, 8>, pass::shared_bytes::<T, Linear<8>, 8>;
    /// Up to 8 entries and their squares; one mixture.
    squares_4_one => scores_squares_4_one_f32, scores_squares_4_one_f64, pass::body::<T, Squares<4>, 1>, pass::shared_bytes::<T, Squares<4>, 1>;
    /// Up to 8 entries and their squares; eight mixtures.
    squares_4_eight => scores_squares_4_eight_f32, scores_squares_4_eight_f64, pass::body::<T, Squares<4>, 8>, pass::shared_bytes::<T, Squares<4>, 8>;
    /// Up to 12 entries and their squares; one mixture.
    squares_6_one => scores_squares_6_one_f32, scores_squares_6_one_f64, pass::body::<T, Squares<6>, 1>, pass::shared_bytes::<T, Squares<6>, 1>;
    /// Up to 12 entries and their squares; eight mixtures.
    squares_6_eight => scores_squares_6_eight_f32, scores_squares_6_eight_f64, pass::body::<T, Squares<6>, 8>, pass::shared_bytes::<T, Squares<6>, 8>;
    /// Up to 14 entries and their squares; one mixture.
    squares_7_one => scores_squares_7_one_f32, scores_squares_7_one_f64, pass::body::<T, Squares<7>, 1>, pass::shared_bytes::<T, Squares<7>, 1>;
    /// Up to 14 entries and their squares; eight mixtures.
    squares_7_eight => scores_squares_7_eight_f32, scores_squares_7_eight_f64, pass::body::<T, Squares<7>, 8>, pass::shared_bytes::<T, Squares<7>, 8>;
    /// Up to 16 entries and their squares; one mixture.
    squares_8_one => scores_squares_8_one_f32, scores_squares_8_one_f64, pass::body::<T, Squares<8>, 1>, pass::shared_bytes::<T, Squares<8>, 1>;
    /// Up to 16 entries and their squares; eight mixtures.
    squares_8_eight => scores_squares_8_eight_f32, scores_squares_8_eight_f64, pass::body::<T, Squares<8>, 8>, pass::shared_bytes::<T, Squares<8>, 8>;
    /// Up to 32 entries and their squares; one mixture.
    squares_16_one => scores_squares_16_one_f32, scores_squares_16_one_f64, pass::body::<T, Squares<16>, 1>, pass::shared_bytes::<T, Squares<16>, 1>;
    /// Up to 32 entries and their squares; eight mixtures.
    squares_16_eight => scores_squares_16_eight_f32, scores_squares_16_eight_f64, pass::body::<T, Squares<16>, 8>, pass::shared_bytes::<T, Squares<16>, 8>;
    /// Up to 4 entries and their products; one mixture.
    full_1_one => scores_full_1_one_f32, scores_full_1_one_f64, pass::body::<T, Staged<1, 0>, 1>, pass::shared_bytes::<T, Staged<1, 0>, 1>;
    /// Up to 4 entries and their products; eight mixtures.
    full_1_eight => scores_full_1_eight_f32, scores_full_1_eight_f64, pass::body::<T, Staged<1, 0>, 8>, pass::shared_bytes::<T, Staged<1, 0>, 8>;
    /// Up to 8 entries and their products; one mixture.
    full_2_one => scores_full_2_one_f32, scores_full_2_one_f64, pass::body::<T, Staged<2, 0>, 1>, pass::shared_bytes::<T, Staged<2, 0>, 1>;
    /// Up to 8 entries and their products; eight mixtures.
    full_2_eight => scores_full_2_eight_f32, scores_full_2_eight_f64, pass::body::<T, Staged<2, 0>, 8>, pass::shared_bytes::<T, Staged<2, 0>, 8>;
    /// Up to 12 entries and their products; one mixture.
    full_3_one => scores_full_3_one_f32, scores_full_3_one_f64, pass::body::<T, Staged<3, 0>, 1>, pass::shared_bytes::<T, Staged<3, 0>, 1>;
    /// Up to 12 entries and their products; eight mixtures.
    full_3_eight => scores_full_3_eight_f32, scores_full_3_eight_f64, pass::body::<T, Staged<3, 0>, 8>, pass::shared_bytes::<T, Staged<3, 0>, 8>;
    /// Up to 13 entries and their products; one mixture.
    full_and_one_3_one => scores_full_and_one_3_one_f32, scores_full_and_one_3_one_f64, pass::body::<T, Staged<3, 1>, 1>, pass::shared_bytes::<T, Staged<3, 1>, 1>;
    /// Up to 13 entries and their products; eight mixtures.
    full_and_one_3_eight => scores_full_and_one_3_eight_f32, scores_full_and_one_3_eight_f64, pass::body::<T, Staged<3, 1>, 8>, pass::shared_bytes::<T, Staged<3, 1>, 8>;
    /// Up to 16 entries and their products; one mixture.
    full_4_one => scores_full_4_one_f32, scores_full_4_one_f64, pass::body::<T, Staged<4, 0>, 1>, pass::shared_bytes::<T, Staged<4, 0>, 1>;
    /// Up to 16 entries and their products; eight mixtures.
    full_4_eight => scores_full_4_eight_f32, scores_full_4_eight_f64, pass::body::<T, Staged<4, 0>, 8>, pass::shared_bytes::<T, Staged<4, 0>, 8>;
}

/// The constant of what counts nothing, such as a component of weight 0: finite, so that it may stand alone among others
/// that count nothing, and so large that no density changes it.
pub const NOTHING: f64 = f64::MIN / 1024.0;

/// What the columns of a product are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Eight components of one mixture.
    Components,
    /// One component of each of eight mixtures.
    Mixtures,
}

impl Columns {
    /// Mixtures in a unit.
    pub const fn mixtures(self) -> u32 {
        match self {
            Self::Components => 1,
            Self::Mixtures => 8,
        }
    }

    /// Tiles of a unit of mixtures of `k` components.
    pub const fn tiles(self, k: u32) -> u32 {
        match self {
            Self::Components => k.div_ceil(8),
            Self::Mixtures => 8 * k.div_ceil(8),
        }
    }
}

/// What features are made of, and how many there are: which kernels take a shape, and where coefficients lie for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Entries, and perhaps their norm, in so many fours: tied and spherical covariances.
    Linear(u32),
    /// Entries and their squares, in so many fours: diagonal covariances.
    Squares(u32),
    /// Entries and their products, so many entries of each class: full covariances.
    Full(u32),
    /// The same, and one entry more.
    FullAndOne(u32),
}

impl Form {
    /// All that there are kernels for, those for fewer entries first.
    pub const ALL: [Self; 12] = [
        Self::Linear(4),
        Self::Linear(8),
        Self::Squares(4),
        Self::Squares(6),
        Self::Squares(7),
        Self::Squares(8),
        Self::Squares(16),
        Self::Full(1),
        Self::Full(2),
        Self::Full(3),
        Self::FullAndOne(3),
        Self::Full(4),
    ];

    /// The smallest that takes `d` dimensions, if one does.
    pub fn of(kind: Kind, d: u32) -> Option<Self> {
        let entries = if kind == Kind::Spherical { d + 1 } else { d };
        Self::ALL.into_iter().find(|form| form.takes(kind) && entries <= form.entries())
    }

    const fn takes(self, kind: Kind) -> bool {
        match self {
            Self::Linear(_) => matches!(kind, Kind::Tied | Kind::Spherical),
            Self::Squares(_) => matches!(kind, Kind::Diag),
            Self::Full(_) | Self::FullAndOne(_) => matches!(kind, Kind::Full),
        }
    }

    /// Whether what is computed are whole densities: a number may be taken from all constants of a mixture, near what its rows
    /// typically have, and added to its value for each row.
    pub const fn is_whole(self) -> bool {
        !matches!(self, Self::Linear(_))
    }

    /// Entries that it has room for.
    const fn entries(self) -> u32 {
        match self {
            Self::Linear(fours) => 4 * fours,
            Self::Squares(fours) => 2 * fours,
            Self::Full(classes) => 4 * classes,
            Self::FullAndOne(classes) => 4 * classes + 1,
        }
    }

    /// Features in fours.
    const fn fours(self) -> u32 {
        match self {
            Self::Linear(fours) | Self::Squares(fours) => fours,
            Self::Full(_) | Self::FullAndOne(_) => 4 * self.place().steps,
        }
    }

    const fn place(self) -> Place {
        match self {
            Self::Linear(fours) | Self::Squares(fours) => Place::linear(fours.div_ceil(4), 1),
            Self::Full(classes) => Place::full(classes, 1),
            Self::FullAndOne(classes) => Place::full_and_one(classes, 1),
        }
    }

    /// Numbers in a tile: coefficients of eight columns, and their constants.
    pub const fn tile(self) -> u64 {
        tile_len(self.fours() as usize) as u64
    }

    /// Where the constant of a column lies in its tile.
    pub const fn constant(self, column: u32) -> u64 {
        self.tile() - 8 + column as u64
    }

    /// Where a column's coefficient of entry `j` lies in its tile; that of the norm is that of entry `d`.
    pub fn entry(self, j: u32, column: u32) -> u64 {
        match self {
            Self::Linear(_) => self.place().column_coefficient(j, column),
            Self::Squares(fours) => self.place().column_coefficient(entries::place(fours, j)[0], column),
            Self::Full(_) | Self::FullAndOne(_) => self.place().entry_coefficient(j, column),
        }
    }

    /// Where a column's coefficient of the product of entries `i` and `j` lies in its tile; squares have `i = j` alone.
    pub fn product(self, i: u32, j: u32, column: u32) -> u64 {
        match self {
            Self::Squares(fours) => self.place().column_coefficient(entries::place(fours, j)[1], column),
            _ => self.place().product_coefficient(i, j, column),
        }
    }
}

/// Numbers in a tile of coefficients of so many fours of features, and of its constants.
pub(crate) const fn tile_len(fours: usize) -> u32 {
    64 * fours.div_ceil(2) as u32 + 8
}

/// The kernel of a form.
///
/// # Panics
/// Where there is none; [`Form::of`] and [`Form::ALL`] give those that there are.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel<T: crate::Real>(form: Form, columns: Columns) -> crate::Kernel<Scores<T>> {
    match (form, columns) {
        (Form::Linear(4), Columns::Components) => linear_4_one(),
        (Form::Linear(4), Columns::Mixtures) => linear_4_eight(),
        (Form::Linear(8), Columns::Components) => linear_8_one(),
        (Form::Linear(8), Columns::Mixtures) => linear_8_eight(),
        (Form::Squares(4), Columns::Components) => squares_4_one(),
        (Form::Squares(4), Columns::Mixtures) => squares_4_eight(),
        (Form::Squares(6), Columns::Components) => squares_6_one(),
        (Form::Squares(6), Columns::Mixtures) => squares_6_eight(),
        (Form::Squares(7), Columns::Components) => squares_7_one(),
        (Form::Squares(7), Columns::Mixtures) => squares_7_eight(),
        (Form::Squares(8), Columns::Components) => squares_8_one(),
        (Form::Squares(8), Columns::Mixtures) => squares_8_eight(),
        (Form::Squares(16), Columns::Components) => squares_16_one(),
        (Form::Squares(16), Columns::Mixtures) => squares_16_eight(),
        (Form::Full(1), Columns::Components) => full_1_one(),
        (Form::Full(1), Columns::Mixtures) => full_1_eight(),
        (Form::Full(2), Columns::Components) => full_2_one(),
        (Form::Full(2), Columns::Mixtures) => full_2_eight(),
        (Form::Full(3), Columns::Components) => full_3_one(),
        (Form::Full(3), Columns::Mixtures) => full_3_eight(),
        (Form::FullAndOne(3), Columns::Components) => full_and_one_3_one(),
        (Form::FullAndOne(3), Columns::Mixtures) => full_and_one_3_eight(),
        (Form::Full(4), Columns::Components) => full_4_one(),
        (Form::Full(4), Columns::Mixtures) => full_4_eight(),
        _ => panic!("{form:?} is not there"),
    }
}

/// Shared memory of a block with mixtures of `k` components, in bytes.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: crate::Real>(form: Form, columns: Columns, k: u32) -> u64 {
    use core::ptr::{null, null_mut};
    // It depends on these alone.
    (kernel::<T>(form, columns).shared_bytes)(&Scores {
        x: null(),
        row_weights: null(),
        n: 0,
        d: 0,
        norm: 0,
        k,
        coefficients: null(),
        stride: 0,
        partials: null_mut(),
    })
}
