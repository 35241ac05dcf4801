//! Times likelihoods of fixed rows under varying parameters: one set, batches, gradients, and a million evaluations.

use std::time::Instant;

use anyhow::Result;
use gmm_bench::timing::calls;
use gmm_host::{ComponentCache, ComponentChange, Engine, Likelihood, shift};
use gmm_model::{Dataset, Mixture, Precision};

use super::check::{Errors, statistics};
use super::data::Source;
use super::line::Line;
use super::timing::Limits;
use super::workloads::{Evaluated, Evaluations, tolerance};
use gmm_bench::spread::Spread;

/// Number of parameter sets whose values are compared with the reference.
const CHECKED: usize = 3;
/// Number of chains of the simulated sampler, each of which evaluates one parameter set.
const CHAINS: usize = 64;
/// The number of evaluations to which the longest workload is extrapolated.
const MILLION: f64 = 1e6;

/// Checks against the reference, then times.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn run(
    engine: &dyn Engine,
    case: &Evaluations,
    source: &Source,
    limits: Limits,
    line: &mut Line,
) -> Result<()> {
    let data = source.rows(case.shape.n, Precision::F32)?;
    let start = source.start(case.kind, false)?;
    let mut likelihood = Likelihood::new(engine, &data, Precision::F32)?;
    let (errors, wrong) = check(engine, case, &data, &start, &mut likelihood)?;
    line.errors[0] = Some(errors);
    if !line.judge(case.shape.n, wrong) {
        return Ok(());
    }
    let seconds = match case.what {
        Evaluated::Sets(sets) => {
            let sets = moved(&start, sets)?;
            let each = calls(limits, || Ok(likelihood.batch(&sets).map(drop)?))?;
            each.into_iter().map(|seconds| seconds / sets.len() as f64).collect()
        }
        Evaluated::Gradient => {
            let value = Spread::of(calls(limits, || Ok(likelihood.value(&start).map(drop)?))?).median;
            let each = calls(limits, || Ok(likelihood.value_and_gradient(&start).map(drop)?))?;
            line.note = format!("{:.2} values", Spread::of(each.clone()).median / value);
            each
        }
        Evaluated::Step => {
            let mut cache = ComponentCache::new(&mut likelihood, start.clone())?;
            let (mut steps, k) = (1, start.n_components());
            calls(limits, || {
                let means: Vec<f64> = start.means().row(steps % k).mapv(|m| m + 1e-3 * (steps % 1000) as f64).to_vec();
                let step = ComponentChange { mean: Some(&means), ..ComponentChange::default() };
                cache.update_component(&mut likelihood, steps % k, step)?;
                steps += 1;
                Ok(())
            })?
        }
        Evaluated::Million => {
            let mut evaluations = 0;
            let began = Instant::now();
            // As for a sampler's moving chains, mixtures are made from new parameters and checked each time.
            let longer = Limits { repeats: usize::MAX, seconds: 2.0 * limits.seconds };
            let each = calls(longer, || {
                let sets = moved_by(&start, CHAINS, evaluations)?;
                evaluations += CHAINS;
                Ok(likelihood.batch(&sets).map(drop)?)
            })?;
            let (took, done) = (began.elapsed().as_secs_f64(), evaluations as f64);
            line.note = format!("a million: {:.2} s, from {done} in {took:.2} s", MILLION * took / done);
            each.into_iter().map(|seconds| seconds / CHAINS as f64).collect()
        }
    };
    line.time("wall", seconds);
    Ok(())
}

/// Checks values, evaluated singly and in a batch, and the gradient's pass against the reference.
fn check(
    engine: &dyn Engine,
    case: &Evaluations,
    data: &Dataset,
    start: &Mixture,
    likelihood: &mut Likelihood,
) -> Result<(Errors, Option<String>)> {
    let rows = data.rows().to_f64();
    let allowed = tolerance(Precision::F32);
    let sets = moved(start, if let Evaluated::Sets(sets) = case.what { sets } else { CHAINS })?;
    let values = likelihood.batch(&sets)?;
    let truth = statistics(&sets[0], rows.view());
    let found = engine.load(data, Precision::F32, &shift::of_data(data))?.expectation(&sets[0])?;
    let mut errors = Errors::of(&found, &truth, 1.0);
    let pass = errors.sums() <= allowed.sums && errors.log_likelihood <= allowed.log_likelihood;
    let mut wrong = (!pass).then(|| format!("the gradient's pass: {errors}"));
    for i in (0..CHECKED.min(sets.len())).map(|i| i * (sets.len() - 1) / CHECKED.max(2)) {
        let truth = statistics(&sets[i], rows.view()).log_likelihood;
        let alone = likelihood.value(&sets[i])?;
        let mixed = ComponentCache::new(likelihood, sets[i].clone())?.value();
        let all = [values[i], alone, mixed].map(|value| ((value - truth) / rows.nrows() as f64).abs());
        errors.log_likelihood =
            all.into_iter().fold(errors.log_likelihood, |most, error| if error > most { error } else { most });
        // False also if an error is NaN.
        let right = all.into_iter().all(|error| error <= allowed.log_likelihood);
        if !right {
            let why = format!("set {i}: {}, alone {alone}, mixed {mixed}, in truth {truth}", values[i]);
            wrong.get_or_insert(why);
        }
    }
    Ok((errors, wrong))
}

/// Makes `sets` parameter sets near a start, all different.
fn moved(start: &Mixture, sets: usize) -> Result<Vec<Mixture>> {
    moved_by(start, sets, 0)
}

fn moved_by(start: &Mixture, sets: usize, first: usize) -> Result<Vec<Mixture>> {
    (first..first + sets)
        .map(|i| {
            let means = start.means().mapv(|m| m + 1e-3 * (i % 1000) as f64);
            Ok(Mixture::new(start.weights().to_owned(), means, start.covariances().clone())?)
        })
        .collect()
}
