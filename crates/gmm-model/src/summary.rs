//! What a fit has to say about itself, as stored in a model file.

use serde::{Deserialize, Serialize};

/// The record of one fit; the `fit` object of a model file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FitSummary {
    /// Total log-likelihood of the fitted mixture on its data: Σ w_i ln p(x_i).
    pub log_likelihood: f64,
    /// `log_likelihood` over the total row weight.
    pub mean_log_likelihood: f64,
    /// Rows of the data.
    pub n_rows: u64,
    /// Iterations done (one M-step each).
    pub iterations: usize,
    /// Whether the change of the mean log-likelihood fell below `tol`.
    pub converged: bool,
    /// Akaike's criterion; lower is better.
    pub aic: f64,
    /// Bayesian (Schwarz's) criterion; lower is better.
    pub bic: f64,
    /// Integrated completed likelihood; lower is better.
    pub icl: f64,
    /// Convergence threshold on the mean log-likelihood.
    pub tol: f64,
    /// What was added to the covariances' diagonal.
    pub reg_covar: f64,
    /// Seed of every random draw.
    pub seed: u64,
    /// Engine that ran: `cpu`, `reference`, `cuda:0`, ..
    pub engine: String,
    /// Precision of the data on the engine: `f32` or `f64`.
    pub precision: String,
    /// Mean log-likelihood at each iteration's E-step.
    pub trace: Vec<f64>,
}
