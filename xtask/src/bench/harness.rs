//! `cargo xtask bench run`, `peers` and `report`: the harness of `gmm bench`, with records in the repository.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::{shell, venv};

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
