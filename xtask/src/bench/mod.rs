//! `cargo xtask bench`: our engines beside other programs and beside what the machine can do.

mod cpu;
mod gpu;
mod harness;

use anyhow::Result;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// One EM iteration of the CPU engine and of scikit-learn, in turns.
    Cpu(cpu::Options),
    /// Log-likelihoods of the CPU engine and of scikit-learn, in turns.
    Likelihood(cpu::Options),
    /// Fits by the Rust call and by the Python package, in turns.
    Python(cpu::Options),
    /// EM iterations, initialisation and small fits on the GPU, against the chip's floor.
    Gpu(gpu::Options),
    /// EM iterations on the GPU as rows, components and columns grow.
    Growth(gpu::Options),
    /// A definition of `gmm bench` on the engines and peers that are here, recorded.
    Run(harness::Options),
    /// Make the Python environment of the other programs; what cannot be installed is named and left out.
    Peers(harness::Peers),
    /// `docs/BENCHMARKS.md` from the records; `--check` fails where it is stale.
    Report {
        /// Write nothing.
        #[arg(long)]
        check: bool,
    },
    /// Pictures of a record of growth, below `docs/`.
    Plot(gpu::Options),
}

/// Runs the benchmark that was asked for.
///
/// # Errors
/// Where a program is missing or an answer is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Cpu(options) => cpu::run("cpu", options),
        What::Likelihood(options) => cpu::run("likelihood", options),
        What::Python(options) => cpu::run("python", options),
        What::Gpu(options) => gpu::run("gpu", options),
        What::Growth(options) => gpu::run("growth", options),
        What::Run(options) => harness::run(options),
        What::Peers(options) => harness::peers(options).map(drop),
        What::Report { check } => harness::report(*check),
        What::Plot(options) => gpu::run("plot", options),
    }
}
