//! Errors of fitting and evaluating: what, where, and what to try.

use gmm_model::{CovarianceType, DataError, ModelError, StatisticsError, shown, three_digits};

/// Why a fit or an evaluation did not happen.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data cannot be used.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A mixture or a parameter cannot be.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Statistics that do not fit together.
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
    /// An option outside its range, or options that exclude each other.
    #[error("{option} is {value}: it must be {must}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// What was given.
        value: String,
        /// What it must be.
        must: String,
    },
    /// More components than rows.
    #[error("{k} components for {n} rows: at most one component per row")]
    TooFewRows {
        /// Components asked for.
        k: usize,
        /// Rows of positive weight.
        n: usize,
    },
    /// Data and mixture of different dimension.
    #[error("the data have {found} columns, the mixture has {expected}")]
    Features {
        /// Columns of the data.
        found: usize,
        /// Columns of the mixture.
        expected: usize,
    },
    /// Columns in another order, or others, than the mixture was fitted to.
    #[error(
        "column {index} is '{}', but the mixture was fitted with '{}' there: select or reorder the columns",
        shown(found),
        shown(expected)
    )]
    FeatureNames {
        /// Position, from 0.
        index: usize,
        /// Name in the data.
        found: String,
        /// Name in the mixture.
        expected: String,
    },
    /// Values so large that their squares overflow.
    #[error(
        "column {column} reaches {value:e} from its centre, and squares of that overflow {precision}: rescale the data{}",
        if *precision == "f32" { " or use f64" } else { "" }
    )]
    Scale {
        /// Column, from 0.
        column: usize,
        /// The largest distance from the centre.
        value: f64,
        /// `f32` or `f64`.
        precision: &'static str,
    },
    /// Not enough memory, found out before any was taken.
    #[error("{what} needs {wanted} bytes of memory, {free} are free: use fewer components or rows at a time, or f32")]
    Memory {
        /// What it is for.
        what: &'static str,
        /// Bytes wanted.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// Covariances for which there is not enough memory, where there is enough for those of kind diag.
    #[error(
        "a mixture with {kind} covariances of {d} columns needs {wanted} bytes of memory, {free} are free: use --covariance diag \
         (covariance_type=\"diag\"), fewer columns or fewer components"
    )]
    CovarianceMemory {
        /// The kind asked for.
        kind: CovarianceType,
        /// Columns.
        d: usize,
        /// Bytes wanted.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// A fit that ran into numbers that are none.
    #[error(
        "iteration {iteration}: the statistics of component {component} are not finite; rescale the data or raise reg_covar"
    )]
    NotFinite {
        /// Iteration, from 1; 0 is the initialisation.
        iteration: usize,
        /// Component, from 0.
        component: usize,
    },
    /// A log-likelihood that is no number, though the statistics of every component are.
    #[error(
        "iteration {iteration}: the log-likelihood is {value}, though the statistics of every component are finite: rows \
         lie so far from all components that their densities vanish; rescale the data, start elsewhere or raise reg_covar"
    )]
    Likelihood {
        /// Iteration, from 1.
        iteration: usize,
        /// −∞ or NaN.
        value: f64,
    },
    /// A log-likelihood that is no number, or a gradient where there is none.
    #[error(
        "the {what} is {value} at these parameters: rows lie so far from the components, in units of their deviations, \
         that densities vanish or squares overflow"
    )]
    Undefined {
        /// Which number.
        what: &'static str,
        /// What came out.
        value: f64,
    },
    /// A covariance that stopped being positive definite during the fit.
    #[error(
        "iteration {iteration}: {source}; a larger reg_covar, fewer components, or dropping constant or collinear columns \
         helps"
    )]
    Singular {
        /// Iteration, from 1; 0 is the initialisation.
        iteration: usize,
        /// Which component, column and pivot.
        source: ModelError,
    },
    /// A matrix without a Cholesky factor.
    #[error(
        "the matrix is not positive definite: pivot {} of column {column}; drop constant or collinear columns, or add \
         to the diagonal",
        three_digits(*pivot)
    )]
    NotPositiveDefinite {
        /// Column at which the factorisation failed, from 0.
        column: usize,
        /// The pivot found there.
        pivot: f64,
    },
    /// A matrix whose two triangles differ, where only a symmetric one has a Cholesky factor.
    #[error("the matrix is not symmetric: entries ({row}, {column}) and ({column}, {row}) differ; take (A + Aᵀ)/2")]
    NotSymmetric {
        /// Row of the offending entry, from 0.
        row: usize,
        /// Column of the offending entry, from 0.
        column: usize,
    },
    /// The observer asked to stop.
    #[error("interrupted after {iterations} iterations")]
    Interrupted {
        /// Iterations done.
        iterations: usize,
    },
    /// No such device, or it cannot be used.
    #[error("{0}")]
    Device(String),
}
