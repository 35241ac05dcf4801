//! `cargo xtask c-header`: makes the header of the C interface from its source.

use anyhow::{Result, bail};

use crate::{shell, tools};

/// Pinned, since another version may write the header differently. A program and no dependency, because of its licence
/// (MPL-2.0); it puts nothing of its own into the header.
const VERSION: &str = "0.29.4";

/// Options of `cargo xtask c-header`.
#[derive(clap::Args, Default)]
pub(crate) struct Options {
    /// Fail if the committed header is stale, and change nothing.
    #[arg(long)]
    pub(crate) check: bool,
}

/// Writes `crates/gmm-c/include/gmm.h`, or compares it.
///
/// # Errors
/// Errors if cbindgen can neither be found nor built, or if the header is stale.
pub(crate) fn run(options: &Options) -> Result<()> {
    let cbindgen = tools::installed("cbindgen", VERSION, &[])?;
    let package = shell::root().join("crates/gmm-c");
    let header = package.join("include/gmm.h");
    let mut command = shell::program(&cbindgen);
    command.arg("--quiet").arg("--config").arg(package.join("cbindgen.toml")).arg("--output").arg(&header);
    if options.check {
        command.arg("--verify");
    }
    let done = shell::run(command.arg(package.join("src/lib.rs")));
    if options.check && done.is_err() {
        bail!("{} is stale: run `cargo xtask c-header`", header.display());
    }
    done
}
