//! The command line: subcommands, the options that several of them share, and how their values are read.

use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use gmm_host::{Device, MAX_THREADS};
use gmm_model::{CovarianceModel, CovarianceType, Criterion, Precision, shown};

use crate::output::{self, Console};
use crate::progress::ProgressMode;
use crate::{
    adapt, add, bench, bootstrap, classify, completions, convert, distance, doctor, exit, fit, generate, impute,
    loglik, man, matmul, maximise, mcmc, merge, outliers, pass, plot, predict, regress, report, sample, score, select,
    serve, show, split,
};

const EXAMPLES: &str = "\
Examples:
  gmm fit data.csv -k 3                      fit three components and print the model
  gmm fit data.csv -k 3 -o model.json        fit and save the model
  gmm predict model.json new.csv             print the most likely component of each row
  gmm score model.json new.csv               print the log-likelihood of the rows
  gmm select data.csv -k 1..10               choose the number of components by BIC

Exit codes: 0 success, 2 usage error, 3 bad data, 4 numerical failure, 5 device unavailable or out of memory, \
6 I/O error, 7 not converged, 129, 130 and 143 interrupted by a signal.";

/// Fit, select, evaluate and sample Gaussian mixture models.
#[derive(Parser)]
#[command(name = "gmm", version, after_help = EXAMPLES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print only results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    pub(crate) quiet: bool,
    /// Print progress and timings to standard error
    #[arg(short, long, global = true, display_order = 901)]
    pub(crate) verbose: bool,
    /// Progress of long work: auto is a bar on a terminal; json prints lines of JSON to standard error, at most two per
    /// second; off prints nothing
    #[arg(
        long,
        global = true,
        value_name = "auto|json|off",
        default_value = "auto",
        value_parser = words::<ProgressMode>(&["auto", "json", "off"]),
        hide_default_value = true,
        hide_possible_values = true,
        display_order = 902
    )]
    pub(crate) progress: ProgressMode,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Fit(Box<fit::FitArgs>),
    Predict(predict::PredictArgs),
    Score(score::ScoreArgs),
    Pass(pass::PassArgs),
    Adapt(adapt::AdaptArgs),
    Add(add::AddArgs),
    Maximise(maximise::MaximiseArgs),
    Loglik(loglik::LoglikArgs),
    Mcmc(mcmc::McmcArgs),
    Classify(classify::ClassifyArgs),
    Regress(regress::RegressArgs),
    Impute(impute::ImputeArgs),
    Outliers(outliers::OutliersArgs),
    Matmul(matmul::MatmulArgs),
    Sample(sample::SampleArgs),
    Generate(generate::GenerateArgs),
    Select(Box<select::SelectArgs>),
    Merge(merge::MergeArgs),
    Split(split::SplitArgs),
    Distance(distance::DistanceArgs),
    Bootstrap(bootstrap::BootstrapArgs),
    Plot(plot::PlotArgs),
    Report(report::ReportArgs),
    Convert(convert::ConvertArgs),
    Serve(serve::ServeArgs),
    Show(show::ShowArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
    Man(man::ManArgs),
}

/// A comma-separated list. Commas inside quotes do not separate; words keep their quotes.
#[derive(Clone)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl Words {
    /// # Errors
    /// Errors if a quote is not closed.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in text.chars() {
            quoted ^= c == '"';
            match words.last_mut() {
                Some(word) if c != ',' || quoted => word.push(c),
                _ => words.push(String::new()),
            }
        }
        if quoted { Err("unclosed quote".to_owned()) } else { Ok(Self(words)) }
    }
}

/// The compute engine, its threads and its precision.
#[derive(Args, Clone)]
pub(crate) struct EngineArgs {
    /// Compute engine: auto (a GPU or the CPU, whichever is expected to finish first), cpu, reference (slow, for
    /// checks), cuda or cuda:I (GPU number I), cuda:I,J,.. or cuda:all (several GPUs, each with a share of the rows)
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: Device,
    /// Number of CPU threads; 0 means `RAYON_NUM_THREADS` if set, else `OMP_NUM_THREADS`, else one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: usize,
    /// Precision in which rows are stored and multiplied; sums are f64. With fast, rows are f32, and fit and select may
    /// run EM iterations in fp16 (11 significant bits) on a GPU if that is faster; they then print the measured loss of
    /// accuracy [default: precision of the data]
    #[arg(long, value_name = "f32|f64|fast", value_parser = words::<Digits>(&["f32", "f64", "fast"]))]
    precision: Option<Digits>,
}

impl EngineArgs {
    /// The requested precision, if any.
    pub(crate) fn precision(&self) -> Option<Precision> {
        self.precision.map(|digits| match digits {
            Digits::Of(precision) => precision,
            Digits::Fast => Precision::F32,
        })
    }

    /// The same precision on another device, with another number of threads.
    pub(crate) const fn on(&self, device: Device, threads: usize) -> Self {
        Self { device, threads, precision: self.precision }
    }

    /// Whether `--precision fast` was given.
    pub(crate) fn fast(&self) -> bool {
        self.precision == Some(Digits::Fast)
    }
}

/// The value of `--precision`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Digits {
    Of(Precision),
    Fast,
}

impl std::str::FromStr for Digits {
    type Err = gmm_model::ModelError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "fast" { Ok(Self::Fast) } else { text.parse().map(Self::Of) }
    }
}

/// Options of EM that `fit` and `select` share.
#[derive(Args)]
pub(crate) struct EmArgs {
    /// Number of initialisations; the fit with the highest log-likelihood is kept
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) n_init: usize,
    /// Number of rows on which k-means runs in each initialisation, or `all` [default: the larger of 32768 and 64 K if
    /// there are more than twice as many rows, else all]
    #[arg(long, value_name = "N", value_parser = count_or_all, allow_negative_numbers = true)]
    pub(crate) init_rows: Option<usize>,
    /// Convergence threshold: stop when the mean log-likelihood changes by less than this; 0 runs all iterations
    #[arg(long, value_name = "T", default_value = "1e-3", allow_hyphen_values = true)]
    pub(crate) tol: f64,
    /// Maximum number of EM iterations
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count, allow_negative_numbers = true)]
    pub(crate) max_iter: usize,
    /// Value added to the diagonal of the covariances, in squared units of the data
    #[arg(long, value_name = "R", default_value = "1e-6", allow_hyphen_values = true)]
    pub(crate) reg_covar: f64,
    /// Random seed
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Time the available GPU implementations of EM on these rows and use the fastest; timings are cached for similar
    /// shapes
    #[arg(long)]
    pub(crate) autotune: bool,
}

/// A parser that accepts one of `choices`; help and completions list them.
pub(crate) fn words<T>(choices: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices).try_map(|word| word.parse::<T>())
}

pub(crate) fn covariance() -> impl TypedValueParser<Value = CovarianceType> {
    words(&["full", "tied", "diag", "spherical"])
}

/// A covariance kind of a fit, which may have factors.
pub(crate) fn covariance_model(text: &str) -> Result<CovarianceModel, String> {
    text.parse().map_err(|_| "choose one of full, tied, diag, spherical, or factors:H with a number H".to_owned())
}

pub(crate) fn criterion() -> impl TypedValueParser<Value = Criterion> {
    words(&["bic", "aic", "icl"])
}

/// A whole number as [`count`] parses it, or `all`, which is `usize::MAX`.
fn count_or_all(text: &str) -> Result<usize, String> {
    if text == "all" { Ok(usize::MAX) } else { count(text).map_err(|why| format!("{why}, or 'all'")) }
}

/// A whole number of at most 9e15, also in the form `1e6` or `1_000_000`.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    /// Above 2^53 = 9.007e15 not every whole number is an `f64`.
    const MOST: f64 = 9e15;
    let plain = text.replace('_', "");
    let bad = || "it must be a whole number".to_owned();
    let value: f64 = plain.parse().map_err(|_| bad())?;
    match value {
        _ if value < 0.0 => Err("it must not be negative".to_owned()),
        // Any number of digits, or 1e400, is a number that is too large; `inf` is not a number.
        _ if value > MOST && plain.contains(|c: char| c.is_ascii_digit()) => Err("it must be at most 9e15".to_owned()),
        _ if value.fract() == 0.0 && value <= MOST => Ok(plain.parse().unwrap_or(value as usize)),
        _ => Err(bad()),
    }
}

/// A whole number of at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match count(text) {
        Ok(0) => Err("it must be at least 1".to_owned()),
        Err(why) if why.contains("negative") => Err("it must be at least 1".to_owned()),
        other => other,
    }
}

/// A seed: any `u64`.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 0 to {}", u64::MAX))
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match count(text)? {
        n if n > MAX_THREADS => Err(format!("it must be at most {MAX_THREADS}")),
        n => Ok(n),
    }
}

/// Parses the command line. An invalid value is reported in one line, like every other error; a malformed command is
/// reported with the usage.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    cli().map_err(|error| {
        match error.kind() {
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
                exit::print_error(&one_line(&error));
            }
            // Help and version are requested output: a failed write is an error, a closed pipe is not.
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                return exit::report(output::flushed(error.print()).map_err(Into::into), &Console::new(false, false));
            }
            // The message may contain a file name with control characters.
            _ if error.to_string().split('\n').any(|line| shown(line) != line) => exit::print_error(&one_line(&error)),
            _ => drop(error.print()),
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
    })
}

/// The command line, with the names of the options that were given to `fit`.
fn cli() -> Result<Cli, clap::Error> {
    let matches = Cli::command().try_get_matches()?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    if let (Command::Fit(fit), Some(matches)) = (&mut cli.command, matches.subcommand_matches("fit")) {
        let is_given = |id: &&clap::Id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine);
        fit.given = matches.ids().filter(is_given).map(|id| id.as_str().to_owned()).collect();
    }
    Ok(cli)
}

/// The first paragraph of clap's message without `error: `, with line breaks replaced by blanks.
fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let first = text.split("\n\n").next().unwrap_or_default();
    let line = first.split_whitespace().collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line).to_owned();
    match error.get(ContextKind::SuggestedValue) {
        Some(word) => format!("{line}; did you mean '{word}'?"),
        None => line,
    }
}

/// The complete command line definition, for completions and manual pages.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}
