//! Checks licences, sources and duplicates of dependencies with cargo-deny, and known vulnerabilities if there is a
//! network.

use anyhow::Result;

use crate::{shell, tools};

/// Pinned, so that a new release of cargo-deny cannot fail an unchanged repository.
const VERSION: &str = "0.20.2";

/// Runs the checks that need only the lock file and the crates, then checks the advisories if their list can be
/// fetched.
///
/// # Errors
/// Errors if a licence, a source or a ban is violated, an advisory applies, or cargo-deny is neither installed nor can
/// be built.
pub(crate) fn run() -> Result<()> {
    let deny = tools::installed("cargo-deny", VERSION, &[])?;
    // The crates are on disk after any build, so these checks need no network.
    shell::run(shell::program(&deny).args(["--workspace", "check", "bans", "licenses", "sources"]))?;
    // The list of advisories is a git repository, which may not be reachable from a closed network.
    if let Err(error) = shell::run(shell::program(&deny).args(["--workspace", "fetch", "db"])) {
        eprintln!("note: known vulnerabilities were NOT checked, because their list cannot be fetched: {error:#}");
        return Ok(());
    }
    shell::run(shell::program(&deny).args(["--workspace", "check", "--disable-fetch", "advisories"]))
}
