//! A finished figure and its output formats.

use std::ops::RangeInclusive;
use std::path::Path;

use resvg::usvg::{Options, Transform, Tree};
use resvg::{render, tiny_skia::Pixmap};

use crate::Error;
use crate::canvas::{Canvas, Label};

/// Allowed scales of a PNG, in pixels per unit of the picture.
pub const SCALES: RangeInclusive<f64> = 0.25..=8.0;

/// A picture's file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable vector graphics, with searchable text.
    Svg,
    /// A bitmap.
    Png,
}

impl Format {
    /// The extensions that name a format, for messages.
    pub const CHOICES: &'static str = "svg or png";

    /// The format that a path's extension names, ignoring case; `None` for any other extension.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_lowercase().as_str() {
            "svg" => Some(Self::Svg),
            "png" => Some(Self::Png),
            _ => None,
        }
    }
}

/// A finished figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    width: f64,
    height: f64,
    svg: String,
    labels: Vec<Label>,
}

impl Picture {
    pub(crate) fn new(canvas: Canvas) -> Self {
        let (width, height) = (canvas.width, canvas.height);
        let (svg, labels) = canvas.finish();
        Self { width, height, svg, labels }
    }

    /// Width and height in units of the picture, which are CSS pixels of the SVG.
    pub const fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }

    /// The figure as an SVG document.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// The figure as an SVG element within an HTML page: `name` is what a screen reader says in its place, and `id` tells
    /// it apart from the page's other figures.
    ///
    /// ```
    /// # use gmm_plot::{Trace, trace};
    /// # let picture = trace(&Trace { values: &[-2.0, -1.0], tol: 0.0, title: String::new(), note: String::new() })?;
    /// assert!(picture.inline("trace", "a < b").contains(r#"role="img" aria-label="a &lt; b""#));
    /// # Ok::<(), gmm_plot::Error>(())
    /// ```
    pub fn inline(&self, id: &str, name: &str) -> String {
        let name = crate::canvas::escaped(name).replace('"', "&quot;");
        let head = format!("<svg role=\"img\" aria-label=\"{name}\"");
        // Identifiers of clipping paths count from 0 in each figure. Text cannot match, since its < is escaped.
        let body = self.svg.replacen("<svg", &head, 1);
        let body = body.replace("<clipPath id=\"c", &format!("<clipPath id=\"{id}-c"));
        body.replace("<g clip-path=\"url(#c", &format!("<g clip-path=\"url(#{id}-c"))
    }

    /// Renders the figure as a PNG of `scale` pixels per unit, within [`SCALES`]. Needs 4 bytes of memory per pixel.
    ///
    /// # Errors
    /// [`Error::Size`] if the scale is outside [`SCALES`].
    pub fn png(&self, scale: f64) -> Result<Vec<u8>, Error> {
        let pixels = |length: f64| (length * scale).ceil().max(0.0) as u64;
        let size = || Error::Size { width: pixels(self.width), height: pixels(self.height) };
        if !SCALES.contains(&scale) {
            return Err(size());
        }
        // The SVG was made by this crate, so the only possible failure is a size beyond a pixmap's limit.
        let tree = Tree::from_str(&self.outlined(), &Options::default()).map_err(|_| size())?;
        let side = |length: f64| u32::try_from(pixels(length)).map_err(|_| size());
        let mut pixmap = Pixmap::new(side(self.width)?, side(self.height)?).ok_or_else(size)?;
        render(&tree, Transform::from_scale(scale as f32, scale as f32), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|_| size())
    }

    /// The SVG with each text as an outline, for a renderer without fonts.
    fn outlined(&self) -> String {
        let (mut out, mut done) = (String::with_capacity(2 * self.svg.len()), 0);
        for label in &self.labels {
            out.push_str(&self.svg[done..label.span.start]);
            out.push_str(&label.outlined());
            done = label.span.end;
        }
        out.push_str(&self.svg[done..]);
        out
    }

    /// The figure's bytes in a format; `scale` applies to PNG only.
    ///
    /// # Errors
    /// As [`png`](Self::png).
    pub fn bytes(&self, format: Format, scale: f64) -> Result<Vec<u8>, Error> {
        match format {
            Format::Svg => Ok(self.svg.clone().into_bytes()),
            Format::Png => self.png(scale),
        }
    }
}
