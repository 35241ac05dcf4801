//! Makes the packages of the library crates as `cargo publish` would.

use std::fs;

use anyhow::{Result, ensure};

use crate::shell;

/// The library crates, in the order in which they would be published.
const LIBRARIES: [&str; 5] = ["gmm-model", "gmm-data", "gmm-kernels", "gmm-host", "gmm-mcmc"];

/// Largest package that crates.io accepts: 10 MB, compressed.
const MOST_BYTES: u64 = 10_000_000;

/// Makes the packages without building them: their content is built and tested by the other checks.
///
/// # Errors
/// Errors if a package cannot be made, or is larger than crates.io accepts.
pub(crate) fn run() -> Result<()> {
    let folder = shell::target().join("package");
    // Delete packages of earlier versions.
    let _ = fs::remove_dir_all(&folder);
    let packages = LIBRARIES.iter().flat_map(|name| ["--package", name]);
    shell::run(shell::cargo(&["package", "--quiet", "--allow-dirty", "--no-verify"]).args(packages))?;
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|e| e == "crate") {
            let bytes = entry.metadata()?.len();
            ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, crates.io allows {MOST_BYTES}", entry.path().display());
        }
    }
    Ok(())
}
