//! Errors of fitting and evaluating. Each message says what is wrong, where, and what to try.

use gmm_model::{CovarianceType, DataError, ModelError, StatisticsError, shown, three_digits};

/// An error of a fit, an evaluation, a likelihood or a matrix product.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data are invalid.
    #[error(transparent)]
    Data(#[from] DataError),
    /// A mixture or a parameter is invalid.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// Statistics are invalid or do not match.
    #[error(transparent)]
    Statistics(#[from] StatisticsError),
    /// An option is outside its range, or excluded by another option.
    #[error("{option} is {value}: it must be {must}")]
    Option {
        /// The option's name.
        option: &'static str,
        /// The given value.
        value: String,
        /// The allowed values.
        must: String,
    },
    /// There are more components than rows.
    #[error("{k} components for {n} rows: at most one component per row")]
    TooFewRows {
        /// Requested number of components.
        k: usize,
        /// Number of rows of positive weight.
        n: usize,
    },
    /// Data and mixture differ in dimension.
    #[error("the data have {found} columns, the mixture has {expected}")]
    Features {
        /// Number of columns of the data.
        found: usize,
        /// Number of columns of the mixture.
        expected: usize,
    },
    /// The data's column names are not those that the mixture was fitted to, in the same order.
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
    /// Values are so large that their squares overflow.
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
    /// Not enough memory is free. Checked before any is allocated.
    #[error("{what} needs {wanted} bytes of memory, {free} are free: use fewer components or rows at a time, or f32")]
    Memory {
        /// What the memory is for.
        what: &'static str,
        /// Bytes needed.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// Not enough memory is free for covariances of this kind, though enough is for kind diag.
    #[error(
        "a mixture with {kind} covariances of {d} columns needs {wanted} bytes of memory, {free} are free: use --covariance diag \
         (covariance_type=\"diag\"), fewer columns or fewer components"
    )]
    CovarianceMemory {
        /// The requested kind.
        kind: CovarianceType,
        /// Number of columns.
        d: usize,
        /// Bytes needed.
        wanted: u128,
        /// Bytes free.
        free: u128,
    },
    /// The statistics of a component became NaN or infinite during the fit.
    #[error(
        "iteration {iteration}: the statistics of component {component} are not finite; rescale the data or raise reg_covar"
    )]
    NotFinite {
        /// Iteration, from 1; 0 is the initialisation.
        iteration: usize,
        /// Component, from 0.
        component: usize,
    },
    /// The log-likelihood is −∞ or NaN, though the statistics of every component are finite.
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
    /// The log-likelihood is NaN, or its gradient does not exist at these parameters.
    #[error(
        "the {what} is {value} at these parameters: rows lie so far from the components, in units of their deviations, \
         that densities vanish or squares overflow"
    )]
    Undefined {
        /// The quantity: `log-likelihood` or `gradient`.
        what: &'static str,
        /// The value computed.
        value: f64,
    },
    /// A covariance is not positive definite at some iteration of the fit.
    #[error(
        "iteration {iteration}: {source}; a larger reg_covar, fewer components, or dropping constant or collinear columns \
         helps"
    )]
    Singular {
        /// Iteration, from 1; 0 is the initialisation.
        iteration: usize,
        /// The error that names component, column and pivot.
        source: ModelError,
    },
    /// No row is left for the Gaussian components: all are noise.
    #[error(
        "iteration {iteration}: every row became noise; start with less noise, start elsewhere, or give a larger volume"
    )]
    AllNoise {
        /// Iteration, from 1.
        iteration: usize,
    },
    /// A matrix is not positive definite, so it has no Cholesky factor.
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
    /// A matrix to factor is not symmetric.
    #[error("the matrix is not symmetric: entries ({row}, {column}) and ({column}, {row}) differ; take (A + Aᵀ)/2")]
    NotSymmetric {
        /// Row of the offending entry, from 0.
        row: usize,
        /// Column of the offending entry, from 0.
        column: usize,
    },
    /// Rows with missing values, for something that needs complete ones.
    #[error("{what} cannot be used with missing values: leave it out, or drop or impute such rows first")]
    Missing {
        /// What was asked for.
        what: &'static str,
    },
    /// Rows with measurement errors, for something that needs exact ones.
    #[error("{what} cannot be used with measurement errors (noise columns): leave it out, or leave the errors out")]
    MeasurementErrors {
        /// What was asked for.
        what: &'static str,
    },
    /// Rows within limits (censored, rounded, truncated), for something that needs exact ones.
    #[error("{what} cannot be used with censored, rounded or truncated rows: leave it out, or leave the limits out")]
    Limited {
        /// What was asked for.
        what: &'static str,
    },
    /// More dependent columns with limits than can be integrated.
    #[error(
        "{found} columns with limits in one row or in the truncation: with covariances of kind {kind} the probability of at \
         most {most} is computed; diag and spherical have no such bound"
    )]
    Limits {
        /// Number of such columns.
        found: usize,
        /// The largest number.
        most: usize,
        /// The covariance kind.
        kind: CovarianceType,
    },
    /// The observer stopped the fit.
    #[error("interrupted after {iterations} iterations")]
    Interrupted {
        /// Iterations done.
        iterations: usize,
    },
    /// The device does not exist, cannot be used, or failed.
    #[error("{0}")]
    Device(String),
}

impl Error {
    /// Whether this is a numerical failure of one run of EM: other starts may succeed.
    pub(crate) const fn is_numerical(&self) -> bool {
        matches!(self, Self::Singular { .. } | Self::NotFinite { .. } | Self::Likelihood { .. } | Self::AllNoise { .. })
    }
}
