//! Measures the time of one EM iteration: the slope between a run of few and a run of more iterations.
//!
//! One-time costs of a run (copying parameters in and the mixture out, instantiating a graph) are part of both and
//! cancel.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
pub(crate) use gmm_bench::REG_COVAR;
use gmm_bench::spread::Spread;
pub(crate) use gmm_bench::timing::Limits;
use gmm_host::{EmOptions, EmRun, Resident, run_em};
use gmm_model::{Mixture, Precision};

/// The code path's name if runs took different paths.
const SEVERAL: &str = "several ways";

/// Seconds that the additional iterations of the longer run should take: far above the clock's resolution and launch
/// latency.
const LONGER_BY: f64 = 0.02;
/// Maximum number of additional iterations: beyond it EM has converged.
const MOST: usize = 200;

/// Seconds per EM iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// By the device's clock, if the engine reports it.
    pub(crate) device: Option<Spread>,
    /// In wall-clock time.
    pub(crate) wall: Spread,
    /// Number of slopes measured.
    pub(crate) slopes: usize,
    /// Iterations of the shorter and of the longer run.
    pub(crate) iterations: [usize; 2],
    /// The iterations' code path: [`way`], or [`SEVERAL`] if runs differ.
    pub(crate) way: &'static str,
}

impl Times {
    /// Device time if there is one, else wall-clock time.
    pub(crate) fn best(&self) -> Spread {
        self.device.unwrap_or(self.wall)
    }

    /// The clock of [`best`](Self::best): `device` or `wall`.
    pub(crate) const fn clock(&self) -> &'static str {
        if self.device.is_some() { "device" } else { "wall" }
    }
}

/// Device time of a run's iterations, if the device ran all of them.
fn device_time(run: &EmRun) -> Option<Duration> {
    run.on_device.filter(|d| d.iterations == run.iterations).map(|d| d.time)
}

/// The code path of a run's iterations: the engine's name of it if the device ran all iterations, `host` if it ran
/// none, and `device and host` if the host ran the rest.
pub(crate) fn way(run: &EmRun) -> &'static str {
    match run.on_device {
        Some(on) if on.iterations == run.iterations => on.path,
        Some(_) => "device and host",
        None => "host",
    }
}

/// Measures slopes over resident rows, always from the same start, in the given precision, with or without `fast`.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn em(
    rows: &mut dyn Resident,
    start: &Mixture,
    (precision, fast): (Precision, bool),
    limits: Limits,
) -> Result<Times> {
    let mut way: Option<&'static str> = None;
    let mut run = |iterations: usize| -> Result<(f64, Option<f64>)> {
        let start = start.clone();
        let options =
            EmOptions { tol: 0.0, max_iter: iterations, reg_covar: REG_COVAR, precision, autotune: false, fast };
        let begin = Instant::now();
        let done = run_em(rows, start, &options, 0, &mut |_| ControlFlow::Continue(()))?;
        let seconds = begin.elapsed().as_secs_f64();
        let of_run = self::way(&done);
        way = Some(if way.is_none_or(|before| before == of_run) { of_run } else { SEVERAL });
        Ok((seconds, device_time(&done).map(|time| time.as_secs_f64())))
    };
    run(1)?;
    let one = run(1)?.0;
    // The first guess includes a run's one-time costs; the second does not.
    let enough = |one: f64| ((LONGER_BY / one).ceil() as usize).clamp(1, MOST);
    let guess = enough(one);
    let longer = if guess > 1 { run(1 + guess)?.0 } else { 2.0 * one };
    let by = enough(((longer - one) / guess as f64).max(1e-9));
    let few = by.div_ceil(10);
    let more = few + by;

    let measured = limits.collect(|| {
        let (short, long) = (run(few)?, run(more)?);
        let slope = |short: f64, long: f64| (long - short) / by as f64;
        Ok((slope(short.0, long.0), short.1.zip(long.1).map(|(short, long)| slope(short, long))))
    })?;
    let (wall, device): (Vec<f64>, Vec<Option<f64>>) = measured.into_iter().unzip();
    let device: Vec<f64> = device.into_iter().flatten().collect();
    let slopes = wall.len();
    let device = (device.len() == slopes).then(|| Spread::of(device));
    let way = way.expect("some runs");
    Ok(Times { device, wall: Spread::of(wall), slopes, iterations: [few, more], way })
}
