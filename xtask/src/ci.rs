//! `cargo xtask ci`: the checks that a change must pass, cheapest first.

use anyhow::{Result, bail};

use crate::{deny, package, shell, test};

type Check = fn() -> Result<()>;

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Leave the tests out, for where they have run already.
    #[arg(long)]
    no_test: bool,
}

/// Runs every check, also after one has failed, and names those that did.
///
/// # Errors
/// Where a check fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut checks: Vec<(&str, Check)> = vec![
        ("format", format),
        ("lints", lints),
        ("documentation", documentation),
        ("dependencies", deny::run),
        ("packages", package::run),
    ];
    if !options.no_test {
        checks.push(("tests", || test::run(&test::Options::default())));
    }
    let mut failed = Vec::new();
    for (name, check) in checks {
        eprintln!("== {name}");
        if let Err(error) = check() {
            eprintln!("error: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("checks that failed: {}", failed.join(", "));
    }
    eprintln!("every check passed");
    Ok(())
}

fn format() -> Result<()> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<()> {
    shell::run(&mut shell::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // The build without a GPU engine, in which `no_cuda.rs` stands in for it.
    shell::run(&mut shell::cargo(&["clippy", "--package", "gmm-host", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    // Private items too: a broken link misleads whoever reads the source.
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    shell::run(shell::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
}
