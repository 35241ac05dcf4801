//! `cargo xtask ci`: the checks that a change must pass, cheapest first.

use anyhow::{Result, bail};

use crate::{book, c_header, deny, package, shell, test};

type Check = fn() -> Result<()>;

/// Options of `cargo xtask ci`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Skip the tests, if they have already run.
    #[arg(long)]
    no_test: bool,
}

/// Runs all checks, even after a failure, and lists those that failed.
///
/// # Errors
/// Errors if a check fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut checks: Vec<(&str, Check)> = vec![
        ("format", format),
        ("lints", lints),
        ("documentation", documentation),
        ("dependencies", deny::run),
        ("header of the C interface", || c_header::run(&c_header::Options { check: true })),
        ("packages", package::run),
        ("book", book::run),
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
        bail!("failed checks: {}", failed.join(", "));
    }
    eprintln!("all checks passed");
    Ok(())
}

fn format() -> Result<()> {
    shell::run(&mut shell::cargo(&["fmt", "--all", "--check"]))
}

fn lints() -> Result<()> {
    shell::run(&mut shell::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    // The build without the GPU engine, which uses `no_cuda.rs` instead.
    shell::run(&mut shell::cargo(&["clippy", "--package", "gmm-host", "--", "-D", "warnings"]))
}

fn documentation() -> Result<()> {
    // Including private items: broken links there mislead readers of the source.
    let arguments = ["doc", "--workspace", "--no-deps", "--document-private-items"];
    shell::run(shell::cargo(&arguments).env("RUSTDOCFLAGS", "-D warnings"))
}
