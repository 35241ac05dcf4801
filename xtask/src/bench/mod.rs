//! `cargo xtask bench`: our engines beside other programs.

mod cpu;
mod venv;

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
}

/// Runs the benchmark that was asked for.
///
/// # Errors
/// Where a program is missing or an answer is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    match &options.what {
        What::Cpu(options) => cpu::run(options),
    }
}
