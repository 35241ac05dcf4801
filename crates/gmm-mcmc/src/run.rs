//! A run of several chains: what is asked for, what there is so far, and how it goes on.

use std::ops::ControlFlow;

use gmm_host::{Likelihood, memory};
use serde::{Deserialize, Serialize};

use crate::error::refuse;
use crate::{Error, Target, metropolis, nuts};

/// Which sampler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampler {
    /// The No-U-Turn sampler of nuts-rs, which follows gradients.
    Nuts,
    /// Random-walk Metropolis, one component's mean, covariance or all weights at a time.
    Rwm,
}

impl Sampler {
    /// `nuts` or `rwm`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nuts => "nuts",
            Self::Rwm => "rwm",
        }
    }
}

/// What to draw. A run is fixed by these, the target, the starts, and the engine with its thread count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// Which sampler.
    pub sampler: Sampler,
    /// Chains, at least 1.
    pub chains: usize,
    /// Draws that each chain keeps, at least 1.
    pub draws: usize,
    /// Steps before them, in which the sampler adapts and nothing is kept. NUTS needs 20 at least.
    pub warmup: usize,
    /// Steps for each draw that is kept, at least 1.
    pub thin: usize,
    /// Seed of every draw.
    pub seed: u64,
    /// The mean acceptance that NUTS adapts its steps to, between 0 and 1. The other sampler has one for each size of a
    /// block, from 0.44 (one number) to 0.234 (many).
    pub target_accept: f64,
    /// Doublings of a trajectory of NUTS, at least 1 and at most 20.
    pub max_depth: u64,
}

impl Options {
    /// The defaults: 4 chains of 1000 draws after 1000 steps of warm-up, no thinning, seed 0, acceptance 0.8, depth 10.
    pub const fn new(sampler: Sampler) -> Self {
        Self { sampler, chains: 4, draws: 1000, warmup: 1000, thin: 1, seed: 0, target_accept: 0.8, max_depth: 10 }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`Error::Option`] with the option, its value and its range.
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
            return refuse("warmup", self.warmup, "at least 20 for NUTS, which finds its scales then");
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

    /// Refuses more draws than there is memory for: points, what is made of them, and a copy of the points for a checkpoint.
    ///
    /// # Errors
    /// [`Error::Memory`] with the bytes wanted and free.
    pub fn check_memory(&self, target: &Target) -> Result<(), Error> {
        let bytes = 8 * self.chains as u128 * self.draws as u128 * 4 * target.dim() as u128;
        match memory::check("the draws", bytes) {
            Err(gmm_host::Error::Memory { wanted, free, .. }) => Err(Error::Memory { wanted, free }),
            other => Ok(other?),
        }
    }
}

/// A thread each: more than any machine keeps busy.
const MOST_CHAINS: usize = 1024;
/// Fewer steps give no estimate of scales that is worth a trajectory.
const LEAST_WARMUP: usize = 20;

/// What a sampler has to say about a draw that was kept. Over thinned steps acceptance is the mean, `n_steps` the sum,
/// `diverging` whether any did, `tree_depth` the largest, and the rest is of the last.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stat {
    /// The log posterior density over points, up to the marginal likelihood.
    pub lp: f64,
    /// Mean probability with which what was tried would have been accepted.
    pub acceptance_rate: f64,
    /// NUTS: whether a trajectory diverged.
    pub diverging: bool,
    /// NUTS: gradients taken.
    pub n_steps: u32,
    /// NUTS: step size.
    pub step_size: f64,
    /// NUTS: doublings.
    pub tree_depth: u32,
    /// NUTS: the Hamiltonian where the trajectory was left, `½ vᵀv − lp` with the momentum `v` in units of the mass matrix.
    /// `None` where it was not kept: of random-walk Metropolis, and of draws that a checkpoint before version 3 holds.
    pub energy: Option<f64>,
}

/// One chain: where it is, what its warm-up found, and its draws.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// The current point, `(m,)`.
    pub point: Vec<f64>,
    /// Steps done, warm-up included.
    pub steps: u64,
    /// What the sampler adapted, in the sampler's own order.
    pub tuning: Vec<f64>,
    /// Points kept, `(draws, m)`.
    pub points: Vec<f64>,
    /// One for each.
    pub stats: Vec<Stat>,
}

impl Chain {
    /// Draws kept.
    pub fn n_draws(&self) -> usize {
        self.stats.len()
    }
}

/// All chains, so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// What is asked for.
    pub options: Options,
    /// In order.
    pub chains: Vec<Chain>,
}

/// Something that an observer may want to know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event {
    /// A chain made a step (random-walk Metropolis: in its warm-up).
    Step {
        /// Chain, from 0.
        chain: usize,
        /// Whether the step belongs to the warm-up.
        warmup: bool,
        /// Whether it diverged.
        diverging: bool,
    },
    /// The run holds more of a chain than before: a good moment for a checkpoint.
    Kept {
        /// Chain, from 0.
        chain: usize,
    },
}

/// Sees a run go by; breaking stops it.
pub type Observer<'a> = dyn FnMut(Event, &Run) -> ControlFlow<()> + 'a;

impl Run {
    /// A run that has not begun, from a point for each chain.
    ///
    /// # Errors
    /// [`Error::Option`] for options out of range and for another number of starts than chains.
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

    /// Goes on until every chain has its draws.
    ///
    /// Same run, target, engine, machine and thread count: same bits, however the chains' threads are timed, and also where the
    /// run was stopped in between or came from a [checkpoint](crate::Checkpoint). Random-walk Metropolis stops after any
    /// sweep. NUTS keeps what it drew in segments of about 50 steps, each of which begins anew from a point, the scales
    /// and the step size alone; a stop loses at most a segment of each chain, and in a chain's warm-up all of that, which
    /// is then done again.
    ///
    /// A run that is complete goes on where its options want more draws than before, and keeps those that it has. Of
    /// random-walk Metropolis it then is the longer run to the bit; of NUTS it is another one, unless it was complete at
    /// the end of a segment.
    ///
    /// Cost: a value and gradient for each of NUTS' steps along a trajectory, of all chains in one call of the engine.
    /// For random-walk Metropolis a pass of one component for each mean and covariance of a sweep, chain by chain, and
    /// [`ComponentCache::bytes`](gmm_host::ComponentCache::bytes) for each chain, on a GPU where it has the memory: whether it
    /// has is a thing of the machine on which the bits depend.
    ///
    /// # Errors
    /// [`Error::Stopped`] where `observer` broke; [`Error::Start`] where a chain has no density at its start; what the
    /// engine says. The run holds what was drawn until then.
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
