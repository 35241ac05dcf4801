//! Draws records as bars: how many times as long as gmm-rs other programs take for the same work.

use std::str::FromStr;

use super::engines::unique;
use super::{Line, Record};
use crate::canvas::{Anchor, At, Canvas, Text};
use crate::font;
use crate::panel::{Axis, BELOW, Panel};
use crate::scale::{Scale, Ticks};
use crate::style::{INK, Look, MARGIN, SMALL, TEXT};
use crate::{Error, Picture};

/// A filter of the lines of records: a column's field must be one of the values, as the record has them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Only {
    /// The index of the record that is filtered; `None` for all.
    record: Option<usize>,
    column: String,
    values: Vec<String>,
}

impl FromStr for Only {
    type Err = String;

    /// Parses `COLUMN=VALUE[,VALUE]`, or `NUMBER:COLUMN=..` for a single record, counted from 1.
    fn from_str(text: &str) -> Result<Self, String> {
        let form = || "it must be COLUMN=VALUE[,VALUE], or 2:COLUMN=.. for the second record alone".to_owned();
        let (name, values) = text.split_once('=').ok_or_else(form)?;
        let (record, column) = match name.split_once(':') {
            Some((number, column)) => {
                let index = number.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                (Some(index.ok_or_else(form)?), column)
            }
            None => (None, name),
        };
        let values: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if column.is_empty() || values.iter().any(String::is_empty) {
            return Err(form());
        }
        Ok(Self { record, column: column.to_owned(), values })
    }
}

/// The bars of a workload.
struct Group {
    label: String,
    /// Programs with their times as multiples of gmm-rs's, which is the first.
    bars: Vec<(String, f64)>,
}

const OURS: &str = "gmm-rs";
const WIDTH: f64 = 740.0;
/// Height of a bar, of a bar with the space below it, and of the space between groups.
const BAR: (f64, f64, f64) = (9.5, 13.0, 7.0);
/// Height of a record's title.
const ABOVE: f64 = TEXT + 7.0;
/// Largest width of a group's label.
const LABEL: f64 = 0.4 * WIDTH;

/// Draws bars over a linear axis from 0, a panel for each record: times of other programs as multiples of gmm-rs's,
/// grouped by workload. All panels have the same axis. Lines without a time or with another status than `ok` are left
/// out, and so are workloads without gmm-rs or without another program.
///
/// Two kinds of record can be drawn. With a column `peer_ms`, a line has the times of gmm-rs and of the peer that the
/// fact `peer` names; the multiple is the field `ratio` if there is one, the median over pairs of turns. With columns
/// `what` and `way`, each program and kind of array has a line. All programs of a workload are then compared with one
/// line of `gmm_rs`: the first whose `way` is that of another program, the programs taken in the record's order, or
/// else the fastest. Times are divided by `iterations`, since programs may have made different numbers of them.
///
/// # Errors
/// [`Error::Columns`] if no record has the column of a filter, or there is no record of its number.
/// [`Error::Nothing`] if the filters leave nothing of a record that could be compared. [`Error::Record`] if a record
/// is of neither kind.
pub fn bars(records: &[Record], only: &[Only]) -> Result<Picture, Error> {
    for filter in only {
        exists(records, filter)?;
    }
    let panels = (0..records.len()).map(|i| panel(records, i, only)).collect::<Result<Vec<_>, Error>>()?;
    let all = || panels.iter().flat_map(|(_, groups)| groups);
    let programs = unique(all().flat_map(|group| group.bars.iter().map(|(program, _)| program.as_str())));
    let most = all().flat_map(|group| &group.bars).map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    // The number of the longest bar lies beyond the panel.
    let number = font::width(&times(most), SMALL).max(font::width("0.99×", SMALL)) + 6.0;
    let label = all().map(|group| font::width(&group.label, SMALL)).fold(0.0, f64::max).min(LABEL) + 8.0;
    let mut canvas = Canvas::new(WIDTH, 0.0);
    let mut top = canvas.heading("Time for the same work, as a multiple of gmm-rs's: shorter is better", &[]);
    top = legend(&mut canvas, top, &programs);
    let left = MARGIN + label;
    let x = Scale::between(0.0, most);
    let across = WIDTH - MARGIN - number - left;
    let ticks = x.ticks(across, true);
    for (i, (title, groups)) in panels.iter().enumerate() {
        let title = font::fitted(title, TEXT, WIDTH - 2.0 * MARGIN);
        canvas.text((MARGIN, top + TEXT / 2.0), &title, Text::new(Anchor::Start).size(TEXT));
        top += ABOVE;
        let height = groups.iter().map(|group| BAR.1 * group.bars.len() as f64 + BAR.2).sum::<f64>();
        let last = i + 1 == panels.len();
        let axis = if last { Axis::new(x, "times as long as gmm-rs") } else { Axis::bare(x) };
        let panel = Panel::at((left, top), (across, height), axis, Axis::bare(Scale::between(height, 0.0)));
        let panel = panel.with_x_ticks(ticks.clone()).with_y_ticks(Ticks::default());
        panel.grid(&mut canvas);
        let mut down = BAR.2 / 2.0;
        for Group { label, bars } in groups {
            let middle = panel.top + down + BAR.1 * bars.len() as f64 / 2.0;
            canvas.text((left - 8.0, middle), &font::fitted(label, SMALL, LABEL), Text::new(Anchor::End));
            // In the legend's order, which tells bars apart in print without colour too.
            for (i, name) in programs.iter().enumerate() {
                for (_, ratio) in bars.iter().filter(|(program, _)| program == name) {
                    let (right, y) = panel.place(*ratio, down + BAR.1 / 2.0);
                    canvas.rect((left, y - BAR.0 / 2.0), (right - left, BAR.0), Look::of(i).colour, None);
                    let text = Text { rim: true, ..Text::new(Anchor::Start).colour(INK) };
                    canvas.text((right + 5.0, y), &times(*ratio), text);
                    down += BAR.1;
                }
            }
            down += BAR.2;
        }
        panel.axes(&mut canvas);
        top = panel.bottom() + if last { BELOW } else { 10.0 };
    }
    canvas.height = top + MARGIN;
    Ok(Picture::new(canvas))
}

/// Draws the programs with their colours; returns the y at which they end.
fn legend(canvas: &mut Canvas, top: f64, programs: &[&str]) -> f64 {
    let (mut x, mut y): At = (MARGIN, top + SMALL / 2.0);
    for (i, program) in programs.iter().enumerate() {
        let name = font::fitted(program, TEXT, WIDTH / 2.0);
        let width = 17.0 + font::width(&name, TEXT) + 20.0;
        if x > MARGIN && x + width - 20.0 > WIDTH - MARGIN {
            (x, y) = (MARGIN, y + TEXT + 6.0);
        }
        canvas.rect((x, y - BAR.0 / 2.0), (12.0, BAR.0), Look::of(i).colour, None);
        canvas.text((x + 17.0, y), &name, Text::new(Anchor::Start).size(TEXT));
        x += width;
    }
    y + TEXT + 8.0
}

/// Formats a multiple: whole from 10, below with two significant digits; ours is 1.
fn times(ratio: f64) -> String {
    // What would be rounded up to 10 has no decimals either.
    let magnitude = (1.005 * ratio).log10().floor();
    let decimals = if ratio == 1.0 { 0 } else { (1.0 - magnitude).clamp(0.0, 6.0) as usize };
    format!("{ratio:.decimals$}×")
}

/// Checks that a filter's record and column exist.
fn exists(records: &[Record], Only { record, column, .. }: &Only) -> Result<(), Error> {
    let records = match record {
        None => records,
        Some(index) => records.get(*index..=*index).ok_or_else(|| {
            Error::Columns(format!("no record {}: there are {}, counted from 1", index + 1, records.len()))
        })?,
    };
    let columns = unique(records.iter().flat_map(|record| record.columns()).map(String::as_str));
    if columns.contains(&column.as_str()) {
        return Ok(());
    }
    Err(Error::Columns(format!("no column '{column}' in the records: there are {}", columns.join(", "))))
}

/// The title of a record's panel, and the groups of the lines that the filters leave and that have a time.
fn panel(records: &[Record], index: usize, only: &[Only]) -> Result<(String, Vec<Group>), Error> {
    let record = &records[index];
    let has = |name: &str| record.columns().iter().any(|column| column == name);
    let [pairs, lists] = [has("peer_ms"), has("what") && has("way")];
    if !has("ms") || !(pairs || lists) {
        let why = "it must have columns 'ms' and 'peer_ms', or 'ms', 'what' and 'way'";
        return Err(Error::Record(format!("record {}: {why}", index + 1)));
    }
    let left = |line: &Line<'_>| {
        let keeps = |Only { record, column, values }: &Only| {
            let other = record.is_some_and(|record| record != index) || !has(column);
            other || values.iter().any(|value| line.text(column) == Some(value))
        };
        only.iter().all(keeps)
            && line.text("status").is_none_or(|status| status == "ok")
            && line.positive("ms").is_some()
    };
    let lines: Vec<Line<'_>> = record.lines().filter(left).collect();
    let mixed = precision(&lines).is_none();
    let group = |of: [Option<&str>; 5]| {
        let lines: Vec<Line<'_>> = lines.iter().copied().filter(|line| workload(line) == of).collect();
        let bars = if pairs { paired(record, &lines) } else { listed(&lines) };
        Group { label: label(lines[0], mixed), bars }
    };
    let groups = unique(lines.iter().map(workload)).into_iter().map(group);
    let groups: Vec<Group> = groups.filter(|group| group.bars.len() > 1).collect();
    if groups.is_empty() {
        let why = "no workload is left with times of both gmm-rs and another program";
        return Err(Error::Nothing(format!("record {}: {why}", index + 1)));
    }
    Ok((title(record, &lines), groups))
}

/// What lines of the same work have in common.
fn workload<'a>(line: &Line<'a>) -> [Option<&'a str>; 5] {
    ["n", "d", "k", "covariance", "precision"].map(|column| line.text(column))
}

/// The bars of lines that have a peer's time beside ours.
fn paired(record: &Record, lines: &[Line<'_>]) -> Vec<(String, f64)> {
    // Versions of the peer and its libraries follow its name.
    let peer = record.fact("peer").and_then(|peer| peer.split([' ', ',']).next()).unwrap_or("peer");
    let ratio = |line: &Line<'_>| line.positive("ratio").or(Some(line.positive("peer_ms")? / line.positive("ms")?));
    let peers = lines.iter().filter_map(ratio).map(|ratio| (peer.to_owned(), ratio));
    [(OURS.to_owned(), 1.0)].into_iter().chain(peers).collect()
}

/// The bars of lines of one program each; none if there is no line of ours.
fn listed(lines: &[Line<'_>]) -> Vec<(String, f64)> {
    let (ours, peers): (Vec<Line<'_>>, Vec<Line<'_>>) =
        lines.iter().partition(|line| line.text("what") == Some("gmm_rs"));
    let time = |line: &Line<'_>| Some(line.positive("ms")? / line.positive("iterations").unwrap_or(1.0));
    let same = peers.iter().find_map(|peer| ours.iter().find(|line| line.text("way") == peer.text("way")));
    let least = || ours.iter().filter_map(time).min_by(f64::total_cmp);
    let Some(unit) = same.and_then(time).or_else(least) else {
        return Vec::new();
    };
    let bar = |line: &Line<'_>| Some((program(*line), time(line)? / unit));
    [(OURS.to_owned(), 1.0)].into_iter().chain(peers.iter().filter_map(bar)).collect()
}

/// The name of a line's program, with the library of its arrays.
fn program(line: Line<'_>) -> String {
    match (line.text("what").unwrap_or("?"), line.text("way")) {
        ("torch", Some("torch")) => "EM written in torch".to_owned(),
        ("gmmx", _) => "gmmx (JAX)".to_owned(),
        (what, Some(way)) if what != way => format!("{what} on {way}"),
        (what, _) => what.to_owned(),
    }
}

/// The label of a workload: `1e5 × 13, K=8, full`, and the precision if the record has several.
fn label(line: Line<'_>, precision: bool) -> String {
    let size = |column: &str| match line.number(column) {
        Some(size) if size >= 1e4 && size % 1e3 == 0.0 => format!("{size:e}"),
        Some(size) => size.to_string(),
        None => "?".to_owned(),
    };
    let sizes = format!("{} × {}, K={}", size("n"), size("d"), size("k"));
    let words = [line.text("covariance"), line.text("precision").filter(|_| precision)];
    [sizes.as_str()].into_iter().chain(words.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

/// The title of a record's panel: the machine, what is timed, the precision if it is the same for all, and the date.
fn title(record: &Record, lines: &[Line<'_>]) -> String {
    let cores = |processor: &str| {
        let mut parts = processor.split(", ").filter(|part| !part.starts_with("family "));
        [parts.next(), parts.next()].into_iter().flatten().collect::<Vec<_>>().join(", ")
    };
    let gpu = record.fact("gpu").map(|gpu| gpu.trim_start_matches("cuda:0: "));
    let gpu = gpu.map(|gpu| gpu.split([';', ',']).next().unwrap_or(gpu).to_owned());
    let machine = gpu.or_else(|| record.fact("processor").map(cores)).unwrap_or_else(|| "a machine".to_owned());
    let what = record.fact("what").unwrap_or("milliseconds");
    let what = what.split([';', ',']).next().unwrap_or(what);
    let what = what.split(" by ").next().unwrap_or(what).replacen("milliseconds", "time", 1);
    let iterations = unique(lines.iter().filter_map(|line| line.text("iterations")));
    let iterations = match &iterations[..] {
        [] => String::new(),
        [one] => format!(" of {one} iterations"),
        _ => ", divided by its iterations".to_owned(),
    };
    let words =
        [Some(format!("{machine}: {what}{iterations}")), precision(lines), record.fact("date").map(str::to_owned)];
    words.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

/// The precision of all lines; `None` if they differ.
fn precision(lines: &[Line<'_>]) -> Option<String> {
    match unique(lines.iter().filter_map(|line| line.text("precision")))[..] {
        [one] => Some(one.strip_prefix('f').map_or_else(|| one.to_owned(), |bits| format!("float{bits}"))),
        _ => None,
    }
}
