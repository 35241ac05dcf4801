//! `report`: writes or checks the page of all records.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Writes `docs/BENCHMARKS.md` from `benches/record` and `benches/published`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Repository root.
    #[arg(long, default_value = ".")]
    root: PathBuf,
    /// Write nothing, and fail if the page is not up to date with the records.
    #[arg(long)]
    check: bool,
}

/// Writes or checks the page.
///
/// # Errors
/// If a record or a publication cannot be read; with `--check`, if the page is stale.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let page = arguments.root.join("docs/BENCHMARKS.md");
    let made = made(&arguments.root)?;
    if arguments.check {
        if std::fs::read_to_string(&page).unwrap_or_default() != made {
            bail!("{} is not what the records make: run `cargo xtask bench report` and commit it", page.display());
        }
        return Ok(());
    }
    std::fs::write(&page, made).with_context(|| format!("cannot write {}", page.display()))?;
    eprintln!("wrote {}", page.display());
    Ok(())
}

fn made(root: &Path) -> Result<String> {
    let published = gmm_bench::published::read(&root.join("benches/published"))?;
    gmm_bench::report::page(&root.join("benches/record"), &published)
}
