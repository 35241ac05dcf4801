//! Options of `gmm fit` and `gmm select` for variational Bayes.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use gmm_host::{BayesOptions, WeightFamily};
use gmm_mcmc::{ConjugateParts, PriorOptions};
use gmm_model::{CovarianceType, PriorScale};
use ndarray::{Array1, Array2};
use serde::{Deserialize, Serialize};

use super::rule::usage;
use crate::exit::Failure;
use crate::{input, mcmc};

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
    /// These options, with what they leave out from a file with the tables of `gmm mcmc`.
    ///
    /// # Errors
    /// Errors if a table or key has no meaning here, or numbers and columns do not match.
    pub(crate) fn with_prior(&self, file: &PriorFile, kind: CovarianceType, d: usize) -> anyhow::Result<Self> {
        if self.bayes.as_deref() == Some("dp") && file.tables.weights.is_some() {
            let why =
                "weights: it is the prior of a finite mixture: use --bayes dirichlet, or --concentration in its place";
            return Err(Failure::Usage(format!("{}: {why}", input::display(&file.path))).into());
        }
        let parts = ConjugateParts::new(&file.tables, kind, d).with_context(|| input::display(&file.path))?;
        Ok(Self {
            concentration: self.concentration.or(parts.concentration),
            mean_prior: self.mean_prior.clone().or(parts.mean),
            dof: self.dof.or(parts.degrees_of_freedom),
            scale: self.scale.clone().or(parts.scale),
            ..self.clone()
        })
    }

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

/// A file of `--prior` under `--bayes`, with the tables of `gmm mcmc`.
#[derive(Clone, Debug)]
pub(crate) struct PriorFile {
    path: PathBuf,
    pub(crate) tables: PriorOptions,
}

impl PriorFile {
    /// Reads the file, if the value of `--prior` is one.
    ///
    /// # Errors
    /// [`Failure::Usage`] without `--bayes`; errors if the file cannot be read.
    pub(crate) fn read(value: Option<&str>, bayes: &BayesArgs) -> anyhow::Result<Option<Self>> {
        let Some(path) = value.filter(|value| is_file(value)).map(PathBuf::from) else { return Ok(None) };
        if bayes.bayes.is_none() {
            return Err(no_file(&path).into());
        }
        Ok(Some(Self { tables: mcmc::prior_options(Some(&path))?, path }))
    }
}

/// Whether a value of `--prior` is a file.
pub(crate) fn is_file(value: &str) -> bool {
    Path::new(value).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"))
}

/// The refusal of a file of `--prior`.
pub(crate) fn no_file(path: &Path) -> Failure {
    let why = "a file is the prior of a fit by variational Bayes: add --bayes dp or --bayes dirichlet";
    usage("--prior", &path.display().to_string(), why.to_owned())
}
