//! Autotune: times the EM paths of a shape over the given rows. A fit starts with the fastest, and later fits reuse the
//! result.
//!
//! A trial runs from the fit's start and changes nothing of the fit: its result is bit-identical to that of the chosen
//! path without autotune. Results are stored in the engine, and by [`cache`] in a file.

mod cache;

use std::sync::PoisonError;
use std::time::Instant;

use gmm_model::{Mixture, m_step};

use super::driver::device::Gpu;
use super::em::path::EmPath;
use super::em::{self, Loop, Member, Outcome};
use super::launch::plan::ForcedPlan;
use super::number::Number;
use super::rows::Rows;
use super::shape::Shape;
use crate::em::{EmOptions, EmRun};
use crate::{Error, Tuning, TuningSource, path_names};

/// Seconds of iterations for one measurement: launches follow one another as in a fit, and the device's clocks have
/// ramped up.
const ENOUGH: f64 = 0.02;

/// Most iterations that are timed: a fit rarely has many more.
const MOST: f64 = 32.0;

/// `(ratio, seconds)`: a single iteration suffices if it is this many times slower than the best path and takes longer
/// than this many seconds. In less time the overhead of the launches distorts the result.
const TOO_SLOW: (f64, f64) = (2.0, 5e-3);

/// The paths for a fit of these rows, best first. With autotune the fastest one, timed earlier or now, comes first; it
/// may be one that selection considers slower.
///
/// Timing costs nothing if the shape is known. Otherwise it runs two iterations and about 20 ms of each path, without
/// calling an observer. The memory of each path is freed afterwards.
///
/// # Errors
/// As for a pass: a device that fails here would fail in the fit. A path that lacks memory or loses precision is
/// skipped.
pub(super) fn paths<T: Number>(
    rows: &mut Rows<T>,
    em: &mut Loop,
    run: &mut EmRun,
    options: &EmOptions,
) -> Result<Vec<&'static dyn EmPath>, Error> {
    let shape = rows.shape(run.mixture.covariance_type(), run.mixture.n_components());
    let mut paths = em::running(rows, &shape, options.fast);
    if !options.autotune {
        return Ok(paths);
    }
    if rows.forced != ForcedPlan::default() || rows.forced.host_loop() {
        let path = paths.first().map_or(path_names::HOST, |first| first.name());
        let (source, seconds, warnings) = (TuningSource::Forced, Vec::new(), Vec::new());
        run.tuning = Some(Tuning { path, source, seconds, warnings });
        return Ok(paths);
    }
    let candidates = em::candidates(rows, &shape, options.fast).into_iter();
    let candidates: Vec<_> = candidates.filter(|of| of.excluded.is_none()).map(|of| of.path).collect();
    let Some(tuning) = known_or_timed(rows, em, &shape, &candidates, &run.mixture, options)? else { return Ok(paths) };
    match candidates.into_iter().find(|path| path.name() == tuning.path) {
        Some(best) => {
            paths.retain(|path| *path != best);
            paths.insert(0, best);
        }
        // The host was the fastest.
        None => paths.clear(),
    }
    run.tuning = Some(tuning);
    Ok(paths)
}

/// The stored or newly timed result. `None` if no path completes a few iterations from this start: the fit will report
/// why.
fn known_or_timed<T: Number>(
    rows: &mut Rows<T>,
    em: &mut Loop,
    shape: &Shape,
    candidates: &[&'static dyn EmPath],
    start: &Mixture,
    options: &EmOptions,
) -> Result<Option<Tuning>, Error> {
    let key = key(&rows.gpu, shape, rows.row_weights.is_some(), options.fast);
    let known = rows.gpu.tuned.lock().unwrap_or_else(PoisonError::into_inner).get(&key).cloned();
    if known.is_some() {
        return Ok(known);
    }
    let names: Vec<&'static str> = candidates.iter().map(|path| path.name()).chain([path_names::HOST]).collect();
    let mut kept = cache::Cache::open();
    let tuning = match kept.find(&key, &names) {
        Some(tuning) => tuning,
        None => {
            let seconds = time(rows, em, shape, candidates, start, options)?;
            let Some((path, _)) = seconds.first().copied() else { return Ok(None) };
            kept.keep(&key, &seconds);
            Tuning { path, source: TuningSource::Timed, seconds, warnings: kept.warnings() }
        }
    };
    tracing::info!(key, %tuning, "autotune");
    for warning in &tuning.warnings {
        tracing::warn!(warning, "autotune");
    }
    rows.gpu.tuned.lock().unwrap_or_else(PoisonError::into_inner).insert(key, tuning.clone());
    Ok(Some(tuning))
}

/// Seconds per iteration of each path that completes its trial, and of the host, fastest first. Ties keep the order of
/// selection.
fn time<T: Number>(
    rows: &mut Rows<T>,
    em: &mut Loop,
    shape: &Shape,
    candidates: &[&'static dyn EmPath],
    start: &Mixture,
    options: &EmOptions,
) -> Result<Vec<(&'static str, f64)>, Error> {
    let mut out: Vec<(&'static str, f64)> = Vec::new();
    for path in candidates.iter().copied().map(Some).chain([None]) {
        let best = out.iter().map(|(_, seconds)| *seconds).fold(f64::INFINITY, f64::min);
        let mut trial = |iterations: usize| {
            let options = EmOptions { max_iter: iterations, tol: 0.0, ..*options };
            match path {
                Some(path) => trial(rows, em, *shape, path, start, &options),
                None => trial_by_host(rows, start, &options),
            }
        };
        if let Some(seconds) = seconds(&mut trial, best)? {
            out.push((path.map_or(path_names::HOST, |path| path.name()), seconds));
        }
        // Frees the memory, so that the next trial, and the fit, find as much as a fit without trials would.
        *em = Loop::empty();
        rows.workspace.clear();
        rows.planned = None;
    }
    out.sort_by(|a, b| a.1.total_cmp(&b.1));
    Ok(out)
}

/// Seconds per iteration, over enough iterations for a measurement.
fn seconds(trial: &mut impl FnMut(usize) -> Result<Option<f64>, Error>, best: f64) -> Result<Option<f64>, Error> {
    // The first iteration compiles kernels, so its time is not used.
    let Some(_) = trial(1)? else { return Ok(None) };
    let Some(once) = trial(1)? else { return Ok(None) };
    let iterations = (ENOUGH / once).clamp(1.0, MOST) as usize;
    if iterations == 1 || (once > TOO_SLOW.0 * best && once > TOO_SLOW.1) {
        return Ok(Some(once));
    }
    trial(iterations)
}

/// Seconds per iteration of a separate run, on the device's clock; `None` if it did not finish for lack of precision or
/// memory.
fn trial<T: Number>(
    rows: &mut Rows<T>,
    em: &mut Loop,
    shape: Shape,
    path: &'static dyn EmPath,
    start: &Mixture,
    options: &EmOptions,
) -> Result<Option<f64>, Error> {
    let Some(plan) = em::plan(rows, shape, path, options, 0)? else { return Ok(None) };
    let mut run = EmRun::new(start.clone());
    let outcome = em::iterate_on_path(&mut [Member { em, rows }], &[plan], &mut run, options, &mut |_, _| Ok(()))?;
    let on_device = run.on_device.filter(|_| outcome == Outcome::Finished);
    Ok(on_device.map(|on| on.time.as_secs_f64() / on.iterations as f64))
}

/// The same for iterations driven by the host, on the host's clock.
fn trial_by_host<T: Number>(rows: &mut Rows<T>, start: &Mixture, options: &EmOptions) -> Result<Option<f64>, Error> {
    let began = Instant::now();
    let mut mixture = start.clone();
    for iteration in 1..=options.max_iter {
        let statistics = match rows.pass_here(&mixture) {
            Err(Error::Memory { .. }) => return Ok(None),
            other => other?,
        };
        // An error that stops a trial will also stop the fit, which reports it.
        let step = crate::em::check(&statistics, iteration).is_ok();
        let step = step.then(|| m_step(&statistics, options.reg_covar, Some(&mixture)).ok()).flatten();
        let Some(step) = step else { return Ok(None) };
        mixture = step.mixture;
    }
    Ok(Some(began.elapsed().as_secs_f64() / options.max_iter as f64))
}

/// Everything that a timing depends on. Rows with weights have fewer paths, and fast mode has more.
fn key(gpu: &Gpu, shape: &Shape, weighted: bool, fast: bool) -> String {
    let Shape { kind, precision, n, k, d } = *shape;
    let (decade, (major, minor)) = (n.max(1).ilog10(), gpu.capability);
    let weighted = if weighted { " weighted" } else { "" };
    let fast = if fast { " fast" } else { "" };
    format!(
        "{kind} {precision} d={d} k={k} n=1e{decade}{weighted}{fast}, {} {major}.{minor} {}, driver {}, {}",
        gpu.name,
        gpu.choice.module.target,
        gpu.driver,
        *cache::VERSION
    )
}

/// See [`CudaEngine::tuning_file`](crate::CudaEngine::tuning_file).
pub(super) fn file() -> Option<std::path::PathBuf> {
    cache::file()
}

/// See [`CudaEngine::kept_tuning`](crate::CudaEngine::kept_tuning).
pub(super) fn kept(gpu: &Gpu, shape: &Shape) -> Option<Tuning> {
    let names: Vec<_> = path_names::ON_DEVICE.into_iter().chain([path_names::HOST]).collect();
    cache::Cache::open().find(&key(gpu, shape, false, false), &names)
}
