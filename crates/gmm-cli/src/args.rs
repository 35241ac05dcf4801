//! The command line: subcommands, the options that several of them share, and how their values are read.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::error::{ContextKind, ErrorKind};
use clap::{Args, CommandFactory, Parser, Subcommand};
use gmm_data::{Decimal, Format, ReadOptions, Separator};
use gmm_host::{Device, MAX_THREADS};
use gmm_model::{CovarianceType, Criterion, Precision, shown};

use crate::output::{self, Console};
use crate::{
    bench, classify, completions, convert, doctor, exit, fit, generate, loglik, matmul, mcmc, plot, predict, sample,
    score, select, show,
};

const EXAMPLES: &str = "\
Examples:
  gmm fit data.csv -k 3                      fit three components and print the model
  gmm fit data.csv -k 3 -o model.json        .. and keep it
  gmm predict model.json new.csv             the component of each row
  gmm score model.json new.csv               how likely the rows are
  gmm select data.csv -k 1..10               choose the number of components by BIC

Exit codes: 0 done, 2 usage, 3 bad data, 4 numerical failure, 5 device, 6 file or stream, 7 not converged, \
129, 130 and 143 interrupted.";

/// Gaussian mixture models: fit them, choose them, and use them.
#[derive(Parser)]
#[command(name = "gmm", version, after_help = EXAMPLES, max_term_width = 100, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
    /// Print nothing but results and errors
    #[arg(short, long, global = true, conflicts_with = "verbose", display_order = 900)]
    pub(crate) quiet: bool,
    /// Say on standard error what is being done, and how long it takes
    #[arg(short, long, global = true, display_order = 901)]
    pub(crate) verbose: bool,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    Fit(fit::FitArgs),
    Predict(predict::PredictArgs),
    Score(score::ScoreArgs),
    Loglik(loglik::LoglikArgs),
    Mcmc(mcmc::McmcArgs),
    Classify(classify::ClassifyArgs),
    Matmul(matmul::MatmulArgs),
    Sample(sample::SampleArgs),
    Generate(generate::GenerateArgs),
    Select(select::SelectArgs),
    Plot(plot::PlotArgs),
    Convert(convert::ConvertArgs),
    Show(show::ShowArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Completions(completions::CompletionsArgs),
}

/// Where the rows come from.
#[derive(Args)]
pub(crate) struct InputArgs {
    /// Rows: csv, tsv, txt, npy, npz (FILE.npz:NAME), parquet or Arrow; - is standard input
    pub(crate) input: PathBuf,
    #[command(flatten)]
    table: TableArgs,
}

impl InputArgs {
    /// How the rows are read.
    pub(crate) fn options(&self) -> ReadOptions {
        self.table.options()
    }
}

/// How one table is read, and which of its columns.
#[derive(Args)]
pub(crate) struct TableArgs {
    /// Columns to use, by name or by index from 0, in this order. A range includes both ends (0..59, a..f); a name with a
    /// comma needs quotes ('"income, net",age'); ! leaves a column out ('!id') [default: all]
    #[arg(long, value_name = "A,B,..", value_parser = Words::new)]
    columns: Vec<Words>,
    #[command(flatten)]
    reading: ReadingArgs,
}

impl TableArgs {
    /// How the table is read.
    pub(crate) fn options(&self) -> ReadOptions {
        let columns = self.columns.iter().flat_map(|words| words.0.clone()).collect();
        ReadOptions { columns: (!self.columns.is_empty()).then_some(columns), ..self.reading.options() }
    }
}

/// How tables are read; for all of a command's inputs.
#[derive(Args)]
pub(crate) struct ReadingArgs {
    /// Whether the first line of a text file holds column names: `--header yes` [default: auto, which reads a line of
    /// numbers as a row]
    #[arg(
        long,
        value_name = "yes|no|auto",
        value_parser = ["yes", "no", "auto"],
        hide_possible_values = true,
        help_heading = "Reading"
    )]
    header: Option<String>,
    /// Field separator of a text file: one character, or the word tab or blank (any run of spaces and tabs):
    /// `--separator ';'` [default: detected from the first lines]
    #[arg(long, value_name = "C", help_heading = "Reading")]
    separator: Option<Separator>,
    /// Decimal sign in a text file, . or ,: `--separator ';' --decimal ,` [default: detected from the first lines]
    #[arg(long, value_name = ".|,", help_heading = "Reading")]
    decimal: Option<Decimal>,
    /// Format of the input, whatever its name: csv, tsv, txt, npy, npz, parquet or arrow: `--format csv` [default: by
    /// extension; for standard input, by its first bytes]
    #[arg(
        long,
        value_name = "FORMAT",
        value_parser = words::<Format>(&FORMATS),
        hide_possible_values = true,
        help_heading = "Reading"
    )]
    format: Option<Format>,
}

const FORMATS: [&str; 7] = ["csv", "tsv", "txt", "npy", "npz", "parquet", "arrow"];

impl ReadingArgs {
    /// How a table is read, all columns.
    pub(crate) fn options(&self) -> ReadOptions {
        let header = match self.header.as_deref() {
            Some("yes") => Some(true),
            Some("no") => Some(false),
            _ => None,
        };
        let Self { separator, decimal, format, .. } = *self;
        ReadOptions { header, separator, decimal, format, ..ReadOptions::default() }
    }
}

/// A list with commas between its words, but not inside quotes; words keep their quotes.
#[derive(Clone)]
pub(crate) struct Words(pub(crate) Vec<String>);

impl Words {
    /// # Errors
    /// Where a quote does not close.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        let (mut words, mut quoted) = (vec![String::new()], false);
        for c in text.chars() {
            quoted ^= c == '"';
            match words.last_mut() {
                Some(word) if c != ',' || quoted => word.push(c),
                _ => words.push(String::new()),
            }
        }
        if quoted { Err("a quote does not close".to_owned()) } else { Ok(Self(words)) }
    }
}

/// What computes.
#[derive(Args)]
pub(crate) struct EngineArgs {
    /// Engine: auto, cpu, reference, cuda or cuda:I
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    pub(crate) device: Device,
    /// Threads of the CPU engine; 0 means `RAYON_NUM_THREADS` if set, else `OMP_NUM_THREADS`, else one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = threads, allow_negative_numbers = true)]
    pub(crate) threads: usize,
    /// Precision in which rows are held and multiplied (sums are f64) [default: that of the data]; fast is f32, and fit and
    /// select may then iterate with 11 bits on a GPU where that is faster, and say what it cost
    #[arg(long, value_name = "f32|f64|fast", value_parser = words::<Digits>(&["f32", "f64", "fast"]))]
    precision: Option<Digits>,
}

impl EngineArgs {
    /// The precision, if one was asked for.
    pub(crate) fn precision(&self) -> Option<Precision> {
        self.precision.map(|digits| match digits {
            Digits::Of(precision) => precision,
            Digits::Fast => Precision::F32,
        })
    }

    /// Whether speed counts more than digits.
    pub(crate) fn fast(&self) -> bool {
        self.precision == Some(Digits::Fast)
    }
}

/// What `--precision` takes.
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

/// How EM runs; the same for `fit` and `select`.
#[derive(Args)]
pub(crate) struct EmArgs {
    /// Starts, of which the best is kept
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) n_init: usize,
    /// Rows that k-means looks at in each start, or `all` [default: 32768 or 64 K where there are more than twice as many]
    #[arg(long, value_name = "N", value_parser = count_or_all, allow_negative_numbers = true)]
    pub(crate) init_rows: Option<usize>,
    /// Stop when the mean log-likelihood changes by less than this; 0 runs all iterations
    #[arg(long, value_name = "T", default_value = "1e-3", allow_hyphen_values = true)]
    pub(crate) tol: f64,
    /// Stop after this many iterations
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = count, allow_negative_numbers = true)]
    pub(crate) max_iter: usize,
    /// Added to the diagonal of the covariances, in squared units of the data
    #[arg(long, value_name = "R", default_value = "1e-6", allow_hyphen_values = true)]
    pub(crate) reg_covar: f64,
    /// Seed of every random draw
    #[arg(long, value_name = "SEED", default_value_t = 0, value_parser = seed, allow_negative_numbers = true)]
    pub(crate) seed: u64,
    /// Time the ways in which a GPU can run EM on these rows and take the fastest; it is remembered for shapes like this one
    #[arg(long)]
    pub(crate) autotune: bool,
}

/// A parser for one of a few words, which help and completions list.
pub(crate) fn words<T>(choices: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: std::str::FromStr<Err: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(choices).try_map(|word| word.parse::<T>())
}

pub(crate) fn covariance() -> impl TypedValueParser<Value = CovarianceType> {
    words(&["full", "tied", "diag", "spherical"])
}

pub(crate) fn criterion() -> impl TypedValueParser<Value = Criterion> {
    words(&["bic", "aic", "icl"])
}

/// A whole number as [`count`] takes it; `all` is more than there can be.
fn count_or_all(text: &str) -> Result<usize, String> {
    if text == "all" { Ok(usize::MAX) } else { count(text).map_err(|why| format!("{why}, or 'all'")) }
}

/// A whole number of at most 9e15, also in the form `1e6` or `1_000_000`.
pub(crate) fn count(text: &str) -> Result<usize, String> {
    /// Above 2^53 not every whole number is an `f64`; nobody means more.
    const MOST: f64 = 9e15;
    let plain = text.replace('_', "");
    let bad = || "it must be a whole number".to_owned();
    let value: f64 = plain.parse().map_err(|_| bad())?;
    match value {
        _ if value < 0.0 => Err("it must not be negative".to_owned()),
        // Digits, however many, are a number, and so is 1e400; `inf` is a word.
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

/// Any number that a seed can be.
pub(crate) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("it must be a whole number from 0 to {}", u64::MAX))
}

pub(crate) fn threads(text: &str) -> Result<usize, String> {
    match count(text)? {
        n if n > MAX_THREADS => Err(format!("it must be at most {MAX_THREADS}")),
        n => Ok(n),
    }
}

/// Parses the command line. What is wrong with a value is said in one line, as every other error is; what is wrong
/// with the form of the command comes with the usage.
pub(crate) fn parse() -> Result<Cli, ExitCode> {
    Cli::try_parse().map_err(|error| {
        match error.kind() {
            ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
                exit::print_error(&one_line(&error));
            }
            // Asked for, so that a standard output which takes nothing is an error; a closed one is none.
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
                return exit::report(output::flushed(error.print()).map_err(Into::into), &Console::new(false, false));
            }
            // What is wrong with the form may be a file's name.
            _ if error.to_string().split('\n').any(|line| shown(line) != line) => exit::print_error(&one_line(&error)),
            _ => drop(error.print()),
        }
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE))
    })
}

/// The first paragraph of clap's message without `error: `, its line breaks made blanks.
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

/// The whole command, for completions.
pub(crate) fn command() -> clap::Command {
    Cli::command()
}
