//! Log-likelihoods of resident rows: one value, and one of many.

use anyhow::Result;
use gmm_host::{Engine, Likelihood};
use gmm_model::{Dataset, Mixture, Precision};

use crate::definition::Definition;
use crate::row::{Row, digits, ms};
use crate::spread::Spread;
use crate::timing::{Limits, calls, once};

/// Mixtures in a batch: as many as a CPU takes over a block of rows at a time.
const BATCH: usize = 64;
/// A value that takes so long is not asked for 64 times.
const TOO_LONG: f64 = 0.05;

/// Times values and notes them in the row.
///
/// # Errors
/// What the engine says.
pub(crate) fn time(
    engine: &dyn Engine,
    data: &Dataset,
    mixture: &Mixture,
    precision: Precision,
    definition: &Definition,
    row: &mut Row,
) -> Result<()> {
    let repeats = definition.repeats;
    let limits = Limits { repeats: repeats.most, seconds: repeats.seconds };
    let (load, mut likelihood) = once(|| Ok(Likelihood::new(engine, data, precision)?))?;
    row.load_ms = ms(load);
    let (first, value) = once(|| Ok(likelihood.value(mixture)?))?;
    row.first_ms = ms(first);
    row.log_likelihood = digits(value / data.n_rows() as f64, 12);
    let seconds = calls(limits, || Ok(likelihood.value(mixture).map(drop)?))?;
    let median = Spread::of(seconds.clone()).median;
    row.time(seconds);
    if median <= TOO_LONG {
        let sets = vec![mixture.clone(); BATCH];
        let seconds = calls(limits, || Ok(likelihood.batch(&sets).map(drop)?))?;
        row.batch_ms = ms(Spread::of(seconds).median / BATCH as f64);
    }
    Ok(())
}
