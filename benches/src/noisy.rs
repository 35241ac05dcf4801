//! `noisy`: passes over rows with measurement errors (extreme deconvolution) on a GPU and on the CPU, in turns.
//!
//! The data of a problem: `k` centres uniform in a cube of side 10; each true row belongs to a centre drawn uniformly, and
//! has independent standard normal columns about it. A column's error has a standard deviation uniform in `[0, 1)`, and is
//! added to it; the sum is rounded to single precision. Correlated errors have a correlation of one half. The pass is at the
//! true weights, at means off by a tenth, and at covariances `I + 1/2`, or their diagonals.

use std::time::Instant;

use anyhow::{Result, ensure};
use gmm_host::{CpuEngine, CudaEngine, Engine, EvaluateOptions, Resident};
use gmm_model::deconvolution::MeasurementErrors;
use gmm_model::{CovarianceType, Covariances, Dataset, Draws, Mixture, Precision, Statistics};
use ndarray::{Array1, Array2, Array3};

use crate::turns::TurnOptions;

/// Rows, columns, components, kind, and whether errors are correlated.
const PROBLEMS: [(usize, usize, usize, CovarianceType, bool); 5] = [
    (1_000_000, 6, 64, CovarianceType::Full, false),
    (1_000_000, 3, 64, CovarianceType::Full, false),
    (1_000_000, 6, 64, CovarianceType::Diag, false),
    (1_000_000, 6, 64, CovarianceType::Full, true),
    (100_000, 16, 64, CovarianceType::Full, false),
];

/// Rows are divided by this for a quick run.
const QUICK: usize = 100;

/// Largest difference of a sum or a log density from the CPU's, relative to the largest entry of its array: both are in f64.
const ALLOWED: f64 = 1e-11;

const COLUMNS: &str = "n,d,k,kind,errors,what,turn,ms,cpu_ms,ratio,error";

/// Time passes over rows with measurement errors on a GPU and on the CPU.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: TurnOptions,
}

/// Measures all problems and writes the record.
///
/// # Errors
/// If there is no GPU, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, threads, seed, .. } = &arguments.common;
    let (gpu, cpu) = (CudaEngine::new(0)?, CpuEngine::new(*threads)?);
    let title = "milliseconds per pass over rows with measurement errors, on the GPU and on the CPU";
    let mut record = arguments.common.record(&gpu, "noisy", title, COLUMNS)?;
    for (n, d, k, kind, is_correlated) in PROBLEMS {
        let n = if *quick { n / QUICK } else { n };
        let (data, mixture) = problem((n, d, k), kind, is_correlated, *seed)?;
        let shift = vec![5.0; d];
        let load = |engine: &dyn Engine| engine.load(&data, Precision::F32, &shift);
        let (mut there, mut here) = (load(&gpu)?, load(&cpu)?);
        // The answers first.
        let of_pass = error(&there.pass(&mixture)?, &here.pass(&mixture)?);
        let of_densities = far(&densities(there.as_mut(), &mixture)?, &densities(here.as_mut(), &mixture)?);
        ensure!(of_pass <= ALLOWED && of_densities <= ALLOWED, "wrong answers: {of_pass:e}, {of_densities:e}");
        let errors = if is_correlated { "correlated" } else { "independent" };
        let mut push = |what: &str, turn: usize, [ms, cpu_ms]: [f64; 2], error: f64| -> Result<()> {
            let ratio = cpu_ms / ms;
            let line = format!("{n},{d},{k},{kind},{errors},{what},{turn},{ms:.3},{cpu_ms:.3},{ratio:.1},{error:.1e}");
            println!("{line}");
            record.push(&line)
        };
        for turn in 0..*turns {
            let pass = |rows: &mut dyn Resident| {
                rows.pass(&mixture)?;
                Ok(())
            };
            push("pass", turn, [timed(there.as_mut(), pass)?, timed(here.as_mut(), pass)?], of_pass)?;
        }
        for turn in 0..*turns {
            let score = |rows: &mut dyn Resident| densities(rows, &mixture).map(drop);
            push("densities", turn, [timed(there.as_mut(), score)?, timed(here.as_mut(), score)?], of_densities)?;
        }
    }
    println!("{}", record.path().display());
    Ok(())
}

/// Milliseconds.
fn timed(rows: &mut dyn Resident, work: impl Fn(&mut dyn Resident) -> Result<()>) -> Result<f64> {
    let began = Instant::now();
    work(rows)?;
    Ok(1e3 * began.elapsed().as_secs_f64())
}

fn densities(rows: &mut dyn Resident, mixture: &Mixture) -> Result<Vec<f64>> {
    let mut found = vec![0.0; rows.dim().0];
    rows.evaluate(mixture, EvaluateOptions { log_densities: Some(&mut found), ..EvaluateOptions::default() })?;
    Ok(found)
}

/// The largest difference of two arrays, relative to the largest entry.
fn far(a: &[f64], b: &[f64]) -> f64 {
    let size = b.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / size
}

fn error(a: &Statistics, b: &Statistics) -> f64 {
    let first = |s: &Statistics| s.first.iter().copied().collect::<Vec<_>>();
    let sums = [(&a.weight, &b.weight), (&a.second, &b.second)].map(|(a, b)| far(a, b));
    let likelihood = far(&[a.log_likelihood], &[b.log_likelihood]);
    sums.into_iter().chain([likelihood, far(&first(a), &first(b))]).fold(0.0, f64::max)
}

/// The rows and the mixture: see the head of this file.
fn problem(
    (n, d, k): (usize, usize, usize),
    kind: CovarianceType,
    is_correlated: bool,
    seed: u64,
) -> Result<(Dataset, Mixture)> {
    let draws = &mut Draws::for_purpose("noisy", seed, 0);
    let centres = Array2::from_shape_simple_fn((k, d), || 10.0 * draws.uniform());
    let (mut rows, mut deviations) = (Array2::<f32>::zeros((n, d)), Array2::<f64>::zeros((n, d)));
    for (mut row, mut deviations) in rows.outer_iter_mut().zip(deviations.outer_iter_mut()) {
        let centre = centres.row(((draws.uniform() * k as f64) as usize).min(k - 1));
        let common = draws.normal();
        for ((x, deviation), c) in row.iter_mut().zip(&mut deviations).zip(centre) {
            *deviation = draws.uniform();
            let own = draws.normal();
            let error = if is_correlated { std::f64::consts::FRAC_1_SQRT_2 * (common + own) } else { own };
            *x = (c + draws.normal() + *deviation * error) as f32;
        }
    }
    let errors = if is_correlated {
        let entry = |(row, i, j): (usize, usize, usize)| {
            deviations[[row, i]] * deviations[[row, j]] * if i == j { 1.0 } else { 0.5 }
        };
        MeasurementErrors::from_covariances(&Array3::from_shape_fn((n, d, d), entry))?
    } else {
        MeasurementErrors::from_deviations(deviations)?
    };
    let means = centres.mapv(|c| c + 0.1 * draws.normal());
    let covariances = match kind {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { 1.5 } else { 0.5 }))
        }
        _ => Covariances::Diag(Array2::from_elem((k, d), 1.5)),
    };
    let data = Dataset::new(rows)?.with_measurement_errors(errors)?;
    Ok((data, Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?))
}
