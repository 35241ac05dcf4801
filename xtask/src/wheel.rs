//! `cargo xtask wheel`: builds the Python wheel for distribution: optimised, stripped, with a checked manylinux tag.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::test_python::{MATURIN, only_wheel};
use crate::{shell, venv};

/// Packages that build, inspect and test the wheel. ziglang can link against an older glibc than the machine's.
const PACKAGES: [&str; 5] = [MATURIN, "ziglang", "auditwheel", "pyelftools", "pytest"];

/// Options of `cargo xtask wheel`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Target platform tag with the oldest supported glibc, such as manylinux_2_28 [default: from this machine's glibc]
    #[arg(long, value_name = "TAG")]
    compatibility: Option<String>,
    /// Cargo profile; `release` builds in half the time, for a module half as large again
    #[arg(long, default_value = "dist")]
    profile: String,
    /// Link with zig, which supports older versions of glibc than this machine's
    #[arg(long, requires = "compatibility")]
    zig: bool,
    /// Target platform; its Python must run on this machine [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
}

impl Options {
    /// Options for one profile and platform; the others have their defaults.
    pub(crate) fn for_target(profile: &str, target: &str) -> Self {
        Self { compatibility: None, profile: profile.to_owned(), zig: false, target: Some(target.to_owned()) }
    }
}

/// Runs [`build`] and prints the wheel's path and size.
///
/// # Errors
/// As [`build`].
pub(crate) fn run(options: &Options) -> Result<()> {
    let wheel = build(options)?;
    println!("{} ({:.1} MB)", wheel.display(), fs::metadata(&wheel)?.len() as f64 / 1e6);
    Ok(())
}

/// Builds the wheel into `target/dist`, checks its tag with auditwheel, and tests its content. Returns its path.
///
/// # Errors
/// Errors if the build fails, the wheel needs a newer glibc than its tag, or its content is incomplete.
pub(crate) fn build(options: &Options) -> Result<PathBuf> {
    let python = venv::python("wheel-venv", &PACKAGES)?;
    let dist = shell::target().join("dist");
    // `only_wheel` must not find a wheel of an earlier version.
    clear(&dist, &[".whl"])?;
    let manifest = "crates/gmm-python/Cargo.toml";
    let mut build = on_path(&python)?;
    build.args(["-m", "maturin", "build", "--locked", "--manifest-path", manifest, "--profile", &options.profile]);
    build.arg("--out").arg(&dist);
    if let Some(target) = &options.target {
        build.args(["--target", target]);
    }
    if let Some(tag) = &options.compatibility {
        build.args(["--compatibility", tag]);
    }
    if options.zig {
        build.arg("--zig");
    }
    shell::run(&mut build)?;
    let wheel = only_wheel(&dist)?;
    let name = wheel.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let tag = name.rsplit('-').next().unwrap_or_default();
    // Other systems have no glibc.
    if cfg!(target_os = "linux") {
        audit(&python, &wheel, tag)?;
    }
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    shell::run(shell::program(&python).args(install).arg(&wheel))?;
    // Only this test: the packages that other tests need are not installed in this environment.
    let test = ["-m", "pytest", "--noconftest", "-rs", "crates/gmm-python/tests/test_wheel.py"];
    shell::run(shell::program(&python).args(test).env("GMM_WHEEL_TAG", tag))?;
    Ok(wheel)
}

/// Deletes the files of a folder whose names have one of these endings. Other files and folders stay.
///
/// # Errors
/// Errors if a file cannot be deleted.
pub(crate) fn clear(folder: &Path, endings: &[&str]) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if endings.iter().any(|ending| name.ends_with(ending)) {
            fs::remove_file(&path).with_context(|| format!("cannot delete {}", path.display()))?;
        }
    }
    Ok(())
}

/// The environment's Python with the environment's programs in `PATH`: maturin looks there for zig, auditwheel for
/// others.
fn on_path(python: &Path) -> Result<Command> {
    let bin = python.parent().context("a program lies in a folder")?.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = [bin].into_iter().chain(env::split_paths(&path)).collect();
    let mut command = shell::program(python);
    command.env("PATH", env::join_paths(all)?);
    Ok(command)
}

/// Checks the tag with auditwheel, which reads the versions of the glibc symbols that the module needs.
fn audit(python: &Path, wheel: &Path, tag: &str) -> Result<()> {
    let done = on_path(python)?.args(["-m", "auditwheel", "show"]).arg(wheel).output()?;
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    println!("{words}");
    let consistent = words.split("platform tag: \"").nth(1).and_then(|rest| rest.split('"').next());
    let Some(found) = consistent.filter(|_| done.status.success()) else {
        bail!("auditwheel cannot read {}: {}", wheel.display(), String::from_utf8_lossy(&done.stderr));
    };
    if later(glibc(found), glibc(tag)) {
        bail!("the wheel has the tag {tag}, but needs {found}: build with --zig, or change --compatibility");
    }
    Ok(())
}

/// The glibc version of a tag: `(2, 28)` for `manylinux_2_28_x86_64`.
fn glibc(tag: &str) -> Option<(u32, u32)> {
    let mut numbers = tag.strip_prefix("manylinux_")?.split('_').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Whether one version is later than the other, or either is unknown.
fn later(one: Option<(u32, u32)>, other: Option<(u32, u32)>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one > other,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::{glibc, later};

    #[test]
    fn a_tag_that_promises_an_older_glibc_than_is_needed_is_found() {
        assert_eq!(glibc("manylinux_2_28_x86_64"), Some((2, 28)));
        assert!(later(glibc("manylinux_2_34_x86_64"), glibc("manylinux_2_28")));
        assert!(!later(glibc("manylinux_2_17_x86_64"), glibc("manylinux_2_28")));
        assert!(!later(glibc("manylinux_2_28_x86_64"), glibc("manylinux_2_28")));
        assert!(later(glibc("manylinux_2_28_x86_64"), glibc("linux_x86_64")));
    }
}
