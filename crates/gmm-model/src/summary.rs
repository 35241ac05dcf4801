//! The record of a fit, as stored in a model file.

use serde::{Deserialize, Deserializer, Serialize};

/// The record of one fit: the `fit` object of a model file.
///
/// JSON has no NaN and no infinity: `serde_json` writes them as null, and null is read as NaN.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitSummary {
    /// Total log-likelihood of the fitted mixture on its data: Σ w_i ln p(x_i).
    #[serde(deserialize_with = "null_is_nan")]
    pub log_likelihood: f64,
    /// `log_likelihood` over the total row weight.
    #[serde(deserialize_with = "null_is_nan")]
    pub mean_log_likelihood: f64,
    /// Number of rows of the data.
    pub n_rows: u64,
    /// Number of iterations (one M-step each).
    pub iterations: usize,
    /// Whether the change of the mean log-likelihood fell below `tol`.
    pub converged: bool,
    /// Akaike's criterion; lower is better.
    #[serde(deserialize_with = "null_is_nan")]
    pub aic: f64,
    /// Bayesian (Schwarz's) criterion; lower is better.
    #[serde(deserialize_with = "null_is_nan")]
    pub bic: f64,
    /// Integrated completed likelihood; lower is better.
    #[serde(deserialize_with = "null_is_nan")]
    pub icl: f64,
    /// Convergence threshold on the mean log-likelihood.
    #[serde(deserialize_with = "null_is_nan")]
    pub tol: f64,
    /// The amount added to the diagonals of the covariances.
    #[serde(deserialize_with = "null_is_nan")]
    pub reg_covar: f64,
    /// Seed of all random draws.
    pub seed: u64,
    /// Name of the engine: `cpu`, `reference`, `cuda:0`, ..
    pub engine: String,
    /// Precision of the data on the engine: `f32` or `f64`.
    pub precision: String,
    /// Mean log-likelihood at each iteration's E-step; with a prior, plus the logarithm of its density over the total row
    /// weight.
    #[serde(deserialize_with = "nulls_are_nan")]
    pub trace: Vec<f64>,
    /// The lower bound of the log evidence, of a fit by variational Bayes. All constants are included, so bounds of
    /// different numbers of components, kinds and priors can be compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lower_bound: Option<f64>,
    /// What the fit did beyond maximum likelihood, a line each: prior, floor, dropped components, fixed and shared parts,
    /// labels. Empty for a plain fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
}

fn null_is_nan<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

fn nulls_are_nan<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
    let values: Vec<Option<f64>> = Vec::deserialize(from)?;
    Ok(values.into_iter().map(|v| v.unwrap_or(f64::NAN)).collect())
}
