//! What all figures share: sizes, colours, dashes and markers.
//!
//! A series is told by its colour, and without colours by its dash and marker: no two of the first 42 have both alike.

/// Sizes in units of the picture, which are pixels at a scale of 1.
pub(crate) const TITLE: f64 = 14.0;
/// Axis titles, labels of series.
pub(crate) const TEXT: f64 = 12.0;
/// Numbers at ticks, notes.
pub(crate) const SMALL: f64 = 11.0;
/// Space around everything.
pub(crate) const MARGIN: f64 = 14.0;

pub(crate) const INK: &str = "#1a1a1a";
/// Notes and numbers: 7:1 on white, so that they are read on paper too.
pub(crate) const GREY: &str = "#555555";
pub(crate) const FRAME: &str = "#888888";
pub(crate) const GRID: &str = "#e6e6e6";

/// Okabe and Ito's colours without yellow, which is lost on white: distinct for most eyes, and of several shades of grey.
pub(crate) const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#3a3a3a"];

/// Lengths of strokes and gaps; of none, an unbroken line. None is dotted: floors are.
pub(crate) const DASHES: [&str; 6] = ["", "8 3", "9 3 2 3 2 3", "9 3 2 3", "4 3", "14 4"];

/// What stands at a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Cross,
    Down,
    /// A stroke up and down: a mark to be reached, seen though a point lies on it.
    Bar,
}

const MARKERS: [Marker; 6] =
    [Marker::Circle, Marker::Square, Marker::Triangle, Marker::Diamond, Marker::Cross, Marker::Down];

/// How series, or component, `i` looks.
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

/// A colour's channels, 0 to 255.
pub(crate) fn channels(colour: &str) -> [f64; 3] {
    let of = |at: usize| u8::from_str_radix(colour.get(at..at + 2).unwrap_or("0"), 16).map_or(0.0, f64::from);
    [of(1), of(3), of(5)]
}

/// A colour of channels, each rounded.
pub(crate) fn colour_of(channels: [f64; 3]) -> String {
    let [r, g, b] = channels.map(|v| v.round().clamp(0.0, 255.0) as u8);
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The same, darker by a quarter: lines upon points of their own colour.
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
            // The luminance of Rec. 709; on white, 3:1 is asked of lines, and the lightest have markers beside.
            let [r, g, b] = channels(colour);
            let luminance = (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255.0;
            assert!(luminance < 0.7, "{colour}: {luminance}");
            assert_eq!(colour_of(channels(colour)), colour);
        }
    }
}
