//! Online EM over a data set: several epochs of batches.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Instant;

use gmm_model::{Dataset, Draws, MStepRule, Mixture};

use super::{OnlineFit, OnlineOptions, OnlineStep};
use crate::em::EmRun;
use crate::fit::{summary, warn_of_run};
use crate::steps::storage;
use crate::{
    Engine, Error, Evaluation, Fit, FitOptions, FitRule, FitState, Init, Prior, Restart, Warning, evaluate, fit,
};

/// Options of [`fit_online`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochOptions {
    /// Number of rows in a batch, at least 1. `None`: the larger of 4096 and four times the number of free parameters.
    /// The excess of the loss over its minimum is about `η p / 2 B` nats for `p` parameters and `B` rows.
    pub batch_rows: Option<usize>,
    /// Largest number of passes over the data, at least 1.
    pub epochs: usize,
    /// See [`OnlineOptions::kappa`].
    pub kappa: f64,
    /// See [`OnlineOptions::offset`].
    pub offset: f64,
}

impl Default for EpochOptions {
    fn default() -> Self {
        let OnlineOptions { kappa, offset, .. } = OnlineOptions::default();
        Self { batch_rows: None, epochs: 10, kappa, offset }
    }
}

/// Batches of this many rows or more consist of this many runs of consecutive rows.
const RANGES_PER_BATCH: usize = 64;

/// Rows of the sample on which the start is found, at least: as many as k-means uses of large data.
const START_ROWS: usize = 32_768;

/// Fits by online EM: memory on the engine does not grow with the number of rows.
///
/// The start is the initialisation of `options` on a sample of the rows, the best of `n_init` if that is above 1. Each
/// epoch passes the batches in an order drawn from the seed. A batch is 64 ranges of consecutive rows that are spread
/// evenly over the data, so that sorted data do no harm. The fit ends once the mean log-likelihood of an epoch, each
/// batch taken before its step, changes by less than `tol`. `max_iter`, `autotune` and `fast` have no effect.
///
/// In the result, iterations and trace are by epoch; the log-likelihood is that of the final mixture on all rows.
///
/// `observer` is called after each step with the step, the epoch from 1, and the mixture.
///
/// Cost: per epoch one pass over the rows and their upload; a last pass for the log-likelihood.
///
/// # Errors
/// As for [`fit_observed`](crate::fit_observed) and [`OnlineFit::partial_fit`].
pub fn fit_online(
    engine: &dyn Engine,
    data: &Dataset,
    options: &FitOptions,
    online: &EpochOptions,
    observer: &mut dyn FnMut(&OnlineStep, usize, &Mixture) -> ControlFlow<()>,
) -> Result<Fit, Error> {
    let started = Instant::now();
    options.validate()?;
    if !options.rule.is_none() {
        let must = "left out for online EM, which averages statistics over many steps".to_owned();
        return Err(Error::Option { option: first_part(&options.rule), value: "set".to_owned(), must });
    }
    for (option, value) in [("batch", online.batch_rows.unwrap_or(1)), ("epochs", online.epochs)] {
        if value == 0 {
            return Err(Error::Option { option, value: "0".to_owned(), must: "at least 1".to_owned() });
        }
    }
    let EpochOptions { kappa, offset, epochs, .. } = *online;
    let step_options = OnlineOptions { reg_covar: options.reg_covar, precision: options.precision, kappa, offset };
    step_options.validate()?;
    let d = data.n_features();
    let batch_rows = online.batch_rows.unwrap_or_else(|| (4 * parameters(options, d)).max(4096));
    let (start, empty_at_start, mut warnings) = start(engine, data, options, batch_rows)?;
    let batches = Batches::new(data.n_rows(), batch_rows);
    let mut fit = OnlineFit::new(start, step_options)?;
    let mut run = EmRun::new(fit.mixture().clone());
    while run.iterations < epochs && !run.converged {
        let (mut log_likelihood, mut weight) = (0.0, 0.0);
        for index in batches.order(options.seed, run.iterations) {
            let Some(batch) = batches.rows(data, index)? else { continue };
            let step = fit.partial_fit(engine, &*batch)?;
            log_likelihood += step.mean_log_likelihood * step.weight;
            weight += step.weight;
            if observer(&step, run.iterations + 1, fit.mixture()).is_break() {
                return Err(Error::Interrupted { iterations: run.iterations });
            }
        }
        run.trace.push(log_likelihood / weight);
        run.iterations += 1;
        run.converged = run.last_change().abs() < options.tol;
    }
    run.mixture = fit.mixture().clone();
    run.empty = fit.empty().to_vec();
    let evaluation = evaluation(engine, data, &run, &batches, options)?;
    warn_of_run(&mut warnings, &run, options);
    let precision = engine.precision(options.precision.unwrap_or(data.rows().precision()));
    let place = (engine.name(), precision.name().to_owned());
    Ok(Fit {
        mixture: run.mixture.clone(),
        posterior: None,
        noise: None,
        summary: summary(&run, &evaluation, data.n_rows() as u64, (options, &MStepRule::default()), place),
        storage: fit.storage().cloned().unwrap_or_else(|| storage(&run.mixture, precision)),
        warnings,
        elapsed: started.elapsed(),
        on_device: None,
        near_components: None,
        tuning: None,
        fast: None,
        starts: Vec::new(),
        state: FitState { begun: 1, running: None, best: Some(Restart { index: 0, empty_at_start, run }) },
    })
}

/// The name of the first part that makes a rule another one than the plain one.
fn first_part(rule: &FitRule) -> &'static str {
    match rule {
        FitRule { truncated: Some(_), .. } => "truncated",
        FitRule { factors: Some(_), .. } => "factors",
        FitRule { noise: Some(_), .. } => "noise",
        FitRule { bayes: Some(_), .. } => "bayes",
        FitRule { labels: Some(_), .. } => "labels",
        FitRule { starved: Some(_), .. } => "starved",
        FitRule { prior, .. } if *prior != Prior::None => "prior",
        FitRule { fixed, .. } if !fixed.is_none() => "fixed",
        FitRule { shared, .. } if !shared.is_empty() => "shared",
        _ => "floor",
    }
}

/// Number of free parameters of the mixture.
fn parameters(options: &FitOptions, d: usize) -> usize {
    let k = options.n_components;
    options.covariance_type.free_parameters(k, d) + k * d + k - 1
}

/// The first mixture, the number of components that it left without rows, and the warnings of its initialisation.
fn start(
    engine: &dyn Engine,
    data: &Dataset,
    options: &FitOptions,
    batch_rows: usize,
) -> Result<(Mixture, usize, Vec<Warning>), Error> {
    if let Init::Given(mixture) = &options.init {
        return Ok((mixture.as_ref().clone(), 0, Vec::new()));
    }
    let rows = batch_rows.max(START_ROWS).max(64 * options.n_components);
    let sample = Batches::new(data.n_rows(), rows).rows(data, 0)?;
    let initial = FitOptions { max_iter: 0, autotune: false, fast: false, ..options.clone() };
    let found = fit(engine, sample.as_deref().unwrap_or(data), &initial)?;
    let empty = found.state.best.map_or(0, |best| best.empty_at_start);
    let warnings = found.warnings.into_iter().filter(|w| !matches!(w, Warning::NotConverged { .. })).collect();
    Ok((found.mixture, empty, warnings))
}

/// The totals of all rows, batch by batch.
fn evaluation(
    engine: &dyn Engine,
    data: &Dataset,
    run: &EmRun,
    batches: &Batches,
    options: &FitOptions,
) -> Result<Evaluation, Error> {
    let precision = options.precision.unwrap_or(data.rows().precision());
    let mut sum = Evaluation::NOTHING;
    for index in 0..batches.count {
        let Some(batch) = batches.rows(data, index)? else { continue };
        let found = evaluate::score(engine, &run.mixture, &*batch, precision)?;
        sum.log_likelihood += found.log_likelihood;
        sum.total_weight += found.total_weight;
        sum.entropy += found.entropy;
    }
    if sum.log_likelihood.is_nan() || sum.entropy.is_nan() {
        return Err(Error::Likelihood { iteration: run.iterations, value: f64::NAN });
    }
    Ok(sum)
}

/// A division of `n` rows into batches of nearly equal size.
struct Batches {
    n: usize,
    count: usize,
    /// Number of consecutive rows that stay together.
    run: usize,
}

impl Batches {
    /// Batches of at most about `rows` rows.
    fn new(n: usize, rows: usize) -> Self {
        let count = n.div_ceil(rows);
        Self { n, count, run: (n.div_ceil(count) / RANGES_PER_BATCH).max(1) }
    }

    /// The order of the batches in an epoch.
    fn order(&self, seed: u64, epoch: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.count).collect();
        let mut draws = Draws::for_purpose("online", seed, epoch as u64);
        for last in (1..self.count).rev() {
            order.swap(last, draws.index(last + 1));
        }
        order
    }

    /// The rows of positive weight of one batch; `None` if there are none. A batch of all rows is not copied.
    fn rows<'a>(&self, data: &'a Dataset, index: usize) -> Result<Option<Cow<'a, Dataset>>, Error> {
        if self.count == 1 {
            return Ok(Some(Cow::Borrowed(data)));
        }
        let runs = (index * self.run..self.n).step_by(self.count * self.run);
        let rows = runs.flat_map(|first| first..(first + self.run).min(self.n));
        let rows: Vec<usize> = rows.filter(|&row| data.weight(row) > 0.0).collect();
        if rows.is_empty() {
            return Ok(None);
        }
        let batch = data.select_rows(&rows);
        let Some(weights) = data.weights() else { return Ok(Some(Cow::Owned(batch))) };
        Ok(Some(Cow::Owned(batch.with_weights(rows.iter().map(|&row| weights[row]).collect())?)))
    }
}

#[cfg(test)]
mod tests {
    use ndarray::Array2;

    use super::*;

    #[test]
    fn batches_divide_the_rows_into_spread_parts_of_nearly_equal_size() {
        for (n, rows) in [(1, 5), (10, 10), (10, 3), (1000, 7), (100_000, 4096), (70_001, 35_000)] {
            let batches = Batches::new(n, rows);
            let data = Dataset::new(Array2::from_shape_fn((n, 1), |(i, _)| i as f64)).unwrap();
            let mut seen = vec![false; n];
            for index in 0..batches.count {
                let batch = batches.rows(&data, index).unwrap().unwrap();
                assert!(batch.n_rows().abs_diff(n / batches.count) <= batches.run, "{n} {rows}");
                for &row in batch.rows().to_f64().iter() {
                    assert!(!std::mem::replace(&mut seen[row as usize], true));
                }
                let mean = batch.rows().to_f64().mean().unwrap();
                let off = (mean - 0.5 * n as f64).abs();
                assert!(off <= (batches.count * batches.run) as f64, "spread over the data: {n} {rows} {off}");
            }
            assert!(seen.iter().all(|&seen| seen));
            let mut order = batches.order(3, 1);
            assert!(batches.count < 20 || order != batches.order(3, 2), "each epoch has an order of its own");
            order.sort_unstable();
            assert!(order.into_iter().eq(0..batches.count));
        }
    }
}
