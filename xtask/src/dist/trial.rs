//! Tests the archive: unpacks it into a temporary folder and runs its program.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{COMPLETIONS, VERSION, archive};
use crate::shell;

/// Unpacks the archive into a temporary folder and runs the program at `program` in it.
///
/// # Errors
/// Errors if the program fails, has another version, fits wrongly, or writes other completions than the archive has.
pub(super) fn run(packed: &Path, program: &Path) -> Result<()> {
    let folder = tempfile::tempdir().context("cannot create a temporary folder")?;
    archive::unpack(packed, folder.path())?;
    let program = folder.path().join(program);
    version(&program)?;
    fit(&program)?;
    completions(&program)
}

fn version(program: &Path) -> Result<()> {
    let said = shell::output(shell::program(program).arg("--version"))?;
    ensure!(said.trim() == format!("gmm {VERSION}"), "the program says that it is {said:?}, not version {VERSION}");
    Ok(())
}

fn fit(program: &Path) -> Result<()> {
    let arguments = ["fit", "data/old_faithful.csv", "-k", "2", "--device", "cpu"];
    let said = shell::output(shell::program(program).args(arguments))?;
    ensure!(said.contains("2 components"), "the program printed no mixture of two components: {said}");
    Ok(())
}

fn completions(program: &Path) -> Result<()> {
    let folder = program.parent().context("a program lies in a folder")?.join("completions");
    for (shell, name) in COMPLETIONS {
        let said = shell::output(shell::program(program).args(["completions", shell]))?;
        let packed = std::fs::read(folder.join(name)).with_context(|| format!("the archive lacks {name}"))?;
        ensure!(said.contains("require-convergence"), "the completions for {shell} lack an option of `gmm fit`");
        ensure!(said.as_bytes() == packed, "the completions for {shell} are not those of the archive");
    }
    Ok(())
}
