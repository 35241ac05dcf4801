//! `cargo xtask bench`: benchmarks of our engines against other programs and against hardware limits.

mod cpu;
mod gpu;
mod harness;
mod starts;

use anyhow::Result;

/// Options of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Time EM iterations of the CPU engine and of scikit-learn, interleaved.
    Cpu(cpu::Options),
    /// Time log-likelihoods of the CPU engine and of scikit-learn, interleaved.
    Likelihood(cpu::Options),
    /// Time fits from Rust and from the Python package, interleaved.
    Python(cpu::Options),
    /// Time EM iterations, initialisation and small fits on the GPU, and compare them with the hardware limit.
    Gpu(gpu::Options),
    /// Time EM iterations on the GPU for growing numbers of rows, components and columns.
    Growth(gpu::Options),
    /// Time reads and fits of files as whole processes, and calls from Python, with the available other programs.
    EndToEnd(harness::EndToEnd),
    /// Fit public data sets from every start and from scikit-learn's, and compare the likelihoods that they reach.
    Starts(starts::Options),
    /// Run a definition of `gmm bench` with the available engines and other programs, and record the times.
    Run(harness::Options),
    /// Create the Python environment of the other programs; packages that cannot be installed are skipped.
    Peers(harness::Peers),
    /// Write `docs/BENCHMARKS.md` from the records; with `--check`, fail if it is stale.
    Report {
        /// Only check, do not write.
        #[arg(long)]
        check: bool,
    },
    /// Plot a record of growth to `docs/`.
    Plot(gpu::Options),
}

/// Runs the selected benchmark.
///
/// # Errors
/// Errors if a program is missing or a result is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Cpu(options) => cpu::run("cpu", options),
        What::Likelihood(options) => cpu::run("likelihood", options),
        What::Python(options) => cpu::run("python", options),
        What::Gpu(options) => gpu::run("gpu", options),
        What::Growth(options) => gpu::run("growth", options),
        What::EndToEnd(options) => harness::end_to_end(options),
        What::Starts(options) => starts::run(options),
        What::Run(options) => harness::run(options),
        What::Peers(options) => harness::peers(options).map(drop),
        What::Report { check } => harness::report(*check),
        What::Plot(options) => gpu::run("plot", options),
    }
}
