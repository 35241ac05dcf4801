//! `truncated`: passes over all components, over those near a tile of rows, and truncated ones, as the number of components
//! grows; then fits by truncated EM beside EM from the same start.
//!
//! The data are those of `large-k`; see there. The starts of the fits are rows drawn at random.

use std::time::Instant;

use anyhow::{Result, ensure};
use gmm_bench::record::Csv;
use gmm_host::{
    CpuEngine, CudaEngine, Engine, EvaluateOptions, Fit, FitOptions, FitRule, Init, Resident, Search, TruncatedOptions,
    fit,
};
use gmm_model::{CovarianceModel, CovarianceType, Dataset, Mixture, Precision};
use ndarray::Array1;

use crate::large_k::problem;
use crate::turns::TurnOptions;

/// Numbers of components of the passes.
const GROWTH: [usize; 10] = [1, 10, 100, 300, 1000, 3000, 10_000, 20_000, 35_000, 50_000];

/// Rows and columns of the passes.
const SHAPES: [(usize, usize); 2] = [(200_000, 3), (100_000, 32)];

/// Rows, columns, components, and components of a row, of the fits; whether EM over all components is run beside it.
const FITS: [(usize, usize, usize, usize, bool); 4] = [
    (100_000, 16, 1000, 3, true),
    (100_000, 16, 1000, 6, true),
    (100_000, 64, 2000, 3, true),
    (1_000_000, 64, 50_000, 3, false),
];

/// Components of a row in the passes.
const LISTED: usize = 3;

/// Iterations of a fit.
const ITERATIONS: usize = 40;

const COLUMNS: &str = "sweep,engine,covariance,precision,n,d,k,listed,samples,ms,tried,seconds,em_seconds,log_likelihood,\
                       em_log_likelihood,below_em";

/// Time truncated EM beside EM over all components, and compare the likelihoods that they reach.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: TurnOptions,
    /// diag, spherical, full, or factors:H. Others than diag up to 3000 components in 32 columns, and a single fit.
    #[arg(long, default_value = "diag")]
    covariance: CovarianceModel,
    /// Time iterations of fits on a GPU instead of passes, and the fits there.
    #[arg(long)]
    cuda: bool,
}

/// A kind of pass over the rows.
struct Pass {
    name: String,
    rows: Box<dyn Resident>,
    /// That of a truncated pass.
    search: Option<Search>,
}

impl Pass {
    /// Milliseconds of a pass, and the log-likelihood or its bound.
    fn pass(&mut self, mixture: &Mixture) -> Result<(f64, f64)> {
        let began = Instant::now();
        let found = match &mut self.search {
            Some(search) => {
                let pass = self.rows.pass_truncated(mixture, search)?;
                *search = pass.search;
                pass.statistics
            }
            None => self.rows.pass(mixture)?,
        };
        Ok((1e3 * began.elapsed().as_secs_f64(), found.log_likelihood))
    }
}

/// Measures passes and fits, and writes the record.
///
/// # Errors
/// If a file cannot be written, or a bound is above the likelihood.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, threads, seed, .. } = &arguments.common;
    let model = arguments.covariance;
    if arguments.cuda {
        return run_on_gpu(arguments);
    }
    let cpu = CpuEngine::new(*threads)?;
    let title = "milliseconds per EM pass over all components, over those near a tile of rows, and truncated";
    let name = format!("truncated --covariance {model}");
    let is_diag = model == CovarianceType::Diag.into();
    let mut record = arguments.common.record(&cpu, if is_diag { "truncated" } else { &name }, title, COLUMNS)?;
    for (n, d) in SHAPES.into_iter().filter(|(_, d)| is_diag || *d == 32) {
        for k in GROWTH.into_iter().filter(|k| is_diag || *k <= 3000) {
            let (n, k) = if *quick { (n / 10, k.div_ceil(10)) } else { (n, k) };
            passes(&cpu, ((n, d, k), model), (*turns, *seed), &mut record)?;
        }
    }
    for (n, d, k, listed, beside) in FITS.into_iter().take(if is_diag { FITS.len() } else { 1 }) {
        let (n, k) = if *quick { (n / 10, k / 10) } else { (n, k) };
        fits(&cpu, ((n, d, k), model), (listed, beside), *seed, &mut record)?;
    }
    println!("{}", record.path().display());
    Ok(())
}

/// Iterations beyond the first of a fit, of which the time is measured.
const TIMED: usize = 10;

/// Iterations over all components, over those near a tile of rows, and truncated ones, then the fits.
fn run_on_gpu(arguments: &Arguments) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let (model, gpu) = (arguments.covariance, CudaEngine::new(0)?);
    let title =
        "milliseconds per EM iteration of a fit over all components, over those near a tile of rows, and truncated";
    let is_diag = model == CovarianceType::Diag.into();
    let name = format!("truncated --cuda --covariance {model}");
    let mut record = arguments.common.record(&gpu, &name, title, COLUMNS)?;
    for (n, d) in SHAPES.into_iter().filter(|(_, d)| is_diag || *d == 32) {
        for k in GROWTH.into_iter().filter(|k| is_diag || *k <= 3000) {
            let (n, k) = if *quick { (n / 10, k.div_ceil(10)) } else { (n, k) };
            iterations(&gpu, ((n, d, k), model), (*turns, *seed), &mut record)?;
        }
    }
    for (n, d, k, listed, beside) in FITS.into_iter().take(if is_diag { FITS.len() } else { 1 }) {
        let (n, k) = if *quick { (n / 10, k / 10) } else { (n, k) };
        fits(&gpu, ((n, d, k), model), (listed, beside), *seed, &mut record)?;
    }
    println!("{}", record.path().display());
    Ok(())
}

/// The iterations of one size, in turns: what a fit of 1 + [`TIMED`] iterations takes longer than one of a single iteration.
fn iterations(
    gpu: &CudaEngine,
    ((n, d, k), model): ((usize, usize, usize), CovarianceModel),
    (turns, seed): (usize, u64),
    record: &mut Csv,
) -> Result<()> {
    let (data, mut start) = problem((n, d, k), model.kind, seed)?;
    if let Some(h) = model.factors {
        start = start.reduced_to_factors(h, Array1::zeros(d).view())?;
    }
    let [em, truncated] = both((model, k), (Init::Given(Box::new(start)), seed), LISTED);
    let dense = gpu.clone().without_skipping();
    let ways = [("all components", &dense, &em), ("as by default", gpu, &em), ("truncated to 3", gpu, &truncated)];
    let mut times = [const { Vec::new() }; 3];
    let mut found = [0.0; 3];
    for _ in 0..turns {
        for (((_, engine, options), times), found) in ways.iter().zip(&mut times).zip(&mut found) {
            let timed = |max_iter: usize| -> Result<(f64, Fit)> {
                let began = Instant::now();
                let fitted = fit(*engine, &data, &FitOptions { max_iter, ..(*options).clone() })?;
                Ok((1e3 * began.elapsed().as_secs_f64(), fitted))
            };
            let (short, (long, fitted)) = (timed(1)?.0, timed(1 + TIMED)?);
            // The loop's own clock is exact; a host loop has none.
            let ms = fitted
                .on_device
                .map_or((long - short) / TIMED as f64, |on| 1e3 * on.time.as_secs_f64() / on.iterations as f64);
            times.push(ms);
            *found = fitted.summary.log_likelihood;
        }
    }
    let [whole, near, bound] = found;
    let slack = 2e-6 * whole.abs().max(n as f64);
    ensure!((near - whole).abs() <= 5.0 * slack, "{near} beside {whole}");
    for (((name, ..), mut times), log_likelihood) in ways.into_iter().zip(times).zip([whole, near, bound]) {
        times.sort_by(f64::total_cmp);
        let (ms, samples) = (times[times.len() / 2], times.len());
        let line = format!(
            "k,{name} ({d} columns),{model},f32,{n},{d},{k},{LISTED},{samples},{ms:.3},,,,{log_likelihood:.3},{whole:.3},"
        );
        println!("{line}");
        record.push(&line)?;
    }
    Ok(())
}

/// The passes of one size, in turns. The first of each is not timed: it reorders the rows, or begins the search.
fn passes(
    cpu: &CpuEngine,
    ((n, d, k), model): ((usize, usize, usize), CovarianceModel),
    (turns, seed): (usize, u64),
    record: &mut Csv,
) -> Result<()> {
    let (data, mut mixture) = problem((n, d, k), model.kind, seed)?;
    if let Some(h) = model.factors {
        mixture = mixture.reduced_to_factors(h, Array1::zeros(d).view())?;
    }
    let shift = vec![0.5; d];
    let load = |engine: &CpuEngine| engine.load(&data, Precision::F32, &shift);
    let way = |name: &str, rows, search| Pass { name: format!("{name} ({d} columns)"), rows, search };
    let mut ways = [
        way("all components", load(&cpu.clone().with_skipping(false))?, None),
        way("components near a tile", load(cpu)?, None),
        way("truncated to 3", load(cpu)?, Some(Search::new(LISTED, seed))),
    ];
    let mut times = [const { Vec::new() }; 3];
    let mut found = [0.0; 3];
    for turn in 0..=turns {
        for ((way, times), found) in ways.iter_mut().zip(&mut times).zip(&mut found) {
            let (ms, log_likelihood) = way.pass(&mixture)?;
            if turn > 0 {
                times.push(ms);
            }
            *found = log_likelihood;
        }
    }
    let [whole, near, bound] = found;
    let slack = 2e-6 * whole.abs().max(n as f64);
    ensure!((near - whole).abs() <= slack && bound <= whole + slack, "{near} and {bound} beside {whole}");
    for (way, mut times) in ways.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (ms, samples) = (times[times.len() / 2], times.len());
        let (name, tried) = (way.name, way.search.map_or(String::new(), |search| format!("{:.1}", search.tried())));
        let log_likelihood = if tried.is_empty() { whole } else { bound };
        let line = format!(
            "k,{name},{model},f32,{n},{d},{k},{LISTED},{samples},{ms:.3},{tried},,,{log_likelihood:.3},{whole:.3},"
        );
        println!("{line}");
        record.push(&line)?;
    }
    Ok(())
}

/// The options of EM and of truncated EM, from the same start, of [`ITERATIONS`] iterations.
fn both((model, k): (CovarianceModel, usize), (init, seed): (Init, u64), listed: usize) -> [FitOptions; 2] {
    let em = FitOptions {
        covariance_type: model.kind,
        precision: Some(Precision::F32),
        init,
        max_iter: ITERATIONS,
        tol: 0.0,
        seed,
        rule: FitRule { factors: model.factors, ..FitRule::none() },
        ..FitOptions::new(k)
    };
    let rule = FitRule { truncated: Some(TruncatedOptions { components: listed }), ..em.rule.clone() };
    [em.clone(), FitOptions { rule, ..em }]
}

/// A fit by truncated EM, and by EM from the same start if `beside`.
fn fits(
    engine: &dyn Engine,
    ((n, d, k), model): ((usize, usize, usize), CovarianceModel),
    (listed, beside): (usize, bool),
    seed: u64,
    record: &mut Csv,
) -> Result<()> {
    let (data, _) = problem((n, d, k), model.kind, seed)?;
    let [em, truncated] = both((model, k), (Init::RandomRows, seed), listed);
    let timed = |options: &FitOptions| -> Result<(Fit, f64)> {
        let began = Instant::now();
        Ok((fit(engine, &data, options)?, began.elapsed().as_secs_f64()))
    };
    let (found, seconds) = timed(&truncated)?;
    let whole = if beside { Some(timed(&em)?) } else { None };
    // Per row, of the models under all components.
    let under = |fit: &Fit, data: &Dataset| -> Result<f64> {
        let mut rows = engine.load(data, Precision::F32, &[0.5].repeat(d))?;
        Ok(rows.evaluate(&fit.mixture, EvaluateOptions::default())?.log_likelihood / n as f64)
    };
    let (mut beside_it, mut mine) = (String::from(",,"), String::new());
    if let Some((whole, em_seconds)) = whole {
        let (own, other) = (under(&found, &data)?, under(&whole, &data)?);
        ensure!(found.summary.mean_log_likelihood <= own + 1e-5, "a bound above the likelihood");
        mine = format!("{own:.4}");
        beside_it = format!("{em_seconds:.2},{other:.4},{:.4}", other - own);
    }
    let [em_seconds, other, gap] = std::array::from_fn(|i| beside_it.split(',').nth(i).unwrap_or_default().to_owned());
    let line = format!(
        ",fit of {ITERATIONS},{model},f32,{n},{d},{k},{listed},1,,,{seconds:.2},{em_seconds},{mine},{other},{gap}"
    );
    println!("{line}");
    record.push(&line)?;
    Ok(())
}
