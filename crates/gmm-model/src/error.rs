//! Error types. Each message says what is wrong, where, and what to try.

use crate::{CovarianceType, number, shown, three_digits};

/// An invalid mixture or parameter.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A word that is not one of the choices.
    #[error("unknown {what} '{}': choose one of {choices}", shown(word))]
    UnknownWord {
        /// What the word should name.
        what: &'static str,
        /// The given word.
        word: String,
        /// The allowed words.
        choices: &'static str,
    },
    /// An array of the wrong shape.
    #[error("{what} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Name of the array.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it must have.
        expected: Vec<usize>,
    },
    /// A value that is NaN or infinite.
    #[error("{what} of component {component} is not finite ({value})")]
    NotFinite {
        /// Name of the quantity.
        what: &'static str,
        /// Component index, from 0.
        component: usize,
        /// The value found.
        value: f64,
    },
    /// A component weight below zero.
    #[error("weight of component {component} is negative ({})", three_digits(*value))]
    NegativeWeight {
        /// Component index, from 0.
        component: usize,
        /// The weight found.
        value: f64,
    },
    /// Component weights that are not a distribution.
    #[error("component weights sum to {}, not 1: divide them by their sum", number(*sum))]
    WeightSum {
        /// The sum found.
        sum: f64,
    },
    /// A covariance that is not symmetric.
    #[error(
        "covariance of component {component} is not symmetric: entries ({row}, {column}) and ({column}, {row}) differ"
    )]
    NotSymmetric {
        /// Component index, from 0.
        component: usize,
        /// Row of the offending entry.
        row: usize,
        /// Column of the offending entry.
        column: usize,
    },
    /// A covariance that is not positive definite; for diag and spherical, a variance that is not positive.
    #[error(
        "covariance of component {component} is not positive definite: pivot {} of column {column} ({kind})",
        three_digits(*pivot)
    )]
    NotPositiveDefinite {
        /// Component index, from 0.
        component: usize,
        /// Column at which the factorisation failed, from 0.
        column: usize,
        /// The pivot found there.
        pivot: f64,
        /// The covariance kind.
        kind: CovarianceType,
    },
    /// A variance below the smallest normal number, where numbers lose precision.
    #[error(
        "variance {} of component {component} in column {column} underflows: below {:.0e} numbers lose precision; rescale \
         the data",
        three_digits(*variance),
        f64::MIN_POSITIVE
    )]
    Underflow {
        /// Component index, from 0.
        component: usize,
        /// Column, from 0.
        column: usize,
        /// The variance.
        variance: f64,
    },
    /// A parameter outside its range.
    #[error("{what} is {value}: it must be {must}")]
    Range {
        /// The parameter's name.
        what: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        must: &'static str,
    },
    /// More memory is needed than is available.
    #[error("{what} needs {wanted} bytes of memory, more than are available: draw it in parts")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        wanted: u128,
    },
    /// A column index that does not exist, or is given twice.
    #[error("column {index}: {why} (the mixture has {d} columns)")]
    Column {
        /// The index, from 0.
        index: usize,
        /// What is wrong with it.
        why: &'static str,
        /// Number of columns of the mixture.
        d: usize,
    },
}

/// Invalid data.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataError {
    /// No rows or no columns.
    #[error("data has shape ({n}, {d}): at least one row and one column are needed")]
    Empty {
        /// Number of rows.
        n: usize,
        /// Number of columns.
        d: usize,
    },
    /// A value that is NaN or infinite.
    #[error("row {row}, column {column} is {value}: data must be finite; drop or fill such rows first")]
    NotFinite {
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The value found.
        value: f64,
    },
    /// A column without any observed value.
    #[error("column {column} has no observed value: leave it out")]
    Unobserved {
        /// Column, from 0.
        column: usize,
    },
    /// A column whose values are all beyond limits.
    #[error(
        "each value of column {column} is censored, somewhere beyond a limit, so that no mean and no variance is the most likely \
         one: leave the column out, or set limits that some values are within"
    )]
    Unlocated {
        /// The column's name, or its index from 0.
        column: String,
    },
    /// Row weights of the wrong length.
    #[error("{found} row weights for {n} rows")]
    WeightLength {
        /// Number of weights given.
        found: usize,
        /// Number of rows of the data.
        n: usize,
    },
    /// A row weight that is negative, NaN or infinite.
    #[error("weight of row {row} is {}: row weights must be finite and not negative", number(*value))]
    Weight {
        /// Row, from 0.
        row: usize,
        /// The weight found.
        value: f64,
    },
    /// All row weights are zero, or their sum overflows.
    #[error("row weights sum to {}: the sum must be positive and finite", number(*sum))]
    WeightSum {
        /// The sum found.
        sum: f64,
    },
    /// The wrong number of column names.
    #[error("{found} column names for {d} columns")]
    NameLength {
        /// Number of names given.
        found: usize,
        /// Number of columns of the data.
        d: usize,
    },
    /// Measurement errors or projections that do not fit the rows.
    #[error("{what} of shape {found:?}: the rows need {expected:?}")]
    ErrorShape {
        /// Name of the array.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it must have.
        expected: Vec<usize>,
    },
    /// A standard deviation of a measurement error that is negative, NaN or infinite, or whose square is infinite.
    #[error(
        "the standard deviation of the measurement error in row {row}, column {column} is {}: it must be finite and not \
         negative, and its square finite too, so that it is at most 1.3e154; 0 is an exact value, and an unknown value is \
         a missing one",
        number(*value)
    )]
    Deviation {
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The deviation found.
        value: f64,
    },
    /// Limits between which there is no number.
    #[error(
        "the limits of row {row}, column {column} are {} and {}: the lower one must be below the upper one, or both the \
         same finite value",
        number(*lower),
        number(*upper)
    )]
    Interval {
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The lower limit.
        lower: f64,
        /// The upper limit.
        upper: f64,
    },
    /// A box of truncation that does not fit the rows, or is empty.
    #[error("the truncation {why}")]
    Truncation {
        /// What is wrong, as the rest of the sentence.
        why: String,
    },
    /// A value outside of the box to which rows are truncated.
    #[error(
        "row {row}, column {column} is outside of the truncation from {} to {}: rows there are said to be never recorded",
        number(*lower),
        number(*upper)
    )]
    Outside {
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// Lower end of the box in the column.
        lower: f64,
        /// Upper end.
        upper: f64,
    },
    /// Limits and measurement errors of the same rows.
    #[error("rows cannot have both limits (censored, rounded, truncated) and measurement errors")]
    LimitsAndErrors,
    /// An invalid covariance of measurement errors.
    #[error("the error covariance of row {row} {why}")]
    ErrorCovariance {
        /// Row, from 0.
        row: usize,
        /// What is wrong, as the rest of the sentence.
        why: String,
    },
    /// A projection with an entry that is NaN or infinite.
    #[error("the projection of row {row} has an entry {value}: it must be finite")]
    Projection {
        /// Row, from 0.
        row: usize,
        /// The entry found.
        value: f64,
    },
    /// Projections that leave a direction out.
    #[error(
        "the projections of all rows together do not determine column {column}: leave it out, or add rows that see it"
    )]
    Unseen {
        /// Column, from 0: it depends on those before it.
        column: usize,
    },
}

/// Statistics that cannot be added, or bytes that are not statistics.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// Kind, components or dimensions differ.
    #[error("statistics of different shape: {left} and {right}")]
    Shape {
        /// Shape of the statistics added to.
        left: String,
        /// Shape of the statistics added.
        right: String,
    },
    /// The centres differ, so the moments are about different points.
    #[error("statistics about different centres (first at component {component}): they come from different passes")]
    Centres {
        /// Component index, from 0.
        component: usize,
    },
    /// The mixtures differ, in weights or covariances, so the responsibilities do.
    #[error(
        "statistics of passes under different mixtures: their means are equal, their weights or covariances are not"
    )]
    Mixtures,
    /// Bytes that are not the byte form of statistics.
    #[error("not statistics: {why} at byte {offset}")]
    Bytes {
        /// What is wrong.
        why: String,
        /// Offset of the first invalid byte.
        offset: usize,
    },
}

/// Checks the shape of an array.
pub(crate) fn expect_shape(what: &'static str, found: &[usize], expected: &[usize]) -> Result<(), ModelError> {
    if found == expected {
        return Ok(());
    }
    Err(ModelError::Shape { what, found: found.to_vec(), expected: expected.to_vec() })
}
