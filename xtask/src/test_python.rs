//! `cargo xtask test-python`: the Python package as a user gets it, a wheel in an environment of its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{shell, venv};

/// What builds the wheel.
pub(crate) const MATURIN: &str = "maturin>=1.9.4,<2";

/// What the tests compare with and run on. scikit-learn's version is fixed: its checks grow with every release.
const PACKAGES: [&str; 18] = [
    MATURIN,
    "scikit-learn==1.9.1",
    "pytest",
    "hypothesis",
    // What predictions are compared with: exact arithmetic.
    "mpmath",
    "matplotlib",
    // Where rows come from.
    "pandas",
    "polars",
    "array-api-strict",
    "pyarrow",
    // Where fits and likelihoods go to.
    "emcee",
    "arviz",
    "onnxruntime",
    "skl2onnx",
    "skops",
    // What holds the stubs and the docstrings to the code.
    "mypy",
    "numpydoc",
    // What looks into the module.
    "pyelftools",
];

/// Options of `cargo xtask test-python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build with optimisation, as a release would.
    #[arg(long)]
    release: bool,
    /// Passed on to pytest, for instance `-k accel`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Makes the environment and the wheel, then runs pytest over the tests and the examples in the docstrings.
///
/// # Errors
/// Where there is no Python 3.11 or later, a package cannot be had, or a test fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let python = venv::python("python-venv", &PACKAGES)?;
    install(&python, if options.release { "release" } else { "dev" })?;
    let tests = ["-m", "pytest", "-c", "crates/gmm-python/pyproject.toml", "--doctest-modules", "--pyargs", "gmm_rs"];
    shell::run(shell::program(&python).args(tests).arg("crates/gmm-python/tests").args(&options.arguments))
}

/// Builds the wheel in a profile of cargo's, and installs it where maturin is.
///
/// # Errors
/// Where it does not build.
pub(crate) fn install(python: &Path, profile: &str) -> Result<()> {
    let wheels = shell::target().join("wheels");
    // A wheel of an earlier version would be found beside the new one.
    fs::remove_dir_all(&wheels).or_else(|error| if wheels.exists() { Err(error) } else { Ok(()) })?;
    let manifest = "crates/gmm-python/Cargo.toml";
    let build = ["-m", "maturin", "build", "--locked", "--auditwheel", "skip", "--manifest-path", manifest];
    shell::run(shell::program(python).args(build).args(["--profile", profile, "--out"]).arg(&wheels))?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    shell::run(shell::program(python).args(install).arg(only_wheel(&wheels)?))
}

/// The wheel of a folder that has one.
pub(crate) fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    found.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl")).context("no wheel was built")
}
