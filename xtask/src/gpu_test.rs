//! `cargo xtask gpu-test`: tests the GPU engine against the reference, on this machine's GPU.

use anyhow::Result;
use clap::Args;

use crate::shell;

/// Options of the GPU tests. Without a GPU they print `skipped: no CUDA device`; with `GMM_REQUIRE_GPU=1` they then
/// fail.
#[derive(Args)]
pub(crate) struct Options {
    /// Only small sizes, for use under a sanitizer
    #[arg(long)]
    quick: bool,
    /// Run only the sections whose names contain one of these words
    sections: Vec<String>,
}

/// Builds the tests with optimisation and runs them.
///
/// # Errors
/// Errors if the build or a test fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command =
        shell::cargo(&["test", "--release", "--package", "gmm-host", "--test", "cuda_matches_reference", "--"]);
    command.args(options.quick.then_some("--quick")).args(&options.sections);
    shell::run(&mut command)
}
