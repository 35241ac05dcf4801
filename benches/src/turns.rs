//! What benchmarks that take turns have in common: their options, and the head of their record.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use gmm_bench::record::{Csv, Facts};
use gmm_bench::{hardware, machine};
use gmm_host::{CpuEngine, CudaEngine, Engine};

/// Options of a benchmark that takes turns on the CPU or on a GPU.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct EngineTurns {
    #[command(flatten)]
    pub(crate) common: TurnOptions,
    /// Use a GPU.
    #[arg(long)]
    cuda: bool,
}

impl EngineTurns {
    /// Opens the engine, and the record of the benchmark of this name.
    ///
    /// # Errors
    /// If there is no GPU, or the file cannot be written.
    pub(crate) fn open(&self, name: &str, title: &str, columns: &str) -> Result<(Arc<dyn Engine>, Csv)> {
        let (engine, command): (Arc<dyn Engine>, _) = match self.cuda {
            true => (Arc::new(CudaEngine::new(0)?), format!("{name} --cuda")),
            false => (Arc::new(CpuEngine::new(self.common.threads)?), name.to_owned()),
        };
        let record = self.common.record(&*engine, &command, title, columns)?;
        Ok((engine, record))
    }
}

/// Options of a benchmark that takes turns.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct TurnOptions {
    /// Smaller problems, to see that the benchmark works.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Turns of each kind: what is measured, then what it is compared with.
    #[arg(long, default_value_t = 3)]
    pub(crate) turns: usize,
    /// Number of threads; 0 is all cores.
    #[arg(long, default_value_t = 0)]
    pub(crate) threads: usize,
    /// The .csv file to write, or the folder for MACHINE/DATE-NAME.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// Seed of the data and of the starts.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

impl TurnOptions {
    /// Opens the record. `command` is the benchmark's name, and further options if there are some.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn record(&self, engine: &dyn Engine, command: &str, title: &str, columns: &str) -> Result<Csv> {
        let Self { quick, turns, out, seed, .. } = self;
        let hardware = hardware::describe(engine);
        let size = if *quick { " --quick" } else { "" };
        let name = command.split(' ').next().unwrap_or(command);
        let command = format!("{command} --turns {turns} --seed {seed}{size}");
        let mut facts = Facts::new(title, machine::commit(Path::new(".")), &command);
        facts.extend(hardware.facts);
        Csv::create(out, &hardware.slug, &format!("{}-{name}", machine::today()), &facts, columns)
    }
}
