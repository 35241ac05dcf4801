//! Builds the book in `docs` as HTML, with mdBook.

use anyhow::Result;

use crate::{shell, tools};

/// Pinned, so that a new release of mdBook cannot fail an unchanged repository.
const VERSION: &str = "0.5.4";

/// Writes the book to `target/book`.
///
/// # Errors
/// Errors if a page is missing or mdBook is neither installed nor can be built.
pub(crate) fn run() -> Result<()> {
    // Without the search and the web server.
    let mdbook = tools::installed("mdbook", VERSION, &["--no-default-features"])?;
    shell::run(shell::program(&mdbook).args(["build", "docs"]))
}
