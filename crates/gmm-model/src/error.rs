//! Errors as data: what, where, and what to try.

use crate::{CovarianceType, number, shown, three_digits};

/// A mixture, or a parameter of one, that cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// A word that names nothing.
    #[error("unknown {what} '{}': choose one of {choices}", shown(word))]
    UnknownWord {
        /// What the word should name.
        what: &'static str,
        /// What was given.
        word: String,
        /// What may be given.
        choices: &'static str,
    },
    /// An array of the wrong shape.
    #[error("{what} has shape {found:?}, expected {expected:?}")]
    Shape {
        /// Which array.
        what: &'static str,
        /// Its shape.
        found: Vec<usize>,
        /// The shape it must have.
        expected: Vec<usize>,
    },
    /// A value that is NaN or infinite.
    #[error("{what} of component {component} is not finite ({value})")]
    NotFinite {
        /// Which array.
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
        /// What they sum to.
        sum: f64,
    },
    /// A covariance whose two triangles differ.
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
    /// A covariance with no Cholesky factor; for diag and spherical, a variance that is not positive.
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
    /// A variance so small that numbers lose their digits.
    #[error(
        "variance {} of component {component} in column {column} underflows: below {:.0e} numbers lose their digits; rescale \
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
        /// What was given.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// More memory than there is.
    #[error("{what} needs {wanted} bytes of memory, more than are to be had: take it in parts")]
    Memory {
        /// What it is for.
        what: &'static str,
        /// Bytes wanted.
        wanted: u128,
    },
    /// A column index that is not there, or is given twice.
    #[error("column {index}: {why} (the mixture has {d} columns)")]
    Column {
        /// The index, from 0.
        index: usize,
        /// Why it cannot be used.
        why: &'static str,
        /// Columns of the mixture.
        d: usize,
    },
}

/// Data that no mixture can be fitted to or evaluated on.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DataError {
    /// No rows or no columns.
    #[error("data has shape ({n}, {d}): at least one row and one column are needed")]
    Empty {
        /// Rows.
        n: usize,
        /// Columns.
        d: usize,
    },
    /// NaN or infinity among the data.
    #[error("row {row}, column {column} is {value}: data must be finite; drop or fill such rows first")]
    NotFinite {
        /// Row, from 0.
        row: usize,
        /// Column, from 0.
        column: usize,
        /// The value found.
        value: f64,
    },
    /// Row weights of the wrong length.
    #[error("{found} row weights for {n} rows")]
    WeightLength {
        /// Weights given.
        found: usize,
        /// Rows of the data.
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
        /// What they sum to.
        sum: f64,
    },
    /// Column names of the wrong number.
    #[error("{found} column names for {d} columns")]
    NameLength {
        /// Names given.
        found: usize,
        /// Columns of the data.
        d: usize,
    },
}

/// Statistics that do not fit together, or bytes that are none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum StatisticsError {
    /// Kind, components or dimensions differ.
    #[error("statistics of different shape: {left} and {right}")]
    Shape {
        /// The one added to.
        left: String,
        /// The one added.
        right: String,
    },
    /// The centres differ, so the moments are about different points.
    #[error("statistics about different centres (first at component {component}): they come from different passes")]
    Centres {
        /// Component index, from 0.
        component: usize,
    },
    /// Not the byte form of statistics.
    #[error("not statistics: {why} at byte {offset}")]
    Bytes {
        /// What is wrong.
        why: String,
        /// Where.
        offset: usize,
    },
}
