//! Whole fits of small data: wall clock from the call to the model, warm.

use std::time::Instant;

use anyhow::Result;
use gmm_host::{Engine, Fit, FitOptions, Init, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Dataset, Precision};

use super::check::{frobenius, of_fit};
use super::data::Source;
use super::timing::Limits;
use super::workloads::{FIT_ITERATIONS, SmallFit};
use crate::spread::Spread;

/// Calls before anything is measured.
const WARM_UP: usize = 5;
/// Calls for each slope that another workload may have: they are short.
const CALLS: usize = 5;

/// What a small fit's check and timing found.
pub(crate) struct FitOutcome {
    /// Seconds a call.
    pub(crate) time: Spread,
    /// Calls measured.
    pub(crate) calls: usize,
    /// Relative Frobenius error of the fitted parameters, the largest of weights, means and covariances.
    pub(crate) parameters: f64,
    /// Largest error of the log-likelihood per row at any iteration.
    pub(crate) log_likelihood: f64,
    /// What is wrong, if anything is; the times are then not to be shown.
    pub(crate) wrong: Option<String>,
}

/// Compares the fit with the reference engine's, then times it.
///
/// # Errors
/// What the engine says.
pub(crate) fn run(engine: &dyn Engine, case: &SmallFit, seed: u64, limits: Limits) -> Result<FitOutcome> {
    let source = Source::new(case.shape, seed)?;
    let data = source.rows(case.shape.n, Precision::F32)?;
    let init = match case.kmeans {
        true => Init::KMeans,
        false => Init::Given(Box::new(source.start(CovarianceType::Full, false)?)),
    };
    let options = FitOptions { tol: 0.0, max_iter: FIT_ITERATIONS, init, seed, ..FitOptions::new(case.shape.k) };
    let truth = fit(&ReferenceEngine, &data, &options)?;
    let found = fit(engine, &data, &options)?;
    let mut out = compare(&found, &truth);
    if out.wrong.is_none() {
        (out.time, out.calls) = time(engine, &data, &options, limits)?;
    }
    Ok(out)
}

fn compare(found: &Fit, truth: &Fit) -> FitOutcome {
    let (a, b) = (&found.summary.trace, &truth.summary.trace);
    let log_likelihood = match a.len() == b.len() && a.len() == FIT_ITERATIONS {
        true => a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max),
        false => f64::INFINITY,
    };
    let parameters = |fit: &Fit| {
        let (mixture, d) = (&fit.mixture, fit.mixture.n_features());
        let covariances = (0..mixture.n_components()).flat_map(|c| mixture.covariances().matrix(c, d));
        [mixture.weights().to_vec(), mixture.means().iter().copied().collect(), covariances.collect::<Vec<f64>>()]
    };
    let (ours, theirs) = (parameters(found), parameters(truth));
    let errors = ours.iter().zip(&theirs).map(|(a, b)| frobenius(a, b, 1.0));
    let parameters = errors.fold(0.0, f64::max);
    let allowed = of_fit(Precision::F32, FIT_ITERATIONS);
    let right = parameters <= allowed.sums && log_likelihood <= allowed.log_likelihood;
    let wrong = (!right).then(|| format!("parameters {parameters:.1e}, log-likelihood {log_likelihood:.1e}"));
    FitOutcome { time: Spread::of(vec![f64::NAN]), calls: 0, parameters, log_likelihood, wrong }
}

fn time(engine: &dyn Engine, data: &Dataset, options: &FitOptions, limits: Limits) -> Result<(Spread, usize)> {
    for _ in 0..WARM_UP {
        fit(engine, data, options)?;
    }
    let limits = Limits { repeats: CALLS * limits.repeats, ..limits };
    let (began, mut seconds) = (Instant::now(), Vec::new());
    while limits.more(seconds.len(), began) {
        let begin = Instant::now();
        let fitted = fit(engine, data, options)?;
        seconds.push(begin.elapsed().as_secs_f64());
        drop(fitted);
    }
    Ok((Spread::of(seconds.clone()), seconds.len()))
}
