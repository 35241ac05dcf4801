//! Lines of several series in a panel, each labelled at its right end: unlike a legend, labels cannot cover data.

use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::font;
use crate::panel::Panel;
use crate::scale::{Scale, Ticks};
use crate::style::{GREY, Look, TEXT};

/// A series: its points in the order in which they are joined. A point whose pixel position is not finite leaves a gap.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<At>,
    pub(crate) look: Look,
    /// For each point, whether its marker is white inside; empty if none is.
    pub(crate) open: Vec<bool>,
}

impl Series {
    pub(crate) const fn new(name: String, points: Vec<At>, look: Look) -> Self {
        Self { name, points, look, open: Vec::new() }
    }
}

/// A line with more points than this has no markers.
const MARKED: usize = 80;
const MARKER: f64 = 3.6;
/// Length of the line sample before a name, and the space around it.
const KEY: f64 = 26.0;
const SPACE: f64 = 6.0;
/// Space between the panel and the samples, for the leader lines.
const LEAD: f64 = 18.0;
/// Height of a name.
const STEP: f64 = TEXT + 4.0;

/// Width that the names right of a panel need.
pub(crate) fn beside<'a>(names: impl IntoIterator<Item = &'a str>) -> f64 {
    let widest = names.into_iter().map(|name| font::width(name, TEXT)).fold(0.0, f64::max);
    LEAD + KEY + SPACE + widest
}

/// Joins neighbouring points by lines, leaving gaps at positions that are not finite.
pub(crate) fn join(canvas: &mut Canvas, panel: &Panel, points: &[At], stroke: Stroke<'_>) {
    let places: Vec<At> = points.iter().map(|(x, y)| panel.place(*x, *y)).collect();
    for run in places.split(|(x, y)| !x.is_finite() || !y.is_finite()).filter(|run| run.len() > 1) {
        canvas.polyline(run, stroke);
    }
}

/// Draws lines and markers, clipped to the panel.
pub(crate) fn draw(canvas: &mut Canvas, panel: &Panel, series: &[Series]) {
    // The clip area is larger by a marker's radius, so that markers at the edge are not cut.
    let rim = MARKER + 1.5;
    let size = (panel.width + 2.0 * rim, panel.height + 2.0 * rim);
    canvas.inside((panel.left - rim, panel.top - rim), size, |canvas| {
        for Series { points, look, open, .. } in series {
            join(canvas, panel, points, Stroke { colour: look.colour, width: 1.8, dash: look.dash });
            if points.len() > MARKED {
                continue;
            }
            for white in [false, true] {
                let own = points.iter().enumerate().filter(|(i, _)| open.get(*i).is_some_and(|o| *o) == white);
                let places = own.map(|(_, (x, y))| panel.place(*x, *y)).filter(|(x, y)| x.is_finite() && y.is_finite());
                canvas.markers(look.marker, &places.collect::<Vec<_>>(), MARKER, look.colour, white);
            }
        }
    });
}

/// Draws the series' names right of the panel, in the vertical order of the lines' ends, with a leader line from each
/// end.
pub(crate) fn names(canvas: &mut Canvas, panel: &Panel, series: &[Series]) {
    let mut ends: Vec<(f64, At, &Series)> = Vec::new();
    for one in series {
        let mut places = one.points.iter().map(|(x, y)| panel.place(*x, *y));
        if let Some(end) = places.rfind(|(x, y)| x.is_finite() && y.is_finite()) {
            ends.push((end.1.clamp(panel.top, panel.bottom()), end, one));
        }
    }
    ends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let heights = spread(&ends.iter().map(|(y, ..)| *y).collect::<Vec<_>>(), STEP, panel.top, panel.bottom());
    let left = panel.right() + LEAD;
    for ((_, (x, y), one), height) in ends.into_iter().zip(heights) {
        let look = one.look;
        let y = y.clamp(panel.top, panel.bottom());
        let lead = Stroke { colour: GREY, width: 0.6, dash: "1 2" };
        canvas.polyline(&[(x + MARKER + 2.0, y), (panel.right().max(x) + MARKER + 2.0, y), (left - 2.0, height)], lead);
        canvas.line((left, height), (left + KEY, height), Stroke { colour: look.colour, width: 1.8, dash: look.dash });
        canvas.markers(look.marker, &[(left + KEY / 2.0, height)], MARKER, look.colour, false);
        canvas.text((left + KEY + SPACE, height), &one.name, Text::new(Anchor::Start).size(TEXT));
    }
}

/// Moves ascending y positions as little as needed to keep them `step` apart and, if there is room, between `top` and
/// `bottom`.
pub(crate) fn spread(wanted: &[f64], step: f64, top: f64, bottom: f64) -> Vec<f64> {
    let mut out: Vec<f64> = Vec::with_capacity(wanted.len());
    for height in wanted {
        let least = out.last().map_or(top, |last| last + step);
        out.push(height.max(least));
    }
    let mut most = bottom.max(top + step * wanted.len().saturating_sub(1) as f64);
    for height in out.iter_mut().rev() {
        *height = height.min(most);
        most = *height - step;
    }
    out
}

/// Ticks of an axis of counts: whole numbers only.
pub(crate) fn whole(scale: Scale, length: f64) -> Ticks {
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-6;
    let mut ticks = scale.ticks_where(length, true, |ticks| ticks.major.iter().all(|(value, _)| is_whole(*value)));
    ticks.major.retain(|(value, _)| is_whole(*value));
    for (value, label) in &mut ticks.major {
        if *value < 1e6 && ticks.less.is_empty() {
            *label = format!("{value:.0}");
        }
    }
    ticks.minor.retain(|value| is_whole(*value));
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_a_step_and_their_order() {
        assert_eq!(spread(&[10.0, 50.0], 16.0, 0.0, 100.0), [10.0, 50.0]);
        assert_eq!(spread(&[10.0, 11.0, 12.0], 16.0, 0.0, 100.0), [10.0, 26.0, 42.0]);
        assert_eq!(spread(&[98.0, 99.0, 100.0], 16.0, 0.0, 100.0), [68.0, 84.0, 100.0]);
        // Without enough room they continue below the bottom.
        assert_eq!(spread(&[0.0, 0.0, 0.0], 16.0, 0.0, 10.0), [0.0, 16.0, 32.0]);
    }

    #[test]
    fn what_counts_has_whole_ticks() {
        let labels: Vec<String> = whole(Scale::between(1.0, 4.0), 500.0).major.into_iter().map(|t| t.1).collect();
        assert_eq!(labels, ["1", "2", "3", "4"]);
    }
}
