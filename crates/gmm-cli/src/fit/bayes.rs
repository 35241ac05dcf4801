//! Options of `gmm fit` and `gmm select` for variational Bayes.

use clap::Args;
use gmm_host::{BayesOptions, WeightFamily};
use gmm_model::{CovarianceType, PriorScale};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};

use super::rule::usage;
use crate::exit::Failure;

/// Variational Bayes in place of maximum likelihood. Stored in checkpoints.
#[derive(Args, Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BayesArgs {
    /// Variational Bayes: the posterior of all parameters, with a Dirichlet process (dp) or a Dirichlet distribution as the
    /// prior of the weights. -k is the largest number of components; those that the data do not need stay empty
    #[arg(
        long,
        value_name = "dp|dirichlet",
        value_parser = ["dp", "dirichlet"],
        hide_possible_values = true,
        help_heading = "Variational Bayes"
    )]
    bayes: Option<String>,
    /// Concentration of the weights' prior: smaller leaves more components empty [default: 1/K]
    #[arg(long, value_name = "A", allow_hyphen_values = true, requires = "bayes", help_heading = "Variational Bayes")]
    concentration: Option<f64>,
    /// Prior mean, a number per column [default: the mean of the data]
    #[arg(
        long,
        value_name = "M,..",
        value_delimiter = ',',
        allow_hyphen_values = true,
        requires = "bayes",
        help_heading = "Variational Bayes"
    )]
    mean_prior: Option<Vec<f64>>,
    /// How many rows the prior of a mean is worth [default: 1]
    #[arg(long, value_name = "B", allow_hyphen_values = true, requires = "bayes", help_heading = "Variational Bayes")]
    mean_precision: Option<f64>,
    /// How many rows the prior of a covariance is worth [default: the number of columns]
    #[arg(long, value_name = "NU", allow_hyphen_values = true, requires = "bayes", help_heading = "Variational Bayes")]
    dof: Option<f64>,
    /// Prior scale of the covariances, --dof times the expected variance: a number per column, for spherical one number
    /// [default: the covariance of the data]
    #[arg(
        long,
        value_name = "C,..",
        value_delimiter = ',',
        allow_hyphen_values = true,
        requires = "bayes",
        help_heading = "Variational Bayes"
    )]
    scale: Option<Vec<f64>>,
    /// After the iterations reorder, merge, delete and add components as long as that raises the lower bound
    #[arg(long, requires = "bayes", help_heading = "Variational Bayes")]
    moves: bool,
}

impl BayesArgs {
    /// The options of the fit, if it is one by variational Bayes.
    ///
    /// # Errors
    /// [`Failure::Usage`] if spherical covariances get several scales.
    pub(crate) fn options(&self, kind: CovarianceType) -> Result<Option<BayesOptions>, Failure> {
        let weights = match self.bayes.as_deref() {
            None => return Ok(None),
            Some("dirichlet") => WeightFamily::Dirichlet,
            Some(_) => WeightFamily::DirichletProcess,
        };
        let scale = |values: &Vec<f64>| match (kind, values.as_slice()) {
            (CovarianceType::Full | CovarianceType::Tied, values) => {
                Ok(PriorScale::Matrix(Array2::from_diag(&Array1::from(values.to_vec()))))
            }
            (CovarianceType::Diag, values) => Ok(PriorScale::Variances(values.to_vec().into())),
            (CovarianceType::Spherical, [value]) => Ok(PriorScale::Variance(*value)),
            (CovarianceType::Spherical, values) => {
                Err(usage("--scale", &format!("{values:?}"), "spherical covariances take one number".to_owned()))
            }
        };
        Ok(Some(BayesOptions {
            weights,
            concentration: self.concentration,
            mean: self.mean_prior.clone().map(Array1::from),
            mean_precision: self.mean_precision,
            degrees_of_freedom: self.dof,
            scale: self.scale.as_ref().map(scale).transpose()?,
            moves: self.moves,
        }))
    }
}
