//! The bundled font, and the width of text in it.
//!
//! A picture must not depend on the fonts of the machine, so PNGs are drawn in this font. SVGs name it first, then
//! other sans-serif fonts. DejaVu Sans is wider than most of those, so text that fits in it also fits in the font that
//! a browser chooses.

use std::fmt::Write as _;
use std::sync::LazyLock;

use gmm_model::shown;
use ttf_parser::{Face, OutlineBuilder};

/// The font; its licence is in the same folder.
const FONT: &[u8] = include_bytes!("../font/DejaVuSans-subset.ttf");

/// The font families of an SVG's text, widest first.
pub(crate) const FAMILIES: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

static FACE: LazyLock<Face<'static>> = LazyLock::new(|| Face::parse(FONT, 0).expect("the embedded font is whole"));

/// Width of a line of text of this size. A letter that the font lacks counts as a square.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    text.chars().map(advance).sum::<f64>() * size
}

/// The advance of a letter, in units of the text's size.
fn advance(letter: char) -> f64 {
    let units = FACE.glyph_index(letter).and_then(|glyph| FACE.glyph_hor_advance(glyph));
    units.map_or(1.0, |units| f64::from(units) / f64::from(FACE.units_per_em()))
}

/// The outline of a line of text as the data of an SVG path that starts on the baseline at (0, 0), y downwards. A letter
/// that the font lacks is drawn as U+FFFD.
pub(crate) fn outline(text: &str, size: f64) -> String {
    let mut pen = Pen { path: String::new(), x: 0.0, scale: size / f64::from(FACE.units_per_em()) };
    for letter in text.chars() {
        if let Some(glyph) = FACE.glyph_index(letter).or_else(|| FACE.glyph_index('\u{fffd}')) {
            FACE.outline_glyph(glyph, &mut pen);
        }
        pen.x += advance(letter) * size;
    }
    pen.path
}

/// Writes glyphs, given in font units with y upwards, as the data of an SVG path.
struct Pen {
    path: String,
    /// Where the current glyph begins.
    x: f64,
    scale: f64,
}

impl Pen {
    fn command(&mut self, name: char, points: &[(f32, f32)]) {
        self.path.push(name);
        for (x, y) in points {
            let (x, y) = (self.x + f64::from(*x) * self.scale, -f64::from(*y) * self.scale);
            let _ = write!(self.path, "{x:.3} {y:.3} ");
        }
    }
}

impl OutlineBuilder for Pen {
    fn move_to(&mut self, x: f32, y: f32) {
        self.command('M', &[(x, y)]);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        self.command('L', &[(x, y)]);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        self.command('Q', &[(x1, y1), (x, y)]);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        self.command('C', &[(x1, y1), (x2, y2), (x, y)]);
    }

    fn close(&mut self) {
        self.command('Z', &[]);
    }
}

/// The text, shortened to at most this width by replacing its middle with `…`: names often differ at either end.
pub(crate) fn fitted(text: &str, size: f64, most: f64) -> String {
    // Escaped as it will be drawn.
    let text = shown(text);
    if width(&text, size) <= most {
        return text.into_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let cut = |keep: usize| -> String {
        let head = keep.div_ceil(2);
        letters[..head]
            .iter()
            .copied()
            .chain(['…'])
            .chain(letters[letters.len() - (keep - head)..].iter().copied())
            .collect()
    };
    (0..letters.len()).rev().map(cut).find(|short| width(short, size) <= most).unwrap_or_else(|| "…".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_the_fonts_own_and_grow_with_the_text() {
        // In DejaVu Sans a digit is 1303 of 2048 units wide.
        assert!((width("0", 2048.0) - 1303.0).abs() < 1.0, "{}", width("0", 2048.0));
        assert!((width("123", 10.0) - 3.0 * width("7", 10.0)).abs() < 1e-9);
        assert_eq!(width("", 12.0), 0.0);
        assert_eq!(width("雪", 12.0), 12.0);
    }

    #[test]
    fn an_outline_is_as_wide_as_its_text_and_stands_on_the_baseline() {
        let points = |text: &str| -> Vec<f64> {
            outline(text, 2048.0).split([' ', 'M', 'L', 'Q', 'C', 'Z']).filter_map(|n| n.parse().ok()).collect()
        };
        // `H` of DejaVu Sans: from 201 to 1339 of an advance of 1540, and 1493 high.
        let (x, y): (Vec<f64>, Vec<f64>) = points("HH").chunks_exact(2).map(|p| (p[0], p[1])).unzip();
        let ends = |v: &[f64]| (v.iter().copied().fold(f64::MAX, f64::min), v.iter().copied().fold(f64::MIN, f64::max));
        assert_eq!((ends(&x), ends(&y)), ((201.0, 1540.0 + 1339.0), (-1493.0, 0.0)));
        assert!(points(" ").is_empty() && !points("雪").is_empty());
    }

    #[test]
    fn long_names_keep_both_ends() {
        let name = "a_very_long_name_of_a_column_in_metres";
        let short = fitted(name, 12.0, 100.0);
        assert!(width(&short, 12.0) <= 100.0 && short.starts_with("a_ver") && short.ends_with("etres"), "{short}");
        assert_eq!(fitted("short", 12.0, 100.0), "short");
        assert_eq!(fitted("wide", 12.0, 1.0), "…");
    }
}
