//! Blockwise random-walk Metropolis: moves one component's mean, its covariance, or all weights at a time.
//!
//! Steps are normal in the unconstrained points. The density there includes the Jacobian, so the acceptance probability
//! is the ratio of densities. Each block adapts only during the warm-up: the covariance of its steps to that of the
//! points seen, and their length to a target acceptance (Robbins and Monro 1951; Haario, Saksman and Tamminen 2001).
//! [`ComponentCache`] evaluates only the component that moves.

mod block;

use gmm_host::{ComponentCache, Likelihood};
use gmm_model::Draws;

use crate::run::{Chain, Event, Observer, Options, Run, Stat};
use crate::{Error, Target};
use block::{Block, blocks};

pub(crate) fn go_on(
    run: &mut Run,
    likelihood: &mut Likelihood,
    target: &Target,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    let options = run.options.clone();
    let mut walkers = Vec::with_capacity(run.chains.len());
    for (i, chain) in run.chains.iter().enumerate() {
        walkers.push(Walker::new(chain, i, likelihood, target)?);
    }
    let wanted = (options.draws * options.thin + options.warmup) as u64;
    let mut first = run.chains.iter().map(|c| c.steps).min().unwrap_or(wanted);
    while first < wanted {
        for (i, walker) in walkers.iter_mut().enumerate() {
            let chain = &mut run.chains[i];
            if chain.steps > first {
                continue;
            }
            let warmup = chain.steps < options.warmup as u64;
            let acceptance = walker.sweep(chain.steps, i, &options, likelihood, target)?;
            chain.steps += 1;
            walker.note(acceptance, &options, chain);
            let event =
                if warmup { Event::Step { chain: i, warmup, diverging: false } } else { Event::Kept { chain: i } };
            if observer(event, run).is_break() {
                return Err(Error::Stopped);
            }
        }
        first += 1;
    }
    Ok(())
}

/// One chain, with the cached log densities of its components.
struct Walker {
    cache: ComponentCache,
    point: Vec<f64>,
    lp: f64,
    blocks: Vec<Block>,
    /// Sum of the acceptance probabilities since the last draw.
    acceptance: f64,
}

impl Walker {
    fn new(chain: &Chain, i: usize, likelihood: &mut Likelihood, target: &Target) -> Result<Self, Error> {
        let none = || Error::Start { chain: i, why: "no finite density at its start".to_owned() };
        let mixture = target.mixture(&chain.point)?.ok_or_else(none)?;
        let mut blocks = blocks(&mixture, likelihood.total_weight());
        let cache = ComponentCache::new(likelihood, mixture)?;
        let lp = target.value(&chain.point, cache.value())?;
        if !lp.is_finite() {
            return Err(none());
        }
        // The first number of `tuning` is the sum of the acceptance since the last draw.
        let mut acceptance = 0.0;
        if let Some((first, mut rest)) = chain.tuning.split_first() {
            acceptance = *first;
            blocks.iter_mut().for_each(|block| block.read(&mut rest));
        }
        Ok(Self { cache, point: chain.point.clone(), lp, blocks, acceptance })
    }

    /// Moves every block once. Returns the mean acceptance probability.
    fn sweep(
        &mut self,
        sweep: u64,
        i: usize,
        options: &Options,
        likelihood: &mut Likelihood,
        target: &Target,
    ) -> Result<f64, Error> {
        // Fewer than 2^10 chains and 2^40 steps: see `Options::validate`.
        let mut draws = Draws::for_purpose("random walk", options.seed, (i as u64) << 41 | sweep);
        let warmup = sweep < options.warmup as u64;
        let mut total = 0.0;
        for b in 0..self.blocks.len() {
            let proposal = self.blocks[b].propose(&self.point, &mut draws);
            let accepted = self.try_step(proposal, draws.uniform(), likelihood, target)?;
            total += accepted;
            if warmup {
                self.blocks[b].adapt(sweep, accepted, &self.point, options.warmup as u64);
            }
        }
        Ok(total / self.blocks.len() as f64)
    }

    /// Accepts the step if `mark`, which is uniform, is below the ratio of densities. Returns the ratio, at most 1.
    fn try_step(
        &mut self,
        proposal: Vec<f64>,
        mark: f64,
        likelihood: &mut Likelihood,
        target: &Target,
    ) -> Result<f64, Error> {
        // A point without a valid mixture has density 0.
        let Some(mixture) = target.mixture(&proposal)? else { return Ok(0.0) };
        let value = match self.cache.update(likelihood, mixture) {
            Ok(value) => value,
            // Squares overflow there, so the density is 0. The cache is unchanged.
            Err(gmm_host::Error::Undefined { .. }) => return Ok(0.0),
            Err(error) => return Err(error.into()),
        };
        let lp = target.value(&proposal, value)?;
        let ratio = (lp - self.lp).min(0.0).exp();
        if mark < ratio {
            (self.point, self.lp) = (proposal, lp);
        } else {
            self.cache.undo();
        }
        Ok(ratio)
    }

    /// Records the state of the chain, and a draw if one is due.
    fn note(&mut self, acceptance: f64, options: &Options, chain: &mut Chain) {
        self.acceptance += acceptance;
        chain.point.clone_from(&self.point);
        let drawn = chain.steps.saturating_sub(options.warmup as u64);
        if drawn == 0 {
            // The acceptance of the warm-up does not count for draws.
            self.acceptance = 0.0;
        } else if drawn.is_multiple_of(options.thin as u64) {
            let acceptance_rate = self.acceptance / options.thin as f64;
            chain.points.extend_from_slice(&self.point);
            chain.stats.push(Stat { lp: self.lp, acceptance_rate, ..Stat::default() });
            self.acceptance = 0.0;
        }
        if chain.steps > options.warmup as u64 && !chain.tuning.is_empty() {
            chain.tuning[0] = self.acceptance;
            return;
        }
        chain.tuning.clear();
        chain.tuning.push(self.acceptance);
        self.blocks.iter().for_each(|block| block.write(&mut chain.tuning));
    }
}
