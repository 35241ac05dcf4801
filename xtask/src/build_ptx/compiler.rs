//! Finds a rustc that can compile kernels: it needs the sources of `core`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A rustc whose sysroot contains the sources of `core`.
pub(super) struct Compiler {
    pub(super) rustc: PathBuf,
    /// The versions of rustc and LLVM.
    pub(super) version: String,
}

const HELP: &str = "kernels need a rustc with the sources of `core`. Install one with
  rustup toolchain install nightly --component rust-src
or
  apt-get install rustc-web rust-web-src         (Debian and derivatives)
or give one with --rustc PATH";

/// The given compiler; else, of the installed ones, the one that made the committed files, or the first.
pub(super) fn find(given: Option<&Path>, made_by: Option<&str>) -> Result<Compiler> {
    if let Some(rustc) = given {
        return inspect(rustc).with_context(|| format!("{} cannot compile kernels: {HELP}", rustc.display()));
    }
    let mut found: Vec<Compiler> =
        candidates().into_iter().filter_map(|rustc| inspect(&rustc).ok()).filter(|c| c.supports_kernels()).collect();
    let preferred = found.iter().position(|c| Some(c.version.as_str()) == made_by).unwrap_or(0);
    if found.is_empty() {
        bail!(HELP);
    }
    Ok(found.swap_remove(preferred))
}

/// The nightly toolchains of rustup, then the system's rustc.
fn candidates() -> Vec<PathBuf> {
    let listed = output(Command::new("rustup").args(["toolchain", "list"])).unwrap_or_default();
    let nightlies = listed.lines().filter_map(|line| line.split_whitespace().next()).filter(|n| n.contains("nightly"));
    let mut all: Vec<PathBuf> = nightlies
        .filter_map(|name| output(Command::new("rustup").args(["which", "--toolchain", name, "rustc"])).ok())
        .map(|path| path.trim().into())
        .collect();
    all.push("/usr/bin/rustc".into());
    all
}

fn inspect(rustc: &Path) -> Result<Compiler> {
    let sysroot = output(Command::new(rustc).args(["--print", "sysroot"]))?;
    let core = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/core/src/lib.rs");
    ensure!(core.exists(), "the sources of `core` are missing ({} does not exist)", core.display());
    let verbose = output(Command::new(rustc).arg("-vV"))?;
    let mut lines = verbose.lines();
    let release = lines.next().context("it does not print its version")?;
    let llvm = lines.find(|line| line.starts_with("LLVM version")).unwrap_or("LLVM version unknown");
    Ok(Compiler { rustc: rustc.to_owned(), version: format!("{release}, {}", llvm.replace("version: ", "")) })
}

impl Compiler {
    fn supports_kernels(&self) -> bool {
        let targets = output(Command::new(&self.rustc).args(["--print", "target-list"])).unwrap_or_default();
        targets.lines().any(|target| target == "nvptx64-nvidia-cuda")
    }
}

fn output(command: &mut Command) -> Result<String> {
    let out = command.env_remove("RUSTUP_TOOLCHAIN").output().with_context(|| format!("cannot run {command:?}"))?;
    ensure!(out.status.success(), "{command:?} failed: {}", String::from_utf8_lossy(&out.stderr).trim());
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
