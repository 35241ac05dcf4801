//! `run`: runs a definition of `gmm bench` and records it below `benches/record`.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use gmm_bench::record::Csv;
use gmm_bench::{Definition, Options, Session, machine};

/// Runs one definition on the available engines and peers.
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
    /// Total time budget in seconds, in place of the definition's.
    #[arg(long)]
    budget: Option<f64>,
    /// Threads of the CPU engine and of peers; every core if not given.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// A Python in which peers may be installed.
    #[arg(long)]
    python: Option<PathBuf>,
    /// The .csv file to write, or the folder for MACHINE/DATE-NAME.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
}

/// Checks, times and records.
///
/// # Errors
/// If no engine is available, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let Arguments { definition, engine, quick, budget, threads, python, out, commit } = arguments;
    let options =
        Options { engines: engine.clone(), threads: *threads, python: python.clone(), budget: *budget, quick: *quick };
    let commit = commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let opened = Definition::open(definition)?;
    let session = Session::open(opened, &options, Some(out), &format!("bench run {definition}"), commit)?;
    let record = session.run(|text| {
        print!("{text}");
        Ok(())
    })?;
    if let Some(csv) = &record.csv {
        eprintln!("recorded in {}", Csv::path(csv).display());
    }
    match record.failed() {
        0 => Ok(()),
        failed => bail!("{failed} answers were wrong or did not come, and were not timed"),
    }
}
