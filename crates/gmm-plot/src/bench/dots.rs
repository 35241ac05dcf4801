//! Times of workloads as dots on a logarithmic scale, with their spread and their reference times (goal, floor, peers).

use super::{Line, Record};
use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::font;
use crate::panel::{Axis, Panel};
use crate::scale::{Scale, Ticks};
use crate::style::{GREY, GRID, INK, Look, MARGIN, Marker, SMALL, TEXT};
use crate::{Error, Picture};

/// A reference time that a record may have beside its own: its column, the columns of its spread, its name and its
/// look.
struct Other {
    column: &'static str,
    spread: Option<[&'static str; 2]>,
    name: &'static str,
    look: Look,
    open: bool,
}

const fn look(i: usize, marker: Marker) -> Look {
    Look { marker, ..Look::of(i) }
}

const OTHERS: [Other; 9] = [
    Other { column: "goal_ms", spread: None, name: "goal", look: look(1, Marker::Bar), open: false },
    Other {
        column: "floor_ms",
        spread: None,
        name: "floor: what the chip needs at least",
        look: look(6, Marker::Diamond),
        open: true,
    },
    Other {
        column: "peer_ms",
        spread: Some(["peer_ms_min", "peer_ms_max"]),
        name: "peer",
        look: look(1, Marker::Square),
        open: true,
    },
    Other {
        column: "python_ms",
        spread: Some(["python_ms_min", "python_ms_max"]),
        name: "from Python",
        look: look(2, Marker::Triangle),
        open: true,
    },
    Other { column: "sklearn_ms", spread: None, name: "scikit-learn", look: look(1, Marker::Square), open: true },
    Other { column: "batch_ms", spread: None, name: "each of a batch", look: look(2, Marker::Diamond), open: true },
    Other { column: "read_ms", spread: None, name: "of it reading", look: look(3, Marker::Diamond), open: true },
    Other { column: "fit_ms", spread: None, name: "of it the fit", look: look(2, Marker::Triangle), open: true },
    Other { column: "gradient_ms", spread: None, name: "with gradient", look: look(3, Marker::Triangle), open: true },
];

/// Columns of the times' spread, the narrower one first.
const SPREADS: [([&str; 2], &str); 2] = [(["ms_q1", "ms_q3"], "quartiles"), (["ms_min", "ms_max"], "least and most")];

const WIDTH: f64 = 820.0;
const STEP: f64 = 18.0;
const SIZE: f64 = 4.0;

pub(super) fn dots(record: &Record) -> Result<Picture, Error> {
    let lines: Vec<Line<'_>> = record.lines().collect();
    let others: Vec<&Other> =
        OTHERS.iter().filter(|other| lines.iter().any(|line| line.positive(other.column).is_some())).collect();
    let spread = SPREADS.iter().find(|([low, _], _)| lines.iter().any(|line| line.positive(low).is_some()));
    let values = || {
        let columns = ["ms"].into_iter().chain(spread.iter().flat_map(|(columns, _)| *columns));
        let columns =
            columns.chain(others.iter().flat_map(|o| [o.column].into_iter().chain(o.spread.into_iter().flatten())));
        columns.flat_map(|column| lines.iter().filter_map(move |line| line.positive(column)))
    };
    if !lines.iter().any(|line| line.positive("ms").is_some()) {
        return Err(Error::Record("it has no times in a column 'ms'".to_owned()));
    }
    let names: Vec<String> = lines.iter().map(|line| name(*line)).collect();
    let what = record.fact("what").unwrap_or("milliseconds");
    let what = what.split(';').next().unwrap_or(what);
    let mut canvas = Canvas::new(WIDTH, 0.0);
    let mut title = what.to_owned();
    if let Some(first) = title.get(..1).map(str::to_uppercase) {
        title.replace_range(..1, &first);
    }
    let mut top = canvas.heading(&title, &[record.source()]);
    top = key(&mut canvas, top, record, &others, spread.map(|(_, name)| *name));
    let beside = names.iter().map(|name| font::width(name, SMALL)).fold(0.0, f64::max).min(0.45 * WIDTH) + 10.0;
    let height = STEP * lines.len() as f64 + 6.0;
    canvas.height = top + height + crate::panel::BELOW + MARGIN;
    let x = Axis::new(Scale::logarithmic(values(), 0.03), "milliseconds, lower is better");
    // Rows lie at 0.5, 1.5, ..; their names take the place of an axis' numbers.
    let y = Axis::bare(Scale::between(lines.len() as f64, 0.0));
    let size = (WIDTH - 2.0 * MARGIN - beside - 8.0, height);
    let ticks = x.scale.ticks(size.0, true);
    let panel = Panel::at((MARGIN + beside, top), size, x, y).with_x_ticks(ticks).with_y_ticks(Ticks::default());
    panel.grid(&mut canvas);
    let mut marks: Vec<(Look, bool, Vec<At>)> =
        others.iter().map(|other| (other.look, other.open, Vec::new())).collect();
    let mut own: Vec<At> = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let row = i as f64 + 0.5;
        let at = |value: f64| panel.place(value, row);
        let (_, middle) = at(1.0);
        canvas.line((panel.left, middle), (panel.right(), middle), Stroke { colour: GRID, width: 0.8, dash: "1 3" });
        let named = font::fitted(&names[i], SMALL, beside - 10.0);
        canvas.text((panel.left - 8.0, middle), &named, Text::new(Anchor::End));
        let mut whisker = |columns: [&str; 2], colour: &str| {
            if let (Some(low), Some(high)) = (line.positive(columns[0]), line.positive(columns[1])) {
                let (from, to) = (at(low), at(high));
                canvas.line(from, to, Stroke::new(colour, 1.4));
                for (x, y) in [from, to] {
                    canvas.line((x, y - 3.0), (x, y + 3.0), Stroke::new(colour, 1.4));
                }
            }
        };
        for (other, (.., places)) in others.iter().zip(&mut marks) {
            if let Some(spread) = other.spread {
                whisker(spread, other.look.colour);
            }
            places.extend(line.positive(other.column).map(at));
        }
        if let Some((columns, _)) = spread {
            whisker(*columns, Look::of(0).colour);
        }
        match line.positive("ms") {
            Some(ms) => own.push(at(ms)),
            None => {
                let why = line.text("verdict").or_else(|| line.text("status")).unwrap_or("no time");
                canvas.text((panel.left + 8.0, middle), why, Text::new(Anchor::Start).colour(GREY));
            }
        }
    }
    for (look, open, places) in marks {
        canvas.markers(look.marker, &places, SIZE, look.colour, open);
    }
    canvas.markers(Marker::Circle, &own, SIZE, Look::of(0).colour, false);
    panel.axes(&mut canvas);
    Ok(Picture::new(canvas))
}

/// Draws the legend of the markers above the panel; returns the y at which it ends.
fn key(canvas: &mut Canvas, top: f64, record: &Record, others: &[&Other], spread: Option<&str>) -> f64 {
    let peer = record.fact("peer").map(|peer| peer.split(',').next().unwrap_or(peer).to_owned());
    let own = match spread {
        Some(spread) => format!("time (bar: {spread})"),
        None => "time".to_owned(),
    };
    let mut entries = vec![(Look::of(0), false, own)];
    for other in others {
        let name = if other.column == "peer_ms" { peer.clone() } else { None };
        entries.push((other.look, other.open, name.unwrap_or_else(|| other.name.to_owned())));
    }
    let (mut x, mut y) = (MARGIN + SIZE, top + SMALL / 2.0);
    for (look, open, text) in entries {
        let width = font::width(&text, TEXT) + 14.0 + 22.0;
        if x > MARGIN + SIZE && x + width > WIDTH - MARGIN {
            (x, y) = (MARGIN + SIZE, y + TEXT + 6.0);
        }
        canvas.markers(look.marker, &[(x, y)], SIZE, look.colour, open);
        canvas.text((x + 12.0, y), &text, Text::new(Anchor::Start).size(TEXT).colour(INK));
        x += width;
    }
    y + TEXT + 8.0
}

/// The name of a record's line: its workload, or its covariance, precision and size.
fn name(line: Line<'_>) -> String {
    if let Some(workload) = line.text("workload") {
        return workload.to_owned();
    }
    let number = |column: &str| line.number(column).map(|v| if v >= 1e4 { format!("{v:e}") } else { v.to_string() });
    let words = ["covariance", "precision"].into_iter().filter_map(|column| line.text(column)).collect::<Vec<_>>();
    let sizes = [("N", "n"), ("K", "k"), ("d", "d")].into_iter();
    let sizes = sizes.filter_map(|(letter, column)| Some(format!("{letter}={}", number(column)?))).collect::<Vec<_>>();
    format!("{}, {}", words.join(" "), sizes.join(" "))
}
