//! Log-likelihoods of many mixtures over the same rows, and nothing else.
//!
//! A block handles a *unit* of mixtures, whose coefficients it keeps in shared memory, and some of the rows. Each of
//! its warps takes 16 rows at a time, independently: features times coefficients on the tensor cores in `f64`,
//! log-sum-exp, and Σ w ln p(x) in registers ([`pass`]). Each block writes one number per mixture, and
//! [`reduce_blocks`](crate::reduce::reduce_blocks) adds these up in a fixed order.
//!
//! There are two layouts for the eight columns of a product, each of which is a *tile* of coefficients:
//! - [`Columns::Components`]: the columns are components of one mixture. Four lanes share a row's density.
//! - [`Columns::Mixtures`]: the columns are eight mixtures, and a tile is one component of each. Eight tiles make a
//!   density within a lane, without shuffles. This needs a third of the instructions, few enough to overlap with the
//!   products.
//!
//! For `f32` rows, densities are computed in `f32` if the kernel computes them completely ([`Form::is_whole`]);
//! products are always `f64`. Both layouts compute the same numbers in the same order. A mixture's value therefore has
//! the same bits in either layout, in a batch of any size, and beside any other mixtures. It depends only on the grid
//! size in `x`, which the host keeps the same for a shape.
//!
//! For diagonal and spherical covariances over `f32` rows there are two faster paths, each with its own rounding:
//! [`single_mixture`](super::single_mixture) for one mixture, limited only by reading the rows, and
//! [`fixed_point`](super::fixed_point) for batches, with fp16 products that stay exact where large terms cancel.
//!
//! Wherever a component's value would be minus infinity, it is [`NOTHING`]. The sum is not finite if a row's features
//! or densities overflow `f64`; the host then falls back to another path.

use crate::em::layout::FeatureLayout;
use crate::layout::Kind;
use crate::log_likelihood::entries::{self, Linear, Squares};
use crate::log_likelihood::pass;
use crate::log_likelihood::staged::Staged;

kernels! {
    /// Units of mixtures over all rows; any number of blocks along `x`, and one per unit along `y`.
    LogLikelihoods<T> {
        /// `(n, d)` tiled: rows less the shift.
        x: *const T,
        /// `(n,)`, or null if every row has weight 1.
        row_weights: *const f64,
        /// Rows.
        n: u64,
        /// Dimensions.
        d: u32,
        /// If not 0, column `d` of the features is the sum of the entries' squares.
        norm: u32,
        /// Components.
        k: u32,
        /// `(units, tiles, Form::tile)`: each tile has the coefficients of its columns, then their constants; 16-byte
        /// aligned.
        coefficients: *const f64,
        /// Distance between the partial results of consecutive blocks, in numbers.
        stride: u64,
        /// `(blocks, stride)`, written: the first numbers of a block are the sums of each unit's mixtures, one or eight
        /// per unit.
        partials: *mut f64,
    }
    /// Up to 16 entries; one mixture.
    linear_4_one => log_likelihood_linear_4_one_f32, log_likelihood_linear_4_one_f64, pass::body::<T, Linear<4>, 1>, pass::shared_bytes::<T, Linear<4>, 1>;
    /// Up to 16 entries; eight mixtures.
    linear_4_eight => log_likelihood_linear_4_eight_f32, log_likelihood_linear_4_eight_f64, pass::body::<T, Linear<4>, 8>, pass::shared_bytes::<T, Linear<4>, 8>;
    /// Up to 32 entries; one mixture.
    linear_8_one => log_likelihood_linear_8_one_f32, log_likelihood_linear_8_one_f64, pass::body::<T, Linear<8>, 1>, pass::shared_bytes::<T, Linear<8>, 1>;
    /// Up to 32 entries; eight mixtures.
    linear_8_eight => log_likelihood_linear_8_eight_f32, log_likelihood_linear_8_eight_f64, pass::body::<T, Linear<8>, 8>, pass::shared_bytes::<T, Linear<8>, 8>;
    /// Up to 8 entries and their squares; one mixture.
    squares_4_one => log_likelihood_squares_4_one_f32, log_likelihood_squares_4_one_f64, pass::body::<T, Squares<4>, 1>, pass::shared_bytes::<T, Squares<4>, 1>;
    /// Up to 8 entries and their squares; eight mixtures.
    squares_4_eight => log_likelihood_squares_4_eight_f32, log_likelihood_squares_4_eight_f64, pass::body::<T, Squares<4>, 8>, pass::shared_bytes::<T, Squares<4>, 8>;
    /// Up to 12 entries and their squares; one mixture.
    squares_6_one => log_likelihood_squares_6_one_f32, log_likelihood_squares_6_one_f64, pass::body::<T, Squares<6>, 1>, pass::shared_bytes::<T, Squares<6>, 1>;
    /// Up to 12 entries and their squares; eight mixtures.
    squares_6_eight => log_likelihood_squares_6_eight_f32, log_likelihood_squares_6_eight_f64, pass::body::<T, Squares<6>, 8>, pass::shared_bytes::<T, Squares<6>, 8>;
    /// Up to 14 entries and their squares; one mixture.
    squares_7_one => log_likelihood_squares_7_one_f32, log_likelihood_squares_7_one_f64, pass::body::<T, Squares<7>, 1>, pass::shared_bytes::<T, Squares<7>, 1>;
    /// Up to 14 entries and their squares; eight mixtures.
    squares_7_eight => log_likelihood_squares_7_eight_f32, log_likelihood_squares_7_eight_f64, pass::body::<T, Squares<7>, 8>, pass::shared_bytes::<T, Squares<7>, 8>;
    /// Up to 16 entries and their squares; one mixture.
    squares_8_one => log_likelihood_squares_8_one_f32, log_likelihood_squares_8_one_f64, pass::body::<T, Squares<8>, 1>, pass::shared_bytes::<T, Squares<8>, 1>;
    /// Up to 16 entries and their squares; eight mixtures.
    squares_8_eight => log_likelihood_squares_8_eight_f32, log_likelihood_squares_8_eight_f64, pass::body::<T, Squares<8>, 8>, pass::shared_bytes::<T, Squares<8>, 8>;
    /// Up to 32 entries and their squares; one mixture.
    squares_16_one => log_likelihood_squares_16_one_f32, log_likelihood_squares_16_one_f64, pass::body::<T, Squares<16>, 1>, pass::shared_bytes::<T, Squares<16>, 1>;
    /// Up to 32 entries and their squares; eight mixtures.
    squares_16_eight => log_likelihood_squares_16_eight_f32, log_likelihood_squares_16_eight_f64, pass::body::<T, Squares<16>, 8>, pass::shared_bytes::<T, Squares<16>, 8>;
    /// Up to 4 entries and their products; one mixture.
    full_1_one => log_likelihood_full_1_one_f32, log_likelihood_full_1_one_f64, pass::body::<T, Staged<1, 0>, 1>, pass::shared_bytes::<T, Staged<1, 0>, 1>;
    /// Up to 4 entries and their products; eight mixtures.
    full_1_eight => log_likelihood_full_1_eight_f32, log_likelihood_full_1_eight_f64, pass::body::<T, Staged<1, 0>, 8>, pass::shared_bytes::<T, Staged<1, 0>, 8>;
    /// Up to 8 entries and their products; one mixture.
    full_2_one => log_likelihood_full_2_one_f32, log_likelihood_full_2_one_f64, pass::body::<T, Staged<2, 0>, 1>, pass::shared_bytes::<T, Staged<2, 0>, 1>;
    /// Up to 8 entries and their products; eight mixtures.
    full_2_eight => log_likelihood_full_2_eight_f32, log_likelihood_full_2_eight_f64, pass::body::<T, Staged<2, 0>, 8>, pass::shared_bytes::<T, Staged<2, 0>, 8>;
    /// Up to 12 entries and their products; one mixture.
    full_3_one => log_likelihood_full_3_one_f32, log_likelihood_full_3_one_f64, pass::body::<T, Staged<3, 0>, 1>, pass::shared_bytes::<T, Staged<3, 0>, 1>;
    /// Up to 12 entries and their products; eight mixtures.
    full_3_eight => log_likelihood_full_3_eight_f32, log_likelihood_full_3_eight_f64, pass::body::<T, Staged<3, 0>, 8>, pass::shared_bytes::<T, Staged<3, 0>, 8>;
    /// Up to 13 entries and their products; one mixture.
    full_and_one_3_one => log_likelihood_full_and_one_3_one_f32, log_likelihood_full_and_one_3_one_f64, pass::body::<T, Staged<3, 1>, 1>, pass::shared_bytes::<T, Staged<3, 1>, 1>;
    /// Up to 13 entries and their products; eight mixtures.
    full_and_one_3_eight => log_likelihood_full_and_one_3_eight_f32, log_likelihood_full_and_one_3_eight_f64, pass::body::<T, Staged<3, 1>, 8>, pass::shared_bytes::<T, Staged<3, 1>, 8>;
    /// Up to 16 entries and their products; one mixture.
    full_4_one => log_likelihood_full_4_one_f32, log_likelihood_full_4_one_f64, pass::body::<T, Staged<4, 0>, 1>, pass::shared_bytes::<T, Staged<4, 0>, 1>;
    /// Up to 16 entries and their products; eight mixtures.
    full_4_eight => log_likelihood_full_4_eight_f32, log_likelihood_full_4_eight_f64, pass::body::<T, Staged<4, 0>, 8>, pass::shared_bytes::<T, Staged<4, 0>, 8>;
}

/// The constant of a component that must not count, such as one of weight 0. It is finite, so that the maximum over
/// only such components is finite too, and so large that no density changes it.
pub const NOTHING: f64 = f64::MIN / 1024.0;

/// Meaning of the columns of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Eight components of one mixture.
    Components,
    /// One component of each of eight mixtures.
    Mixtures,
}

impl Columns {
    /// Number of mixtures in a unit.
    pub const fn mixtures(self) -> u32 {
        match self {
            Self::Components => 1,
            Self::Mixtures => 8,
        }
    }

    /// Number of tiles of a unit of mixtures with `k` components.
    pub const fn tiles(self, k: u32) -> u32 {
        match self {
            Self::Components => k.div_ceil(8),
            Self::Mixtures => 8 * k.div_ceil(8),
        }
    }
}

/// Kind and number of features. It determines which shapes a kernel takes, and the layout of the coefficients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Entries and optionally their norm, in this many groups of four: tied and spherical covariances.
    Linear(u32),
    /// Entries and their squares, in this many groups of four: diagonal covariances.
    Squares(u32),
    /// Entries and their products, with this many entries per class: full covariances.
    Full(u32),
    /// As `Full`, with one more entry.
    FullAndOne(u32),
}

impl Form {
    /// All forms that have kernels, those for fewer entries first.
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

    /// Returns the smallest form that takes `d` dimensions, or `None`.
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

    /// Whether the kernel computes complete densities. If so, the host may subtract a number close to the typical
    /// density of a row from all constants of a mixture, and add it back to the mixture's value for each row.
    pub const fn is_whole(self) -> bool {
        !matches!(self, Self::Linear(_))
    }

    /// Number of entries that fit.
    const fn entries(self) -> u32 {
        match self {
            Self::Linear(fours) => 4 * fours,
            Self::Squares(fours) => 2 * fours,
            Self::Full(classes) => 4 * classes,
            Self::FullAndOne(classes) => 4 * classes + 1,
        }
    }

    /// Number of features in groups of four.
    const fn fours(self) -> u32 {
        match self {
            Self::Linear(fours) | Self::Squares(fours) => fours,
            Self::Full(_) | Self::FullAndOne(_) => 4 * self.place().steps,
        }
    }

    const fn place(self) -> FeatureLayout {
        match self {
            Self::Linear(fours) | Self::Squares(fours) => FeatureLayout::linear(fours.div_ceil(4), 1),
            Self::Full(classes) => FeatureLayout::full(classes, 1),
            Self::FullAndOne(classes) => FeatureLayout::full_and_one(classes, 1),
        }
    }

    /// Length of a tile: coefficients of eight columns and their constants.
    pub const fn tile(self) -> u64 {
        tile_len(self.fours() as usize) as u64
    }

    /// Position of a column's constant in its tile.
    pub const fn constant(self, column: u32) -> u64 {
        self.tile() - 8 + column as u64
    }

    /// Position of a column's coefficient of entry `j` in its tile; the norm is entry `d`.
    pub fn entry(self, j: u32, column: u32) -> u64 {
        match self {
            Self::Linear(_) => self.place().column_coefficient(j, column),
            Self::Squares(fours) => self.place().column_coefficient(entries::place(fours, j)[0], column),
            Self::Full(_) | Self::FullAndOne(_) => self.place().entry_coefficient(j, column),
        }
    }

    /// Position of a column's coefficient of the product of entries `i` and `j` in its tile; squares only have `i = j`.
    pub fn product(self, i: u32, j: u32, column: u32) -> u64 {
        match self {
            Self::Squares(fours) => self.place().column_coefficient(entries::place(fours, j)[1], column),
            _ => self.place().product_coefficient(i, j, column),
        }
    }
}

/// Length of a tile with `fours` groups of four features, including its constants.
pub(crate) const fn tile_len(fours: usize) -> u32 {
    64 * fours.div_ceil(2) as u32 + 8
}

/// Returns the kernel of a form.
///
/// # Panics
/// Panics if there is none; [`Form::of`] and [`Form::ALL`] return only forms that have kernels.
#[cfg(not(target_arch = "nvptx64"))]
pub fn kernel<T: crate::Real>(form: Form, columns: Columns) -> crate::Kernel<LogLikelihoods<T>> {
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

/// Bytes of shared memory that a block needs for mixtures of `k` components.
#[cfg(not(target_arch = "nvptx64"))]
pub fn shared_bytes<T: crate::Real>(form: Form, columns: Columns, k: u32) -> u64 {
    use core::ptr::{null, null_mut};
    // Only `k` matters here.
    (kernel::<T>(form, columns).shared_bytes)(&LogLikelihoods {
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
