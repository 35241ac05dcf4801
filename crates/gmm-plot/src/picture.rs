//! A finished figure, and the formats that it can be had in.

use std::ops::RangeInclusive;
use std::path::Path;

use resvg::usvg::{Options, Transform, Tree};
use resvg::{render, tiny_skia::Pixmap};

use crate::Error;
use crate::canvas::Canvas;
use crate::font;

/// Pixels of a PNG to a unit of the picture.
pub const SCALES: RangeInclusive<f64> = 0.25..=8.0;

/// A file's kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Scalable, with text that can be searched.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// The extensions that name a format, for messages.
    pub const CHOICES: &'static str = "svg or png";

    /// The format that a file's name ends in, in letters of either case; none for any other.
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
}

impl Picture {
    pub(crate) fn new(canvas: Canvas) -> Self {
        let (width, height) = (canvas.width, canvas.height);
        Self { width, height, svg: canvas.finish() }
    }

    /// Width and height in units of the picture: pixels of an SVG as browsers show it.
    pub const fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }

    /// The figure as an SVG document.
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// The figure as a PNG of `scale` pixels to a unit, within [`SCALES`]. Needs 4 bytes of memory for each pixel.
    ///
    /// # Errors
    /// [`Error::Size`] for a scale that is not within them.
    pub fn png(&self, scale: f64) -> Result<Vec<u8>, Error> {
        let pixels = |length: f64| (length * scale).ceil().max(0.0) as u64;
        let size = || Error::Size { width: pixels(self.width), height: pixels(self.height) };
        if !SCALES.contains(&scale) {
            return Err(size());
        }
        let options = Options { fontdb: font::fonts(), font_family: "DejaVu Sans".to_owned(), ..Options::default() };
        // The SVG is our own: what can fail here is a size beyond what a pixmap may have.
        let tree = Tree::from_str(&self.svg, &options).map_err(|_| size())?;
        let side = |length: f64| u32::try_from(pixels(length)).map_err(|_| size());
        let mut pixmap = Pixmap::new(side(self.width)?, side(self.height)?).ok_or_else(size)?;
        render(&tree, Transform::from_scale(scale as f32, scale as f32), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|_| size())
    }

    /// The figure's bytes in a format; `scale` is for PNG.
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
