//! `cargo xtask test`: runs all tests of the workspace. Needs only cargo.

use anyhow::Result;

use crate::shell;

/// Options of `cargo xtask test`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Arguments for `cargo test --workspace`, such as `-p gmm-model` or `-- --nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Runs unit tests, integration tests, examples and doctests of every member.
///
/// # Errors
/// Errors if a test fails. The other test programs still run, so that one log shows all failures.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut command = shell::cargo(&["test", "--workspace", "--no-fail-fast"]);
    shell::run(command.args(&options.arguments))
}
