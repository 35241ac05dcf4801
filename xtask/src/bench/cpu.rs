//! `cargo xtask bench cpu`, `likelihood` and `python`: builds the bench program, creates the environment of
//! scikit-learn, and runs both.

use anyhow::Result;

use crate::{shell, test_python, venv};

/// Options of `cargo xtask bench cpu`, `likelihood` and `python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Run only a few small shapes, in about a minute; the record is written under `target/`.
    #[arg(long)]
    quick: bool,
    /// Number of threads of each program [default: all cores].
    #[arg(long)]
    threads: Option<usize>,
}

/// Builds and runs the benchmark, and writes the record.
///
/// # Errors
/// Errors if Python is missing, a package cannot be installed, or a result is wrong.
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
