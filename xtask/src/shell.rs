//! Runs child processes in the repository root, printing each command first.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The repository root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// The build directory: `CARGO_TARGET_DIR` if set, else `target`.
pub(crate) fn target() -> PathBuf {
    root().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// A command that runs the cargo of this program with the given arguments.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = program(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// A command that runs a program in the repository root.
pub(crate) fn program(name: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Runs a command to its end, with inherited output.
///
/// # Errors
/// Errors if it does not start or fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = line(command);
    eprintln!("$ {line}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start `{line}`"))?;
    let seconds = start.elapsed().as_secs_f64();
    if !status.success() {
        bail!("`{line}` failed ({status}) after {seconds:.1} s");
    }
    eprintln!("  done in {seconds:.1} s");
    Ok(())
}

/// Runs a command and returns its standard output.
///
/// # Errors
/// Errors if it cannot start, fails, or writes text that is not UTF-8.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    eprintln!("$ {line}");
    let done = command.output().with_context(|| format!("cannot start `{line}`"))?;
    if !done.status.success() {
        bail!("`{line}` failed ({}): {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("the output of `{line}` is not UTF-8"))
}

/// The command as typed in a shell, with the environment variables that it sets.
fn line(command: &Command) -> String {
    let set = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}='{}'", name.to_string_lossy(), value?.to_string_lossy())));
    let name = Path::new(command.get_program()).file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let arguments = command.get_args().map(|a| a.to_string_lossy().into_owned());
    set.chain([name]).chain(arguments).collect::<Vec<_>>().join(" ")
}
