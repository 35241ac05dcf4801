//! Sizes, colours, dashes and markers of all figures.
//!
//! Series differ in colour, and in dash and marker for prints without colour. The first 42 looks are distinct; the
//! first six differ in all three.

/// Size of titles. Sizes are in units of the picture, which are pixels at a scale of 1.
pub(crate) const TITLE: f64 = 14.0;
/// Axis titles, labels of series.
pub(crate) const TEXT: f64 = 12.0;
/// Numbers at ticks, notes.
pub(crate) const SMALL: f64 = 11.0;
/// Space around everything.
pub(crate) const MARGIN: f64 = 14.0;

pub(crate) const INK: &str = "#1a1a1a";
/// For notes and numbers: contrast 7:1 on white, so that they are legible in print too.
pub(crate) const GREY: &str = "#555555";
pub(crate) const FRAME: &str = "#888888";
pub(crate) const GRID: &str = "#e6e6e6";

/// Okabe and Ito's colour-blind-safe palette, with dark grey in place of yellow, which is hard to see on white. The
/// colours also differ in lightness.
pub(crate) const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#3a3a3a"];

/// Dash patterns, as lengths of strokes and gaps; the empty pattern is a solid line. No series is dotted: dots mark
/// floors.
pub(crate) const DASHES: [&str; 6] = ["", "8 3", "9 3 2 3 2 3", "9 3 2 3", "4 3", "14 4"];

/// The shape of a marker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Down,
    /// A vertical stroke, for goals: visible even if another marker lies on it.
    Bar,
}

const MARKERS: [Marker; 6] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross, Marker::Down];

/// The look of a series or component.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Look {
    pub(crate) colour: &'static str,
    pub(crate) dash: &'static str,
    pub(crate) marker: Marker,
}

impl Look {
    pub(crate) const fn of(i: usize) -> Self {
        Self { colour: COLOURS[i % COLOURS.len()], dash: DASHES[i % DASHES.len()], marker: MARKERS[i % MARKERS.len()] }
    }
}

/// The RGB channels of a colour, 0 to 255.
pub(crate) fn channels(colour: &str) -> [f64; 3] {
    let of = |at: usize| u8::from_str_radix(colour.get(at..at + 2).unwrap_or("0"), 16).map_or(0.0, f64::from);
    [of(1), of(3), of(5)]
}

/// The colour of these RGB channels, each rounded.
pub(crate) fn colour_of(channels: [f64; 3]) -> String {
    let [r, g, b] = channels.map(|v| v.round().clamp(0.0, 255.0) as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// A darker shade (channels times 0.72), for lines over points of the same colour.
pub(crate) fn darker(colour: &str) -> String {
    colour_of(channels(colour).map(|v| 0.72 * v))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forty_two_series_look_unlike_and_few_already_without_colour() {
        let looks: Vec<Look> = (0..42).map(Look::of).collect();
        for (i, a) in looks.iter().enumerate() {
            assert!(looks[..i].iter().all(|b| a != b), "{i}");
        }
        for (i, a) in looks[..6].iter().enumerate() {
            assert!(looks[..i].iter().all(|b| a.dash != b.dash && a.marker != b.marker), "{i}");
        }
    }

    #[test]
    fn colours_are_dark_enough_to_be_seen_on_white() {
        for colour in COLOURS {
            // Luminance by Rec. 709. Lines should have a contrast of 3:1 on white; the lightest colours fall short, but
            // those lines also have markers.
            let [r, g, b] = channels(colour);
            let luminance = (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255.0;
            assert!(luminance < 0.7, "{colour}: {luminance}");
            assert_eq!(colour_of(channels(colour)), colour);
        }
    }
}
