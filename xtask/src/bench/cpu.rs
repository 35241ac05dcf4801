//! `cargo xtask bench cpu`, `likelihood` and `python`: builds the bench program, makes the venv of its peer, and runs both.

use anyhow::Result;

use crate::{shell, test_python, venv};

/// Options of `cargo xtask bench cpu`, `likelihood` and `python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// A few small shapes, in a minute; recorded under `target/` only.
    #[arg(long)]
    quick: bool,
    /// Threads of either program; every core if not given.
    #[arg(long)]
    threads: Option<usize>,
}

/// Builds, runs and records.
///
/// # Errors
/// Where Python is missing, a package cannot be fetched, or an answer is wrong.
pub(crate) fn run(what: &str, options: &Options) -> Result<()> {
    let python = venv::python("bench-venv", &["scikit-learn==1.9.1", test_python::MATURIN])?;
    if what == "python" {
        test_python::install(&python, "release")?;
    }
    shell::run(&mut shell::cargo(&["build", "--release", "--package", "gmm-benches"]))?;

    let scratch = shell::target().join("bench");
    let record = if options.quick { scratch.join("record") } else { shell::root().join("benches/record") };
    let mut command = format!("cargo xtask bench {what}");
    let mut bench = shell::program(shell::target().join("release/gmm-benches"));
    bench.arg(what).arg("--python").arg(python).arg("--root").arg(shell::root());
    bench.arg("--scratch").arg(scratch).arg("--record").arg(record);
    if options.quick {
        bench.arg("--quick");
        command += " --quick";
    }
    if let Some(threads) = options.threads {
        bench.arg("--threads").arg(threads.to_string());
        command += &format!(" --threads {threads}");
    }
    shell::run(bench.args(["--command", &command]))
}
