//! Draws rows as points over two columns, and the components' ellipses over them.

use super::Figure;
use super::ellipse::ellipse;
use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::fit::Fit;
use crate::font;
use crate::panel::Panel;
use crate::style::{COLOURS, Look, Marker, TEXT, channels, colour_of, darker};

/// A row drawn as a point.
pub(super) struct Point {
    row: usize,
    /// The row's most likely component; `k` for noise.
    component: usize,
    colour: String,
}

/// The colour of rows that are noise.
const NOISE: &str = "#9a9a9a";

/// Responsibility above which a point has its component's pure colour.
const SURE: f64 = 0.98;

/// Returns the points of the drawn rows, except those of weight 0.
pub(super) fn points(fit: &Fit<'_>) -> Vec<Point> {
    let k = fit.mixture.n_components();
    let Some(data) = fit.data else { return Vec::new() };
    let counted = fit.drawn.iter().zip(fit.responsibilities.outer_iter()).filter(|(row, _)| data.weight(**row) > 0.0);
    let point = |(row, r): (&usize, ndarray::ArrayView1<'_, f64>)| {
        let component = (0..r.len()).fold(0, |best, c| if r[c] > r[best] { c } else { best });
        let look = |c: usize| if c == k { NOISE } else { Look::of(c).colour };
        let own = look(component);
        // If colours repeat, a mixed colour would be meaningless.
        let colour = if k > COLOURS.len() || r[component] > SURE {
            own.to_owned()
        } else {
            let mixed = |channel: usize| (0..r.len()).map(|c| r[c] * channels(look(c))[channel]).sum::<f64>();
            // Rounded to multiples of 16, which is fine enough for the eye and gives few groups of points.
            colour_of([0, 1, 2].map(|channel| (mixed(channel) / 16.0).round() * 16.0))
        };
        Point { row: *row, component, colour }
    };
    counted.map(point).collect()
}

/// Draws a panel of two of the drawn columns; `numbers` is whether the means are numbered.
pub(super) fn draw(canvas: &mut Canvas, panel: &Panel, figure: &Figure<'_, '_>, columns: [usize; 2], numbers: bool) {
    panel.grid(canvas);
    let k = figure.mixture.n_components();
    canvas.inside((panel.left, panel.top), (panel.width, panel.height), |canvas| {
        dots(canvas, panel, figure, columns);
        let width = (panel.width / 320.0).clamp(0.9, 1.8) * if k > 12 { 0.8 } else { 1.0 };
        for c in 0..k {
            let colour = darker(Look::of(c).colour);
            for (sigma, dash) in [(1.0, ""), (2.0, "6 3")] {
                if let Some(of) = ellipse(&figure.mixture, c, columns, sigma, panel) {
                    // A white rim separates the line from points of its colour; with many components it would hide the
                    // points.
                    if k <= super::NAMED {
                        canvas.ellipse(
                            of.centre,
                            of.radii,
                            of.degrees,
                            Stroke { colour: "#ffffff", width: width + 1.6, dash },
                        );
                    }
                    canvas.ellipse(of.centre, of.radii, of.degrees, Stroke { colour: &colour, width, dash });
                }
            }
        }
    });
    panel.axes(canvas);
    if numbers {
        let [i, j] = columns;
        let means: Vec<At> =
            (0..k).map(|c| panel.place(figure.mixture.means()[[c, i]], figure.mixture.means()[[c, j]])).collect();
        number(canvas, panel, &means);
    }
}

/// Draws the points, grouped by marker and colour.
fn dots(canvas: &mut Canvas, panel: &Panel, figure: &Figure<'_, '_>, columns: [usize; 2]) {
    let Some(data) = figure.fit.data else { return };
    let columns = columns.map(|at| figure.fit.columns[at]);
    let n = figure.points.len() as f64;
    // The size shrinks with the number of points, so that few points are visible and many do not merge: without the
    // limits, the points would cover about a third of the panel if spread evenly over it.
    let size =
        (0.1 * panel.width * panel.height / n.max(1.0)).sqrt().clamp(1.2, if panel.width > 300.0 { 3.2 } else { 2.4 });
    let mut order: Vec<&Point> = figure.points.iter().collect();
    order.sort_by_key(|point| (point.component, &point.colour));
    canvas.faint(if n > 1000.0 { 0.45 } else { 0.65 }, |canvas| {
        for group in order.chunk_by(|a, b| (a.component, &a.colour) == (b.component, &b.colour)) {
            let place = |point: &&Point| {
                let rows = data.rows();
                panel.place(rows.at(point.row, columns[0]), rows.at(point.row, columns[1]))
            };
            let places: Vec<At> = group.iter().map(place).collect();
            let is_noise = group[0].component == figure.mixture.n_components();
            let marker = if is_noise { Marker::Cross } else { Look::of(group[0].component).marker };
            let size = if marker == Marker::Cross { 1.1 * size } else { size };
            canvas.markers(marker, &places, size, &group[0].colour, false);
        }
    });
}

/// Draws numbers at the means, moved aside if they would overlap; a number without room nearby is left out.
fn number(canvas: &mut Canvas, panel: &Panel, means: &[At]) {
    let size = if panel.width > 300.0 { TEXT + 2.0 } else { TEXT };
    let mut taken: Vec<(At, f64)> = Vec::new();
    for (c, (x, y)) in means.iter().enumerate() {
        let text = c.to_string();
        let half = font::width(&text, size) / 2.0 + 1.5;
        let free = |place: &At| {
            let inside = place.0 - half > panel.left && place.0 + half < panel.right();
            let inside = inside && place.1 - size / 2.0 > panel.top && place.1 + size / 2.0 < panel.bottom();
            inside
                && taken
                    .iter()
                    .all(|(at, other)| (at.0 - place.0).abs() > half + other || (at.1 - place.1).abs() > size)
        };
        let around = (0..5).flat_map(|ring| {
            let away = f64::from(ring) * (size + 1.0);
            let turns = if ring == 0 { 1 } else { 8 };
            (0..turns)
                .map(move |turn| (f64::from(turn) * 45.0).to_radians().sin_cos())
                .map(move |(sin, cos)| (away * cos, away * sin))
        });
        let Some(place) = around.map(|(dx, dy)| (x + dx, y + dy)).find(free) else { continue };
        if (place.0 - x).hypot(place.1 - y) > 1.0 {
            canvas.line((*x, *y), place, Stroke::new(&darker(Look::of(c).colour), 0.8));
        }
        let colour = darker(&darker(Look::of(c).colour));
        canvas.text(place, &text, Text { rim: true, ..Text::new(Anchor::Middle).size(size).colour(&colour) });
        taken.push((place, half));
    }
}
