//! Draws times over columns and components as maps, one for each number of rows, with the code path taken.

use super::engines::{notes, number, plain, title, unique, unit};
use super::{Line, Record};
use crate::canvas::{Anchor, Canvas, Stroke, Text};
use crate::font;
use crate::plan::{letters, shade};
use crate::style::{GREY, INK, MARGIN, SMALL, TEXT};
use crate::{Error, Picture};

const CELL: (f64, f64) = (54.0, 22.0);
/// Room for the numbers of components at the left of a map, and for the title beside them.
const BESIDE: f64 = 30.0;
/// Room for the numbers of columns below a map, with the space to the next map.
const BELOW: f64 = 62.0;
/// Room for the name of an engine above its maps.
const ABOVE: f64 = 24.0;

/// Draws the lines of one sweep: a row of maps for each engine and precision, with a cell for each size that shows its
/// time and, as letters and a shade, its code path.
pub(super) fn map(record: &Record, lines: &[Line<'_>]) -> Result<Picture, Error> {
    let sizes = |column: &str| {
        let mut all = unique(lines.iter().filter_map(|line| line.number(column)));
        all.sort_by(f64::total_cmp);
        all
    };
    let [ns, ks, ds] = ["n", "k", "d"].map(sizes);
    let engines = unique(lines.iter().filter_map(|line| Some((line.text("engine")?, line.text("precision")?))));
    let ways: Vec<&str> = unique(lines.iter().filter_map(|line| line.text("way")));
    let letters = letters(&ways);
    let (wide, high) = (CELL.0 * ds.len() as f64, CELL.1 * ks.len() as f64);
    let step = (BESIDE + wide + MARGIN, ABOVE + high + BELOW);
    let legend = if ways.is_empty() { 0.0 } else { TEXT + 16.0 };
    let width = (MARGIN + TEXT + 4.0 + step.0 * ns.len() as f64 + MARGIN).max(520.0);
    let mut canvas = Canvas::new(width, 0.0);
    let top = canvas.heading(&title(record), &notes(record, lines, "a bar below"));
    canvas.height = top + step.1 * engines.len() as f64 + legend + MARGIN;
    let text = Text::new(Anchor::Middle);
    for (row, (engine, precision)) in engines.iter().enumerate() {
        let top = top + step.1 * row as f64 + ABOVE;
        let name = format!("{engine}, {precision}: {}, ms", unit(lines[0]));
        canvas.text((MARGIN, top - ABOVE + TEXT / 2.0), &name, Text::new(Anchor::Start).size(TEXT));
        let aside = (MARGIN + TEXT / 2.0, top + high / 2.0);
        canvas.text(aside, "K", text.size(TEXT));
        for (column, n) in ns.iter().enumerate() {
            let left = MARGIN + TEXT + 4.0 + step.0 * column as f64 + BESIDE;
            for line in lines {
                let is = (line.text("engine"), line.text("precision"), line.number("n"))
                    == (Some(*engine), Some(*precision), Some(*n));
                let at = |all: &[f64], column: &str| all.iter().position(|size| Some(*size) == line.number(column));
                let (true, Some(x), Some(y), Some(ms)) = (is, at(&ds, "d"), at(&ks, "k"), line.positive("ms")) else {
                    continue;
                };
                let place = (left + CELL.0 * x as f64, top + high - CELL.1 * (y as f64 + 1.0));
                let way = line.text("way").and_then(|way| ways.iter().position(|name| *name == way));
                let (fill, mark) = way.map_or(("#ffffff".to_owned(), ""), |way| (shade(way), letters[way].as_str()));
                canvas.rect(place, CELL, &fill, Some(Stroke::new("#ffffff", 0.6)));
                let words = format!("{mark} {}", number(ms));
                let words = font::fitted(words.trim_start(), SMALL, CELL.0 - 3.0);
                canvas.text((place.0 + CELL.0 / 2.0, place.1 + CELL.1 / 2.0), &words, text);
                if line.text("status") == Some("disturbed") {
                    let (from, below) = (place.0 + 8.0, place.1 + CELL.1 - 2.5);
                    canvas.line((from, below), (place.0 + CELL.0 - 8.0, below), Stroke::new(GREY, 1.2));
                }
            }
            canvas.rect((left, top), (wide, high), "none", Some(Stroke::new(INK, 1.0)));
            for (x, d) in ds.iter().enumerate() {
                let at = (left + CELL.0 * (x as f64 + 0.5), top + high + 5.0 + SMALL / 2.0);
                canvas.text(at, &plain(*d), text.colour(GREY));
            }
            for (y, k) in ks.iter().enumerate() {
                let at = (left - 5.0, top + high - CELL.1 * (y as f64 + 0.5));
                canvas.text(at, &plain(*k), Text { anchor: Anchor::End, ..text.colour(GREY) });
            }
            let below = (left + wide / 2.0, top + high + SMALL + 12.0 + TEXT / 2.0);
            let words = font::fitted(&format!("columns, d; N={}", plain(*n)), TEXT, wide.max(CELL.0) + MARGIN);
            canvas.text(below, &words, text.size(TEXT));
        }
    }
    let (mut x, y) = (MARGIN, top + step.1 * engines.len() as f64 + TEXT / 2.0);
    for (i, way) in ways.iter().enumerate() {
        canvas.rect((x, y - CELL.1 / 2.0), (30.0, CELL.1), &shade(i), None);
        canvas.text((x + 15.0, y), &letters[i], text);
        canvas.text((x + 38.0, y), way, Text::new(Anchor::Start).size(TEXT));
        x += 38.0 + font::width(way, TEXT) + 24.0;
    }
    Ok(Picture::new(canvas))
}
