//! The drawing surface of all figures: lines, markers and text at pixel positions, stored as SVG.

use std::fmt::Write as _;
use std::ops::Range;

use gmm_model::shown;

use crate::font::{self, FAMILIES};
use crate::style::{INK, Marker, SMALL};

/// A position in pixels: x to the right, y downwards.
pub(crate) type At = (f64, f64);

/// An SVG document under construction.
pub(crate) struct Canvas {
    pub(crate) width: f64,
    pub(crate) height: f64,
    body: String,
    labels: Vec<Label>,
    clips: usize,
}

/// A text of a figure with all that its outline needs, for a renderer without fonts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Label {
    /// The bytes of its `<text>` element.
    pub(crate) span: Range<usize>,
    text: String,
    size: f64,
    at: At,
    anchor: Anchor,
    /// Further attributes of the element.
    look: String,
}

impl Label {
    /// The text as an SVG path.
    pub(crate) fn outlined(&self) -> String {
        let Self { text, size, at: (x, y), anchor, look, .. } = self;
        let left = match anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => -0.5 * font::width(text, *size),
            Anchor::End => -font::width(text, *size),
        };
        let outline = font::outline(text, *size);
        format!("<g{look}><path transform=\"translate({:.3} {y:.3})\" d=\"{outline}\"/></g>", x + left)
    }
}

/// The style of a line.
#[derive(Clone, Copy)]
pub(crate) struct Stroke<'a> {
    pub(crate) colour: &'a str,
    pub(crate) width: f64,
    pub(crate) dash: &'a str,
}

impl<'a> Stroke<'a> {
    pub(crate) const fn new(colour: &'a str, width: f64) -> Self {
        Self { colour, width, dash: "" }
    }
}

/// The part of a text that is placed at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The style of text.
#[derive(Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) size: f64,
    pub(crate) colour: &'a str,
    pub(crate) anchor: Anchor,
    /// Whether the text runs upwards, along a vertical axis.
    pub(crate) upright: bool,
    /// Whether the text has a white outline, for text over data.
    pub(crate) rim: bool,
}

impl<'a> Text<'a> {
    pub(crate) const fn new(anchor: Anchor) -> Self {
        Self { size: SMALL, colour: INK, anchor, upright: false, rim: false }
    }

    pub(crate) const fn size(self, size: f64) -> Self {
        Self { size, ..self }
    }

    pub(crate) const fn colour(self, colour: &'a str) -> Self {
        Self { colour, ..self }
    }
}

/// Distance from the middle of a line of text down to its baseline, divided by the text size.
const BASELINE: f64 = 0.36;

impl Canvas {
    pub(crate) const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new(), labels: Vec::new(), clips: 0 }
    }

    /// Returns the complete SVG document, and the texts in it.
    pub(crate) fn finish(self) -> (String, Vec<Label>) {
        let Self { width, height, body, mut labels, .. } = self;
        let (width, height) = (short(width), short(height));
        let head = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"{FAMILIES}\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        for Label { span, .. } in &mut labels {
            *span = span.start + head.len()..span.end + head.len();
        }
        (format!("{head}{body}</svg>\n"), labels)
    }

    pub(crate) fn line(&mut self, from: At, to: At, stroke: Stroke<'_>) {
        self.polyline(&[from, to], stroke);
    }

    pub(crate) fn polyline(&mut self, points: &[At], stroke: Stroke<'_>) {
        let mut path = String::new();
        for (i, (x, y)) in points.iter().enumerate() {
            let _ = write!(path, "{}{} {}", if i == 0 { 'M' } else { 'L' }, short(*x), short(*y));
        }
        let stroke = stroked(stroke);
        let _ = writeln!(self.body, "<path d=\"{path}\" fill=\"none\"{stroke} stroke-linejoin=\"round\"/>");
    }

    pub(crate) fn rect(&mut self, (x, y): At, (width, height): At, fill: &str, stroke: Option<Stroke<'_>>) {
        let [x, y, width, height] = [x, y, width, height].map(short);
        let stroke = stroke.map(stroked).unwrap_or_default();
        let _ = writeln!(
            self.body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"{stroke}/>"
        );
    }

    /// Draws an ellipse whose first axis (`radii.0`) points `degrees` clockwise from the right.
    pub(crate) fn ellipse(&mut self, (x, y): At, radii: At, degrees: f64, stroke: Stroke<'_>) {
        let [x, y, rx, ry] = [x, y, radii.0, radii.1].map(short);
        let degrees = if degrees.abs() < 1e-3 { 0.0 } else { degrees };
        let turn =
            if degrees == 0.0 { String::new() } else { format!(" transform=\"rotate({} {x} {y})\"", short(degrees)) };
        let stroke = stroked(stroke);
        let _ =
            writeln!(self.body, "<ellipse cx=\"{x}\" cy=\"{y}\" rx=\"{rx}\" ry=\"{ry}\" fill=\"none\"{stroke}{turn}/>");
    }

    /// Draws markers of one kind and colour; `size` is the radius. `open` markers are white inside.
    pub(crate) fn markers(&mut self, marker: Marker, places: &[At], size: f64, colour: &str, open: bool) {
        if places.is_empty() {
            return;
        }
        // Markers made of lines have no area to fill.
        let thin = matches!(marker, Marker::Cross | Marker::Bar);
        let line = if thin { 0.5 * size } else { 0.3 * size };
        let look = match (open, thin) {
            (true, false) => format!("fill=\"#ffffff\" stroke=\"{colour}\" stroke-width=\"{}\"", short(line.max(1.2))),
            (_, true) => {
                format!("fill=\"none\" stroke=\"{colour}\" stroke-width=\"{}\"", short(line.max(1.0)))
            }
            _ => format!("fill=\"{colour}\""),
        };
        let _ = writeln!(self.body, "<g {look}>");
        for (x, y) in places {
            self.marker(marker, (*x, *y), size);
        }
        self.body.push_str("</g>\n");
    }

    fn marker(&mut self, marker: Marker, (x, y): At, size: f64) {
        let (left, top) = (short(x), short(y));
        // Factors that give all markers about the area of the circle.
        let (half, tip) = (short(0.88 * size), short(1.25 * size));
        let (low, wide) = (short(0.75 * size), short(1.2 * size));
        let side = short(1.76 * size);
        let out = &mut self.body;
        let _ = match marker {
            Marker::Circle => writeln!(out, "<circle cx=\"{left}\" cy=\"{top}\" r=\"{}\"/>", short(size)),
            Marker::Square => writeln!(out, "<path d=\"M{left} {top}m-{half}-{half}h{side}v{side}h-{side}z\"/>"),
            Marker::Triangle => {
                let rise = short(1.25 * size + 0.75 * size);
                writeln!(out, "<path d=\"M{left} {top}m-{wide} {low}l{wide}-{rise} {wide} {rise}z\"/>")
            }
            Marker::Down => {
                let rise = short(1.25 * size + 0.75 * size);
                writeln!(out, "<path d=\"M{left} {top}m-{wide}-{low}l{wide} {rise} {wide}-{rise}z\"/>")
            }
            Marker::Diamond => {
                writeln!(out, "<path d=\"M{left} {top}m0-{tip}l{tip} {tip}-{tip} {tip}-{tip}-{tip}z\"/>")
            }
            Marker::Bar => writeln!(out, "<path d=\"M{left} {top}m0-{side}v{}\"/>", short(3.52 * size)),
            Marker::Cross => {
                writeln!(out, "<path d=\"M{left} {top}m-{half}-{half}l{side} {side}m0-{side}l-{side} {side}\"/>")
            }
        };
    }

    /// Draws text, vertically centred on its position.
    pub(crate) fn text(&mut self, (x, y): At, text: &str, how: Text<'_>) {
        let Text { size, colour, anchor, upright, rim } = how;
        let shift = BASELINE * size;
        let at @ (x, y) = if upright { (x + shift, y) } else { (x, y + shift) };
        let [x, y] = [x, y].map(short);
        let turn = if upright { format!(" transform=\"rotate(-90 {x} {y})\"") } else { String::new() };
        let rim = if rim {
            " stroke=\"#ffffff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\""
        } else {
            ""
        };
        let look = format!(" fill=\"{colour}\"{rim}{turn}");
        let side = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let start = self.body.len();
        let (points, written) = (short(size), escaped(text));
        let _ = write!(self.body, "<text x=\"{x}\" y=\"{y}\" font-size=\"{points}\"{side}{look}>{written}</text>");
        let span = start..self.body.len();
        self.body.push('\n');
        self.labels.push(Label { span, text: shown(text).into_owned(), size, at, anchor, look });
    }

    /// Draws with clipping to a rectangle.
    pub(crate) fn inside(&mut self, (x, y): At, (width, height): At, draw: impl FnOnce(&mut Self)) {
        let id = self.clips;
        self.clips += 1;
        let [x, y, width, height] = [x, y, width, height].map(short);
        let _ = writeln!(
            self.body,
            "<clipPath id=\"c{id}\"><rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/></clipPath>\n\
             <g clip-path=\"url(#c{id})\">"
        );
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// Draws with partial opacity.
    pub(crate) fn faint(&mut self, opacity: f64, draw: impl FnOnce(&mut Self)) {
        let _ = writeln!(self.body, "<g fill-opacity=\"{0}\" stroke-opacity=\"{0}\">", short(opacity));
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// Draws a title and, below it, notes in grey, each truncated to the picture's width. Returns the y at which they
    /// end.
    pub(crate) fn heading(&mut self, title: &str, notes: &[String]) -> f64 {
        use crate::style::{GREY, MARGIN, TITLE};
        let most = self.width - 2.0 * MARGIN;
        let mut y = MARGIN + TITLE / 2.0;
        self.text((MARGIN, y), &font::fitted(title, TITLE, most), Text::new(Anchor::Start).size(TITLE));
        y += TITLE / 2.0;
        for note in notes.iter().filter(|note| !note.is_empty()) {
            y += SMALL + 1.0;
            self.text((MARGIN, y), &font::fitted(note, SMALL, most), Text::new(Anchor::Start).colour(GREY));
            y += 4.0;
        }
        y + 10.0
    }
}

fn stroked(Stroke { colour, width, dash }: Stroke<'_>) -> String {
    let dash = if dash.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dash}\"") };
    format!(" stroke=\"{colour}\" stroke-width=\"{}\"{dash}", short(width))
}

/// Formats a length to a hundredth of a pixel, without trailing zeros.
fn short(value: f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Escapes text for XML and HTML, attributes included, after [`shown`]: XML cannot represent most control characters.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in shown(text).chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short_and_text_is_escaped() {
        assert_eq!([1.0, 1.25, -0.001, 100.0, 3.456].map(short), ["1", "1.25", "0", "100", "3.46"]);
        assert_eq!(escaped("a<b & c>\n\u{1}\u{202e}"), "a&lt;b &amp; c&gt;\\n\\u{1}\\u{202e}");
    }
}
