//! `cargo xtask test-python`: tests the Python package as a wheel installed in its own environment.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::{shell, venv};

/// The build tool of the wheel.
pub(crate) const MATURIN: &str = "maturin>=1.9.4,<2";

/// Packages that the tests need. scikit-learn's version is pinned, because every release adds estimator checks.
const PACKAGES: [&str; 20] = [
    MATURIN,
    "scikit-learn==1.9.1",
    "pytest",
    "hypothesis",
    // Arbitrary-precision arithmetic, to check predictions.
    "mpmath",
    "matplotlib",
    // Sources of rows.
    "pandas",
    "polars",
    "array-api-strict",
    "pyarrow",
    "dask[array,dataframe,distributed]",
    // Users of fits, likelihoods and draws.
    "emcee",
    "arviz",
    "onnxruntime",
    "skl2onnx",
    "skops",
    // Another implementation of regression.
    "gmr",
    // Checks of the stubs and docstrings.
    "mypy",
    "numpydoc",
    // Inspects the extension module.
    "pyelftools",
];

/// Options of `cargo xtask test-python`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Build with optimisation, as for a release.
    #[arg(long)]
    release: bool,
    /// Arguments for pytest, such as `-k accel`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Creates the environment and the wheel, then runs pytest on the tests and the examples in docstrings.
///
/// # Errors
/// Errors if there is no Python 3.11 or later, a package cannot be installed, or a test fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let python = venv::python("python-venv", &PACKAGES)?;
    install(&python, if options.release { "release" } else { "dev" })?;
    let tests = ["-m", "pytest", "-c", "crates/gmm-python/pyproject.toml", "--doctest-modules", "--pyargs", "gmm_rs"];
    shell::run(shell::program(&python).args(tests).arg("crates/gmm-python/tests").args(&options.arguments))
}

/// Builds the wheel with the given cargo profile, and installs it in the environment of `python`.
///
/// # Errors
/// Errors if the build or the installation fails.
pub(crate) fn install(python: &Path, profile: &str) -> Result<()> {
    let wheels = shell::target().join("wheels");
    // Delete wheels of earlier versions, so that only the new one is found.
    fs::remove_dir_all(&wheels).or_else(|error| if wheels.exists() { Err(error) } else { Ok(()) })?;
    let manifest = "crates/gmm-python/Cargo.toml";
    let build = ["-m", "maturin", "build", "--locked", "--auditwheel", "skip", "--manifest-path", manifest];
    shell::run(shell::program(python).args(build).args(["--profile", profile, "--out"]).arg(&wheels))?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    shell::run(shell::program(python).args(install).arg(only_wheel(&wheels)?))
}

/// The single wheel in a folder.
pub(crate) fn only_wheel(folder: &Path) -> Result<PathBuf> {
    let found = fs::read_dir(folder)?.filter_map(|entry| Some(entry.ok()?.path()));
    found.into_iter().find(|path| path.extension().is_some_and(|e| e == "whl")).context("no wheel was built")
}
