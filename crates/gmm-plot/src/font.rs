//! The font that the program brings along, and how wide text is in it.
//!
//! A picture must not depend on what fonts a machine has, so PNGs are drawn in this one. SVGs name it first and any sans
//! serif after it. DejaVu Sans is wider than most of those: what fits in it fits in a browser's choice as well.

use std::sync::{Arc, LazyLock};

use gmm_model::shown;
use resvg::usvg::fontdb;
use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

/// Its licence lies beside it.
const FONT: &[u8] = include_bytes!("../font/DejaVuSans-subset.ttf");

/// The families of an SVG's text, widest first.
pub(crate) const FAMILIES: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";

static WIDTHS: LazyLock<FontRef<'static>> = LazyLock::new(|| FontRef::new(FONT).expect("the font at hand is whole"));

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// The only fonts that PNGs are drawn with.
pub(crate) fn fonts() -> Arc<fontdb::Database> {
    Arc::clone(&FONTS)
}

/// Width of a line of text of this size. A letter that the font has not counts as a square.
pub(crate) fn width(text: &str, size: f64) -> f64 {
    let letters = WIDTHS.charmap();
    let metrics = WIDTHS.glyph_metrics(Size::new(1000.0), LocationRef::default());
    let of = |letter: char| letters.map(letter).and_then(|glyph| metrics.advance_width(glyph));
    text.chars().map(|letter| of(letter).map_or(1.0, |units| f64::from(units) / 1000.0)).sum::<f64>() * size
}

/// The text, or as much of it as is this wide, with `…` where it is cut: in the middle, since names often differ at
/// either end.
pub(crate) fn fitted(text: &str, size: f64, most: f64) -> String {
    // As it will be drawn.
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
        // DejaVu Sans: digits of 1303 of 2048 units.
        assert!((width("0", 2048.0) - 1303.0).abs() < 1.0, "{}", width("0", 2048.0));
        assert!((width("123", 10.0) - 3.0 * width("7", 10.0)).abs() < 1e-9);
        assert_eq!(width("", 12.0), 0.0);
        assert_eq!(width("雪", 12.0), 12.0);
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
