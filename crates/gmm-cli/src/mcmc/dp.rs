//! `gmm mcmc --prior-on-k dp`: partitions of the rows under a Dirichlet process prior.

mod report;

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::Args;
use gmm_data::{Column, Table};
use gmm_host::{Work, on_threads};
use gmm_mcmc::dp::{Concentration, DpDraws, DpOptions, DpRun, prior_from, vi_estimate};
use gmm_mcmc::{Basis, Error};
use gmm_model::Precision;
use ndarray::Array2;

use report::Report;

use super::kept::{DrawsOutput, EVERY, SHARE};
use super::{McmcArgs, prior_options};
use crate::args;
use crate::exit::Failure;
use crate::output::{self, Console, is_stdio};
use crate::{input, interrupt, opening};

/// Partitions in place of a fixed number of components.
#[derive(Args)]
pub(crate) struct DpArgs {
    /// Sample the number of components too, under a Dirichlet process prior (dp); in place of -k
    #[arg(
        long,
        value_name = "dp",
        value_parser = ["dp"],
        hide_possible_values = true,
        conflicts_with_all = ["k", "sampler", "target_accept", "start", "relabel"],
        help_heading = "Dirichlet process"
    )]
    pub(super) prior_on_k: Option<String>,
    /// Concentration of the process, or its Gamma prior as gamma:SHAPE,RATE; larger makes more clusters [default: 1]
    #[arg(
        long,
        value_name = "A",
        value_parser = concentration,
        allow_hyphen_values = true,
        requires = "prior_on_k",
        help_heading = "Dirichlet process"
    )]
    concentration: Option<Concentration>,
    /// How many rows the prior of a cluster's mean is worth [default: 0.01]
    #[arg(
        long,
        value_name = "B",
        allow_hyphen_values = true,
        requires = "prior_on_k",
        help_heading = "Dirichlet process"
    )]
    mean_precision: Option<f64>,
    /// Clusters at the start of each chain: rows join the nearest of as many rows drawn at random [default: 1]
    #[arg(
        long,
        value_name = "K",
        value_parser = args::at_least_one,
        allow_negative_numbers = true,
        requires = "prior_on_k",
        help_heading = "Dirichlet process"
    )]
    start_clusters: Option<usize>,
    /// The partition of --labels: the draw of highest posterior density (best), or the draw of least expected variation
    /// of information from all draws (vi)
    #[arg(
        long,
        value_name = "best|vi",
        default_value = "best",
        value_parser = ["best", "vi"],
        hide_possible_values = true,
        requires = "prior_on_k",
        help_heading = "Dirichlet process"
    )]
    partition: String,
    /// Write the cluster of each row to a file: csv, tsv, npy, parquet or arrow
    #[arg(long, value_name = "OUT", requires = "prior_on_k", help_heading = "Dirichlet process")]
    labels: Option<PathBuf>,
    /// Write the labels of all draws to a file, a row per draw and a column per row of the input
    #[arg(long, value_name = "OUT.npy", requires = "prior_on_k", help_heading = "Dirichlet process")]
    label_draws: Option<PathBuf>,
}

fn concentration(text: &str) -> Result<Concentration, String> {
    let number = |text: &str| text.trim().parse::<f64>().map_err(|_| format!("'{text}' is not a number"));
    let Some(gamma) = text.strip_prefix("gamma:") else { return Ok(Concentration::Fixed(number(text)?)) };
    let (shape, rate) = gamma.split_once(',').ok_or("give gamma:SHAPE,RATE")?;
    Ok(Concentration::Gamma { shape: number(shape)?, rate: number(rate)? })
}

/// Sweeps for which `--device auto` chooses: always as many, so that a resumed run with more draws keeps its engine. Each takes
/// one pass of the engine; most of its time goes into other work, which is on the CPU.
const SWEEPS: f64 = 1_000.0;

pub(super) fn run(args: &McmcArgs, console: &Console) -> anyhow::Result<()> {
    if args.weights.is_some() {
        let why = "--weights: with --prior-on-k dp a row belongs to one cluster, whatever its weight: leave it out, or repeat \
                   rows whose weights are whole numbers";
        return Err(Failure::Usage(why.to_owned()).into());
    }
    check_outputs(args)?;
    let kept = DrawsOutput::beside(args)?;
    let given = prior_options(args.prior.as_deref())?;
    let data = input::rows(args.input.source(), None, console)?;
    let prior =
        prior_from(&given, args.dp.mean_precision, args.covariance, &data).map_err(|error| match &args.prior {
            Some(path) => anyhow::Error::new(error).context(input::display(path)),
            None => error.into(),
        })?;
    let options = DpOptions {
        concentration: args.dp.concentration.unwrap_or(Concentration::Fixed(1.0)),
        chains: args.chains,
        draws: args.draws,
        warmup: args.warmup,
        thin: args.thin,
        seed: args.seed,
        start: args.dp.start_clusters.unwrap_or(1),
        ..DpOptions::new(args.covariance, prior)
    };
    options.validate()?;
    let bytes = args.resume.then(|| kept.read_bytes()).transpose()?;
    let sweeps = (args.chains * (args.warmup + args.draws * args.thin)) as u64;
    // The number of clusters is not known; about ten are usual.
    let work = Work::passes(data.rows().dim(), data.rows().precision(), args.covariance, 10, SWEEPS);
    let opened = opening::open(&args.engine, args.input.source().memory(), &work, console)?;
    let precision = args.engine.precision().unwrap_or(Precision::F64);
    let basis = Basis::new(opened.engine.as_ref(), &data, precision)?;
    let random = !matches!(options.concentration, Concentration::Fixed(_));
    let mut run = match bytes {
        Some(bytes) => {
            let (run, moved) =
                DpRun::from_bytes(&bytes, options, &basis).with_context(|| kept.path.display().to_string())?;
            moved.iter().for_each(|moved| console.warn(moved));
            run
        }
        None => DpRun::new(options)?,
    };
    let started = Instant::now();
    Watch { args, console, kept: &kept, basis: &basis, sweeps }
        .go_on(&mut run, &|run, observer| run.go_on(opened.engine.as_ref(), &data, precision, observer))?;
    let elapsed = started.elapsed();
    let draws = run.into_draws();
    let estimate = on_threads(args.engine.threads, || vi_estimate(&draws))?;
    let report = Report { draws: &draws, estimate, elapsed, random };
    report.warn(console);
    write(args, &draws, if args.dp.partition == "vi" { estimate.0 } else { draws.best() })?;
    kept.done();
    if args.json {
        output::print_json(&report.json(&opened.engine.name()))?;
    } else if !console.quiet {
        let engine = opening::describe(&opened, args.engine.device, precision.name());
        output::print(&(report.table() + &format!("engine {engine}\n")))?;
    }
    Ok(())
}

type Observer<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;
type GoOn<'a> = &'a (dyn Fn(&mut DpRun, Observer<'_>) -> Result<(), Error> + Sync);

/// What a run in progress needs: where it is saved and shown.
struct Watch<'a> {
    args: &'a McmcArgs,
    console: &'a Console,
    kept: &'a DrawsOutput,
    basis: &'a Basis,
    sweeps: u64,
}

impl Watch<'_> {
    /// Goes on to the end. Stops now and then to save the run, and at a signal.
    fn go_on(&self, run: &mut DpRun, work: GoOn<'_>) -> anyhow::Result<()> {
        let _held = interrupt::hold();
        let (mut every, mut told) = (EVERY, false);
        loop {
            let result = self.part(run, every, work);
            let is_stopped = matches!(&result, Err(Error::Stopped)) && interrupt::received().is_none();
            let ended = result.is_ok();
            if run.n_sweeps() > 0 && (!ended || self.kept.asked_for) {
                let began = Instant::now();
                let written = self.kept.write_bytes(&run.to_bytes(self.basis));
                every = EVERY.max(SHARE * began.elapsed());
                if let (Err(error), false) = (&written, told) {
                    self.console
                        .warn(&format!("the checkpoint cannot be written; sampling continues without it: {error}"));
                    told = true;
                }
                if !is_stopped && !ended {
                    let kept = match written {
                        Ok(()) => {
                            format!("; the chains are in {}: continue with --resume", self.kept.path.display())
                        }
                        Err(_) => "; the chains are lost".to_owned(),
                    };
                    return Err(self.failure(result, run, kept));
                }
            }
            match result {
                Ok(()) => return Ok(()),
                Err(_) if is_stopped => {}
                result => return Err(self.failure(result, run, String::new())),
            }
        }
    }

    fn failure(&self, result: Result<(), Error>, run: &DpRun, kept: String) -> anyhow::Error {
        let draws = run.n_draws();
        match result {
            Err(Error::Stopped) | Ok(()) => {
                let wanted = self.args.chains * self.args.draws;
                Failure::SamplingInterrupted { draws, wanted, kept }.into()
            }
            Err(error) if kept.is_empty() => error.into(),
            Err(error) => anyhow::Error::new(error).context(format!("after {draws} draws{kept}")),
        }
    }

    /// Samples for a while on the threads that the user asked for. Meanwhile prints the progress, on the thread that owns
    /// the console.
    fn part(&self, run: &mut DpRun, every: Duration, work: GoOn<'_>) -> Result<(), Error> {
        let (done, seen) = channel();
        let (sweeps, began) = (self.sweeps, Instant::now());
        let threads = self.args.engine.threads;
        let result = thread::scope(|scope| {
            let sampling = scope.spawn(move || {
                let mut observer = |now: u64| {
                    if now * 10 / sweeps != (now - 1) * 10 / sweeps {
                        // The receiver lives as long as this thread.
                        let _ = done.send(now);
                    }
                    let stops = interrupt::received().is_some() || began.elapsed() > every;
                    if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                on_threads(threads, || work(run, &mut observer))
            });
            seen.iter().for_each(|now| self.console.step_note(|| format!("{now} of {sweeps} sweeps")));
            sampling.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        self.console.finish();
        result?
    }
}

fn check_outputs(args: &McmcArgs) -> anyhow::Result<()> {
    let rows = args.input.source().files()?;
    let inputs: Vec<&Path> = rows.iter().chain(&args.prior).map(PathBuf::as_path).collect();
    let outputs: Vec<&PathBuf> =
        [&args.output].into_iter().chain(&args.dp.labels).chain(&args.dp.label_draws).collect();
    for (i, path) in outputs.iter().enumerate() {
        if is_stdio(path) {
            return Err(
                Failure::Usage("the summary goes to standard output: write draws and labels to files".into()).into()
            );
        }
        output::check_table_path(path)?;
        output::check_apart(path, &inputs)?;
        if outputs[..i].iter().any(|other| output::is_same(other, path)) {
            return Err(Failure::Usage(format!("two outputs are {}: give them different names", path.display())).into());
        }
        if path.is_file() && !args.overwrite {
            let why = format!("{} already exists: use --overwrite to replace it, or another name", path.display());
            return Err(Failure::Usage(why).into());
        }
    }
    Ok(())
}

fn write(args: &McmcArgs, draws: &DpDraws, chosen: usize) -> anyhow::Result<()> {
    let total = draws.clusters.len();
    let names = ["chain", "draw", "clusters", "concentration", "log_joint"].map(str::to_owned).to_vec();
    let table = Array2::from_shape_fn((total, names.len()), |(i, column)| match column {
        0 => (i / draws.draws) as f64,
        1 => (i % draws.draws) as f64,
        2 => f64::from(draws.clusters[i]),
        3 => draws.concentration[i],
        _ => draws.log_joint[i],
    });
    let _whole = output::hold(&args.output);
    gmm_data::write_table(&args.output, &Table::with_names(table, names)?)?;
    if let Some(path) = &args.dp.labels {
        gmm_data::write_column(path, "label", Column::Labels(draws.partition(chosen)))?;
    }
    if let Some(path) = &args.dp.label_draws {
        // Exact: there are fewer clusters than 2²⁴.
        let all = Array2::from_shape_fn((total, draws.n), |(i, row)| draws.partition(i)[row] as f32);
        gmm_data::write_table(path, &Table::new(all))?;
    }
    Ok(())
}
