//! `gmm mcmc`: draws of the posterior of a mixture's parameters.

mod kept;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use gmm_data::DrawsFile;
use gmm_host::Likelihood;
use gmm_mcmc::starts::{self, Centre};
use gmm_mcmc::{Basis, Checkpoint, Error, Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target};
use gmm_model::CovarianceType;

use crate::args::{self, EngineArgs, InputArgs};
use crate::exit::Failure;
use crate::input;
use crate::output::{self, Console};
use kept::Kept;

const EXAMPLES: &str = "\
Writes draws of weights, means and covariances, and prints what they say. Chains start about
one EM fit; with --start each, about fits from seeds of their own.

PRIOR.toml has the tables [weights], [means] and [covariances]; each may be left out:
  [weights]      prior = \"dirichlet\" (concentration = 1.0) or \"flat\"
  [means]        prior = \"normal\" (mean = middle of the range, sd = range)
                 or, with -k 1, \"flat\"
  [covariances]  full, tied: prior = \"inverse-wishart\"
                   (degrees_of_freedom = d + 2, scale = variances * k^(-2/d))
                   or \"lkj\" (eta = 2.0, scale = standard deviations)
                 diag, spherical: prior = \"inverse-gamma\"
                   (shape = 1.5, scale = variances * k^(-2/d) / 2)
                   or \"half-normal\" (scale = standard deviations)
In parentheses the defaults, from the columns. mean, sd and scale are one number or one for
each column.

An npz holds weights (chain, draw, K), means (chain, draw, K, d), covariances (chain, draw, ..),
lp, acceptance_rate and, of nuts, diverging, n_steps, step_size, tree_depth, energy. For ArviZ 1.0:
  z = np.load(\"draws.npz\"); v = (\"weights\", \"means\", \"covariances\")
  az.from_dict({\"posterior\": {k: z[k] for k in v},
                \"sample_stats\": {k: z[k] for k in z if k not in v + (\"covariance_type\",)}})
Before 1.0 the groups are arguments: az.from_dict(posterior={..}, sample_stats={..}).
A parquet or Arrow file has a row for each draw: chain, draw, weights[0], .., means[0,0], ..

Every few seconds, and at Ctrl-C, the chains are kept in DRAWS.checkpoint. The same command with
--resume goes on from there, to the draws that it would have made; of nuts' warm-up nothing is
kept before its end. Where DRAWS is there already, --overwrite replaces it.

Examples:
  gmm mcmc data/old_faithful.csv -k 2 -o draws.npz
  gmm mcmc rows.npy -k 3 --sampler rwm --draws 5000 --thin 5 -o draws.parquet
  gmm mcmc rows.csv -k 2 --prior prior.toml --relabel pivot -o draws.npz --resume";

/// Draw from the posterior of a mixture's parameters
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McmcArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Number of components
    #[arg(short, value_name = "K", value_parser = args::at_least_one, allow_negative_numbers = true)]
    k: usize,
    /// Kind of the covariances
    #[arg(long, value_name = "KIND", default_value = "full", value_parser = args::covariance())]
    covariance: CovarianceType,
    /// nuts (No-U-Turn, by gradients) or rwm (random-walk Metropolis, a component at a time)
    #[arg(long, value_name = "WORD", default_value = "nuts", value_parser = sampler)]
    sampler: Sampler,
    /// Chains
    #[arg(long, value_name = "C", default_value_t = 4, value_parser = args::at_least_one, allow_negative_numbers = true)]
    chains: usize,
    /// Draws that each chain keeps
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = args::at_least_one, allow_negative_numbers = true)]
    draws: usize,
    /// Steps before them, in which the sampler adapts
    #[arg(long, value_name = "W", default_value_t = 1000, value_parser = args::count, allow_negative_numbers = true)]
    warmup: usize,
    /// Steps for each draw that is kept
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = args::at_least_one, allow_negative_numbers = true)]
    thin: usize,
    /// Mean acceptance that nuts adapts its step size to; closer to 1 where trajectories diverge
    #[arg(long, value_name = "P", default_value = "0.8", allow_negative_numbers = true)]
    target_accept: f64,
    /// Prior [default: weakly informative, from the data]
    #[arg(long, value_name = "FILE.toml")]
    prior: Option<PathBuf>,
    /// Where chains start: all about one fit, or each about a fit of its own
    #[arg(long, value_name = "fit|each", default_value = "fit", value_parser = ["fit", "each"])]
    start: String,
    /// What to do about components that change places: none, order, order:COLUMN (by ascending means), or pivot
    /// (most like the best draw)
    #[arg(long, value_name = "HOW", default_value = "none")]
    relabel: Relabel,
    /// Seed of every draw
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
    /// Column of row weights: a row of weight 2 is the row twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Write the draws: npz, parquet or arrow
    #[arg(short, long, value_name = "DRAWS")]
    output: PathBuf,
    /// Go on from the checkpoint, to more draws if --draws says so; never to fewer than it holds
    #[arg(long)]
    resume: bool,
    /// Keep the chains here, also when they are done [default: DRAWS.checkpoint, until they are]
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Replace draws that are there and, without --resume, forget a checkpoint
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object in place of the table
    #[arg(long)]
    json: bool,
}

fn sampler(word: &str) -> Result<Sampler, String> {
    match word {
        "nuts" => Ok(Sampler::Nuts),
        "rwm" => Ok(Sampler::Rwm),
        _ => Err("choose one of nuts, rwm".to_owned()),
    }
}

pub(crate) fn run(args: &McmcArgs, console: &Console) -> anyhow::Result<()> {
    let options = Options {
        chains: args.chains,
        draws: args.draws,
        warmup: args.warmup,
        thin: args.thin,
        seed: args.seed,
        target_accept: args.target_accept,
        ..Options::new(args.sampler)
    };
    options.validate()?;
    let kept = Kept::new(args)?;
    let given = prior_options(args.prior.as_deref())?;
    let earlier = args.resume.then(|| kept.read()).transpose()?;
    if let Some(most) = earlier.as_ref().map(Checkpoint::most_draws).filter(|&most| most > args.draws) {
        return Err(Failure::Usage(format!(
            "--draws {}, but {} already holds {most} draws per chain, and --resume drops none: give --draws {most} or more",
            args.draws,
            kept.path.display()
        ))
        .into());
    }
    let data = input::rows(&args.input, args.weights.as_deref(), console)?;
    if let Relabel::Order { column } = args.relabel
        && column >= data.n_features()
    {
        let why = format!("--relabel order:{column}, but the data have {} columns", data.n_features());
        return Err(Failure::Usage(why).into());
    }
    let prior = Prior::new(&given, args.covariance, args.k, &data).map_err(|error| match &args.prior {
        Some(path) => anyhow::Error::new(error).context(input::display(path)),
        None => error.into(),
    })?;
    if let Some(rows) = prior.improper_at(&data)? {
        console.warn(&format!(
            "{rows}: with half-normal scales the posterior has no finite integral about them, only a spike that chains \
             seldom find; inverse-wishart and inverse-gamma have none"
        ));
    }
    let target = Target::new(prior)?;
    options.check_memory(&target)?;
    let opened = input::engine(&args.engine, console)?;
    let precision = args.engine.precision().unwrap_or(data.rows().precision());
    let mut likelihood = Likelihood::new(opened.engine.as_ref(), &data, precision)?;
    let basis = Basis::new(opened.engine.as_ref(), &data, precision)?;
    let mut run = match earlier {
        Some(checkpoint) => {
            if let Some(moved) = checkpoint.moved(&basis) {
                console.warn(&moved);
            }
            checkpoint.resume(&options, &target, &basis).with_context(|| kept.path.display().to_string())?
        }
        None => {
            let centre = if args.start == "fit" { Centre::Fit } else { Centre::Each };
            let engine = opened.engine.as_ref();
            let starts = starts::about_fits(centre, engine, &data, precision, &options, &target, &mut likelihood);
            let starts = starts.map_err(|error| match error {
                Error::Host(error) => crate::fit::named(error, &data),
                other => other.into(),
            })?;
            Run::new(options, starts)?
        }
    };
    let started = Instant::now();
    kept.go_on(&mut run, &target, &mut likelihood, &basis, console)?;
    let elapsed = started.elapsed();
    let posterior = Posterior::new(&run, &target, args.relabel)?;
    let summary = posterior.summary();
    for warning in report::warnings(&posterior, &summary, args.relabel) {
        console.warn(&warning);
    }
    let text = if args.json {
        format!("{:#}\n", report::json(&posterior, &summary, &basis, elapsed))
    } else {
        let engine = input::describe(&opened, args.engine.device, basis.precision.name());
        report::table(&posterior, &summary, elapsed, console.colour) + &format!("engine {engine}\n")
    };
    if let Err(error) = write(&args.output, posterior) {
        return Err(error.context(kept.instead(&run, &target, &basis, &args.output)));
    }
    kept.done();
    if args.json || !console.quiet {
        output::print(&text)?;
    }
    Ok(())
}

fn prior_options(path: Option<&Path>) -> anyhow::Result<PriorOptions> {
    let Some(path) = path else { return Ok(PriorOptions::default()) };
    let bytes = gmm_data::read_bytes(path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::BadData(format!("{}: byte {at} is no UTF-8, and TOML is", input::display(path)))
    })?;
    PriorOptions::from_toml(&text).with_context(|| input::display(path))
}

fn write(path: &Path, posterior: Posterior) -> anyhow::Result<()> {
    let file = DrawsFile { stats: posterior.sample_stats(), parameters: posterior.draws };
    let _whole = output::hold(path);
    Ok(gmm_data::write_draws(path, &file)?)
}
