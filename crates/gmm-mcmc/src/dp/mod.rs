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
mod conjugate;
mod launch;
mod moments;
mod options;
mod partitions;
mod split_merge;

use std::ops::ControlFlow;

use gmm_host::{Engine, evaluate};
use gmm_model::{Covariances, Dataset, Mixture, Precision};
use ndarray::{Array2, array};

use crate::Error;
use chain::{Chain, Rows};
use conjugate::Conjugate;
pub use options::{Concentration, DpOptions, default_prior, prior_from};
pub use partitions::{variation_of_information, vi_estimate};

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
/// Memory: two copies of the rows, `n*K` responsibilities, and `n` labels per draw.
///
/// Cost of a sweep: an evaluation of the rows with responsibilities, and on the host about `O(n d²)`.
///
/// # Errors
/// [`Error::Option`] if an option is outside its range; [`Error::Host`] if the rows have weights, the prior does not fit,
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
    options.validate()?;
    if data.weights().is_some() {
        return crate::error::refuse("weights", "given", "absent: rows of a partition cannot be weighted");
    }
    let (n, d) = data.rows().dim();
    let prior = Conjugate::new(options.prior.clone(), options.kind, d)?;
    options.check_memory(n, d)?;
    let x = match data.rows() {
        gmm_model::Matrix::F64(a) => a.iter().copied().collect(),
        gmm_model::Matrix::F32(a) => a.iter().map(|v| f64::from(*v)).collect(),
    };
    let rows = Rows { x, n, d };
    let mut out = DpDraws {
        chains: options.chains,
        draws: options.draws,
        n,
        clusters: Vec::new(),
        concentration: Vec::new(),
        log_joint: Vec::new(),
        labels: Vec::with_capacity(options.chains * options.draws * n),
        splits: [0; 2],
        merges: [0; 2],
    };
    let mut resident = None;
    let mut sweeps = 0;
    for c in 0..options.chains {
        let mut chain = Chain::new(&rows, &prior, options, c as u64);
        if resident.is_none() {
            resident = Some(evaluate::load(engine, &whole(&chain)?, data, precision)?);
        }
        let resident = resident.as_mut().expect("loaded").as_mut();
        for step in 0..options.warmup + options.draws * options.thin {
            chain.sweep(resident)?;
            sweeps += 1;
            if observer(sweeps).is_break() {
                return Err(Error::Stopped);
            }
            if step + 1 == options.warmup {
                chain.counts = chain::Counts::default();
            }
            let after = (step + 1).saturating_sub(options.warmup);
            if after > 0 && after % options.thin == 0 {
                out.keep(&chain);
            }
        }
        let add = |a: &mut [u64; 2], b: [u64; 2]| (0..2).for_each(|i| a[i] += b[i]);
        add(&mut out.splits, chain.counts.splits);
        add(&mut out.merges, chain.counts.merges);
    }
    Ok(out)
}

impl DpDraws {
    fn keep(&mut self, chain: &Chain<'_>) {
        self.clusters.push(chain.clusters.len() as u32);
        self.concentration.push(chain.concentration);
        self.log_joint.push(chain.log_joint());
        partitions::push_canonical(&chain.labels, chain.clusters.len(), &mut self.labels);
    }
}

/// One normal distribution of all rows, about which the engine stores them.
fn whole(chain: &Chain<'_>) -> Result<Mixture, Error> {
    let rows = &chain.clusters[0].rows;
    let normal = chain.prior.expected(rows)?;
    let d = rows.mean.len();
    let variances: Vec<f64> = match &normal.factor {
        conjugate::Factor::Diag(sd) => sd.iter().map(|v| v * v).collect(),
        conjugate::Factor::Full(l) => (0..d).map(|i| (0..=i).map(|j| l.at(i, j) * l.at(i, j)).sum()).collect(),
    };
    let row = |v: &[f64]| Array2::from_shape_vec((1, d), v.to_vec()).expect("d numbers");
    Ok(Mixture::new(array![1.0], row(&rows.mean), Covariances::Diag(row(&variances)))?)
}
