//! Draws a record of `gmm bench`: engines and other programs as lines over the growing size, with a panel for each
//! sweep and precision.

use super::{Line, Record, Sweep, map};
use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::font;
use crate::lines::{self, Series};
use crate::panel::{Axis, BELOW, Panel};
use crate::scale::{Scale, Ticks};
use crate::style::{GRID, INK, Look, MARGIN, SMALL, TEXT};
use crate::{Error, Picture};

/// Whether a record is one of `gmm bench`.
pub(super) fn is(record: &Record) -> bool {
    ["sweep", "engine", "samples"].iter().all(|name| record.columns().iter().any(|column| column == name))
}

/// Which sizes vary among the lines of one sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Varies {
    /// One size.
    One(Sweep),
    /// All three, always equal to each other.
    Square,
    /// None: there is a single size.
    Nothing,
    /// Several, not all equal.
    Several,
}

impl Varies {
    pub(super) fn of(lines: &[Line<'_>]) -> Self {
        let differ = |sweep: &Sweep| {
            let mut sizes = lines.iter().filter_map(|line| line.number(sweep.name()));
            let first = sizes.next();
            sizes.any(|size| Some(size) != first)
        };
        let all: Vec<Sweep> = Sweep::ALL.into_iter().filter(differ).collect();
        let square = |line: &Line<'_>| {
            let [n, k, d] = Sweep::ALL.map(|sweep| line.number(sweep.name()));
            n == k && n == d
        };
        match &all[..] {
            [] => Self::Nothing,
            [one] => Self::One(*one),
            _ if lines.iter().all(square) => Self::Square,
            _ => Self::Several,
        }
    }
}

/// Width and height of a panel, including its numbers, titles and names.
const SIZE: (f64, f64) = (640.0, 330.0);
/// Room for the numbers and the title at the left.
const ROOM: f64 = 72.0;

/// Columns of times, and the label of such times after the engine's name. Every engine has the first.
const TIMES: [(&str, &str); 4] =
    [("ms", ""), ("batch_ms", "each of a batch"), ("resident_ms", "A resident"), ("device_ms", "all on the device")];

/// One line of a panel.
struct Own {
    name: String,
    /// Size, time in ms, and whether other processes disturbed the measurement.
    points: Vec<(f64, f64, bool)>,
}

/// Draws the record; if `only` is given, just the sweep in which that size grows.
pub(super) fn engines(record: &Record, only: Option<Sweep>) -> Result<Picture, Error> {
    let chosen = |line: &Line<'_>| only.is_none_or(|only| line.text("sweep") == Some(only.name()));
    let timed: Vec<Line<'_>> = record.lines().filter(|line| line.positive("ms").is_some() && chosen(line)).collect();
    if timed.is_empty() {
        let of = only.map_or_else(String::new, |sweep| format!(" of sweep '{}'", sweep.name()));
        return Err(Error::Record(format!("it has no times{of}")));
    }
    let sweeps = unique(timed.iter().map(|line| [line.text("sweep"), line.text("covariance")]));
    let group = |sweep: &[Option<&str>; 2]| -> Vec<Line<'_>> {
        timed.iter().copied().filter(|line| [line.text("sweep"), line.text("covariance")] == *sweep).collect()
    };
    if let Some(several) = sweeps.iter().map(group).find(|lines| Varies::of(lines) == Varies::Several) {
        return map::map(record, &several);
    }
    let precisions = unique(timed.iter().filter_map(|line| line.text("precision")));
    // A name has the same look in all panels: looks are assigned in the record's order.
    let names = unique(timed.iter().flat_map(|line| own_names(*line)));
    let mut canvas = Canvas::new(MARGIN + sweeps.len() as f64 * (SIZE.0 + MARGIN), 0.0);
    let top = canvas.heading(&title(record), &notes(record, &timed, "white inside"));
    canvas.height = top + precisions.len() as f64 * SIZE.1 + MARGIN;
    for (column, sweep) in sweeps.iter().enumerate() {
        let lines = group(sweep);
        let varies = Varies::of(&lines);
        for (row, precision) in precisions.iter().enumerate() {
            let here: Vec<Line<'_>> =
                lines.iter().copied().filter(|line| line.text("precision") == Some(precision)).collect();
            let own: Vec<(Look, Own)> =
                names.iter().enumerate().map(|(i, name)| (Look::of(i), own(&here, name, varies))).collect();
            let own: Vec<(Look, Own)> = own.into_iter().filter(|(_, own)| !own.points.is_empty()).collect();
            if own.is_empty() {
                continue;
            }
            let place = (MARGIN + column as f64 * (SIZE.0 + MARGIN), top + row as f64 * SIZE.1);
            let time = format!("{precision}: {}, ms", unit(here[0]));
            let across = across(varies, &here, sweep[1]);
            match varies {
                Varies::Nothing => single(&mut canvas, place, &own, &time, &across),
                _ => panel(&mut canvas, place, &own, time, across),
            }
        }
    }
    Ok(Picture::new(canvas))
}

/// Draws a panel of lines over sizes; both scales are logarithmic.
fn panel(canvas: &mut Canvas, (left, top): At, own: &[(Look, Own)], time: String, across: String) {
    let points = || own.iter().flat_map(|(_, own)| &own.points);
    let x = Scale::logarithmic(points().map(|point| point.0), 0.03);
    let y = Axis::new(Scale::logarithmic(points().map(|point| point.1), 0.05), time);
    let beside = lines::beside(own.iter().map(|(_, own)| own.name.as_str()));
    let size = (SIZE.0 - ROOM - beside, SIZE.1 - BELOW - 16.0);
    let panel = Panel::at((left + ROOM, top), size, Axis::new(x, across), y);
    let panel = panel.with_x_ticks(lines::whole(x, size.0));
    panel.grid(canvas);
    let series: Vec<Series> = own
        .iter()
        .map(|(look, own)| Series {
            name: own.name.clone(),
            points: own.points.iter().map(|(x, y, _)| (*x, *y)).collect(),
            look: *look,
            open: own.points.iter().map(|point| point.2).collect(),
        })
        .collect();
    lines::draw(canvas, &panel, &series);
    panel.axes(canvas);
    lines::names(canvas, &panel, &series);
}

/// Draws a panel for a single size: a marker for each engine on a logarithmic scale, with its time as a number.
fn single(canvas: &mut Canvas, (left, top): At, own: &[(Look, Own)], time: &str, size: &str) {
    let beside = own.iter().map(|(_, own)| font::width(&own.name, SMALL)).fold(0.0, f64::max) + 14.0;
    let x = Scale::logarithmic(own.iter().flat_map(|(_, own)| own.points.iter().map(|point| point.1)), 0.08);
    let y = Axis::bare(Scale::between(own.len() as f64, 0.0));
    let title = format!("{time} ({size})");
    let numbers = 64.0;
    let across = (SIZE.0 - beside - numbers, (SIZE.1 - BELOW - 16.0).min(30.0 * own.len() as f64 + 12.0));
    let panel = Panel::at((left + beside, top), across, Axis::new(x, title), y).with_y_ticks(Ticks::default());
    panel.grid(canvas);
    for (i, (look, own)) in own.iter().enumerate() {
        for (_, ms, disturbed) in &own.points {
            let at = panel.place(*ms, i as f64 + 0.5);
            canvas.line((panel.left, at.1), (panel.right(), at.1), Stroke { colour: GRID, width: 0.8, dash: "1 3" });
            canvas.text((panel.left - 8.0, at.1), &own.name, Text::new(Anchor::End));
            canvas.markers(look.marker, &[at], 4.5, look.colour, *disturbed);
            canvas.text((panel.right() + 8.0, at.1), &number(*ms), Text::new(Anchor::Start).colour(INK).size(TEXT));
        }
    }
    panel.axes(canvas);
}

/// Names of the drawn lines to which a line of the record contributes: the engine's whole call, and its separately
/// timed parts.
fn own_names(line: Line<'_>) -> Vec<String> {
    let engine = line.text("engine").unwrap_or("?");
    // Left out: resident and device times on a CPU, which copies nothing; device times of fits, which equal the wall
    // times; and batch times of the reference, which takes mixtures one by one.
    let apart = |column: &str| match column {
        "ms" => true,
        "batch_ms" => engine != "reference",
        _ => line.text("what") == Some("product") && engine.contains("cu"),
    };
    let has = |(column, _): &(&str, &str)| apart(column) && line.positive(column).is_some();
    TIMES.into_iter().filter(has).map(|(_, part)| name(engine, part)).collect()
}

fn name(engine: &str, part: &str) -> String {
    if part.is_empty() { engine.to_owned() } else { format!("{engine}, {part}") }
}

fn own(lines: &[Line<'_>], wanted: &str, varies: Varies) -> Own {
    let sweep = if let Varies::One(sweep) = varies { sweep } else { Sweep::Rows };
    let mut points: Vec<(f64, f64, bool)> = Vec::new();
    for line in lines {
        let part = own_names(*line).into_iter().any(|name| name == wanted).then(|| {
            let engine = line.text("engine").unwrap_or("?");
            TIMES.into_iter().find(|(_, part)| name(engine, part) == wanted)
        });
        let time = part.flatten().and_then(|(column, _)| line.positive(column));
        points.extend(line.positive(sweep.name()).zip(time).map(|(size, ms)| {
            let disturbed = line.text("status") == Some("disturbed");
            (size, ms, disturbed)
        }));
    }
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    Own { name: wanted.to_owned(), points }
}

/// The unit of work that a time refers to.
pub(super) fn unit(line: Line<'_>) -> String {
    match (line.text("what"), line.text("iterations")) {
        (Some("em"), Some(iterations)) => format!("a fit of {iterations} iterations"),
        (Some("likelihood"), _) => "one log-likelihood".to_owned(),
        (Some("product"), _) => "a product".to_owned(),
        _ => "a call".to_owned(),
    }
}

/// The horizontal axis' title: the growing size and the fixed ones.
fn across(varies: Varies, lines: &[Line<'_>], covariance: Option<&str>) -> String {
    let product = lines[0].text("what") == Some("product");
    let size = |sweep: Sweep| lines[0].number(sweep.name()).map_or_else(String::new, plain);
    let letter = |sweep: Sweep| match sweep {
        Sweep::Rows => "N",
        Sweep::Components => "K",
        Sweep::Columns => "d",
    };
    let stays = |grows: Option<Sweep>| -> Vec<String> {
        let rest = Sweep::ALL.into_iter().filter(|sweep| Some(*sweep) != grows);
        rest.map(|sweep| format!("{}={}", letter(sweep), size(sweep))).chain(covariance.map(str::to_owned)).collect()
    };
    match varies {
        Varies::Square => "n, of n×n times n×n".to_owned(),
        Varies::One(sweep) => format!("{} ({})", sweep.title(), stays(Some(sweep)).join(", ")),
        _ if product => {
            let [n, k, d] = Sweep::ALL.map(size);
            format!("{n}×{k} times {k}×{d}")
        }
        _ => stays(None).join(", "),
    }
}

/// Formats a size: large round numbers in exponent notation.
pub(super) fn plain(size: f64) -> String {
    if size >= 1e5 && size % 1e4 == 0.0 { format!("{size:e}") } else { size.to_string() }
}

/// Formats a time with three significant digits, and more only before the decimal point.
pub(super) fn number(ms: f64) -> String {
    let magnitude = ms.log10().floor() as i32;
    let decimals = usize::try_from((2 - magnitude).clamp(0, 6)).unwrap_or(0);
    format!("{ms:.decimals$}")
}

/// The picture's title: the record's description of what was run.
pub(super) fn title(record: &Record) -> String {
    let what = record.fact("what").unwrap_or("Milliseconds");
    what.split("; see ").next().unwrap_or(what).to_owned()
}

/// The notes below the title: the machine, the missing sizes, and how disturbed measurements are drawn.
pub(super) fn notes(record: &Record, timed: &[Line<'_>], disturbed: &str) -> Vec<String> {
    let count = |status: &str| record.lines().filter(|line| line.text("status") == Some(status)).count();
    let mut words = Vec::new();
    if timed.iter().any(|line| line.text("status") == Some("disturbed")) {
        words.push(format!("{disturbed}: others took more than a tenth of the machine"));
    }
    for (status, what) in [("left", "left out"), ("wrong", "wrong, without a time"), ("error", "without an answer")] {
        match count(status) {
            0 => {}
            1 => words.push(format!("1 size {what}")),
            many => words.push(format!("{many} sizes {what}")),
        }
    }
    [record.source(), words.join("; ")].into_iter().filter(|note| !note.is_empty()).collect()
}

/// Removes duplicates, keeping the order of first appearance.
pub(super) fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut out = Vec::new();
    for one in all {
        if !out.contains(&one) {
            out.push(one);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_varies_is_found_and_numbers_have_three_digits() {
        let check = |rows: &str, expected: Varies| {
            let record = Record::parse(&format!("n,k,d\n{rows}")).unwrap();
            assert_eq!(Varies::of(&record.lines().collect::<Vec<_>>()), expected, "{rows}");
        };
        check("1,2,3\n4,2,3\n", Varies::One(Sweep::Rows));
        check("1,2,3\n1,2,4\n", Varies::One(Sweep::Columns));
        check("2,2,2\n4,4,4\n", Varies::Square);
        check("2,2,2\n4,4,5\n", Varies::Several);
        check("2,2,2\n2,2,2\n", Varies::Nothing);
        assert_eq!([0.001_234, 1.0, 45.67, 12345.6].map(number), ["0.00123", "1.00", "45.7", "12346"]);
    }
}
