//! Warnings of a fit.

use gmm_model::three_digits;

use crate::spikes::{Spike, places};

/// A problem with a fit that is not an error, but that the user should know of.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Warning {
    /// EM stopped at `max_iter`.
    #[error("not converged after {iterations} iterations: raise max_iter or tol")]
    NotConverged {
        /// Iterations done.
        iterations: usize,
    },
    /// The initialisation left some components without rows: there are fewer distinct clusters than components.
    #[error("the initialisation left {empty} of {k} components without rows: fewer distinct rows than components?")]
    FewerClusters {
        /// Number of components without rows.
        empty: usize,
        /// Number of components.
        k: usize,
    },
    /// Rows without an observed value were left out: they say nothing about the mixture.
    #[error("{rows} rows have no observed value, and were left out")]
    Unobserved {
        /// Number of such rows of positive weight.
        rows: usize,
    },
    /// Components were dropped for lack of rows.
    #[error("{dropped} components were dropped for lack of rows: {left} are left")]
    Dropped {
        /// Number of components dropped.
        dropped: usize,
        /// Number of components of the result.
        left: usize,
    },
    /// Some components have no rows at the end of the fit.
    #[error("components {components:?} are empty: they kept their last mean and covariance and have no weight")]
    EmptyComponents {
        /// Indices, from 0.
        components: Vec<usize>,
    },
    /// The mean log-likelihood fell by more than rounding explains.
    #[error(
        "the mean log-likelihood fell by {} at iteration {iteration}: reg_covar is large against the data's \
         variances, or the floating-point precision is exhausted",
        three_digits(*by)
    )]
    LikelihoodFell {
        /// Iteration, from 1.
        iteration: usize,
        /// The fall, in nats per unit of row weight; positive.
        by: f64,
    },
    /// `reg_covar` exceeds the variance of some columns.
    #[error(
        "reg_covar {reg_covar:e} is larger than the variance of column(s) {columns:?}: it decides the fit there; rescale the data or lower it"
    )]
    RegularisationDominates {
        /// The amount added.
        reg_covar: f64,
        /// Columns, from 0.
        columns: Vec<usize>,
    },
    /// `reg_covar` is more than half the variance of some components in some direction.
    #[error(
        "reg_covar {reg_covar:e} is more than half the variance of {} in some direction: repeated values, linearly dependent \
         columns, or too few rows; the likelihood then depends on reg_covar; drop repeats or columns, raise \
         reg_covar or use fewer components",
        places(spikes, |j| format!("column {j}"))
    )]
    Spikes {
        /// The amount added.
        reg_covar: f64,
        /// The components, each with the column closest to the direction.
        spikes: Vec<Spike>,
    },
}
