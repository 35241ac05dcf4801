//! `cargo xtask bench run`, `peers` and `report`: the harness that `gmm bench` has too, for the repository.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{shell, venv};

/// The environment of the other programs, below `target/`.
const PEERS: &str = "bench-peers";
/// What is installed there, at stated versions; gmmx and torch run where they can be had.
const PACKAGES: [&str; 3] = ["scikit-learn==1.9.1", "gmmx", "torch"];

/// Options of `cargo xtask bench run`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// em-sweeps, likelihood-sweep, variants, products, or a file; then options of the bench program: `gmm-benches run --help`.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Options of `cargo xtask bench peers`.
#[derive(clap::Args)]
pub(crate) struct Peers {
    /// Packages in place of scikit-learn, gmmx and torch, as pip wants them.
    packages: Vec<String>,
}

/// Builds, runs and records below `benches/record`, or `target/bench/record` for `--quick`, unless told where. Peers run
/// where `cargo xtask bench peers` has made their environment.
///
/// # Errors
/// Where the build fails, nothing can be run, or an answer is wrong.
pub(crate) fn run(options: &Options) -> Result<()> {
    shell::run(&mut shell::cargo(&["build", "--release", "--package", "gmm-benches"]))?;
    let has = |name: &str| options.arguments.iter().any(|a| a == name || a.starts_with(&format!("{name}=")));
    let mut bench = shell::program(shell::target().join("release/gmm-benches"));
    bench.arg("run").args(&options.arguments);
    if !has("--out") {
        let below = match has("--quick") {
            true => shell::target().join("bench/record"),
            false => shell::root().join("benches/record"),
        };
        bench.arg("--out").arg(below);
    }
    let python = python();
    if !has("--python") && python.exists() {
        bench.arg("--python").arg(python);
    }
    shell::run(&mut bench)
}

/// Makes the environment; a package that cannot be had is a note.
///
/// # Errors
/// Where there is no Python 3 with venv, or not one package can be had.
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
            Err(why) => eprintln!("note: {package} is left out: {why:#}"),
        }
    }
    anyhow::ensure!(installed > 0, "none of {} could be installed", packages.join(", "));
    Ok(python())
}

fn python() -> PathBuf {
    venv::python_of(&shell::target().join(PEERS))
}

/// Writes the page of all records, or checks it.
///
/// # Errors
/// Where a record cannot be read, or the page is stale and only to be checked.
pub(crate) fn report(check: bool) -> Result<()> {
    let mut command = shell::cargo(&["run", "--quiet", "--package", "gmm-benches", "--", "report", "--root"]);
    command.arg(shell::root());
    if check {
        command.arg("--check");
    }
    shell::run(&mut command)
}
