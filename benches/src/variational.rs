//! `variational`: an iteration of variational Bayes beside one of EM, in turns.
//!
//! The data are those of `missing` without holes; both begin at its start. Everything follows from the seed.

use anyhow::{Result, ensure};
use gmm_host::{BayesOptions, Engine, FitOptions, FitRule, Init, ReferenceEngine, WeightFamily, fit};
use gmm_model::{CovarianceType, Dataset, Precision};
use ndarray::s;

use crate::missing::{problem, start};
use crate::turns::{EngineTurns, TurnOptions};

/// Rows, columns and components, and the iterations that a long fit has more than a short one; the first two are those of the
/// comparison with scikit-learn.
const SIZES: [(usize, usize, usize, usize); 4] =
    [(100_000, 13, 8, 3_000), (100_000, 30, 30, 600), (500_000, 13, 64, 300), (1_000_000, 16, 16, 300)];

/// Rows of a quick run.
const QUICK: usize = 10_000;

/// Rows and iterations that the reference makes too.
const CHECKED: (usize, usize) = (1_003, 3);

/// Iterations of a short fit.
const SHORT: usize = 10;

/// Largest error of a lower bound.
const ALLOWED: [(Precision, f64); 2] = [(Precision::F64, 1e-11), (Precision::F32, 2e-6)];

const COLUMNS: &str = "n,d,k,kind,precision,prior,turn,ms,em_ms,ratio,error";

/// Measures all sizes, kinds, precisions and priors, and writes the record.
///
/// # Errors
/// If a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &EngineTurns) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let title = "milliseconds of an iteration of variational Bayes and of EM";
    let (engine, mut record) = arguments.open("variational", title, COLUMNS)?;
    let mut wrong = 0;
    for (n, d, k, more) in SIZES {
        let more = if *quick { 100 } else { more };
        let n = if *quick { QUICK } else { n };
        let (rows, means) = problem((n, d, k), *seed);
        let part = Dataset::new(rows.slice(s![..CHECKED.0.min(n), ..]).to_owned())?;
        let rows = Dataset::new(rows)?;
        let priors = [WeightFamily::Dirichlet, WeightFamily::DirichletProcess];
        for (kind, (precision, allowed)) in
            CovarianceType::ALL.into_iter().flat_map(|kind| ALLOWED.map(|precision| (kind, precision)))
        {
            let em = FitOptions {
                covariance_type: kind,
                precision: Some(precision),
                init: Init::Given(Box::new(start(&means, kind)?)),
                tol: 0.0,
                ..FitOptions::new(k)
            };
            for prior in priors {
                let rule = FitRule { bayes: Some(BayesOptions::new(prior)), ..FitRule::none() };
                let bayes = FitOptions { rule, ..em.clone() };
                let error = error(&*engine, &part, &bayes)?;
                wrong += usize::from(error > allowed);
                for turn in 0..*turns {
                    let ms = iteration(&*engine, &rows, &bayes, more)?;
                    let em_ms = iteration(&*engine, &rows, &em, more)?;
                    let ratio = ms / em_ms;
                    let line = format!(
                        "{n},{d},{k},{kind},{precision},{prior:?},{turn},{ms:.4},{em_ms:.4},{ratio:.2},{error:.1e}"
                    );
                    println!("{line}");
                    record.push(&line)?;
                }
            }
        }
    }
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// Milliseconds of an iteration: what a fit of `more` iterations more than a short one takes longer.
fn iteration(engine: &dyn Engine, rows: &Dataset, options: &FitOptions, more: usize) -> Result<f64> {
    let ms = |max_iter: usize| -> Result<f64> {
        let fit = fit(engine, rows, &FitOptions { max_iter, ..options.clone() })?;
        ensure!(fit.summary.iterations == max_iter, "the fit stopped after {} iterations", fit.summary.iterations);
        Ok(1e3 * fit.elapsed.as_secs_f64())
    };
    Ok((ms(SHORT + more)? - ms(SHORT)?) / more as f64)
}

/// The largest difference of the lower bounds from the reference's, relative to their size.
fn error(engine: &dyn Engine, rows: &Dataset, options: &FitOptions) -> Result<f64> {
    let options = FitOptions { max_iter: CHECKED.1, ..options.clone() };
    let got = fit(engine, rows, &options)?.summary.trace;
    let want = fit(&ReferenceEngine, rows, &FitOptions { precision: Some(Precision::F64), ..options })?.summary.trace;
    ensure!(got.len() == want.len(), "{} bounds, not {}", got.len(), want.len());
    Ok(got.iter().zip(&want).map(|(a, b)| (a - b).abs() / b.abs().max(1.0)).fold(0.0, f64::max))
}
