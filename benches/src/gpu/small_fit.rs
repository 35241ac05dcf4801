//! Times whole fits of small data: wall-clock time from the call to the model, after warm-up.

use anyhow::Result;
use gmm_bench::difference::{frobenius, largest_of};
use gmm_bench::parameters::Parameters;
use gmm_bench::timing::once;
use gmm_host::{Engine, Fit, FitOptions, Init, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Precision};

use super::check::{Errors, of_fit};
use super::data::Source;
use super::line::Line;
use super::timing::Limits;
use super::workloads::{FIT_ITERATIONS, SmallFit};

/// Number of warm-up calls.
const WARM_UP: usize = 5;
/// Calls measured for each slope that another workload may have, since these calls are short.
const CALLS: usize = 5;

/// Compares the fit with the reference engine's, then times it.
///
/// # Errors
/// Any error of the engine.
pub(crate) fn run(engine: &dyn Engine, case: &SmallFit, seed: u64, limits: Limits, line: &mut Line) -> Result<()> {
    let source = Source::new(case.shape, seed)?;
    let data = source.rows(case.shape.n, Precision::F32)?;
    let init = match case.kmeans {
        true => Init::KMeans,
        false => Init::Given(Box::new(source.start(CovarianceType::Full, false)?)),
    };
    let options = FitOptions { tol: 0.0, max_iter: FIT_ITERATIONS, init, seed, ..FitOptions::new(case.shape.k) };
    let truth = fit(&ReferenceEngine, &data, &options)?;
    let errors = errors(&fit(engine, &data, &options)?, &truth);
    line.errors[2] = Some(errors);
    let right = errors.within(of_fit(Precision::F32, FIT_ITERATIONS));
    let (parameters, log_likelihood) = (errors.weight, errors.log_likelihood);
    let wrong = (!right).then(|| format!("parameters {parameters:.1e}, log-likelihood {log_likelihood:.1e}"));
    if line.judge(case.shape.n, wrong) {
        for _ in 0..WARM_UP {
            fit(engine, &data, &options)?;
        }
        let limits = Limits { repeats: CALLS * limits.repeats, ..limits };
        line.time("wall", limits.collect(|| Ok(once(|| Ok(fit(engine, &data, &options)?))?.0))?);
    }
    Ok(())
}

/// The largest relative Frobenius error of weights, means and covariances, stored in all three fields, and the largest
/// error of the log-likelihood per row at any iteration.
fn errors(found: &Fit, truth: &Fit) -> Errors {
    let [ours, theirs] = [found, truth].map(|fit| Parameters::of(&fit.mixture));
    let error = ours.error_by(&theirs, |a, b| frobenius(a, b, 1.0));
    let (a, b) = (&found.summary.trace, &truth.summary.trace);
    let log_likelihood = if b.len() == FIT_ITERATIONS { largest_of(a, b, |a, b| (a - b).abs()) } else { f64::INFINITY };
    Errors { weight: error, first: error, second: error, log_likelihood }
}
