//! Licences, sources and duplicates of dependencies, by cargo-deny; known vulnerabilities where the network allows it.

use std::path::PathBuf;

use anyhow::Result;

use crate::shell;

/// Pinned, so that a release of cargo-deny cannot turn an unchanged repository red.
const VERSION: &str = "0.20.2";

/// Runs what can be decided from the lock file and the crates alone, then the advisories where their list is reached.
///
/// # Errors
/// Where a licence, a source or a ban is violated, an advisory applies, or cargo-deny can be neither found nor built.
pub(crate) fn run() -> Result<()> {
    let deny = installed()?;
    // The crates are on disk once anything was built, so this half needs no network.
    shell::run(shell::program(&deny).args(["--workspace", "check", "bans", "licenses", "sources"]))?;
    // The list of advisories is a git repository that closed networks do not reach.
    if let Err(error) = shell::run(shell::program(&deny).args(["--workspace", "fetch", "db"])) {
        eprintln!("note: known vulnerabilities were NOT checked, their list cannot be fetched: {error:#}");
        return Ok(());
    }
    shell::run(shell::program(&deny).args(["--workspace", "check", "--disable-fetch", "advisories"]))
}

/// cargo-deny in `target/tools`, built there if it is not.
fn installed() -> Result<PathBuf> {
    let tools = shell::target().join("tools");
    let deny = tools.join("bin").join(format!("cargo-deny{}", std::env::consts::EXE_SUFFIX));
    if !deny.exists() {
        // Unoptimised: it builds in a minute on two cores and runs for a second.
        let mut install = shell::cargo(&["install", "cargo-deny", "--locked", "--debug", "--version", VERSION]);
        shell::run(install.arg("--root").arg(&tools))?;
    }
    Ok(deny)
}
