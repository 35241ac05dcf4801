//! The entropy plot of a combination of components: the entropy against the number of clusters, and its differences.

use crate::canvas::{Canvas, Stroke};
use crate::lines;
use crate::panel::{Axis, BELOW, Panel, beside};
use crate::scale::Scale;
use crate::style::{GREY, INK, Look, MARGIN};
use crate::{Error, Picture};

/// What an entropy plot shows.
#[derive(Clone, Debug)]
pub struct Entropy<'a> {
    /// Entropy of the assignments with `k`, `k − 1`, .., 1 clusters, in nats.
    pub entropy: &'a [f64],
    /// The number of clusters to mark with a ring.
    pub count: usize,
    /// The number of clusters at which two lines fit best; none is drawn for fewer than three points.
    pub elbow: usize,
    /// First line above the picture.
    pub title: String,
    /// Second line above the picture.
    pub note: String,
}

const WIDTH: f64 = 640.0;
const HEIGHTS: [f64; 2] = [320.0, 240.0];

/// Draws the entropy with two straight lines that meet at the elbow, and below it the fall of the entropy at each
/// combination, as in Baudry et al. 2010.
///
/// # Errors
/// [`Error::Nothing`] if there are fewer than two values, or one is not finite.
pub fn entropy(what: &Entropy<'_>) -> Result<Picture, Error> {
    let Entropy { entropy, count, elbow, title, note } = what;
    let k = entropy.len();
    if k < 2 || entropy.iter().any(|v| !v.is_finite()) {
        return Err(Error::Nothing("an entropy plot needs at least two finite entropies".to_owned()));
    }
    // By number of clusters, from 1.
    let points: Vec<(f64, f64)> = (1..=k).map(|c| (c as f64, entropy[k - c])).collect();
    let drops: Vec<(f64, f64)> = points.windows(2).map(|two| (two[0].0, two[1].1 - two[0].1)).collect();
    let mut canvas = Canvas::new(WIDTH, 0.0);
    let top = canvas.heading(title, std::slice::from_ref(note));
    canvas.height = top + HEIGHTS[0] + HEIGHTS[1] + 2.0 * MARGIN;
    let across = Scale::linear([1.0, k as f64], 0.04);
    // The two lines, each by its ends.
    let lines_of: Vec<[(f64, f64); 2]> = match (2..k).contains(elbow) {
        true => [&points[..*elbow], &points[elbow - 1..]].map(ends).to_vec(),
        false => Vec::new(),
    };
    let heights = entropy.iter().copied().chain(lines_of.iter().flatten().map(|(_, y)| *y));
    let up = Axis::new(Scale::linear(heights, 0.06), "entropy, nats");
    let down = Axis::new(Scale::linear(drops.iter().map(|(_, drop)| *drop), 0.06), "fall of the entropy, nats");
    let margin = [(&up, HEIGHTS[0]), (&down, HEIGHTS[1])]
        .map(|(axis, height)| beside(axis, height - BELOW))
        .into_iter()
        .fold(0.0, f64::max);
    let width = WIDTH - 2.0 * MARGIN - margin;
    let panel = |top: f64, height: f64, axis: Axis| {
        let across = Axis::new(across, "number of clusters");
        let ticks = lines::whole(across.scale, width);
        Panel::at((MARGIN + margin, top), (width, height - BELOW), across, axis).with_x_ticks(ticks)
    };
    let look = Look { dash: "", ..Look::of(0) };
    // Neighbours do not touch.
    let size = (0.4 * width / k as f64).clamp(0.8, 4.0);
    let above = panel(top, HEIGHTS[0], up);
    above.grid(&mut canvas);
    for ends in &lines_of {
        lines::join(&mut canvas, &above, ends, Stroke { colour: Look::of(1).colour, width: 1.6, dash: "8 3" });
    }
    // Points only: a line between them would hide the two fitted ones.
    let places: Vec<_> = points.iter().map(|(x, y)| above.place(*x, *y)).collect();
    canvas.markers(look.marker, &places, size, look.colour, false);
    if (1..=k).contains(count) {
        canvas.ellipse(places[count - 1], (8.5, 8.5), 0.0, Stroke::new(INK, 1.8));
    }
    above.axes(&mut canvas);
    let below = panel(top + HEIGHTS[0] + MARGIN, HEIGHTS[1], down);
    below.grid(&mut canvas);
    for (x, drop) in &drops {
        let (from, to) = (below.place(*x, 0.0), below.place(*x, *drop));
        canvas.line(from, to, Stroke::new(GREY, 1.0));
        canvas.markers(look.marker, &[to], size, look.colour, false);
    }
    below.axes(&mut canvas);
    Ok(Picture::new(canvas))
}

/// The ends of the least-squares line through points.
fn ends(points: &[(f64, f64)]) -> [(f64, f64); 2] {
    let n = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(sx, sy), (x, y)| (sx + x / n, sy + y / n));
    let (xx, xy) = points.iter().fold((0.0, 0.0), |(xx, xy), (a, b)| (xx + (a - x) * (a - x), xy + (a - x) * (b - y)));
    [points[0].0, points[points.len() - 1].0].map(|at| (at, y + xy / xx * (at - x)))
}
