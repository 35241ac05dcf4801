//! Draws mixtures, EM traces, model selections and benchmark records as SVG and PNG.
//!
//! A figure is laid out once, in pixels, with the glyph widths of a bundled font, so that text neither overlaps nor
//! leaves the picture. It is stored as SVG with real text; a PNG is rendered from that SVG. Series differ in marker and
//! dash as well as in colour, so that they can be told apart in black and white. The same input gives the same bytes.
//!
//! PNGs are rendered by `resvg` rather than by a plotting library: `plotters` rounds all positions to whole pixels,
//! even in SVG, which makes ellipses rough, and uses the machine's fonts. `resvg` is built without support for images
//! and system fonts; the bundled font, reduced to the necessary characters, has 73 KiB.
//!
//! ```
//! use gmm_plot::{Trace, trace};
//!
//! let values = [-4.204, -4.156, -4.1554];
//! let picture = trace(&Trace { values: &values, tol: 1e-3, title: "A fit".to_owned(), note: String::new() })?;
//! assert!(picture.svg().starts_with("<svg") && picture.png(2.0)?.starts_with(b"\x89PNG"));
//! # Ok::<(), gmm_plot::Error>(())
//! ```

mod bench;
mod canvas;
mod entropy;
mod fit;
mod font;
mod lines;
mod panel;
mod picture;
mod plan;
mod scale;
mod select;
mod style;
mod trace;
mod tree;

pub use bench::{Line, Only, Record, Sweep, bars, bench, growth};
pub use canvas::escaped;
pub use entropy::{Entropy, entropy};
pub use fit::{Fit, MOST_COLUMNS, MOST_POINTS, NAMED, drawn, fit, points_of};
pub use picture::{Format, Picture, SCALES};
pub use plan::{Map, plan};
pub use select::{Candidate, select};
pub use trace::{Trace, trace};
pub use tree::{Dendrogram, dendrogram};

/// Why a picture cannot be drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The input contains nothing that can be drawn.
    #[error("there is nothing to draw: {0}")]
    Nothing(String),
    /// Columns that do not exist, are given twice, or are too many; or inputs whose sizes disagree.
    #[error("{0}")]
    Columns(String),
    /// Text that is not a benchmark record, or a record without times.
    #[error("not a record that can be drawn: {0}")]
    Record(String),
    /// A PNG of an impossible size.
    #[error("no PNG of {width} × {height} pixels can be drawn: lower the scale")]
    Size {
        /// Width in pixels.
        width: u64,
        /// Height in pixels.
        height: u64,
    },
}
