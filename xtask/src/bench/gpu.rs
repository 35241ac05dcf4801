//! `cargo xtask bench gpu`: builds the bench program and runs its workloads on the GPU that is there.

use anyhow::Result;

use crate::shell;

/// What is passed on to the bench program.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Words and options of the bench program: `gmm-benches gpu --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds, runs and records below `benches/record`, or `target/bench/record` for `--quick`, unless told where.
///
/// # Errors
/// Where there is no GPU, the build fails, or an answer is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    shell::run(&mut shell::cargo(&["build", "--release", "--package", "gmm-benches"]))?;
    let mut bench = shell::program(shell::target().join("release/gmm-benches"));
    bench.arg("gpu");
    if !options.arguments.iter().any(|argument| argument == "--out" || argument.starts_with("--out=")) {
        let quick = options.arguments.iter().any(|argument| argument == "--quick");
        let below = if quick { shell::target().join("bench/record") } else { shell::root().join("benches/record") };
        bench.arg("--out").arg(below);
    }
    shell::run(bench.args(&options.arguments))
}
