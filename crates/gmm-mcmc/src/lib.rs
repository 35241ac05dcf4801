//! Markov chain Monte Carlo for Gaussian mixtures, on the likelihood of resident rows.
//!
//! A [`Prior`] and the map [`Unconstrained`](gmm_host::Unconstrained) make a [`Target`], a log density over all of ℝᵐ
//! that is evaluated on a [`Likelihood`](gmm_host::Likelihood). A [`Run`] of several chains samples it, by the
//! No-U-Turn sampler of nuts-rs or by blockwise random-walk Metropolis. A run can be stopped, saved as a
//! [`Checkpoint`], and resumed. [`Posterior`] holds the draws as mixture parameters, with components
//! [relabelled](labels) on request; [`diagnostics`] tell whether the chains have converged.

mod batched_eval;
mod checkpoint;
pub mod diagnostics;
pub mod dp;
mod error;
pub mod labels;
mod metropolis;
mod nuts;
mod posterior;
mod prior;
mod run;
pub mod starts;
mod target;
mod warnings;

pub use checkpoint::{Basis, Checkpoint, fingerprint};
pub use error::Error;
pub use labels::Relabel;
pub use posterior::{Posterior, SummaryRow};
pub use prior::{ConjugateParts, CovariancesPrior, MeansPrior, PerColumn, Prior, PriorOptions, WeightsPrior};
pub use run::{Chain, Event, Observer, Options, Run, Sampler, Stat};
pub use target::{Evaluated, Target};
pub use warnings::{Concern, ESS_PER_CHAIN, R_HAT, concerns, r_hat_text};
