//! Pictures of mixtures, of how they were found, and of how long that took, as SVG and PNG.
//!
//! A figure is laid out once, in pixels, by the widths of the font that the crate brings along: that is how text neither
//! overlaps nor leaves the picture. It is kept as SVG with real text; a PNG is that SVG, drawn. Series differ in marker and
//! dash as well as in colour, so that a print in black and white can be read. Same input, same bytes.
//!
//! Drawing goes by `resvg` and not by a plotting library's bitmaps: those of `plotters` place everything on whole pixels,
//! in SVG too, which makes ellipses rough, and take the machine's fonts. `resvg` is taken without its readers of images and
//! of the machine's fonts; the font, cut down to the letters that are needed, has 73 KiB.
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

pub use bench::{Line, Record, Sweep, bench, growth};
pub use fit::{Fit, MOST_COLUMNS, MOST_POINTS, NAMED, drawn, fit, points_of};
pub use picture::{Format, Picture, SCALES};
pub use plan::{Map, plan};
pub use select::{Candidate, select};
pub use trace::{Trace, trace};

/// Why there is no picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What was given has nothing that can be drawn.
    #[error("there is nothing to draw: {0}")]
    Nothing(String),
    /// Columns that are not there, are given twice, or are too many.
    #[error("{0}")]
    Columns(String),
    /// A record that is none, or has no times.
    #[error("not a record that can be drawn: {0}")]
    Record(String),
    /// A PNG of a size that cannot be.
    #[error("no PNG of {width} × {height} pixels can be drawn: lower the scale")]
    Size {
        /// Pixels across.
        width: u64,
        /// Pixels up.
        height: u64,
    },
}
