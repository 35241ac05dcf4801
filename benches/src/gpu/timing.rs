//! Time of one EM iteration: the slope between runs of few and of more iterations.
//!
//! What a run costs once (parameters in, mixture out, a graph instantiated) is in both and drops out.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use anyhow::Result;
pub(crate) use gmm_bench::timing::Limits;
use gmm_host::{EmOptions, EmRun, Resident, run_em};
use gmm_model::{Mixture, Precision};

use crate::spread::Spread;

/// The way of runs that went several ways.
const SEVERAL: &str = "several ways";

/// scikit-learn's default.
pub(crate) const REG_COVAR: f64 = 1e-6;

/// Seconds that the additional iterations of the longer run should take: far above clocks and launches.
const LONGER_BY: f64 = 0.02;
/// Iterations beyond which EM has nothing left to change.
const MOST: usize = 200;

/// Seconds per EM iteration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// On the device's clock where the engine tells.
    pub(crate) device: Option<Spread>,
    /// On the wall's clock.
    pub(crate) wall: Spread,
    /// Slopes measured.
    pub(crate) slopes: usize,
    /// Iterations of the shorter and of the longer run.
    pub(crate) iterations: [usize; 2],
    /// How the iterations ran: [`way`], or [`SEVERAL`] where runs differ.
    pub(crate) way: &'static str,
}

impl Times {
    /// Device time where there is one, else wall-clock time.
    pub(crate) fn best(&self) -> Spread {
        self.device.unwrap_or(self.wall)
    }

    /// Whose clock [`best`](Self::best) is.
    pub(crate) const fn clock(&self) -> &'static str {
        if self.device.is_some() { "device" } else { "wall" }
    }
}

/// Device time of all of a run's iterations, where the engine did them all by itself.
fn device_time(run: &EmRun) -> Option<Duration> {
    run.on_device.filter(|d| d.iterations == run.iterations).map(|d| d.time)
}

/// How a run's iterations ran, in the engine's words: the last of them, where it did them all by itself. `host` where the host did
/// all, `device and host` where it went on.
pub(crate) fn way(run: &EmRun) -> &'static str {
    match run.on_device {
        Some(on) if on.iterations == run.iterations => on.path,
        Some(_) => "device and host",
        None => "host",
    }
}

/// Measures slopes over resident rows, always from the same start, in a precision and with digits to be given away or none.
///
/// # Errors
/// What the engine says.
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
    // The first guess holds what a run costs once; the second does not.
    let enough = |one: f64| ((LONGER_BY / one).ceil() as usize).clamp(1, MOST);
    let guess = enough(one);
    let longer = if guess > 1 { run(1 + guess)?.0 } else { 2.0 * one };
    let by = enough(((longer - one) / guess as f64).max(1e-9));
    let few = by.div_ceil(10);
    let more = few + by;

    let (mut wall, mut device) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while limits.more(wall.len(), began) {
        let (short, long) = (run(few)?, run(more)?);
        let slope = |short: f64, long: f64| (long - short) / by as f64;
        wall.push(slope(short.0, long.0));
        device.extend(short.1.zip(long.1).map(|(short, long)| slope(short, long)));
    }
    let slopes = wall.len();
    let device = (device.len() == slopes).then(|| Spread::of(device));
    let way = way.expect("some runs");
    Ok(Times { device, wall: Spread::of(wall), slopes, iterations: [few, more], way })
}
