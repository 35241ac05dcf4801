//! Markov chain Monte Carlo for Gaussian mixtures, on the likelihood of resident rows.
//!
//! A [`Prior`] and a [`Likelihood`](gmm_host::Likelihood) make a [`Target`], a density over all of ℝᵐ. A [`Run`] of
//! several chains samples it, by the No-U-Turn sampler of nuts-rs or by blockwise random-walk Metropolis; it can be
//! stopped, kept as a [`Checkpoint`], and gone on with. [`Posterior`] is what was drawn, as parameters of mixtures, its
//! components [relabelled](labels) where that is asked for, with [`diagnostics`] that say whether to believe it.

mod checkpoint;
mod concerns;
pub mod diagnostics;
mod error;
pub mod labels;
mod metropolis;
mod nuts;
mod posterior;
mod prior;
mod run;
pub mod starts;
mod target;
mod together;

pub use checkpoint::{Basis, Checkpoint, fingerprint};
pub use concerns::{Concern, ESS_PER_CHAIN, R_HAT, concerns, r_hat_text};
pub use error::Error;
pub use labels::Relabel;
pub use posterior::{Posterior, SummaryRow};
pub use prior::{CovariancesPrior, MeansPrior, PerColumn, Prior, PriorOptions, WeightsPrior};
pub use run::{Chain, Event, Observer, Options, Run, Sampler, Stat};
pub use target::{Evaluated, Target};
