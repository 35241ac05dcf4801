//! `cargo xtask gpu-test`: the GPU engine against the reference, on the GPU that is there.

use anyhow::Result;
use clap::Args;

use crate::shell;

/// The GPU tests as a program: it says `skipped: no CUDA device` where there is none, and fails then if
/// `GMM_REQUIRE_GPU=1` is set.
#[derive(Args)]
pub(crate) struct Options {
    /// Small sizes only, for use under a sanitizer
    #[arg(long)]
    quick: bool,
    /// Words that the names of the sections to run must contain
    sections: Vec<String>,
}

/// Builds the tests with optimisation and runs them.
///
/// # Errors
/// Where a test fails, or the build does.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command =
        shell::cargo(&["test", "--release", "--package", "gmm-host", "--test", "cuda_matches_reference", "--"]);
    command.args(options.quick.then_some("--quick")).args(&options.sections);
    shell::run(&mut command)
}
