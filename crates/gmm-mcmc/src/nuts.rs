//! The No-U-Turn sampler of nuts-rs over the unconstrained points; gradients of all chains are evaluated in one batch.
//!
//! A chain warms up without interruption, with nuts-rs' own adaptation of step size and diagonal scales. Then it draws
//! in segments. Each segment is a new sampler with fixed step size and scales, started from the last point with random
//! numbers determined by (seed, chain, segment). A NUTS transition depends on nothing else, so segments sample the same
//! distribution. A run can therefore be stopped and resumed between any two segments with the same result, although the
//! state of nuts-rs cannot be saved.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use gmm_host::Likelihood;
use gmm_model::Draws;
use nuts_rs::rand::SeedableRng;
use nuts_rs::rand::rngs::ChaCha8Rng;
use nuts_rs::{
    Chain as _, CpuLogpFunc, CpuMath, CpuMathError, DiagNutsSettings, FlowNutsSettings, HasDims, KineticEnergyKind,
    LogpError, Settings, StepSizeAdaptMethod,
};

use crate::batched_eval::{Line, together};
use crate::run::{Chain, Event, Observer, Options, Run, Stat};
use crate::{Error, Target};

/// Smallest number of steps in a segment: two extra gradients per 50 trajectories cost little, and a stop loses at most
/// this.
const SEGMENT: u64 = 50;

/// A message from a chain to the thread that holds the likelihood.
enum ChainMessage {
    Step { warmup: bool, diverging: bool },
    Kept(Box<Chain>),
}

pub(crate) fn go_on(
    run: &mut Run,
    likelihood: &mut Likelihood,
    target: &Target,
    observer: &mut Observer<'_>,
) -> Result<(), Error> {
    let options = run.options.clone();
    let starts: Vec<Chain> = run.chains.iter().map(Chain::without_draws).collect();
    let left: Vec<u64> = run.chains.iter().map(|c| options.draws.saturating_sub(c.n_draws()) as u64).collect();
    let chain = |i: usize, line: &Line<ChainMessage>| advance(starts[i].clone(), left[i], i, &options, line);
    let answer = |points: &[Vec<f64>]| target.values_and_gradients(likelihood, points);
    let heard = |i: usize, told: ChainMessage| {
        let event = match told {
            ChainMessage::Step { warmup, diverging } => Event::Step { chain: i, warmup, diverging },
            ChainMessage::Kept(more) => {
                let all = &mut run.chains[i];
                (all.point, all.steps, all.tuning) = (more.point, more.steps, more.tuning);
                all.points.extend(more.points);
                all.stats.extend(more.stats);
                Event::Kept { chain: i }
            }
        };
        Ok(observer(event, run))
    };
    together(options.chains, chain, answer, heard)
}

impl Chain {
    fn without_draws(&self) -> Self {
        let Self { point, steps, tuning, .. } = self;
        Self { point: point.clone(), steps: *steps, tuning: tuning.clone(), points: Vec::new(), stats: Vec::new() }
    }
}

/// Runs the warm-up if it is not done, then draws segment by segment until `left` draws are reported.
fn advance(
    mut chain: Chain,
    mut left: u64,
    i: usize,
    options: &Options,
    line: &Line<ChainMessage>,
) -> Result<(), Error> {
    if left == 0 {
        return Ok(());
    }
    if chain.tuning.is_empty() {
        warm_up(&mut chain, i, options, line)?;
        line.tell(ChainMessage::Kept(Box::new(chain.clone())))?;
    }
    let thin = options.thin as u64;
    // Segments are counted from the first draw, so that it does not matter where a run was stopped. The last one may
    // end early; if more draws are requested later, the next one begins within it: see `segment`.
    let each = SEGMENT.div_ceil(thin);
    while left > 0 {
        let done = (chain.steps - options.warmup as u64) / thin;
        let number = done / each;
        let draws = done..(done + left).min((number + 1) * each);
        left -= draws.end - draws.start;
        segment(&mut chain, draws, i, options, line)?;
        line.tell(ChainMessage::Kept(Box::new(chain.clone())))?;
        chain = chain.without_draws();
    }
    Ok(())
}

/// Adapts scales and step size. Sets `tuning` to the step size followed by the scales, `(1 + m,)`.
fn warm_up(chain: &mut Chain, i: usize, options: &Options, line: &Line<ChainMessage>) -> Result<(), Error> {
    let mut settings = DiagNutsSettings { num_tune: options.warmup as u64, num_draws: 0, ..Default::default() };
    settings.maxdepth = options.max_depth;
    settings.adapt_options.mass_matrix_options.store_mass_matrix = true;
    settings.adapt_options.step_size_settings.target_accept = options.target_accept;
    let m = chain.point.len();
    let density = Density { line, scales: vec![1.0; m] };
    let mut sampler = settings
        .new_chain(i as u64, CpuMath::new(density), &mut generator(options.seed, i, 0))
        .map_err(|e| failed(i, line, &e))?;
    sampler.set_position(&chain.point).map_err(|_| no_start(i, line))?;
    let (mut scales, mut step) = (vec![1.0; m], 0.0);
    for _ in 0..options.warmup {
        let (point, _, stats, progress) = sampler.expanded_draw().map_err(|e| failed(i, line, &e))?;
        // nuts-rs calls these the inverse mass matrix; they are standard deviations.
        if let Some(found) = stats.hamiltonian.transformation.mass_matrix_inv {
            scales = found;
        }
        step = stats.adapt.step_size.step_size_bar;
        chain.point = point.into_vec();
        line.tell(ChainMessage::Step { warmup: true, diverging: progress.diverging })?;
    }
    chain.steps = options.warmup as u64;
    chain.tuning = [vec![step], scales].concat();
    Ok(())
}

/// Draws the draws of the given numbers, counted from the first draw, with fixed step size and scales.
fn segment(
    chain: &mut Chain,
    draws: Range<u64>,
    i: usize,
    options: &Options,
    line: &Line<ChainMessage>,
) -> Result<(), Error> {
    let mut settings = FlowNutsSettings { num_tune: 0, num_draws: 0, ..Default::default() };
    settings.maxdepth = options.max_depth;
    settings.gradient_clipping = None;
    // As in the warm-up, in which the step size was adapted.
    settings.trajectory_kind = KineticEnergyKind::Euclidean;
    settings.adapt_options.step_size_settings.adapt_options.method = StepSizeAdaptMethod::Fixed(chain.tuning[0]);
    let density = Density { line, scales: chain.tuning[1..].to_vec() };
    let mut sampler = settings
        .new_chain(i as u64, CpuMath::new(density), &mut generator(options.seed, i, 1 + draws.start))
        .map_err(|e| failed(i, line, &e))?;
    sampler.set_position(&chain.point).map_err(|e| failed(i, line, &e))?;
    for _ in draws {
        let mut kept = Stat::default();
        for _ in 0..options.thin {
            let (point, _, stats, progress) = sampler.expanded_draw().map_err(|e| failed(i, line, &e))?;
            kept = Stat {
                lp: stats.point.logp,
                acceptance_rate: kept.acceptance_rate + stats.adapt.step_size.mean_tree_accept / options.thin as f64,
                diverging: kept.diverging || progress.diverging,
                n_steps: kept.n_steps + progress.num_steps as u32,
                step_size: stats.hamiltonian.step_size,
                tree_depth: kept.tree_depth.max(stats.depth as u32),
                // Not `point.energy`: that includes the determinant of the scales, which differs between chains.
                energy: Some(stats.point.kinetic_energy - stats.point.logp),
            };
            chain.point = point.into_vec();
            chain.steps += 1;
            line.tell(ChainMessage::Step { warmup: false, diverging: progress.diverging })?;
        }
        chain.points.extend_from_slice(&chain.point);
        chain.stats.push(kept);
    }
    Ok(())
}

/// The generator for a chain's warm-up (`part` 0) or for a segment (`part` = 1 + its first draw).
fn generator(seed: u64, chain: usize, part: u64) -> ChaCha8Rng {
    // Fewer than 2^10 chains and 2^40 steps: see `Options::validate`.
    let mut draws = Draws::for_purpose("nuts", seed, (chain as u64) << 41 | part);
    let mut key = [0; 32];
    key.chunks_exact_mut(8).for_each(|word| word.copy_from_slice(&draws.bits().to_le_bytes()));
    ChaCha8Rng::from_seed(key)
}

/// The density in coordinates `z = x / scale` in a segment; in the warm-up all scales are 1.
struct Density<'a> {
    line: &'a Line<ChainMessage>,
    scales: Vec<f64>,
}

/// The reason why a density cannot be evaluated.
#[derive(Debug)]
enum NoDensity {
    /// It is not finite at this point: nuts-rs treats the trajectory as divergent.
    Here,
    /// The run was stopped.
    Stopped,
}

impl fmt::Display for NoDensity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Here => "there is no finite density here",
            Self::Stopped => "stopped",
        })
    }
}

impl std::error::Error for NoDensity {}

impl LogpError for NoDensity {
    fn is_recoverable(&self) -> bool {
        matches!(self, Self::Here)
    }
}

impl HasDims for Density<'_> {
    fn dim_sizes(&self) -> HashMap<String, u64> {
        HashMap::from([("unconstrained_parameter".to_owned(), self.scales.len() as u64)])
    }
}

impl CpuLogpFunc for Density<'_> {
    type LogpError = NoDensity;
    /// Empty: the density contains the scales, and there is nothing else to learn.
    type FlowParameters = ();
    type ExpandedVector = Vec<f64>;

    fn dim(&self) -> usize {
        self.scales.len()
    }

    fn logp(&mut self, position: &[f64], gradient: &mut [f64]) -> Result<f64, NoDensity> {
        let (value, found) = self.line.ask(position).map_err(|_| NoDensity::Stopped)?.ok_or(NoDensity::Here)?;
        gradient.copy_from_slice(&found);
        Ok(value)
    }

    fn expand_vector<R: nuts_rs::rand::Rng + ?Sized>(
        &mut self,
        _: &mut R,
        _: &[f64],
    ) -> Result<Vec<f64>, CpuMathError> {
        Ok(Vec::new())
    }

    // The following methods are the linear map between a point and its scaled coordinates, with its log determinant.

    fn inv_transform_normalize(
        &mut self,
        (): &(),
        point: &[f64],
        gradient: &[f64],
        scaled: &mut [f64],
        scaled_gradient: &mut [f64],
    ) -> Result<f64, NoDensity> {
        for (i, s) in self.scales.iter().enumerate() {
            (scaled[i], scaled_gradient[i]) = (point[i] / s, gradient[i] * s);
        }
        Ok(-self.scales.iter().map(|s| s.ln()).sum::<f64>())
    }

    fn init_from_untransformed_position(
        &mut self,
        params: &(),
        point: &[f64],
        gradient: &mut [f64],
        scaled: &mut [f64],
        scaled_gradient: &mut [f64],
        _clip: Option<f64>,
    ) -> Result<(f64, f64), NoDensity> {
        let value = self.logp(point, gradient)?;
        Ok((value, self.inv_transform_normalize(params, point, gradient, scaled, scaled_gradient)?))
    }

    fn init_from_transformed_position(
        &mut self,
        (): &(),
        point: &mut [f64],
        gradient: &mut [f64],
        scaled: &[f64],
        scaled_gradient: &mut [f64],
        _clip: Option<f64>,
    ) -> Result<(f64, f64), NoDensity> {
        point.iter_mut().zip(scaled).zip(&self.scales).for_each(|((x, z), s)| *x = z * s);
        let value = self.logp(point, gradient)?;
        scaled_gradient.iter_mut().zip(&*gradient).zip(&self.scales).for_each(|((g, found), s)| *g = found * s);
        Ok((value, -self.scales.iter().map(|s| s.ln()).sum::<f64>()))
    }

    fn init_transformation<R: nuts_rs::rand::Rng + ?Sized>(
        &mut self,
        _: &mut R,
        _: &[f64],
        _: &[f64],
        _: u64,
    ) -> Result<(), NoDensity> {
        Ok(())
    }

    fn new_transformation<R: nuts_rs::rand::Rng + ?Sized>(
        &mut self,
        _: &mut R,
        _: usize,
        _: u64,
    ) -> Result<(), NoDensity> {
        Ok(())
    }

    fn transformation_id(&self, (): &()) -> Result<i64, NoDensity> {
        Ok(0)
    }
}

fn failed(chain: usize, line: &Line<ChainMessage>, error: &dyn fmt::Display) -> Error {
    if line.is_closed() { Error::Stopped } else { Error::Sampler { chain, why: format!("{error:#}") } }
}

fn no_start(chain: usize, line: &Line<ChainMessage>) -> Error {
    let why = "no finite density and gradient at its start".to_owned();
    if line.is_closed() { Error::Stopped } else { Error::Start { chain, why } }
}
