//! The contest on the CPU: our engine and scikit-learn in turns.

use std::path::PathBuf;

use anyhow::{Result, bail};
use gmm_host::{CpuEngine, Engine};

use crate::{ceiling, contest, definition, machine, peer, record, workload};

/// Times the CPU engine and scikit-learn in turns, on the same data from the same start.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A few small shapes instead of those of the definition.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Threads of either program; every core if not given.
    #[arg(long)]
    pub(crate) threads: Option<usize>,
    /// A Python that has scikit-learn.
    #[arg(long)]
    pub(crate) python: PathBuf,
    /// Repository root, where definitions and peers are.
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// Folder for the data that both programs read.
    #[arg(long)]
    pub(crate) scratch: PathBuf,
    /// Folder below which the record goes: `MACHINE/DATE-NAME.csv`.
    #[arg(long)]
    pub(crate) record: PathBuf,
    /// The command to be named in the record.
    #[arg(long)]
    pub(crate) command: String,
}

/// Checks, times and records.
///
/// # Errors
/// Where a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let definition = definition::read(&arguments.root.join("benches/definitions/cpu.toml"))?;
    let plan = if arguments.quick { &definition.quick } else { &definition.record };
    let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));

    let engine = CpuEngine::new(threads)?;
    let machine = machine::describe();
    let before = ceiling::measure(threads);
    let mut peer = peer::Peer::start(&arguments.python, &arguments.root.join("benches/peers/sklearn_cpu.py"), threads)?;
    let header = record::Header {
        what: "milliseconds per EM iteration, ours and scikit-learn's in turns",
        machine: &machine,
        commit: machine::commit(&arguments.root),
        command: &arguments.command,
        threads,
        engine: engine.description(),
        peer: peer.versions()?,
    };
    eprint!("{}", header.lines());
    eprintln!("# ceiling: {before}");

    let mut record = record::Record::default();
    record::Record::print_heading();
    for &shape in &plan.shapes {
        let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
        for &kind in &definition.covariances {
            let mut contest = contest::Contest::new(&definition, &workload, kind);
            for &precision in &definition.precisions {
                record.push(contest.run(precision, plan.pairs, &engine, &mut peer)?, &before);
            }
        }
    }
    let ceilings = [before, ceiling::measure(threads)];
    let path = record.write(&header, ceilings, &arguments.record)?;
    eprintln!("recorded in {}", path.display());
    match record.wrong() {
        0 => Ok(()),
        wrong => bail!("{wrong} answers were wrong and not timed"),
    }
}
