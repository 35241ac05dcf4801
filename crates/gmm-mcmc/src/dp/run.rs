//! Runs of several chains, which can stop and go on with the same draws.

use std::ops::ControlFlow;

use gmm_host::{Engine, evaluate};
use gmm_model::{Covariances, Dataset, Mixture, Precision};
use ndarray::{Array2, array};

use super::chain::{Chain, Counts, Rows};
use super::conjugate::{Conjugate, Factor};
use super::moments::Moments;
use super::{DpDraws, DpOptions, partitions};
use crate::Error;

/// Chains of partitions, and the draws that they have made.
#[derive(Clone, Debug, PartialEq)]
pub struct DpRun {
    pub(super) options: DpOptions,
    pub(super) chains: Vec<Record>,
}

/// A chain between two sweeps, and its draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Record {
    /// Number of sweeps.
    pub(super) step: u64,
    pub(super) alpha: f64,
    /// `(n,)`; empty before the first sweep.
    pub(super) labels: Vec<u32>,
    /// Of each cluster. They are not counted again when a run goes on, since sums in another order have other bits.
    pub(super) moments: Vec<Moments>,
    pub(super) counts: Counts,
    /// Of each draw: number of clusters, concentration, log joint density, `(N,)`.
    pub(super) clusters: Vec<u32>,
    pub(super) concentration: Vec<f64>,
    pub(super) log_joint: Vec<f64>,
    /// `(N, n)`
    pub(super) drawn: Vec<u32>,
}

impl DpRun {
    /// A run that has made no sweep.
    ///
    /// # Errors
    /// [`Error::Option`] with the first invalid option.
    pub fn new(options: DpOptions) -> Result<Self, Error> {
        options.validate()?;
        let chains = vec![Record::default(); options.chains];
        Ok(Self { options, chains })
    }

    /// The options.
    pub const fn options(&self) -> &DpOptions {
        &self.options
    }

    /// The number of draws that all chains have made.
    pub fn n_draws(&self) -> usize {
        self.chains.iter().map(|chain| chain.clusters.len()).sum()
    }

    /// The number of sweeps that all chains have made.
    pub fn n_sweeps(&self) -> u64 {
        self.chains.iter().map(|chain| chain.step).sum()
    }

    /// Goes on to the end. Calls `observer(sweeps)` after each sweep, with the number of sweeps that all chains have made;
    /// the run stops if it breaks, and can then go on: its draws are those of a run that did not stop, on the same engine.
    /// `precision` is that of the rows in passes of the engine.
    ///
    /// Memory and cost: as for [`sample`](super::sample()).
    ///
    /// # Errors
    /// [`Error::Option`] if the rows have weights; [`Error::Host`] if the prior does not fit, or the engine fails;
    /// [`Error::Memory`]; [`Error::Stopped`].
    ///
    /// # Panics
    /// If the run began with another number of rows.
    pub fn go_on(
        &mut self,
        engine: &dyn Engine,
        data: &Dataset,
        precision: Precision,
        observer: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        if data.weights().is_some() {
            let must = "absent: a row belongs to one cluster, whatever its weight; repeat rows of whole weights";
            return crate::error::refuse("weights", "given", must);
        }
        let (n, d) = data.rows().dim();
        let prior = Conjugate::new(self.options.prior.clone(), self.options.kind, d)?;
        self.options.check_memory(n, d)?;
        let x = match data.rows() {
            gmm_model::Matrix::F64(a) => a.iter().copied().collect(),
            gmm_model::Matrix::F32(a) => a.iter().map(|v| f64::from(*v)).collect(),
        };
        let rows = Rows { x, n, d };
        let all = rows.moments(self.options.kind);
        let mut resident = evaluate::load(engine, &whole(&prior, &all)?, data, precision)?;
        let options = self.options.clone();
        let last = (options.warmup + options.draws * options.thin) as u64;
        let mut sweeps = self.n_sweeps();
        for (c, record) in self.chains.iter_mut().enumerate().filter(|(_, record)| record.step < last) {
            let mut chain = match record.step {
                0 => Chain::new(&rows, &all, &prior, &options, c as u64),
                _ => Chain::restored(&rows, &prior, &options, c as u64, record),
            };
            let mut done = Ok(());
            while done.is_ok() && chain.step < last {
                done = chain.sweep(resident.as_mut());
                if done.is_ok() {
                    record.see(&mut chain);
                    sweeps += 1;
                    if observer(sweeps).is_break() {
                        done = Err(Error::Stopped);
                    }
                }
            }
            record.store(chain);
            done?;
        }
        Ok(())
    }

    /// The draws of a run that has ended.
    ///
    /// # Panics
    /// If it has not ended.
    pub fn into_draws(self) -> DpDraws {
        let (chains, draws) = (self.options.chains, self.options.draws);
        assert_eq!(self.n_draws(), chains * draws, "draws of all chains");
        let n = self.chains[0].labels.len();
        let mut out = DpDraws {
            chains,
            draws,
            n,
            clusters: Vec::new(),
            concentration: Vec::new(),
            log_joint: Vec::new(),
            labels: Vec::with_capacity(chains * draws * n),
            splits: [0; 2],
            merges: [0; 2],
        };
        let add = |a: &mut [u64; 2], b: [u64; 2]| (0..2).for_each(|i| a[i] += b[i]);
        for chain in self.chains {
            out.clusters.extend(chain.clusters);
            out.concentration.extend(chain.concentration);
            out.log_joint.extend(chain.log_joint);
            out.labels.extend(chain.drawn);
            add(&mut out.splits, chain.counts.splits);
            add(&mut out.merges, chain.counts.merges);
        }
        out
    }
}

impl Record {
    /// Keeps a draw if the sweep makes one; forgets what the warm-up counted.
    fn see(&mut self, chain: &mut Chain<'_>) {
        let (warmup, thin) = (chain.options.warmup as u64, chain.options.thin as u64);
        if chain.step == warmup {
            chain.counts = Counts::default();
        }
        let after = chain.step.saturating_sub(warmup);
        if after > 0 && after.is_multiple_of(thin) {
            self.clusters.push(chain.clusters.len() as u32);
            self.concentration.push(chain.concentration);
            self.log_joint.push(chain.log_joint());
            partitions::push_canonical(&chain.labels, chain.clusters.len(), &mut self.drawn);
        }
    }

    /// Takes the state of the chain. A sweep that failed has changed it, so the step is made again from there.
    fn store(&mut self, chain: Chain<'_>) {
        self.step = chain.step;
        self.alpha = chain.concentration;
        self.counts = chain.counts;
        self.moments = chain.clusters.into_iter().map(|cluster| cluster.rows).collect();
        self.labels = chain.labels;
    }
}

/// One normal distribution of all rows, about which the engine stores them.
fn whole(prior: &Conjugate, rows: &Moments) -> Result<Mixture, Error> {
    let normal = prior.expected(rows)?;
    let d = rows.mean.len();
    let variances: Vec<f64> = match &normal.factor {
        Factor::Diag(sd) => sd.iter().map(|v| v * v).collect(),
        Factor::Full(l) => (0..d).map(|i| (0..=i).map(|j| l.at(i, j) * l.at(i, j)).sum()).collect(),
    };
    let row = |v: &[f64]| Array2::from_shape_vec((1, d), v.to_vec()).expect("d numbers");
    Ok(Mixture::new(array![1.0], row(&rows.mean), Covariances::Diag(row(&variances)))?)
}
