//! Packages of the library crates, as `cargo publish` would make them.

use std::fs;

use anyhow::{Result, ensure};

use crate::shell;

/// In the order in which they would be published.
const LIBRARIES: [&str; 5] = ["gmm-model", "gmm-data", "gmm-kernels", "gmm-host", "gmm-mcmc"];

/// What crates.io takes at most: 10 MB, compressed.
const MOST_BYTES: u64 = 10_000_000;

/// Makes the packages without building them: what is in them was built and tested here.
///
/// # Errors
/// Where a package cannot be made, or is larger than crates.io takes.
pub(crate) fn run() -> Result<()> {
    let folder = shell::target().join("package");
    // Of an earlier version, whose size says nothing.
    let _ = fs::remove_dir_all(&folder);
    let packages = LIBRARIES.iter().flat_map(|name| ["--package", name]);
    shell::run(shell::cargo(&["package", "--quiet", "--allow-dirty", "--no-verify"]).args(packages))?;
    for entry in fs::read_dir(&folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|e| e == "crate") {
            let bytes = entry.metadata()?.len();
            ensure!(bytes <= MOST_BYTES, "{} has {bytes} bytes, crates.io takes {MOST_BYTES}", entry.path().display());
        }
    }
    Ok(())
}
