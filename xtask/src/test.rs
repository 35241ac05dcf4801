//! `cargo xtask test`: every test of the workspace. Needs cargo and nothing else.

use anyhow::Result;

use crate::shell;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Passed on to `cargo test --workspace`, for instance `-p gmm-model` or `-- --nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs unit tests, integration tests, examples and doctests of every member.
///
/// # Errors
/// Where a test fails. Other test programs still run, so that one log shows all that fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = shell::cargo(&["test", "--workspace", "--no-fail-fast"]);
    shell::run(command.args(&options.arguments))
}
