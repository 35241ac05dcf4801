//! A fit from given parameters: from the call to the model, and what of that is loading and what iterations.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::Result;
use gmm_host::{EmOptions, Engine, FitOptions, Init, fit, run_em, shift};
use gmm_model::{Dataset, Mixture, Precision};

use crate::definition::Definition;
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::timing::{Limits, once};

/// scikit-learn's default.
pub(crate) const REG_COVAR: f64 = 1e-6;
/// A call that takes so long is not taken apart: its parts would take as long again.
const TOO_LONG: f64 = 1.0;

/// Times fits and notes them in the row.
///
/// # Errors
/// What the engine says.
pub(crate) fn time(
    engine: &dyn Engine,
    data: &Dataset,
    start: &Mixture,
    precision: Precision,
    definition: &Definition,
    row: &mut Row,
) -> Result<()> {
    let Definition { iterations, repeats, .. } = definition;
    let options = FitOptions {
        covariance_type: start.covariance_type(),
        init: Init::Given(Box::new(start.clone())),
        tol: 0.0,
        max_iter: *iterations,
        reg_covar: REG_COVAR,
        precision: Some(precision),
        ..FitOptions::new(start.n_components())
    };
    let call = || once(|| Ok(fit(engine, data, &options)?));
    let (first, fitted) = call()?;
    row.first_ms = ms(first);
    row.iterations = Some(fitted.summary.iterations);
    row.log_likelihood = fitted.summary.trace.last().and_then(|value| digits(*value, 12));
    row.way = fitted.on_device.map_or("", |on| on.way).to_owned();
    // One call tells enough of what takes long.
    let warm_up = if first > TOO_LONG { 0 } else { repeats.warm_up };
    for _ in 0..warm_up {
        call()?;
    }
    let limits = Limits { repeats: repeats.most, seconds: repeats.seconds };
    let (mut wall, mut device) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while limits.more(wall.len(), began) {
        let (seconds, fitted) = call()?;
        wall.push(seconds);
        device.extend(fitted.on_device.filter(|on| on.iterations == fitted.summary.iterations).map(|on| on.time));
    }
    let median = Spread::of(wall.clone()).median;
    if device.len() == wall.len() {
        let device = device.iter().map(std::time::Duration::as_secs_f64).collect();
        row.device_ms = ms(Spread::of(device).median);
    }
    row.time(wall);
    if median <= TOO_LONG {
        parts(engine, data, start, precision, definition, row)?;
    }
    Ok(())
}

/// Loading and iterations, one after the other, as often as the whole.
fn parts(
    engine: &dyn Engine,
    data: &Dataset,
    start: &Mixture,
    precision: Precision,
    definition: &Definition,
    row: &mut Row,
) -> Result<()> {
    let Definition { iterations, repeats, .. } = definition;
    let at = shift::of_data(data);
    let options =
        EmOptions { tol: 0.0, max_iter: *iterations, reg_covar: REG_COVAR, precision, autotune: false, fast: false };
    let limits = Limits { repeats: repeats.most, seconds: repeats.seconds };
    let (mut load, mut em) = (Vec::new(), Vec::new());
    let began = Instant::now();
    while limits.more(load.len(), began) {
        let (seconds, mut rows) = once(|| Ok(engine.load(data, precision, &at)?))?;
        load.push(seconds);
        let from = start.clone();
        let run = || Ok(run_em(rows.as_mut(), from, &options, 0, &mut |_| ControlFlow::Continue(()))?);
        em.push(once(run)?.0);
    }
    row.load_ms = ms(Spread::of(load).median);
    row.em_ms = ms(Spread::of(em).median);
    Ok(())
}
