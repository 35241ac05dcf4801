//! Dirichlet process mixtures: the number of clusters is unknown, and part of the posterior.
//!
//! The state is a partition of the rows. Its prior is the Chinese restaurant process of concentration α, and each cluster
//! has the conjugate prior of a [`BayesPrior`](gmm_model::bayes::BayesPrior) for mean and covariance. A sweep has three
//! kinds of moves, each of which leaves the posterior invariant:
//!
//! 1. All labels at once, given parameters drawn from their posterior, among the clusters that there are. The E-step
//!    is an engine's pass.
//! 2. Splits of a cluster and merges of two, by Metropolis-Hastings, with splits proposed by sub-clusters.
//! 3. Gibbs updates of a few rows with all parameters integrated out, which can make clusters of one row.
//!
//! The random numbers of a row depend on seed, chain, step and row only, so the draws have the same bits for any number
//! of threads.
//!
//! Source: Chang and Fisher 2013, Parallel sampling of DP mixture models using sub-cluster splits; Jain and Neal 2004;
//! Neal 2000.

mod chain;
mod checkpoint;
mod conjugate;
mod firsts;
mod launch;
mod moments;
mod options;
mod partitions;
mod run;
mod split_merge;

use std::ops::ControlFlow;

use gmm_host::Engine;
use gmm_model::{Dataset, Precision};

use crate::Error;
pub use options::{Concentration, DpOptions, default_prior, prior_from};
pub use partitions::{variation_of_information, vi_estimate};
pub use run::DpRun;

/// Draws of partitions: `C` chains of `N` draws each, chain by chain.
#[derive(Clone, Debug, PartialEq)]
pub struct DpDraws {
    /// `C`.
    pub chains: usize,
    /// `N`.
    pub draws: usize,
    /// Number of rows.
    pub n: usize,
    /// Number of clusters, `(C, N)`.
    pub clusters: Vec<u32>,
    /// α, `(C, N)`.
    pub concentration: Vec<f64>,
    /// The log joint density of partition and rows, and of α if it has a prior; `(C, N)`. The normal distributions'
    /// parameters are integrated out.
    pub log_joint: Vec<f64>,
    /// The cluster of each row, from 0 in the order of the clusters' first rows, `(C, N, n)`.
    pub labels: Vec<u32>,
    /// Proposed and accepted splits after the warm-up, in all chains.
    pub splits: [u64; 2],
    /// Proposed and accepted merges.
    pub merges: [u64; 2],
}

impl DpDraws {
    /// The partition of draw `i`, counted over all chains, `(n,)`.
    pub fn partition(&self, i: usize) -> &[u32] {
        &self.labels[i * self.n..][..self.n]
    }

    /// The draw of largest log joint density; the first among equals.
    pub fn best(&self) -> usize {
        let better = |&a: &usize, &b: &usize| self.log_joint[a].total_cmp(&self.log_joint[b]).then(b.cmp(&a));
        (0..self.log_joint.len()).max_by(better).unwrap_or(0)
    }
}

/// Samples the posterior of partitions of the rows. Calls `observer(sweeps)` after each sweep, with the number of sweeps
/// that all chains have made; the sampling stops if it breaks. `precision` is that of the rows in passes of the engine.
///
/// A [`DpRun`] can be stopped and go on, and be saved.
///
/// Memory: two copies of the rows, `n*K` responsibilities, and `n` labels per draw, at the end twice.
///
/// Cost of a sweep: an evaluation of the rows with responsibilities, and on the host about `O(n d²)`.
///
/// # Errors
/// [`Error::Option`] if an option is outside its range or the rows have weights; [`Error::Host`] if the prior does not fit
/// or the engine fails; [`Error::Memory`]; [`Error::Stopped`].
///
/// ```
/// use std::ops::ControlFlow;
///
/// use gmm_host::CpuEngine;
/// use gmm_mcmc::dp::{Concentration, DpOptions, default_prior, sample};
/// use gmm_model::{CovarianceType, Dataset, Precision};
/// use ndarray::array;
///
/// let data = Dataset::new(array![[0.0], [0.2], [0.1], [9.0], [9.3], [9.1]])?;
/// let prior = default_prior(&data, CovarianceType::Diag)?;
/// let options = DpOptions { warmup: 20, draws: 50, ..DpOptions::new(CovarianceType::Diag, prior) };
/// let draws = sample(&CpuEngine::new(1)?, &data, Precision::F64, &options, &mut |_| ControlFlow::Continue(()))?;
/// assert_eq!(draws.partition(draws.best()), [0, 0, 0, 1, 1, 1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn sample(
    engine: &dyn Engine,
    data: &Dataset,
    precision: Precision,
    options: &DpOptions,
    observer: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<DpDraws, Error> {
    let mut run = DpRun::new(options.clone())?;
    run.go_on(engine, data, precision, observer)?;
    Ok(run.into_draws())
}
