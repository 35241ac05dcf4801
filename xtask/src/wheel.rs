//! `cargo xtask wheel`: the Python package as it is given to others, optimised, stripped, and for the Linux it says it is for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail};

use crate::test_python::{MATURIN, only_wheel};
use crate::{shell, venv};

/// What builds the wheel, looks at it, and tests it. ziglang links against a glibc older than the machine's.
const PACKAGES: [&str; 5] = [MATURIN, "ziglang", "auditwheel", "pyelftools", "pytest"];

/// Options of `cargo xtask wheel`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The platforms that it is for, by the oldest glibc, such as manylinux_2_28 [default: what this machine's linker gives]
    #[arg(long, value_name = "TAG")]
    compatibility: Option<String>,
    /// Cargo's profile
    #[arg(long, default_value = "release")]
    profile: String,
    /// Link by zig, which knows older glibcs than this machine's
    #[arg(long, requires = "compatibility")]
    zig: bool,
}

/// Builds the wheel into `target/dist`, asks auditwheel whether its tag is true, and tests what it holds.
///
/// # Errors
/// Where it does not build, needs a later glibc than the tag says, or lacks what a wheel should have.
pub(crate) fn run(options: &Options) -> Result<()> {
    let python = venv::python("wheel-venv", &PACKAGES)?;
    let dist = shell::target().join("dist");
    fs::remove_dir_all(&dist).or_else(|error| if dist.exists() { Err(error) } else { Ok(()) })?;
    let manifest = "crates/gmm-python/Cargo.toml";
    let mut build = on_path(&python)?;
    build.args(["-m", "maturin", "build", "--locked", "--manifest-path", manifest, "--profile", &options.profile]);
    build.arg("--out").arg(&dist);
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
    audit(&python, &wheel, tag)?;
    let install = ["-m", "pip", "install", "--quiet", "--force-reinstall", "--no-deps"];
    shell::run(shell::program(&python).args(install).arg(&wheel))?;
    // Alone: what the other tests need is not in this environment.
    let test = ["-m", "pytest", "--noconftest", "-rs", "crates/gmm-python/tests/test_wheel.py"];
    shell::run(shell::program(&python).args(test).env("GMM_WHEEL_TAG", tag))?;
    let size = fs::metadata(&wheel)?.len() as f64 / 1e6;
    println!("{} ({size:.1} MB)", wheel.display());
    Ok(())
}

/// The environment's Python with the environment's programs on the path, where maturin looks for zig and auditwheel for others.
fn on_path(python: &Path) -> Result<Command> {
    let bin = python.parent().context("a program lies in a folder")?.to_owned();
    let path = env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> = [bin].into_iter().chain(env::split_paths(&path)).collect();
    let mut command = shell::program(python);
    command.env("PATH", env::join_paths(all)?);
    Ok(command)
}

/// Whether auditwheel, which reads the symbols that the module wants of glibc, agrees with the tag.
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
        bail!("the wheel says {tag}, but needs {found}: build with --zig, or say another --compatibility");
    }
    Ok(())
}

/// `(2, 28)` of `manylinux_2_28_x86_64`.
fn glibc(tag: &str) -> Option<(u32, u32)> {
    let mut numbers = tag.strip_prefix("manylinux_")?.split('_').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Whether one version is later than another, or not known.
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
