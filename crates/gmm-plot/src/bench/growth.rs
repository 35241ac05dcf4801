//! Draws the time of an EM iteration as rows, components or columns grow, and the floor's share of that time.

use std::str::FromStr;

use super::Record;
use crate::canvas::{At, Canvas, Stroke};
use crate::lines::{self, Series};
use crate::panel::{Axis, Panel};
use crate::scale::Scale;
use crate::style::{Look, MARGIN};
use crate::{Error, Picture};

/// The size that grows while the others are fixed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// Rows.
    Rows,
    /// Components.
    Components,
    /// Columns.
    Columns,
}

impl Sweep {
    /// All sweeps, in the order in which they are drawn.
    pub const ALL: [Self; 3] = [Self::Rows, Self::Components, Self::Columns];

    /// Its name in the record: `n`, `k` or `d`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rows => "n",
            Self::Components => "k",
            Self::Columns => "d",
        }
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Rows => "rows, N",
            Self::Components => "components, K",
            Self::Columns => "columns, d",
        }
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|sweep| sweep.name() == text).ok_or_else(|| "it must be n, k or d".to_owned())
    }
}

/// A measured size.
struct Point {
    series: String,
    size: f64,
    ms: f64,
    floor_ms: Option<f64>,
}

/// Width of a sweep's panels.
const WIDTH: f64 = 620.0;
/// Heights of the panel of times and of the panel of shares, including numbers and titles.
const HEIGHTS: [f64; 2] = [380.0, 300.0];

/// Draws a growth record: times and, dotted, floors above; the floor's share of the time below. All scales are
/// logarithmic.
///
/// # Errors
/// [`Error::Record`] if the requested sweep, or the whole record, has no times.
pub fn growth(record: &Record, only: Option<Sweep>) -> Result<Picture, Error> {
    let wanted = Sweep::ALL.into_iter().filter(|sweep| only.is_none_or(|only| only == *sweep));
    let sweeps: Vec<(Sweep, Vec<Point>)> =
        wanted.map(|sweep| (sweep, points(record, sweep))).filter(|(_, points)| !points.is_empty()).collect();
    if sweeps.is_empty() {
        let of = only.map_or_else(String::new, |sweep| format!(" of sweep '{}'", sweep.name()));
        return Err(Error::Record(format!("it has no times{of}")));
    }
    // A series has the same look in all panels: looks are assigned in the order of names.
    let mut names: Vec<&str> = sweeps.iter().flat_map(|(_, points)| points).map(|p| p.series.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let mut canvas = Canvas::new(MARGIN + sweeps.len() as f64 * (WIDTH + MARGIN), 0.0);
    let title = match &sweeps[..] {
        [(sweep, _)] => format!("Time of an EM iteration as {} grow; {}", words(*sweep), fixed(record, *sweep)),
        _ => "Time of an EM iteration as sizes grow".to_owned(),
    };
    let mut note = "dotted: the floor, what the chip needs at least".to_owned();
    match sweeps.iter().map(|(sweep, _)| wrong(record, *sweep)).sum::<usize>() {
        0 => {}
        1 => note += "; one size has no time, since its answer was wrong",
        many => note += &format!("; {many} sizes have no time, since their answers were wrong"),
    }
    let top = canvas.heading(&title, &[record.source(), note]);
    canvas.height = top + HEIGHTS[0] + HEIGHTS[1] + MARGIN;
    for (i, (sweep, points)) in sweeps.iter().enumerate() {
        let left = MARGIN + i as f64 * (WIDTH + MARGIN);
        let title = match sweeps.len() {
            1 => sweep.title().to_owned(),
            _ => format!("{} ({})", sweep.title(), fixed(record, *sweep)),
        };
        let series = |value: fn(&Point) -> Option<f64>| -> Vec<Series> {
            let of = |name: &&str| {
                let own = points.iter().filter(|point| point.series == *name);
                own.filter_map(|point| Some((point.size, value(point)?))).collect::<Vec<At>>()
            };
            let each = names.iter().enumerate().map(|(i, name)| Series::new((*name).to_owned(), of(name), Look::of(i)));
            each.filter(|series| !series.points.is_empty()).collect()
        };
        let across = Scale::logarithmic(points.iter().map(|point| point.size), 0.03);
        let times = series(|point| Some(point.ms));
        let floors = series(|point| point.floor_ms);
        let shares = series(|point| Some(100.0 * point.floor_ms? / point.ms));
        let all = |series: &[Series]| series.iter().flat_map(|s| s.points.iter().map(|p| p.1)).collect::<Vec<_>>();
        let beside = lines::beside(names.iter().copied());
        let both = all(&times).into_iter().chain(all(&floors));
        let mut draw = |top: f64, height: f64, y: Axis, floors: &[Series], series: &[Series]| {
            // The same room for numbers in both panels, so that they are aligned.
            let room = 76.0;
            let size = (WIDTH - beside - room, height - crate::panel::BELOW - 12.0);
            let panel = Panel::at((left + room, top), size, Axis::new(across, title.clone()), y);
            panel.grid(&mut canvas);
            for Series { points, look, .. } in floors {
                let stroke = Stroke { colour: look.colour, width: 1.3, dash: "1 3" };
                lines::join(&mut canvas, &panel, points, stroke);
                // The series' marker at the end identifies the floor without colours too.
                let end = points.last().map(|(x, y)| panel.place(*x, *y));
                canvas.markers(look.marker, end.as_slice(), 2.6, look.colour, true);
            }
            lines::draw(&mut canvas, &panel, series);
            panel.axes(&mut canvas);
            lines::names(&mut canvas, &panel, series);
        };
        draw(top, HEIGHTS[0], Axis::new(Scale::logarithmic(both, 0.04), "an EM iteration, ms"), &floors, &times);
        if !shares.is_empty() {
            let y = Axis::new(Scale::logarithmic(all(&shares), 0.04), "share of the floor, %");
            draw(top + HEIGHTS[0], HEIGHTS[1], y, &[], &shares);
        }
    }
    Ok(Picture::new(canvas))
}

/// Number of sizes whose answer was wrong.
fn wrong(record: &Record, sweep: Sweep) -> usize {
    let refused = |line: &super::Line<'_>| line.text("verdict").or(line.text("status")) == Some("wrong");
    record.lines().filter(|line| line.text("sweep") == Some(sweep.name()) && refused(line)).count()
}

fn points(record: &Record, sweep: Sweep) -> Vec<Point> {
    let lines = record.lines().filter(|line| line.text("sweep") == Some(sweep.name()));
    let point = |line: super::Line<'_>| {
        let series = match line.text("series") {
            Some(series) => series.to_owned(),
            None => format!("{} {}", line.text("covariance")?, line.text("precision")?),
        };
        let (size, ms) = (line.positive(sweep.name())?, line.positive("ms")?);
        Some(Point { series, size, ms, floor_ms: line.positive("floor_ms") })
    };
    let mut points: Vec<Point> = lines.filter_map(point).collect();
    points.sort_by(|a, b| a.size.total_cmp(&b.size));
    points
}

const fn words(sweep: Sweep) -> &'static str {
    match sweep {
        Sweep::Rows => "rows",
        Sweep::Components => "components",
        Sweep::Columns => "columns",
    }
}

/// The fixed sizes of a sweep, as text: `K=16, d=16`.
fn fixed(record: &Record, sweep: Sweep) -> String {
    let letters = [("n", "N"), ("k", "K"), ("d", "d")];
    let others = letters.into_iter().filter(|(column, _)| *column != sweep.name());
    let of = |(column, letter): (&str, &str)| {
        let own = record.lines().filter(|line| line.text("sweep") == Some(sweep.name()));
        let mut values = own.filter_map(|line| line.number(column));
        let first = values.next()?;
        let text = if first >= 1e4 { format!("{first:e}") } else { first.to_string() };
        values.all(|v| v == first).then(|| format!("{letter}={text}"))
    };
    others.filter_map(of).collect::<Vec<_>>().join(", ")
}
