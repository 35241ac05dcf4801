//! A map over columns and components of which of several code paths is taken.

use crate::canvas::{Anchor, Canvas, Stroke, Text};
use crate::font;
use crate::style::{COLOURS, GREY, INK, MARGIN, SMALL, TEXT, channels, colour_of};
use crate::{Error, Picture};

/// The contents of a map. The caller chooses the names of the paths.
#[derive(Clone, Debug)]
pub struct Map<'a> {
    /// Numbers of columns, ascending, drawn from left to right.
    pub columns: &'a [usize],
    /// Numbers of components, ascending, drawn from bottom to top.
    pub components: &'a [usize],
    /// The path taken at each size, `(components, columns)`, row-major.
    pub ways: &'a [String],
    /// Name and description of each path, in the legend's order.
    pub legend: &'a [(String, String)],
    /// First line above the picture.
    pub title: String,
    /// Second line above the picture, for example the device.
    pub note: String,
}

const CELL: (f64, f64) = (30.0, 20.0);
/// Title of the vertical axis.
const COMPONENTS: &str = "components, K";

/// Draws the map: a cell for each size, whose letters and shade identify its path.
///
/// # Errors
/// [`Error::Nothing`] if there are no sizes, or if the number of paths differs from the number of sizes.
pub fn plan(map: &Map<'_>) -> Result<Picture, Error> {
    let Map { columns, components, ways, legend, title, note } = map;
    if ways.is_empty() || ways.len() != columns.len() * components.len() {
        let (found, wanted) = (ways.len(), columns.len() * components.len());
        return Err(Error::Nothing(format!("{found} paths for {wanted} sizes")));
    }
    // Paths that the legend lacks are appended to it.
    let mut named: Vec<(&str, &str)> = legend.iter().map(|(name, what)| (name.as_str(), what.as_str())).collect();
    for way in *ways {
        if !named.iter().any(|(name, _)| name == way) {
            named.push((way, ""));
        }
    }
    // Letters and shades are assigned over the whole legend, so that several maps with the same legend are comparable.
    let letters = letters(&named.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let shown: Vec<usize> = (0..named.len()).filter(|i| ways.iter().any(|way| way == named[*i].0)).collect();
    let number = |n: &usize| if *n >= 100_000 { format!("{n:e}") } else { n.to_string() };
    let beside = components.iter().map(|k| font::width(&number(k), SMALL)).fold(0.0, f64::max) + TEXT + 20.0;
    let (wide, high) = (CELL.0 * columns.len() as f64, CELL.1 * components.len() as f64);
    let upright = font::width(COMPONENTS, TEXT);
    let rows = shown.len() as f64 * (TEXT + 8.0);
    let legend_width = shown.iter().map(|i| key_width(named[*i].0, named[*i].1)).fold(0.0, f64::max);
    let width = (MARGIN * 2.0 + beside + wide).max(460.0).max(MARGIN * 2.0 + legend_width.min(860.0));
    let mut canvas = Canvas::new(width, 0.0);
    // A map of few rows is moved down to leave room for its upright axis title.
    let top = canvas.heading(title, std::slice::from_ref(note)) + (0.5 * (upright - high)).max(0.0);
    let bottom = top + high;
    canvas.height = bottom + SMALL + TEXT + 24.0 + 12.0 + rows + MARGIN;
    let left = MARGIN + beside;
    for (i, way) in ways.iter().enumerate() {
        let at = named.iter().position(|(name, _)| name == way).unwrap_or(0);
        let (column, row) = (i % columns.len(), i / columns.len());
        let place = (left + CELL.0 * column as f64, bottom - CELL.1 * (row as f64 + 1.0));
        cell(&mut canvas, place, at, &letters[at]);
    }
    // A thick line between cells of different paths, so that the borders are visible without colours.
    let way = |column: usize, row: usize| &ways[row * columns.len() + column];
    let border = Stroke::new(INK, 1.6);
    for row in 0..components.len() {
        for column in 0..columns.len() {
            let (x, y) = (left + CELL.0 * (column as f64 + 1.0), bottom - CELL.1 * (row as f64 + 1.0));
            if column + 1 < columns.len() && way(column, row) != way(column + 1, row) {
                canvas.line((x, y), (x, y + CELL.1), border);
            }
            if row + 1 < components.len() && way(column, row) != way(column, row + 1) {
                canvas.line((x - CELL.0, y), (x, y), border);
            }
        }
    }
    canvas.rect((left, top), (wide, high), "none", Some(Stroke::new(INK, 1.0)));
    let text = Text::new(Anchor::Middle).colour(GREY);
    for (i, d) in columns.iter().enumerate() {
        canvas.text((left + CELL.0 * (i as f64 + 0.5), bottom + 5.0 + SMALL / 2.0), &number(d), text);
    }
    for (i, k) in components.iter().enumerate() {
        let at = (left - 6.0, bottom - CELL.1 * (i as f64 + 0.5));
        canvas.text(at, &number(k), Text { anchor: Anchor::End, ..text });
    }
    let below = bottom + SMALL + 12.0 + TEXT / 2.0;
    canvas.text((left + wide / 2.0, below), "columns, d", Text::new(Anchor::Middle).size(TEXT));
    let aside = (MARGIN + TEXT / 2.0, f64::midpoint(top, bottom));
    canvas.text(aside, COMPONENTS, Text { upright: true, ..Text::new(Anchor::Middle).size(TEXT) });
    let mut y = below + TEXT + 12.0 + CELL.1 / 2.0;
    for i in shown {
        let (name, what) = named[i];
        cell(&mut canvas, (MARGIN, y - CELL.1 / 2.0), i, &letters[i]);
        let most = width - 2.0 * MARGIN - CELL.0 - 8.0;
        canvas.text(
            (MARGIN + CELL.0 + 8.0, y),
            &font::fitted(&key(name, what), TEXT, most),
            Text::new(Anchor::Start).size(TEXT),
        );
        y += TEXT + 8.0;
    }
    Ok(Picture::new(canvas))
}

fn cell(canvas: &mut Canvas, place: (f64, f64), way: usize, letter: &str) {
    canvas.rect(place, CELL, &shade(way), Some(Stroke::new("#ffffff", 0.6)));
    canvas.text((place.0 + CELL.0 / 2.0, place.1 + CELL.1 / 2.0), letter, Text::new(Anchor::Middle));
}

/// A path's colour: pale enough for a letter to be legible. The first six differ in paleness.
pub(crate) fn shade(way: usize) -> String {
    let tint = [0.45, 0.75, 0.25, 0.9, 0.6, 0.35][way % 6];
    colour_of(channels(COLOURS[way % COLOURS.len()]).map(|v| v + (255.0 - v) * tint))
}

fn key(name: &str, what: &str) -> String {
    if what.is_empty() { name.to_owned() } else { format!("{name}: {what}") }
}

fn key_width(name: &str, what: &str) -> f64 {
    CELL.0 + 8.0 + font::width(&key(name, what), TEXT)
}

/// Abbreviates each name to as few letters as distinguish it from the others, at most three: its first letter, then the
/// first of its second word (or else its second letter), then its last.
pub(crate) fn letters(names: &[&str]) -> Vec<String> {
    // The first letter is a capital, because a single l could be mistaken for a line.
    let first = |name: &str, n: usize| {
        let second = name.find('-').map_or(1, |dash| dash + 1);
        let mut letters =
            [name.chars().next(), name.chars().nth(second), name.chars().last()].into_iter().flatten().take(n);
        letters.next().into_iter().flat_map(char::to_uppercase).chain(letters).collect::<String>()
    };
    let differ = |n: &usize| (0..names.len()).all(|i| (0..i).all(|j| first(names[i], *n) != first(names[j], *n)));
    names
        .iter()
        .map(|name| {
            let n = (1..3).find(|n| names.iter().filter(|other| first(other, *n) == first(name, *n)).count() == 1);
            first(name, n.unwrap_or_else(|| (1..3).find(differ).unwrap_or(3)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_have_letters_that_differ() {
        assert_eq!(letters(&["fused", "narrow", "halves", "host", "large"]), ["F", "N", "Ha", "Ho", "L"]);
        let paths = ["small-d", "fused", "chunked-split-fp16", "chunked-f64", "wgmma-split-fp16", "host"];
        assert_eq!(letters(&paths), ["S", "F", "Cs", "Cf", "W", "H"]);
        assert_eq!(letters(&["chunked-fp16", "chunked-f64"]), ["Cf6", "Cf4"]);
    }
}
