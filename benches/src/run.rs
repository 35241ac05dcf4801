//! `run`: a definition of the shared harness, recorded below `benches/record`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use gmm_bench::record::{Origin, Record, heading, line};
use gmm_bench::run::{Cast, Options, run as run_definition};
use gmm_bench::{Definition, overtaking};

use crate::machine;

/// Runs one definition on the engines and peers that are here.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// em-sweeps, likelihood-sweep, variants, products, or a file.
    definition: String,
    /// Engines in place of the definition's.
    #[arg(long, value_delimiter = ',')]
    engine: Vec<String>,
    /// Small sizes and few measurements: tries the program, not the machine.
    #[arg(long)]
    quick: bool,
    /// Seconds that the whole may take, in place of the definition's.
    #[arg(long)]
    budget: Option<f64>,
    /// Threads of the CPU engine and of peers; every core if not given.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// A Python in which peers may be installed.
    #[arg(long)]
    python: Option<PathBuf>,
    /// A .csv file to be written, or the folder below which MACHINE/DATE-NAME.csv is.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to be named in the record, where the program runs away from the repository.
    #[arg(long)]
    commit: Option<String>,
}

/// Checks, times and records.
///
/// # Errors
/// Where nothing can be run, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { engine, quick, threads, python, out, commit, budget, .. } = arguments;
    let (name, mut definition) = Definition::open(&arguments.definition)?;
    if *quick {
        definition = definition.quick();
    }
    definition.budget = budget.unwrap_or(definition.budget);
    let options = Options { engines: engine.clone(), threads: *threads, python: python.clone() };
    let mut cast = Cast::open(&definition, &options)?;
    let engines = if engine.is_empty() { String::new() } else { format!(" --engine {}", engine.join(",")) };
    let budget = budget.map_or_else(String::new, |budget| format!(" --budget {budget}"));
    let command = format!("bench run {name}{engines}{budget}{}", if *quick { " --quick" } else { "" });
    let origin = Origin {
        name: &name,
        title: &definition.title,
        command: &command,
        commit: commit.clone().unwrap_or_else(|| machine::commit(Path::new("."))),
    };
    let mut record = Record::new(&origin, &cast);
    let path = record.keep(out, &name)?;
    for (name, value) in &record.facts {
        println!("# {name}: {value}");
    }
    println!("{}", heading());
    run_definition(&definition, &mut cast, &mut |row| {
        println!("{}", line(&row));
        record.push(row)
    })?;
    record.finish()?;
    print!("{}", overtaking::text(&record.rows));
    eprintln!("recorded in {}", path.display());
    match record.failed() {
        0 => Ok(()),
        failed => bail!("{failed} answers were wrong or did not come, and were not timed"),
    }
}
