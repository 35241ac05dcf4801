//! The bench program behind `cargo xtask bench`: checks the answers, times the programs, writes a record.

mod ceiling;
mod contest;
mod cpu;
mod definition;
mod flops;
mod gpu;
mod likelihood;
mod machine;
mod ours;
mod parameters;
mod peer;
mod python;
mod quiet;
mod record;
mod spread;
mod workload;

use anyhow::Result;
use clap::Parser;

/// Benchmarks that check their answers before they time.
#[derive(Parser)]
enum Command {
    /// One EM iteration of the CPU engine and of scikit-learn, in turns.
    Cpu(cpu::Arguments),
    /// Log-likelihoods of the CPU engine and of scikit-learn, in turns.
    Likelihood(cpu::Arguments),
    /// Fits by the Rust call and by the Python package, in turns.
    Python(cpu::Arguments),
    /// EM iterations, initialisation and small fits on the GPU, against the chip's floor.
    Gpu(gpu::Arguments),
    /// EM iterations on the GPU as rows, components and columns grow.
    Growth(gpu::growth::Arguments),
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
        Command::Plot(arguments) => gpu::growth::plot(&arguments),
    }
}
