//! `large-k`: EM, k-means and evaluation with thousands of components, over lists of the components near each tile of
//! rows and over all components, in turns.
//!
//! The data of a problem: `k` centres uniform in the unit cube; each row belongs to a centre drawn uniformly, and has
//! independent normal columns about it with a tenth of `k^(-1/d)` as standard deviation, the order of the distance between
//! neighbouring centres. EM starts at the true weights, at means off by a third of a deviation, and at 1.5 times the true
//! variances. Everything follows from the seed: first the centres, row by row of the array, then each row's centre and
//! columns, then the errors of the means.

use std::time::Instant;

use anyhow::{Result, ensure};
use gmm_bench::record::Csv;
use gmm_host::{CpuEngine, CudaEngine, Engine, EvaluateOptions, Fit, FitOptions, Init, Resident, fit};
use gmm_model::{CovarianceType, Covariances, Dataset, Draws, Mixture, Precision, Statistics, m_step};
use ndarray::{Array1, Array2, Array3};

use crate::turns::TurnOptions;

/// Rows, columns, components and kind.
const PROBLEMS: [(usize, usize, usize, CovarianceType); 3] = [
    (800_000, 3, 1000, CovarianceType::Full),
    (1_000_000, 8, 10_000, CovarianceType::Diag),
    (200_000, 2, 20_000, CovarianceType::Full),
];

/// Of fits from rows to model on a GPU.
const WHOLE: [(usize, usize, usize, CovarianceType); 4] = [
    (1_000_000, 3, 1000, CovarianceType::Full),
    (1_000_000, 3, 1000, CovarianceType::Tied),
    (1_000_000, 8, 10_000, CovarianceType::Diag),
    (200_000, 2, 20_000, CovarianceType::Full),
];

/// Rows and components are divided by this for a quick run.
const QUICK: usize = 10;

/// Largest error of a sum, relative to the largest entry of its array; f64.
const ALLOWED: f64 = 1e-12;

const COLUMNS: &str = "n,d,k,kind,precision,what,turn,ms,dense_ms,ratio,error";

/// Time EM, k-means and evaluation with thousands of components, with and without components that are left out.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: TurnOptions,
    /// Time fits on a GPU instead.
    #[arg(long)]
    cuda: bool,
}

impl Arguments {
    /// Opens the record of times for each `what`.
    fn record(&self, engine: &dyn Engine, what: &str) -> Result<Csv> {
        let title = format!("milliseconds per {what} with thousands of components, over lists and over all components");
        self.common.record(engine, if self.cuda { "large-k --cuda" } else { "large-k" }, &title, COLUMNS)
    }
}

/// Measures all problems and writes the record.
///
/// # Errors
/// If a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, threads, seed, .. } = &arguments.common;
    if arguments.cuda {
        return run_on_gpu(arguments);
    }
    let near = CpuEngine::new(*threads)?;
    let dense = CpuEngine::new(*threads)?.with_skipping(false);
    let mut record = arguments.record(&near, "pass")?;
    let mut wrong = 0;
    for (n, d, k, kind) in PROBLEMS {
        let (n, k) = if *quick { (n / QUICK, k / QUICK) } else { (n, k) };
        let (data, mut mixture) = problem((n, d, k), kind, *seed)?;
        let shift = vec![0.5; d];
        let mut near = near.load(&data, Precision::F64, &shift)?;
        let mut dense = dense.load(&data, Precision::F64, &shift)?;
        let mut push = |what: &str, turn: usize, [ms, dense_ms]: [f64; 2], error: f64| -> Result<()> {
            let ratio = dense_ms / ms;
            let line = format!("{n},{d},{k},{kind},f64,{what},{turn},{ms:.2},{dense_ms:.2},{ratio:.1},{error:.1e}");
            println!("{line}");
            wrong += usize::from(error > ALLOWED);
            record.push(&line)
        };
        for turn in 0..*turns {
            // Turn 0 of the first line contains the reordering of the rows.
            let [(found, a), (want, b)] = timed(near.as_mut(), dense.as_mut(), |rows| Ok(rows.pass(&mixture)?))?;
            push("em", turn, [a, b], error(&found, &want))?;
            mixture = m_step(&found, 1e-12, Some(&mixture))?.mixture;
        }
        for turn in 0..*turns {
            let centres = mixture.means();
            let [(found, a), (want, b)] =
                timed(near.as_mut(), dense.as_mut(), |rows| Ok(rows.nearest(CovarianceType::Spherical, centres)?))?;
            push("k-means", turn, [a, b], error(&found, &want))?;
        }
        for turn in 0..*turns {
            let [(found, a), (want, b)] = timed(near.as_mut(), dense.as_mut(), |rows| evaluate(rows, &mixture))?;
            ensure!(found.1 == want.1, "labels differ");
            push("evaluate", turn, [a, b], far(&found.0, &want.0))?;
        }
    }
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// Iterations of a fit on a GPU.
const ITERATIONS: usize = 20;

/// Largest relative difference of the log-likelihoods of two fits on a GPU.
const FITS_ALLOWED: [(Precision, f64); 2] = [(Precision::F64, 1e-10), (Precision::F32, 1e-5)];

/// Fits of [`ITERATIONS`] iterations on a GPU, over lists and over all components: an iteration on the device's clock, and the
/// whole call.
fn run_on_gpu(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let near = CudaEngine::new(0)?;
    let dense = near.clone().without_skipping();
    let mut record = arguments.record(&near, "iteration")?;
    let mut wrong = 0;
    for (n, d, k, kind) in PROBLEMS {
        let (n, k) = if *quick { (n / QUICK, k / QUICK) } else { (n, k) };
        let (data, start) = problem((n, d, k), kind, *seed)?;
        for (precision, allowed) in FITS_ALLOWED {
            let options = FitOptions {
                covariance_type: kind,
                precision: Some(precision),
                init: Init::Given(Box::new(start.clone())),
                max_iter: ITERATIONS,
                tol: 0.0,
                reg_covar: 1e-12,
                ..FitOptions::new(k)
            };
            for turn in 0..*turns {
                let timed = |engine: &CudaEngine| -> Result<(Fit, f64)> {
                    let began = Instant::now();
                    let found = fit(engine, &data, &options)?;
                    Ok((found, 1e3 * began.elapsed().as_secs_f64()))
                };
                let [(found, whole), (want, dense_whole)] = [timed(&near)?, timed(&dense)?];
                // Where the dense paths lose too much precision, the host makes the M-steps.
                let iteration = |of: &Fit| match &of.on_device {
                    Some(on) => 1e3 * on.time.as_secs_f64() / on.iterations as f64,
                    None => 1e3 * of.elapsed.as_secs_f64() / ITERATIONS as f64,
                };
                let path = |of: &Fit| of.on_device.as_ref().map_or("host", |on| on.path);
                let error = far(&[found.summary.log_likelihood], &[want.summary.log_likelihood]);
                wrong += usize::from(error > allowed);
                for (what, ms, dense_ms) in [
                    (
                        format!("iteration: {} beside {}", path(&found), path(&want)),
                        iteration(&found),
                        iteration(&want),
                    ),
                    (format!("fit of {ITERATIONS}"), whole, dense_whole),
                ] {
                    let ratio = dense_ms / ms;
                    let line = format!(
                        "{n},{d},{k},{kind},{precision},{what},{turn},{ms:.3},{dense_ms:.3},{ratio:.1},{error:.1e}"
                    );
                    println!("{line}");
                    record.push(&line)?;
                }
            }
        }
    }
    for (n, d, k, kind) in WHOLE {
        let (n, k) = if *quick { (n / QUICK, k / QUICK) } else { (n, k) };
        let data = problem((n, d, k), kind, *seed)?.0;
        let options = FitOptions {
            covariance_type: kind,
            max_iter: ITERATIONS,
            tol: 0.0,
            reg_covar: 1e-12,
            ..FitOptions::new(k)
        };
        let timed = |engine: &CudaEngine| -> Result<(f64, f64)> {
            let began = Instant::now();
            let found = fit(engine, &data, &options)?;
            Ok((found.summary.log_likelihood, 1e3 * began.elapsed().as_secs_f64()))
        };
        // Once: some take ten seconds.
        let (want, dense_ms) = timed(&dense)?;
        for turn in 0..*turns {
            let (found, ms) = timed(&near)?;
            let error = far(&[found], &[want]);
            wrong += usize::from(error > FITS_ALLOWED[0].1);
            let what = format!("fit of {ITERATIONS} from k-means");
            let line =
                format!("{n},{d},{k},{kind},f64,{what},{turn},{ms:.3},{dense_ms:.3},{:.1},{error:.1e}", dense_ms / ms);
            println!("{line}");
            record.push(&line)?;
        }
    }
    ensure!(wrong == 0, "{wrong} answers were wrong");
    println!("{}", record.path().display());
    Ok(())
}

/// The result and milliseconds on both residents, one after the other.
fn timed<A>(
    near: &mut dyn Resident,
    dense: &mut dyn Resident,
    run: impl Fn(&mut dyn Resident) -> Result<A>,
) -> Result<[(A, f64); 2]> {
    let once = |rows: &mut dyn Resident| -> Result<(A, f64)> {
        let began = Instant::now();
        let found = run(rows)?;
        Ok((found, 1e3 * began.elapsed().as_secs_f64()))
    };
    Ok([once(near)?, once(dense)?])
}

fn evaluate(rows: &mut dyn Resident, mixture: &Mixture) -> Result<(Vec<f64>, Vec<u32>)> {
    let n = rows.dim().0;
    let (mut densities, mut labels) = (vec![0.0; n], vec![0; n]);
    let want = EvaluateOptions {
        log_densities: Some(&mut densities),
        labels: Some(&mut labels),
        ..EvaluateOptions::default()
    };
    rows.evaluate(mixture, want)?;
    Ok((densities, labels))
}

/// The largest difference of two arrays, relative to the largest entry.
fn far(a: &[f64], b: &[f64]) -> f64 {
    let size = b.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    a.iter().zip(b).fold(0.0, |m: f64, (a, b)| m.max((a - b).abs())) / size
}

/// The largest error of the sums, each relative to the largest entry of its array.
pub(crate) fn error(a: &Statistics, b: &Statistics) -> f64 {
    let first = |s: &Statistics| s.first.iter().copied().collect::<Vec<_>>();
    let sums = [(&a.weight, &b.weight), (&a.second, &b.second)].map(|(a, b)| far(a, b));
    let likelihood = far(&[a.log_likelihood], &[b.log_likelihood]);
    sums.into_iter().chain([likelihood, far(&first(a), &first(b))]).fold(0.0, f64::max)
}

/// The rows and the first mixture: see the head of this file.
pub(crate) fn problem((n, d, k): (usize, usize, usize), kind: CovarianceType, seed: u64) -> Result<(Dataset, Mixture)> {
    let draws = &mut Draws::for_purpose("large-k", seed, 0);
    let centres = Array2::from_shape_simple_fn((k, d), || draws.uniform());
    let sd = 0.1 * (k as f64).powf(-1.0 / d as f64);
    let mut rows = Array2::zeros((n, d));
    for mut row in rows.outer_iter_mut() {
        let centre = centres.row(((draws.uniform() * k as f64) as usize).min(k - 1));
        row.iter_mut().zip(centre).for_each(|(x, c)| *x = c + sd * draws.normal());
    }
    let means = centres.mapv(|c| c + sd / 3.0 * draws.normal());
    let variance = 1.5 * sd * sd;
    let covariances = match kind {
        CovarianceType::Full => {
            Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| if i == j { variance } else { 0.0 }))
        }
        CovarianceType::Tied => Covariances::Tied(Array2::from_diag_elem(d, variance)),
        _ => Covariances::Diag(Array2::from_elem((k, d), variance)),
    };
    Ok((Dataset::new(rows)?, Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances)?))
}
