//! `gmm mcmc`: draws from the posterior of a mixture's parameters.

mod dp;
mod kept;
mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use gmm_data::DrawsFile;
use gmm_host::{Likelihood, Work};
use gmm_mcmc::starts::{self, Centre};
use gmm_mcmc::{Basis, Checkpoint, Error, Options, Posterior, Prior, PriorOptions, Relabel, Run, Sampler, Target};
use gmm_model::CovarianceType;

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::output::{self, Console};
use crate::table_args::InputArgs;
use crate::{input, opening};
use kept::DrawsOutput;

const EXAMPLES: &str = "\
Writes posterior draws of weights, means and covariances, and prints a summary of them. All chains
start near one EM fit, the best of five; with --start each, every chain starts near its own fit.

The file of --prior has the tables [weights], [means] and [covariances]; each is optional:
  [weights]      prior = \"dirichlet\" (concentration = 1.0) or \"flat\"
  [means]        prior = \"normal\" (mean = middle of the range, sd = range)
                 or, with -k 1, \"flat\"
  [covariances]  full, tied: prior = \"inverse-wishart\"
                   (degrees_of_freedom = d + 2, scale = variances * k^(-2/d))
                   or \"lkj\" (eta = 2.0, scale = standard deviations)
                 diag, spherical: prior = \"inverse-gamma\"
                   (shape = 1.5, scale = variances * k^(-2/d) / 2)
                   or \"half-normal\" (scale = standard deviations)
Defaults, computed from the columns, are in parentheses. mean, sd and scale are one number or one
number per column.

An npz file has the arrays weights (chain, draw, K), means (chain, draw, K, d), covariances
(chain, draw, ..), lp, acceptance_rate and, for nuts, diverging, n_steps, step_size, tree_depth and
energy. For ArviZ 1.0:
  z = np.load(\"draws.npz\"); v = (\"weights\", \"means\", \"covariances\")
  az.from_dict({\"posterior\": {k: z[k] for k in v},
                \"sample_stats\": {k: z[k] for k in z if k not in v + (\"covariance_type\",)}})
Before 1.0 the groups are arguments: az.from_dict(posterior={..}, sample_stats={..}).
A parquet or arrow file has one row per draw: chain, draw, weights[0], .., means[0,0], ..

The chains are saved to DRAWS.checkpoint every few seconds and on Ctrl-C. The same command with
--resume continues from there and produces the draws of an uninterrupted run; an unfinished nuts
warm-up starts again. If DRAWS already exists, --overwrite replaces it.

With --prior-on-k dp the number of components is unknown too: draws are partitions of the rows into
clusters, under a Dirichlet process and a Normal-inverse-Wishart prior (diag, spherical: Normal-
inverse-gamma). DRAWS is a table (csv, tsv, npy, parquet, arrow) with the columns chain, draw,
clusters, concentration and log_joint. Of --prior, the keys mean, degrees_of_freedom, shape and scale
have the same meaning; their defaults are the mean of the data, d + 2 and the covariance of the data,
or 3/2 and half the variances. A mean is worth --mean-precision rows, in place of sd.

Examples:
  gmm mcmc data/old_faithful.csv -k 2 -o draws.npz
  gmm mcmc rows.npy -k 3 --sampler rwm --draws 5000 --thin 5 -o draws.parquet
  gmm mcmc rows.csv -k 2 --prior prior.toml --relabel pivot -o draws.npz --resume
  gmm mcmc rows.csv --prior-on-k dp --concentration gamma:1,1 -o draws.csv --labels clusters.csv";

/// Sample the posterior of a mixture's parameters by Markov chain Monte Carlo
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct McmcArgs {
    #[command(flatten)]
    input: InputArgs,
    /// Number of components
    #[arg(
        short,
        value_name = "K",
        value_parser = args::at_least_one,
        allow_negative_numbers = true,
        required_unless_present = "prior_on_k"
    )]
    k: Option<usize>,
    #[command(flatten)]
    dp: dp::DpArgs,
    /// Covariance type
    #[arg(long, value_name = "KIND", default_value = "full", value_parser = args::covariance())]
    covariance: CovarianceType,
    /// Sampler: nuts (No-U-Turn sampler, gradient-based) or rwm (random-walk Metropolis, one component at a time)
    #[arg(long, value_name = "WORD", default_value = "nuts", value_parser = sampler)]
    sampler: Sampler,
    /// Number of chains
    #[arg(long, value_name = "C", default_value_t = 4, value_parser = args::at_least_one, allow_negative_numbers = true)]
    chains: usize,
    /// Number of draws kept per chain
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = args::at_least_one, allow_negative_numbers = true)]
    draws: usize,
    /// Number of warm-up steps per chain, in which the sampler adapts; they are discarded
    #[arg(long, value_name = "W", default_value_t = 1000, value_parser = args::count, allow_negative_numbers = true)]
    warmup: usize,
    /// Steps per kept draw
    #[arg(long, value_name = "T", default_value_t = 1, value_parser = args::at_least_one, allow_negative_numbers = true)]
    thin: usize,
    /// Target acceptance rate of nuts; raise it towards 1 if trajectories diverge
    #[arg(long, value_name = "P", default_value = "0.8", allow_negative_numbers = true)]
    target_accept: f64,
    /// File that defines the prior [default: weakly informative, computed from the data]
    #[arg(long, value_name = "FILE.toml")]
    prior: Option<PathBuf>,
    /// Starting points: all chains near the best of five EM fits, or each near its own fit
    #[arg(long, value_name = "fit|each", default_value = "fit", value_parser = ["fit", "each"])]
    start: String,
    /// Relabelling against label switching: none, order or order:COLUMN (by ascending means of a column), or pivot
    /// (match the draw of highest posterior density)
    #[arg(long, value_name = "HOW", default_value = "none")]
    relabel: Relabel,
    /// Random seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = args::seed, allow_negative_numbers = true)]
    seed: u64,
    #[command(flatten)]
    engine: EngineArgs,
    /// Column of row weights: a row of weight 2 counts twice
    #[arg(long, value_name = "COLUMN")]
    weights: Option<String>,
    /// Write the draws to an npz, parquet or arrow file
    #[arg(short, long, value_name = "DRAWS")]
    output: PathBuf,
    /// Continue from the checkpoint; --draws may be larger than before, but not smaller than the draws it holds
    #[arg(long)]
    resume: bool,
    /// Save the chains to this file, and keep it after the run [default: DRAWS.checkpoint, deleted after the run]
    #[arg(long, value_name = "FILE")]
    checkpoint: Option<PathBuf>,
    /// Replace an existing DRAWS file and, without --resume, ignore an existing checkpoint
    #[arg(long)]
    overwrite: bool,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

/// Evaluations of the likelihood for which `--device auto` chooses: always as many, so that a resumed run with more
/// draws keeps its engine.
const EVALUATIONS: f64 = 20_000.0;

fn sampler(word: &str) -> Result<Sampler, String> {
    match word {
        "nuts" => Ok(Sampler::Nuts),
        "rwm" => Ok(Sampler::Rwm),
        _ => Err("choose one of nuts, rwm".to_owned()),
    }
}

pub(crate) fn run(args: &McmcArgs, console: &Console) -> anyhow::Result<()> {
    let Some(k) = args.k else { return dp::run(args, console) };
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
    let kept = DrawsOutput::new(args)?;
    let given = prior_options(args.prior.as_deref())?;
    let earlier = args.resume.then(|| kept.read()).transpose()?;
    if let Some(most) = earlier.as_ref().map(Checkpoint::most_draws).filter(|&most| most > args.draws) {
        return Err(Failure::Usage(format!(
            "--draws {}, but {} already holds {most} draws per chain, which --resume keeps: give --draws {most} or more",
            args.draws,
            kept.path.display()
        ))
        .into());
    }
    let data = input::rows(args.input.source(), args.weights.as_deref(), console)?;
    if let Relabel::Order { column } = args.relabel
        && column >= data.n_features()
    {
        let why = format!("--relabel order:{column}, but the data have {} columns", data.n_features());
        return Err(Failure::Usage(why).into());
    }
    let prior = Prior::new(&given, args.covariance, k, &data).map_err(|error| match &args.prior {
        Some(path) => anyhow::Error::new(error).context(input::display(path)),
        None => error.into(),
    })?;
    if let Some(rows) = prior.improper_at(&data)? {
        console.warn(&format!(
            "{rows}: with half-normal scales the integral of the posterior density is then infinite, in a narrow spike \
             that chains rarely find; inverse-wishart and inverse-gamma priors avoid this"
        ));
    }
    let target = Target::new(prior)?;
    options.check_memory(&target)?;
    let work = Work::passes(data.rows().dim(), data.rows().precision(), args.covariance, k, EVALUATIONS);
    let opened = opening::open(&args.engine, args.input.source().memory(), &work, console)?;
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
        let engine = opening::describe(&opened, args.engine.device, basis.precision.name());
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

pub(crate) fn prior_options(path: Option<&Path>) -> anyhow::Result<PriorOptions> {
    let Some(path) = path else { return Ok(PriorOptions::default()) };
    let bytes = gmm_data::read_bytes(path)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        Failure::BadData(format!("{}: byte {at} is not valid UTF-8", input::display(path)))
    })?;
    PriorOptions::from_toml(&text).with_context(|| input::display(path))
}

fn write(path: &Path, posterior: Posterior) -> anyhow::Result<()> {
    let file = DrawsFile { stats: posterior.sample_stats(), parameters: posterior.draws };
    let _whole = output::hold(path);
    Ok(gmm_data::write_draws(path, &file)?)
}
