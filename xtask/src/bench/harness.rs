//! `cargo xtask bench run`, `end-to-end`, `peers` and `report`: benchmarks beside other programs, with records in the
//! repository.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::{shell, test_python, venv};

/// The environment of the other programs, under `target/`.
const PEERS: &str = "bench-peers";
/// The packages installed there; gmmx and torch are optional.
const PACKAGES: [&str; 3] = ["scikit-learn==1.9.1", "gmmx", "torch"];

/// Options of `cargo xtask bench run`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Definition (em-sweeps, likelihood-sweep, variants, products, or a file), then options: see `gmm-benches run
    /// --help`.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Options of `cargo xtask bench peers`.
#[derive(clap::Args)]
pub(crate) struct Peers {
    /// Packages to install instead of scikit-learn, gmmx and torch, as pip requirements.
    packages: Vec<String>,
}

/// Builds and runs the benchmark. Without `--out`, records go to `benches/record`, or `target/bench/record` with
/// `--quick`. Other programs are included if `cargo xtask bench peers` has created their environment.
///
/// # Errors
/// Errors if the build fails, nothing can be run, or a result is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    build(&["gmm-benches"])?;
    shell::run(&mut bench("run", &options.arguments))
}

/// Options of `cargo xtask bench end-to-end`.
#[derive(clap::Args)]
pub(crate) struct EndToEnd {
    /// Options of the benchmark: see `gmm-benches end-to-end --help`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the benchmark and `gmm`, installs the Python package in the environment of the other programs if that exists,
/// and runs the benchmark. Records go where those of [`run`] go.
///
/// # Errors
/// Errors if a build fails, an engine is missing, or a result is wrong.
pub(crate) fn end_to_end(options: &EndToEnd) -> Result<()> {
    let EndToEnd { arguments } = options;
    build(&["gmm-benches", "gmm-cli"])?;
    let mut bench = bench("end-to-end", arguments);
    if !has(arguments, "--program") {
        bench.arg("--program").arg(shell::target().join("release/gmm"));
    }
    if !has(arguments, "--python") && python().exists() {
        shell::run(shell::program(python()).args(["-m", "pip", "install", "--quiet", test_python::MATURIN]))?;
        test_python::install(&python(), "release")?;
    }
    shell::run(&mut bench)
}

fn build(packages: &[&str]) -> Result<()> {
    let mut command = shell::cargo(&["build", "--release"]);
    for package in packages {
        command.args(["--package", package]);
    }
    shell::run(&mut command)
}

/// The benchmark program with these arguments, and with the folder of records and the environment of the other programs
/// if they are not among them.
fn bench(what: &str, arguments: &[String]) -> Command {
    let mut bench = shell::program(shell::target().join("release/gmm-benches"));
    bench.arg(what).args(arguments);
    if !has(arguments, "--out") {
        let below = match has(arguments, "--quick") {
            true => shell::target().join("bench/record"),
            false => shell::root().join("benches/record"),
        };
        bench.arg("--out").arg(below);
    }
    let python = python();
    if !has(arguments, "--python") && python.exists() {
        bench.arg("--python").arg(python);
    }
    bench
}

fn has(arguments: &[String], name: &str) -> bool {
    arguments.iter().any(|argument| argument == name || argument.starts_with(&format!("{name}=")))
}

/// Creates the environment. A package that cannot be installed is reported and skipped.
///
/// # Errors
/// Errors if there is no Python 3 with venv, or no package can be installed.
pub(crate) fn peers(options: &Peers) -> Result<PathBuf> {
    let folder = shell::target().join(PEERS);
    shell::run(shell::program("python3").args(["-m", "venv"]).arg(&folder))
        .context("python3 with its venv module is needed (Debian: apt install python3-venv)")?;
    let ordinary = PACKAGES.map(str::to_owned);
    let packages = if options.packages.is_empty() { &ordinary[..] } else { &options.packages };
    let mut installed = 0;
    for package in packages {
        match shell::run(shell::program(python()).args(["-m", "pip", "install", "--quiet", package.as_str()])) {
            Ok(()) => installed += 1,
            Err(why) => eprintln!("note: skipping {package}: {why:#}"),
        }
    }
    anyhow::ensure!(installed > 0, "none of {} could be installed", packages.join(", "));
    Ok(python())
}

fn python() -> PathBuf {
    venv::python_of(&shell::target().join(PEERS))
}

/// Writes the page of all records; with `check`, only checks that it is up to date.
///
/// # Errors
/// Errors if a record cannot be read; with `check`, also if the page is stale.
pub(crate) fn report(check: bool) -> Result<()> {
    let mut command = shell::cargo(&["run", "--quiet", "--package", "gmm-benches", "--", "report", "--root"]);
    command.arg(shell::root());
    if check {
        command.arg("--check");
    }
    shell::run(&mut command)
}
