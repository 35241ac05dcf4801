//! `gmm bench`: benchmarks of this machine; results are checked before they are timed.

use std::path::PathBuf;

use clap::Args;
use gmm_bench::definition::{BUILT_IN, Unknown};
use gmm_bench::{Definition, Options, Session};

use crate::exit::Failure;
use crate::output::{self, Console};

const EXAMPLES: &str = "\
Every result is compared with the naive reference before it is timed. The column ms is the wall-clock time of a call, \
the median of several calls. Parts of it are load (loading the data), inner (EM iterations only, one item of a batch, \
or a product with A already on the device) and device (measured by the device's clock). Engines and other programs \
that are not available are reported and skipped.

Examples:
  gmm bench --quick                            a check with rough timings, in seconds
  gmm bench likelihood-sweep --engine cpu
  gmm bench em-sweeps --out bench --json > em.json
  gmm bench products --budget 30
  gmm bench my.toml --peers .venv/bin/python   compare with scikit-learn, gmmx, torch, ..";

/// Run a benchmark on this machine, checking results before timing them
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Benchmark definition: a built-in name (see --list) or a .toml file
    #[arg(value_name = "NAME|FILE.toml", default_value = "em-sweeps")]
    definition: String,
    /// List the built-in definitions
    #[arg(long)]
    list: bool,
    /// Engines to use instead of the definition's: cpu, reference, cuda or cuda:I
    #[arg(long, value_name = "ENGINE,..", value_delimiter = ',')]
    engine: Vec<String>,
    /// Use small sizes and few measurements
    #[arg(long)]
    quick: bool,
    /// Time limit of the whole run in seconds, instead of the definition's; sizes not reached are recorded as `left`
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Number of threads of the CPU engine and of other programs; 0 means one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::args::threads, allow_negative_numbers = true)]
    threads: usize,
    /// Python interpreter whose scikit-learn, gmmx, torch, NumPy or CuPy are timed for comparison, interleaved with
    /// ours
    #[arg(long, visible_alias = "peers", value_name = "PYTHON")]
    python: Option<PathBuf>,
    /// Write a record to a .csv file, or to MACHINE/DATE-NAME.csv in a folder, and the same as .json next to it
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of the table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BenchArgs, console: &Console) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    // An unreadable file is an I/O error, invalid content is bad data; the exit codes differ.
    let definition = Definition::open(&args.definition).map_err(|why| {
        if why.is::<std::io::Error>() {
            why
        } else if why.is::<Unknown>() {
            Failure::Usage(why.to_string()).into()
        } else {
            Failure::BadData(format!("{why:#}")).into()
        }
    });
    let definition = definition?;
    for engine in &args.engine {
        engine.parse::<gmm_host::Device>().map_err(|why| Failure::Usage(why.to_string()))?;
    }
    let options = Options {
        engines: args.engine.clone(),
        threads: args.threads,
        python: args.python.clone(),
        budget: args.budget,
        quick: args.quick,
    };
    let program = format!("gmm bench {}", args.definition);
    let commit = format!("gmm {}", env!("CARGO_PKG_VERSION"));
    let session = Session::open(definition, &options, args.out.as_deref(), &program, commit)?;
    if let Some(path) = session.path() {
        console.note(|| format!("recording in {}", path.display()));
    }
    let record = session.run(|text| if args.json { Ok(()) } else { Ok(output::print(text)?) })?;
    if args.json {
        output::print_json(&record.json())?;
    }
    match record.failed() {
        0 => Ok(()),
        failed => Err(Failure::WrongAnswers { failed, rows: record.rows.len() }.into()),
    }
}

fn list() -> anyhow::Result<()> {
    let mut text = String::new();
    for (name, _) in BUILT_IN {
        let (name, definition) = Definition::open(name)?;
        text += &format!("{name:16} {}\n", definition.title);
    }
    Ok(output::print(&text)?)
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "it must be a number of seconds".to_owned())?;
    if seconds > 0.0 && seconds.is_finite() { Ok(seconds) } else { Err("it must be greater than 0".to_owned()) }
}
