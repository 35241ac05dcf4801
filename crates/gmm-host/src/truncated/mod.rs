//! Truncated EM: each row counts for a few components, which are searched for.
//!
//! With `q_i(c)` the responsibilities of row `i`, EM maximises the free energy `Σ w_i Σ_c q_i(c) (ln π_c p_c(x_i) − ln q_i(c))`,
//! which is at most the log-likelihood. Here `q_i` is zero outside a list of `G` components. The best `q_i` for a list are the
//! posterior probabilities among its components, and the free energy then is `Σ w_i ln Σ_{c in list} π_c p_c(x_i)`. Every pass
//! looks for better components of each row and keeps the best of those and of the list: so the free energy never falls, neither
//! in a pass nor in the M-step, and with `G = K` it is the log-likelihood.
//!
//! The candidates of a row are the neighbours of the components in its list, and those in its leaf of a tree over the components
//! that is made anew for each pass. The neighbours of a
//! component are those that the rows for which it is the best explain best: of all components which any of these rows tried,
//! those of the largest mean log joint density, which estimates the Kullback-Leibler divergence. So the cost of a pass is
//! `O(n G H d)` with `H` neighbours, whatever the number of components; memory is `O(n G)` beside a second copy of the rows.
//! With `h` factors a density costs about `2 h + 1` times as much, with full covariances `d / 2` times; the sums of both are of all
//! pairs of columns.
//!
//! Sources: Lücke and Forster, "k-means as a variational EM approximation of Gaussian mixture models", 2019; Hirschberger,
//! Forster and Lücke, "A variational EM acceleration for efficient clustering at very large scales", TPAMI 2021.

mod first;
mod join;
mod pass;
mod scores;
mod search;
mod sums;
mod trees;

use gmm_model::{CovarianceType, Dataset, Statistics};

use crate::{Data, Error, FitOptions, FitRule};

pub(crate) use pass::{OnThreads, Rows, pass};
pub use search::Search;
#[cfg(feature = "cuda")]
pub(crate) use {
    first::{TREES, TREES_OF_FIRST, of_means},
    pass::{Steps, TREE_OF_PASS, Totals},
    scores::{Scales, Terms},
    search::Lists,
    trees::{Node, Trees},
};

/// Truncated EM: see [`FitRule::truncated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TruncatedOptions {
    /// The number of components that a row counts for, `G`, at least 1. If it is not below the number of components, the
    /// result is that of EM.
    pub components: usize,
}

/// The result of a truncated pass.
#[derive(Clone, Debug)]
pub struct TruncatedPass {
    /// The sums of the listed components. `log_likelihood` is the free energy, a lower bound.
    pub statistics: Statistics,
    /// −Σ w Σ_c r ln r over the listed components.
    pub entropy: f64,
    /// The lists after this pass, from which the next goes on.
    pub search: Search,
}

impl TruncatedOptions {
    /// Checks all that does not depend on the data.
    pub(crate) fn validate(self, options: &FitOptions) -> Result<(), Error> {
        let refuse = |option, value: String, must: &str| Err(Error::Option { option, value, must: must.to_owned() });
        if self.components == 0 {
            return refuse("truncated", "0".to_owned(), "at least 1");
        }
        let kind = options.covariance_type;
        if kind == CovarianceType::Tied {
            return refuse("covariance_type", kind.to_string(), "full, diag, spherical or factors:H with truncated EM");
        }
        let FitRule { bayes, starved, labels, noise, .. } = &options.rule;
        let others = [
            ("variational Bayes", bayes.is_some()),
            ("dropping of starved components", starved.is_some()),
            ("labels", labels.is_some()),
            ("uniform noise", noise.is_some()),
        ];
        match others.into_iter().find(|(_, is_on)| *is_on) {
            Some((option, _)) => refuse(option, "on".to_owned(), "left out with truncated EM"),
            None => Ok(()),
        }
    }

    /// The rows without their division into parts, if they have one: the lists are those of all rows.
    ///
    /// # Errors
    /// [`Error::Option`] for missing values, measurement errors and limits.
    pub(crate) fn whole_rows(self, data: Data<'_>) -> Result<Option<Dataset>, Error> {
        let has_holes = matches!(data, Data::Host(data) if data.has_missing());
        if has_holes || data.is_indirect() {
            let what = if has_holes { "missing values" } else { "measurement errors or limits" };
            let must = "left out for rows that are not known exactly".to_owned();
            return Err(Error::Option { option: "truncated", value: format!("on, with {what}"), must });
        }
        Ok(match data {
            Data::Host(data) if data.parts().nth(1).is_some() => Some(data.clone().with_parts(Vec::new())),
            _ => None,
        })
    }

    /// The line of a fit's record.
    pub(crate) fn line(self, k: usize) -> String {
        format!(
            "truncated: each row counts for {} of {k} components; the log-likelihood is a lower bound",
            self.components.min(k)
        )
    }
}
