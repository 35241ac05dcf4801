//! The bench program behind `cargo xtask bench`: checks the answers, times the programs, writes a record.

mod ceiling;
mod contest;
mod cpu;
mod definition;
mod gpu;
mod likelihood;
mod ours;
mod python;
mod record;
mod report;
mod run;
mod workload;

use anyhow::Result;
use clap::Parser;
// What every benchmark shares stands in the library, which `gmm bench` has too.
use gmm_bench::{flops, machine, parameters, peer, quiet, spread};

/// Benchmarks that check their answers before they time.
#[derive(Parser)]
enum Command {
    /// One EM iteration of the CPU engine and of scikit-learn, in turns.
    Cpu(cpu::Arguments),
    /// Log-likelihoods of the CPU engine and of scikit-learn, in turns.
    Likelihood(cpu::Arguments),
    /// Fits by the Rust call and by the Python package, in turns.
    Python(python::PythonArguments),
    /// EM iterations, initialisation and small fits on the GPU, against the chip's floor.
    Gpu(gpu::Arguments),
    /// EM iterations on the GPU as rows, components and columns grow.
    Growth(gpu::growth::Arguments),
    /// One of the definitions that `gmm bench` runs, recorded for the repository.
    Run(run::Arguments),
    /// `docs/BENCHMARKS.md` from the records.
    Report(report::Arguments),
    /// Pictures of a record of growth.
    Plot(gpu::growth::PlotArguments),
}

fn main() -> Result<()> {
    match Command::parse() {
        Command::Cpu(arguments) => cpu::run(&arguments),
        Command::Likelihood(arguments) => likelihood::run(&arguments),
        Command::Python(arguments) => python::run(&arguments),
        Command::Gpu(arguments) => gpu::run(&arguments),
        Command::Growth(arguments) => gpu::growth::run(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Report(arguments) => report::run(&arguments),
        Command::Plot(arguments) => gpu::growth::plot(&arguments),
    }
}
