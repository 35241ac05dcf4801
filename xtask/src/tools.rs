//! Programs that checks use, built from crates.io into `target/tools`.

use std::path::PathBuf;

use anyhow::Result;

use crate::shell;

/// Returns the path of a program in `target/tools`; builds this version of its crate there if necessary.
///
/// # Errors
/// Errors if the crate cannot be fetched or built.
pub(crate) fn installed(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let tools = shell::target().join("tools");
    let program = tools.join("bin").join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
    if !program.exists() {
        // Unoptimised, without debug information: these build in a minute on two cores, and run in a second.
        let mut install = shell::cargo(&["install", name, "--locked", "--debug", "--version", version]);
        install.env("CARGO_PROFILE_DEV_DEBUG", "false");
        shell::run(install.args(options).arg("--root").arg(&tools))?;
    }
    Ok(program)
}
