//! Compares EM iterations of the CPU engine and of scikit-learn, in turns.

use std::path::PathBuf;

use anyhow::Result;

use crate::setup::Setup;
use crate::{ceiling, contest, workload};

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
    /// Repository root, for definitions and peers.
    #[arg(long)]
    pub(crate) root: PathBuf,
    /// Folder for the data that both programs read.
    #[arg(long)]
    pub(crate) scratch: PathBuf,
    /// Folder for the record, `MACHINE/DATE-NAME.csv`.
    #[arg(long)]
    pub(crate) record: PathBuf,
    /// The command to name in the record.
    #[arg(long)]
    pub(crate) command: String,
}

/// Checks, times and records.
///
/// # Errors
/// If a program is missing, a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let what = "milliseconds per EM iteration, ours and scikit-learn's in turns";
    let mut setup = Setup::open(arguments, what, "cpu", "sklearn_cpu.py", None)?;
    let before = ceiling::measure(setup.threads);
    eprintln!("{}# ceiling: {before}", setup.facts);
    println!("{}", contest::heading());
    let Setup { definition, engine, peer, .. } = &mut setup;
    let plan = definition.plan(arguments.quick);
    let mut outcomes = Vec::new();
    for &shape in &plan.shapes {
        let workload = workload::generate(shape, definition.seed, &arguments.scratch)?;
        for &kind in &definition.covariances {
            let mut contest = contest::Contest::new(definition, &workload, kind);
            for &precision in &definition.precisions {
                let outcome = contest.run(precision, plan.pairs, engine.as_ref(), peer)?;
                println!("{}", contest::shown(&outcome, &before));
                outcomes.push(outcome);
            }
        }
    }
    let after = ceiling::measure(setup.threads);
    setup.facts.extend([("ceiling before", before.to_string()), ("ceiling after", after.to_string())]);
    let mut lines = setup.record(arguments, "cpu", contest::COLUMNS)?;
    for outcome in &outcomes {
        lines.push(&contest::fields(outcome, &before.better(after)).join(","), outcome.times.is_some())?;
    }
    lines.finish()
}
