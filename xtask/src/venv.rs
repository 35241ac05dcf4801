//! Python environments under `target/`, created once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell;

/// The Python interpreter of an environment.
pub(crate) fn python_of(folder: &Path) -> PathBuf {
    folder.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" })
}

/// Returns the Python interpreter of `target/NAME`, which has these packages installed; creates the environment if
/// necessary.
///
/// # Errors
/// Errors if there is no Python 3 with venv, or pip cannot install a package.
pub(crate) fn python(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let folder = shell::target().join(name);
    let python = python_of(&folder);
    // Written last, so that an interrupted installation starts again.
    let finished = folder.join("packages.txt");
    let wanted = packages.join("\n");
    if fs::read_to_string(&finished).is_ok_and(|found| found == wanted) {
        return Ok(python);
    }
    shell::run(shell::program("python3").args(["-m", "venv"]).arg(&folder))
        .context("python3 with its venv module is needed (Debian: apt install python3-venv)")?;
    shell::run(shell::program(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    fs::write(&finished, wanted).with_context(|| format!("cannot write {}", finished.display()))?;
    Ok(python)
}
