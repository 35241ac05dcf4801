//! A run of several chains: its options, its state, and how to continue it.

use std::ops::ControlFlow;

use gmm_host::{Likelihood, memory};
use serde::{Deserialize, Serialize};

use crate::error::refuse;
use crate::{Error, Target, metropolis, nuts};

/// The sampling algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// The No-U-Turn sampler of nuts-rs, which uses gradients.
    Nuts,
    /// Random-walk Metropolis, moving one component's mean, its covariance, or all weights at a time.
    Rwm,
}

impl Sampler {
    /// The name used in files and on the command line: `nuts` or `rwm`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nuts => "nuts",
            Self::Rwm => "rwm",
        }
    }
}

/// Options of a run. The draws are determined by these, the target, the starts, and the engine with its thread count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The sampling algorithm.
    pub sampler: Sampler,
    /// Number of chains, from 1 to 1024.
    pub chains: usize,
    /// Number of draws kept from each chain, at least 1.
    pub draws: usize,
    /// Number of steps before the first draw, in which the sampler adapts; none are kept. At least 20 for NUTS.
    pub warmup: usize,
    /// Number of steps per draw, at least 1.
    pub thin: usize,
    /// Seed of all random draws.
    pub seed: u64,
    /// Mean acceptance probability to which NUTS adapts its step size, between 0 and 1. Ignored by random-walk
    /// Metropolis, which uses from 0.44 (blocks of one number) to 0.234 (large blocks).
    pub target_accept: f64,
    /// Largest number of doublings of a NUTS trajectory, from 1 to 20.
    pub max_depth: u64,
}

impl Options {
    /// The defaults: 4 chains of 1000 draws after 1000 steps of warm-up, no thinning, seed 0, acceptance 0.8, depth 10.
    pub const fn new(sampler: Sampler) -> Self {
        Self { sampler, chains: 4, draws: 1000, warmup: 1000, thin: 1, seed: 0, target_accept: 0.8, max_depth: 10 }
    }

    /// Checks that all options are in range.
    ///
    /// # Errors
    /// [`Error::Option`] with the first invalid option, its value and its range.
    pub fn validate(&self) -> Result<(), Error> {
        for (option, value) in [("chains", self.chains), ("draws", self.draws), ("thin", self.thin)] {
            if value == 0 {
                return refuse(option, value, "at least 1");
            }
        }
        if self.chains > MOST_CHAINS {
            return refuse("chains", self.chains, "at most 1024");
        }
        if self.sampler == Sampler::Nuts && self.warmup < LEAST_WARMUP {
            return refuse("warmup", self.warmup, "at least 20 for NUTS, which adapts its scales in the warm-up");
        }
        if !(self.target_accept > 0.0 && self.target_accept < 1.0) {
            return refuse("target_accept", self.target_accept, "above 0 and below 1");
        }
        if !(1..=20).contains(&self.max_depth) {
            return refuse("max_depth", self.max_depth, "from 1 to 20");
        }
        let steps = self.draws.checked_mul(self.thin).and_then(|s| s.checked_add(self.warmup));
        if steps.is_none_or(|steps| steps as u64 >= 1 << 40) {
            return refuse("draws * thin + warmup", format!("{} * {}", self.draws, self.thin), "below 2^40");
        }
        Ok(())
    }

    /// Errors if the draws need more memory than is free: the points, the parameters made from them, and a copy of the
    /// points for a checkpoint.
    ///
    /// # Errors
    /// [`Error::Memory`] with the bytes needed and free.
    pub fn check_memory(&self, target: &Target) -> Result<(), Error> {
        let bytes = 8 * self.chains as u128 * self.draws as u128 * 4 * target.dim() as u128;
        match memory::check("the draws", bytes) {
            Err(gmm_host::Error::Memory { wanted, free, .. }) => Err(Error::Memory { wanted, free }),
            other => Ok(other?),
        }
    }
}

/// Each chain has a thread, and no machine keeps more busy.
const MOST_CHAINS: usize = 1024;
/// Fewer steps do not give a useful estimate of the scales.
const LEAST_WARMUP: usize = 20;

/// Statistics of one draw. With thinning they cover all steps since the previous draw: acceptance is the mean,
/// `n_steps` the sum, `diverging` whether any step diverged, `tree_depth` the largest; the rest is that of the last
/// step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat {
    /// Log posterior density over points, up to the marginal likelihood.
    pub lp: f64,
    /// Mean acceptance probability of the proposals.
    pub acceptance_rate: f64,
    /// NUTS: whether a trajectory diverged.
    pub diverging: bool,
    /// NUTS: number of gradient evaluations.
    pub n_steps: u32,
    /// NUTS: step size.
    pub step_size: f64,
    /// NUTS: number of doublings of the trajectory.
    pub tree_depth: u32,
    /// NUTS: the Hamiltonian at the selected point, `½ vᵀv − lp` with the momentum `v` in units of the mass matrix.
    /// `None` for random-walk Metropolis, and for draws from a checkpoint before version 3.
    pub energy: Option<f64>,
}

/// One chain: its current point, the result of its warm-up, and its draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// The current point, `(m,)`.
    pub point: Vec<f64>,
    /// Number of steps made, including the warm-up.
    pub steps: u64,
    /// The adapted parameters, in an order that depends on the sampler.
    pub tuning: Vec<f64>,
    /// The points of the draws, `(draws, m)`.
    pub points: Vec<f64>,
    /// Statistics of each draw, `(draws,)`.
    pub stats: Vec<Stat>,
}

impl Chain {
    /// Number of draws.
    pub fn n_draws(&self) -> usize {
        self.stats.len()
    }
}

/// The state of all chains.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The options of the run.
    pub options: Options,
    /// The chains, in order.
    pub chains: Vec<Chain>,
}

/// An event reported to an observer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A chain made a step (random-walk Metropolis: only reported in the warm-up).
    Step {
        /// Chain, from 0.
        chain: usize,
        /// Whether the step belongs to the warm-up.
        warmup: bool,
        /// Whether its trajectory diverged.
        diverging: bool,
    },
    /// The run contains new draws of a chain, or the result of its warm-up: a good moment for a checkpoint.
    Kept {
        /// Chain, from 0.
        chain: usize,
    },
}

/// Called at each event of a run; [`ControlFlow::Break`] stops the run.
pub type Observer<'a> = dyn FnMut(Event, &Run) -> ControlFlow<()> + 'a;

impl Run {
    /// A run without draws, from a starting point per chain.
    ///
    /// # Errors
    /// [`Error::Option`] if an option is out of range or the number of starts is not the number of chains.
    pub fn new(options: Options, starts: Vec<Vec<f64>>) -> Result<Self, Error> {
        options.validate()?;
        if starts.len() != options.chains {
            return refuse("starts", starts.len(), "as many as chains");
        }
        let chains = starts.into_iter().map(|point| Chain { point, ..Chain::default() }).collect();
        Ok(Self { options, chains })
    }

    /// Whether every chain has its draws.
    pub fn is_complete(&self) -> bool {
        self.chains.iter().all(|chain| chain.n_draws() >= self.options.draws)
    }

    /// Continues the run until every chain has its draws.
    ///
    /// The same run, target, engine, machine and thread count give the same bits, independent of thread timing, and
    /// also if the run was stopped in between or resumed from a [checkpoint](crate::Checkpoint). Random-walk Metropolis
    /// can stop after any sweep. NUTS stores its draws in segments of about 50 steps, each of which restarts from the
    /// current point with the same scales and step size. A stop loses at most a segment of each chain, or the whole
    /// warm-up of a chain that is still in it, which is then repeated.
    ///
    /// A complete run continues if its options now ask for more draws, and keeps the draws that it has. For random-walk
    /// Metropolis the result is equal, to the bit, to a longer run from the beginning. For NUTS it differs from that,
    /// unless the run was complete at the end of a segment.
    ///
    /// Cost: for NUTS, a value and gradient per step along a trajectory, for all chains in one call of the engine. For
    /// random-walk Metropolis, a pass of one component per mean and covariance of a sweep, chain by chain, and
    /// [`ComponentCache::bytes`](gmm_host::ComponentCache::bytes) per chain, on a GPU if it has the memory. The bits
    /// depend on whether it has.
    ///
    /// # Errors
    /// [`Error::Stopped`] if `observer` broke; [`Error::Start`] if the density at the start of a chain is not finite;
    /// any error of the engine. The run keeps the draws made until then.
    pub fn go_on(
        &mut self,
        likelihood: &mut Likelihood,
        target: &Target,
        observer: &mut Observer<'_>,
    ) -> Result<(), Error> {
        self.options.validate()?;
        match self.options.sampler {
            Sampler::Nuts => nuts::go_on(self, likelihood, target, observer),
            Sampler::Rwm => metropolis::go_on(self, likelihood, target, observer),
        }
    }
}
