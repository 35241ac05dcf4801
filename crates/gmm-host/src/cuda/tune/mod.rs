//! The ways of a shape, timed over the rows at hand: the fastest is where a fit begins, and is kept for those to come.
//!
//! A trial runs from the fit's start and touches nothing of the fit: its result has the bits of the chosen way alone. What
//! was found is kept in the engine, and by [`cache`] in a file.

mod cache;

use std::sync::PoisonError;
use std::time::Instant;

use gmm_model::{CovarianceType, Mixture, Precision, m_step};

use super::device::Gpu;
use super::em::{Left, LoopMemory};
use super::plan::Forced;
use super::rows::CudaRows;
use super::shape::Shape;
use super::upload::Number;
use super::ways::{self, Asked, Way};
use super::{CudaEngine, loop_candidates};
use crate::em::{self, EmOptions, EmRun};
use crate::{Error, Tuning, TuningSource};

#[cfg(test)]
pub(super) use cache::FOLDER;

/// Seconds of iterations that make a time: launches follow one another as in a fit, and the device's clocks are up.
const ENOUGH: f64 = 0.02;

/// Iterations that are timed at most: a fit has not many more.
const MOST: f64 = 32.0;

/// A single iteration says enough where it is this much slower than the best way, and takes this many seconds: in less
/// time the launches' own beginning and end count too much.
const TOO_SLOW: (f64, f64) = (2.0, 5e-3);

impl<T: Number> CudaRows<T> {
    /// Puts first, among the `ways` that a plan would try, the one that is fastest for rows of this shape: as it was found
    /// before, or timed now. It may be one that the plan leaves out by a rule of thumb.
    ///
    /// Costs nothing where the shape is known; else two iterations of each way and some 20 ms, in which no observer is
    /// asked, and the memory of each way, which goes back.
    ///
    /// # Errors
    /// As for a pass: a device that fails here would fail in the fit. A way that lacks memory or loses digits is left out.
    pub(super) fn tune(
        &mut self,
        shape: &Shape,
        ways: &mut Vec<Way>,
        run: &mut EmRun,
        options: &EmOptions,
    ) -> Result<(), Error> {
        if self.forced != Forced::default() || self.forced.host_loop() {
            let way = ways.first().map_or(Way::Host.name(), |way| way.name());
            let (source, seconds, warnings) = (TuningSource::Forced, Vec::new(), Vec::new());
            run.tuning = Some(Tuning { way, source, seconds, warnings });
            return Ok(());
        }
        let asked = Asked { fast: options.fast, slower_too: true, ..self.asked() };
        let candidates = self.possible(shape, asked);
        let Some(tuning) = self.known_or_timed(shape, &candidates, &run.mixture, options)? else { return Ok(()) };
        if let Some(best) = candidates.into_iter().find(|way| way.name() == tuning.way) {
            ways.retain(|way| *way != best);
            ways.insert(0, best);
        }
        run.tuning = Some(tuning);
        Ok(())
    }

    /// What these rows ask of a loop.
    pub(super) fn asked(&self) -> Asked {
        Asked { weighted: self.row_weights.is_some(), ..Asked::default() }
    }

    /// The ways against which nothing speaks, best first.
    pub(super) fn possible(&self, shape: &Shape, asked: Asked) -> Vec<Way> {
        let ways = ways::consider::<T>(shape, asked, &self.gpu.limits, &self.forced, |name| self.gpu.has(name));
        ways.into_iter().filter(|(_, why_not)| why_not.is_none()).map(|(way, _)| way).collect()
    }

    /// None where no way goes through with a few iterations from this start: the fit will say why.
    fn known_or_timed(
        &mut self,
        shape: &Shape,
        candidates: &[Way],
        start: &Mixture,
        options: &EmOptions,
    ) -> Result<Option<Tuning>, Error> {
        let key = key(&self.gpu, shape, Asked { fast: options.fast, ..self.asked() });
        let known = self.gpu.tuned.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
        if known.is_some() {
            return Ok(known);
        }
        let names: Vec<&'static str> = candidates.iter().map(|way| way.name()).collect();
        let mut kept = cache::Cache::open();
        let tuning = match kept.find(&key, &names) {
            Some(tuning) => tuning,
            None => {
                let seconds = self.time(shape, candidates, start, options)?;
                let Some((way, _)) = seconds.first().copied() else { return Ok(None) };
                kept.keep(&key, &seconds);
                Tuning { way, source: TuningSource::Timed, seconds, warnings: kept.warnings() }
            }
        };
        tracing::info!(key, %tuning, "autotune");
        for warning in &tuning.warnings {
            tracing::warn!(warning, "autotune");
        }
        self.gpu.tuned.lock().unwrap_or_else(PoisonError::into_inner).insert(key, tuning.clone());
        Ok(Some(tuning))
    }

    /// Seconds an iteration of each way that goes through with it, fastest first; of equals the plan's first.
    fn time(
        &mut self,
        shape: &Shape,
        ways: &[Way],
        start: &Mixture,
        options: &EmOptions,
    ) -> Result<Vec<(&'static str, f64)>, Error> {
        let mut out: Vec<(&'static str, f64)> = Vec::new();
        for way in ways {
            let best = out.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
            if let Some(seconds) = self.seconds(shape, *way, start, options, best)? {
                out.push((way.name(), seconds));
            }
            // The next finds the memory that the fit alone would find, and so does the fit.
            self.loop_memory = LoopMemory::empty();
            self.workspace.clear();
            self.planned = None;
        }
        out.sort_by(|a, b| a.1.total_cmp(&b.1));
        Ok(out)
    }

    fn seconds(
        &mut self,
        shape: &Shape,
        way: Way,
        start: &Mixture,
        options: &EmOptions,
        best: f64,
    ) -> Result<Option<f64>, Error> {
        let mut trial = |iterations: usize| {
            let options = EmOptions { max_iter: iterations, tol: 0.0, ..*options };
            self.trial(*shape, way, start, &options)
        };
        // The first compiles what was not compiled, and its time says nothing.
        let Some(_) = trial(1)? else { return Ok(None) };
        let Some(once) = trial(1)? else { return Ok(None) };
        let iterations = (ENOUGH / once).clamp(1.0, MOST) as usize;
        if iterations == 1 || (once > TOO_SLOW.0 * best && once > TOO_SLOW.1) {
            return Ok(Some(once));
        }
        trial(iterations)
    }

    /// Seconds an iteration of a run of its own, on the device's clock; none where it came to no end for want of digits or
    /// memory.
    fn trial(&mut self, shape: Shape, way: Way, start: &Mixture, options: &EmOptions) -> Result<Option<f64>, Error> {
        let Some(plan) = self.loop_plan(shape, way, options, 0)? else { return self.trial_by_host(start, options) };
        let mut run = EmRun::new(start.clone());
        let left = self.iterate_as(way, &plan, &mut run, options, &mut |_, _| Ok(()))?;
        let on_device = run.on_device.filter(|_| matches!(left, Left::AtTheEnd));
        Ok(on_device.map(|on| on.time.as_secs_f64() / on.iterations as f64))
    }

    /// The same where the host makes the iterations, whose clock it is then.
    fn trial_by_host(&mut self, start: &Mixture, options: &EmOptions) -> Result<Option<f64>, Error> {
        let began = Instant::now();
        let mut mixture = start.clone();
        for iteration in 1..=options.max_iter {
            let statistics = match self.pass_here(&mixture) {
                Err(Error::Memory { .. }) => return Ok(None),
                other => other?,
            };
            // What stops a trial stops the fit, with its own words.
            let step = em::check(&statistics, iteration).is_ok();
            let step = step.then(|| m_step(&statistics, options.reg_covar, Some(&mixture)).ok()).flatten();
            let Some(step) = step else { return Ok(None) };
            mixture = step.mixture;
        }
        Ok(Some(began.elapsed().as_secs_f64() / options.max_iter as f64))
    }
}

/// Whatever a time depends on. Rows with weights have fewer ways, and where speed counts more than digits there is one more.
fn key(gpu: &Gpu, shape: &Shape, asked: Asked) -> String {
    let Shape { kind, precision, n, k, d } = *shape;
    let (decade, (major, minor)) = (n.max(1).ilog10(), gpu.capability);
    let weighted = if asked.weighted { " weighted" } else { "" };
    let fast = if asked.fast { " fast" } else { "" };
    format!(
        "{kind} {precision} d={d} k={k} n=1e{decade}{weighted}{fast}, {} {major}.{minor} {}, driver {}, {}",
        gpu.name,
        gpu.choice.module.target,
        gpu.driver,
        *cache::VERSION
    )
}

impl CudaEngine {
    /// Where fits with [`autotune`](crate::FitOptions::autotune) keep what they find: `autotune.json` in `GMM_CACHE_DIR`, or
    /// in the folder `gmm` of the user's cache folder; none where there is no such folder.
    pub fn tuning_file() -> Option<std::path::PathBuf> {
        cache::file()
    }

    /// What that file has for `n` rows of `d` columns and `k` components, all of weight 1: with autotune fits of such a shape
    /// begin so. None where none was timed.
    ///
    /// # Errors
    /// As for [`loop_candidates`].
    pub fn kept_tuning(
        &self,
        kind: CovarianceType,
        precision: Precision,
        shape: (usize, usize, usize),
    ) -> Result<Option<Tuning>, Error> {
        let names: Vec<_> =
            loop_candidates(Some(self), kind, precision, shape, false)?.iter().map(|way| way.name).collect();
        let key = key(&self.gpu, &Shape::new(kind, precision, shape)?, Asked::default());
        Ok(cache::Cache::open().find(&key, &names))
    }
}
