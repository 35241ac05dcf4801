//! Rows with measurement errors of their own: a pass of extreme deconvolution.
//!
//! A row `w` is a noisy view of a true row `v` with the mixture's density: `w = v + e`, `e ~ N(0, S)`, so in component
//! `c` it has the covariance `T = V + S`. A pass sums, over all rows, the expectations of `r`, `r (v − m)` and
//! `r (v − m)(v − m)ᵀ` given the noisy row, about the component's mean `m` (Bovy, Hogg and Roweis 2011, "Extreme
//! deconvolution", Annals of Applied Statistics 5, 1657, section 3).
//!
//! ```text
//! for each group of 32 rows:         a warp, which is a block; one row per thread
//!     for each component:            log joint density ln w − ½ (ln det T + zᵀ T⁻¹ z), z = w − m
//!     log density                    their log-sum-exp
//!     for each component:            the same again; r; mean b and covariance B of the true row
//!         r, r b, r (b bᵀ + B)       to shared memory; then one thread per sum, over the 32 rows
//! ```
//! No row's results reach device memory unless they are wanted. Four forms of it differ in how they condition on a row:
//!
//! | form | covariances | errors | columns | |
//! |---|---|---|---|---|
//! | [`Form::Columns`] | diagonal, spherical | independent | any number | every column by itself |
//! | [`Form::Small`] | any | independent | up to 8 | one column after another, in registers |
//! | [`Form::Matrix`] | any | any | up to 16 | a factor of `T` and `T⁻¹`, in shared memory |
//! | [`Form::Patterns`] | full, tied | none, but missing values | up to 64 | [factors](PatternFactors) of each set of observed columns, made before |
//!
//! All is computed in `f64`, also for rows of single precision: variances of errors and of components may differ by
//! many orders of magnitude. A column whose value is missing has an infinite error variance, no covariances of errors,
//! and the value 0; or, without errors, the value NaN. Sums of a block are added by the same threads in the same order each time; a block has a
//! contiguous range of the groups. There are no barriers of more than a warp.

mod columns;
mod factors;
mod matrix;
mod pass;
mod patterns;
mod pivots;
mod small;
mod sums;

use crate::device::WARP;
use crate::layout::packed_len;

/// Totals before the sums of the components in [`Deconvolution::partials`].
pub const TOTALS: u32 = 3;
/// Position within the totals: Σ w ln p.
pub const LOG_LIKELIHOOD: u32 = 0;
/// Position within the totals: −Σ w Σ r ln r.
pub const ENTROPY: u32 = 1;
/// Position within the totals: Σ w of the rows of which something is measured.
pub const TOTAL_WEIGHT: u32 = 2;

/// Numbers of a [failure](Deconvolution::failures).
pub const FAILURE: u32 = 3;

/// Most columns of the form [`Form::Matrix`].
pub const MOST_COLUMNS: u32 = 16;

/// Most columns of the form [`Form::Patterns`]: bits of a mask.
pub const MOST_MASKED: u32 = u64::BITS;

#[cfg(not(target_arch = "nvptx64"))]
pub use factors::deconvolution_factors;
pub use factors::{PatternFactors, factors_len};

kernels! {
    /// One pass. Arrays of rows are [tiled](crate::layout::tiled_index); rows past `n` have error variances of 1.
    Deconvolution {
        /// Rows.
        n: u64,
        /// Components.
        k: u32,
        /// Dimensions.
        d: u32,
        /// `(n, d)`: measured values; 0 where a value is missing.
        x: *const f64,
        /// `(n, d)` error variances, or `(n, d*(d+1)/2)` packed error covariances; a missing value has variance +∞. Null
        /// if there are no errors, for [`Form::Columns`] and [`Form::Patterns`].
        errors: *const f64,
        /// 1 if `errors` are covariances, else 0.
        is_correlated: u32,
        /// `(n,)`: the pattern of each row, for [`Form::Patterns`].
        patterns: *const u32,
        /// A bit for each observed column of each pattern, for [`Form::Patterns`].
        masks: *const u64,
        /// `(group_count + 1,)`: from where to where the rows of each group reach, at most as many as a warp has lanes,
        /// counted from the first of these numbers; for [`Form::Patterns`]. Null: groups as large as a warp.
        groups: *const u64,
        /// How many.
        group_count: u64,
        /// The pattern that `factors` begin with.
        first_pattern: u32,
        /// `(patterns, k, factors_len)`: [factors](PatternFactors) of the patterns of all `n` rows, for
        /// [`Form::Patterns`].
        factors: *const f64,
        /// `(n,)`: row weights; or null if every row has weight 1.
        row_weights: *const f64,
        /// `(k,)`: component weights.
        weights: *const f64,
        /// `(k, Form::record)`: log weight, mean, covariance: variances or a packed triangle.
        records: *const f64,
        /// 1 if the sums of components are wanted, else 0.
        with_sums: u32,
        /// `(blocks, TOTALS + k * Form::sums)`, written: totals; of each component Σ r, Σ r b, and Σ r (b bᵀ + B), packed
        /// or its diagonal. Without sums `(blocks, TOTALS)`.
        partials: *mut f64,
        /// `(blocks, FAILURE)`, written: of the first factorisation that failed its component + 1, column and pivot; 0 if
        /// there is none.
        failures: *mut f64,
        /// `(n,)`, written: log densities of the noisy rows; or null.
        log_densities: *mut f64,
        /// `(n, k)` in row-major order, written: responsibilities; or null.
        responsibilities: *mut f64,
        /// `(n,)`, written: the component of largest responsibility, the first among equals; or null.
        labels: *mut u32,
    }
    /// Diagonal and spherical covariances, independent errors.
    deconvolution_columns => pass::body::<columns::Row>, columns_shared, threads;
    /// Independent errors, up to two columns.
    deconvolution_small_2 => pass::body::<small::Row::<2, 3>>, small_shared::<2>, threads;
    /// Up to three columns.
    deconvolution_small_3 => pass::body::<small::Row::<3, 6>>, small_shared::<3>, threads;
    /// Up to four columns.
    deconvolution_small_4 => pass::body::<small::Row::<4, 10>>, small_shared::<4>, threads;
    /// Up to six columns.
    deconvolution_small_6 => pass::body::<small::Row::<6, 21>>, small_shared::<6>, threads;
    /// Up to eight columns.
    deconvolution_small_8 => pass::body::<small::Row::<8, 36>>, small_shared::<8>, threads;
    /// Any errors, up to [`MOST_COLUMNS`] columns.
    deconvolution_matrix => pass::body::<matrix::Row>, matrix_shared, threads;
    /// Missing values, up to [`MOST_MASKED`] columns.
    deconvolution_patterns => pass::body::<patterns::Row>, patterns_shared, threads;
}

/// The kernel of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Every column by itself.
    Columns,
    /// One column after another, in registers, for up to this many columns; those past `d` are 0.
    Small(u32),
    /// Factors in shared memory.
    Matrix,
    /// Factors of each set of observed columns, made before.
    Patterns,
}

impl Form {
    /// All forms.
    pub const ALL: [Self; 8] = [
        Self::Columns,
        Self::Small(2),
        Self::Small(3),
        Self::Small(4),
        Self::Small(6),
        Self::Small(8),
        Self::Matrix,
        Self::Patterns,
    ];

    /// The form for `d` columns with missing values and without errors; `None` if there is none.
    pub fn of_holes(is_diagonal: bool, d: u32) -> Option<Self> {
        if is_diagonal { Some(Self::Columns) } else { (d <= MOST_MASKED).then_some(Self::Patterns) }
    }

    /// The form for `d` columns with errors; `None` if there is none. `is_diagonal` says whether covariances are diagonal or
    /// spherical, `is_correlated` whether errors are covariances.
    pub fn of(is_diagonal: bool, is_correlated: bool, d: u32) -> Option<Self> {
        if is_correlated {
            return (d <= MOST_COLUMNS).then_some(Self::Matrix);
        }
        Self::ALL.into_iter().find(|form| match form {
            Self::Columns => is_diagonal,
            Self::Small(columns) => *columns >= d,
            Self::Matrix => d <= MOST_COLUMNS,
            Self::Patterns => false,
        })
    }

    /// Columns of a record and of the sums.
    pub const fn columns(self, d: u32) -> u32 {
        match self {
            Self::Small(columns) => columns,
            Self::Columns | Self::Matrix | Self::Patterns => d,
        }
    }

    /// Numbers of a component's second moments and covariance.
    pub const fn second(self, d: u32) -> u32 {
        match self {
            Self::Columns => d,
            Self::Small(_) | Self::Matrix | Self::Patterns => packed_len(self.columns(d)) as u32,
        }
    }

    /// Numbers of a component's record.
    pub const fn record(self, d: u32) -> u32 {
        1 + self.columns(d) + self.second(d)
    }

    /// Sums of a component; as many as numbers in its record.
    pub const fn sums(self, d: u32) -> u32 {
        self.record(d)
    }

    /// The kernel.
    ///
    /// # Panics
    /// Never for a form from [`of`](Self::of).
    #[cfg(not(target_arch = "nvptx64"))]
    pub fn kernel(self) -> crate::Kernel<Deconvolution> {
        match self {
            Self::Columns => deconvolution_columns(),
            Self::Small(2) => deconvolution_small_2(),
            Self::Small(3) => deconvolution_small_3(),
            Self::Small(4) => deconvolution_small_4(),
            Self::Small(6) => deconvolution_small_6(),
            Self::Small(8) => deconvolution_small_8(),
            Self::Small(_) => panic!("{self:?} is not there"),
            Self::Matrix => deconvolution_matrix(),
            Self::Patterns => deconvolution_patterns(),
        }
    }
}

#[cfg(not(target_arch = "nvptx64"))]
fn threads(_: &Deconvolution) -> u32 {
    WARP
}

#[cfg(not(target_arch = "nvptx64"))]
fn columns_shared(_: &Deconvolution) -> u64 {
    sums::bytes(columns::STAGED)
}

#[cfg(not(target_arch = "nvptx64"))]
fn small_shared<const D: u32>(_: &Deconvolution) -> u64 {
    sums::bytes(Form::Small(D).sums(D))
}

#[cfg(not(target_arch = "nvptx64"))]
fn matrix_shared(a: &Deconvolution) -> u64 {
    sums::bytes(matrix::staged(a.d)) + u64::from(8 * WARP * matrix::scratch(a.d))
}

#[cfg(not(target_arch = "nvptx64"))]
fn patterns_shared(a: &Deconvolution) -> u64 {
    sums::bytes(patterns::staged(a.d))
}
