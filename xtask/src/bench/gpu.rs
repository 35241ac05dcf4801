//! `cargo xtask bench gpu`, `growth` and `plot`: builds the bench program and runs it with the given arguments.

use anyhow::Result;

use crate::shell;

/// Arguments for the bench program.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Arguments for the bench program; `gmm-benches gpu --help` (or `growth`, `plot`) lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds and runs the benchmark. Without `--out`, records go to `benches/record`, or `target/bench/record` with
/// `--quick`, and plots to `docs`.
///
/// # Errors
/// Errors if there is no GPU, the build fails, or a result is wrong.
pub(crate) fn run(what: &str, options: &Options) -> Result<()> {
    shell::run(&mut shell::cargo(&["build", "--release", "--package", "gmm-benches"]))?;
    let mut bench = shell::program(shell::target().join("release/gmm-benches"));
    bench.arg(what);
    if !options.arguments.iter().any(|argument| argument == "--out" || argument.starts_with("--out=")) {
        let quick = options.arguments.iter().any(|argument| argument == "--quick");
        let below = if what == "plot" {
            shell::root().join("docs")
        } else if quick {
            shell::target().join("bench/record")
        } else {
            shell::root().join("benches/record")
        };
        bench.arg("--out").arg(below);
    }
    shell::run(bench.args(&options.arguments))
}
