//! `gmm bench`: how fast this machine is, with answers checked first.

use std::path::{Path, PathBuf};

use clap::Args;
use gmm_bench::definition::{BUILT_IN, Unknown};
use gmm_bench::record::{Origin, Record, heading, line};
use gmm_bench::run::{self, Cast, Options};
use gmm_bench::{Definition, overtaking};

use crate::exit::Failure;
use crate::output::{self, Console};

const EXAMPLES: &str = "\
Every answer is compared with the naive reference before it is timed. ms is the wall clock from the call to its result, the \
median of several calls; load, inner (iterations alone, one of a batch, or a product with A resident) and device (on the \
device's clock) are parts of it. Engines and other programs that are not there are noted and left out.

Examples:
  gmm bench --quick                            some seconds: does it work, and how fast about
  gmm bench likelihood-sweep --engine cpu
  gmm bench em-sweeps --out bench --json > em.json
  gmm bench products --budget 30
  gmm bench my.toml --peers .venv/bin/python   in turns with scikit-learn, gmmx, torch, ..";

/// Time this machine on a definition's sizes, answers checked first
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    /// Name of a definition (see --list), or a .toml file
    #[arg(value_name = "NAME|FILE.toml", default_value = "em-sweeps")]
    definition: String,
    /// List the definitions that the program has
    #[arg(long)]
    list: bool,
    /// Engines in place of the definition's: cpu, reference, cuda or cuda:I
    #[arg(long, value_name = "ENGINE,..", value_delimiter = ',')]
    engine: Vec<String>,
    /// Small sizes and few measurements
    #[arg(long)]
    quick: bool,
    /// Seconds that the whole may take, in place of the definition's; sizes for which none are left are in the record as left
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    budget: Option<f64>,
    /// Threads of the CPU engine and of other programs; 0 takes one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = crate::args::threads, allow_negative_numbers = true)]
    threads: usize,
    /// A Python that may have scikit-learn, gmmx, torch, NumPy or CuPy, to run in turns with ours
    #[arg(long, visible_alias = "peers", value_name = "PYTHON")]
    python: Option<PathBuf>,
    /// Keep a record: a .csv file, or the folder for MACHINE/DATE-NAME.csv; the same as .json beside it
    #[arg(long, value_name = "OUT")]
    out: Option<PathBuf>,
    /// Print one JSON object in place of the table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &BenchArgs, console: &Console) -> anyhow::Result<()> {
    if args.list {
        return list();
    }
    // A file that cannot be read is an error of the file; what is in it, of the data.
    let definition = Definition::open(&args.definition).map_err(|why| {
        if why.is::<std::io::Error>() {
            why
        } else if why.is::<Unknown>() {
            Failure::Usage(why.to_string()).into()
        } else {
            Failure::BadData(format!("{why:#}")).into()
        }
    });
    let (name, mut definition) = definition?;
    if args.quick {
        definition = definition.quick();
    }
    definition.budget = args.budget.unwrap_or(definition.budget);
    for engine in &args.engine {
        engine.parse::<gmm_host::Device>().map_err(|why| Failure::Usage(why.to_string()))?;
    }
    let options = Options { engines: args.engine.clone(), threads: args.threads, python: args.python.clone() };
    let mut cast = Cast::open(&definition, &options)?;
    let origin = Origin {
        name: &name,
        title: &definition.title,
        command: &command(args),
        commit: format!("gmm {}", env!("CARGO_PKG_VERSION")),
    };
    let mut record = Record::new(&origin, &cast);
    if let Some(out) = &args.out {
        let path = record.keep(out, &name)?;
        console.note(|| format!("recording in {}", path.display()));
    }
    if !args.json {
        let head: String = record.facts.iter().map(|(name, value)| format!("# {name}: {value}\n")).collect();
        output::print(&format!("{head}{}\n", heading()))?;
    }
    run::run(&definition, &mut cast, &mut |row| {
        if !args.json {
            output::print(&format!("{}\n", line(&row)))?;
        }
        record.push(row)
    })?;
    record.finish()?;
    if args.json {
        output::print_json(&record.json())?;
    } else {
        output::print(&overtaking::text(&record.rows))?;
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
    if seconds > 0.0 && seconds.is_finite() { Ok(seconds) } else { Err("it must be above 0".to_owned()) }
}

/// The command as one would type it, for the record.
fn command(args: &BenchArgs) -> String {
    let mut words = vec!["gmm bench".to_owned(), args.definition.clone()];
    if !args.engine.is_empty() {
        words.push(format!("--engine {}", args.engine.join(",")));
    }
    if args.threads > 0 {
        words.push(format!("--threads {}", args.threads));
    }
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    words.extend(args.python.as_deref().map(|python| format!("--python {}", name(python))));
    words.extend(args.budget.map(|budget| format!("--budget {budget}")));
    words.extend(args.quick.then(|| "--quick".to_owned()));
    words.join(" ")
}
