//! A dendrogram: which components are joined, and at what height.

use gmm_model::structure::Tree;

use crate::canvas::{At, Canvas, Stroke};
use crate::font;
use crate::panel::{Axis, Panel};
use crate::scale::{Scale, Ticks};
use crate::style::{GREY, INK, Look, MARGIN, SMALL};
use crate::{Error, Picture};

/// What a dendrogram shows.
#[derive(Clone, Debug)]
pub struct Dendrogram<'a> {
    /// The tree, with a height for each join.
    pub tree: &'a Tree,
    /// Number of clusters to cut at: their branches have a colour each, and a line marks the height.
    pub count: usize,
    /// What the heights are, with the unit.
    pub height: String,
    /// First line above the picture.
    pub title: String,
    /// Second line above the picture.
    pub note: String,
}

/// Width of the picture, and of one leaf where there are many.
const WIDTH: f64 = 640.0;
const LEAF: f64 = 19.0;
/// A picture does not become wider than this: then leaves have no numbers.
const WIDEST: f64 = 2000.0;
const HEIGHT: f64 = 420.0;

/// Draws the components along the horizontal axis, in an order without crossings, and the joins at their heights.
///
/// # Errors
/// [`Error::Nothing`] if the tree has no joins or a height is not finite; [`Error::Columns`] if it has no state with
/// `count` clusters.
pub fn dendrogram(what: &Dendrogram<'_>) -> Result<Picture, Error> {
    let Dendrogram { tree, count, height, title, note } = what;
    let (k, joins) = (tree.n_components(), tree.joins());
    if joins.is_empty() {
        return Err(Error::Nothing("the tree has no joins: a mixture of one component has no structure".to_owned()));
    }
    if let Some(step) = joins.iter().position(|join| !join.height.is_finite()) {
        return Err(Error::Nothing(format!("the height of join {step} is not finite")));
    }
    let clusters = tree.clusters(*count).map_err(|error| Error::Columns(error.to_string()))?;
    let order = tree.order();
    let width = (LEAF * k as f64 + 80.0).clamp(WIDTH, WIDEST);
    let mut canvas = Canvas::new(width, HEIGHT);
    let top = canvas.heading(title, std::slice::from_ref(note));
    let x = Scale::between(-0.7, k as f64 - 0.3);
    let most = joins.iter().map(|join| join.height).fold(0.0, f64::max);
    // Heights are not negative; where all are 0 the axis still needs a length.
    let y = Scale::between(0.0, if most > 0.0 { 1.06 * most } else { 1.0 });
    let size = (width - 2.0 * MARGIN, HEIGHT - top - MARGIN);
    let panel = Panel::within((MARGIN, top), size, Axis::new(x, "component"), Axis::new(y, height.as_str()));
    let widest = order.iter().map(|c| font::width(&c.to_string(), SMALL)).fold(0.0, f64::max);
    let has_room = panel.width / (k as f64 + 0.4) >= widest + 3.0;
    let label = |c: &usize| if has_room { c.to_string() } else { String::new() };
    let leaves = order.iter().enumerate().map(|(i, c)| (i as f64, label(c))).collect();
    let panel = panel.with_x_ticks(Ticks { major: leaves, ..Ticks::default() });
    // The horizontal position of each node, its height, and its cluster below the cut.
    let mut nodes: Vec<(f64, f64, usize)> = vec![(0.0, 0.0, 0); k];
    order.iter().enumerate().for_each(|(i, &c)| nodes[c] = (i as f64, 0.0, clusters[c]));
    for (step, join) in joins.iter().enumerate() {
        let (left, right) = (nodes[join.left], nodes[join.right]);
        let is_below = step < k - count;
        let path = [(left.0, left.1), (left.0, join.height), (right.0, join.height), (right.0, right.1)];
        let places: Vec<At> = path.iter().map(|(x, y)| panel.place(*x, *y)).collect();
        let stroke = match is_below {
            true => {
                let look = Look::of(left.2);
                Stroke { colour: look.colour, width: 2.0, dash: "" }
            }
            false => Stroke { colour: INK, width: 1.4, dash: "" },
        };
        canvas.polyline(&places, stroke);
        nodes.push((0.5 * (left.0 + right.0), join.height, left.2));
    }
    let ends: Vec<At> = order.iter().enumerate().map(|(i, _)| panel.place(i as f64, 0.0)).collect();
    for (place, c) in ends.iter().zip(&order) {
        let look = Look::of(clusters[*c]);
        canvas.markers(look.marker, &[*place], 3.6, look.colour, false);
    }
    cut(&mut canvas, &panel, joins, k - count);
    panel.axes(&mut canvas);
    Ok(Picture::new(canvas))
}

/// A line between the last join below the cut and the first above it.
fn cut(canvas: &mut Canvas, panel: &Panel, joins: &[gmm_model::structure::Join], below: usize) {
    let (Some(above), under) = (joins.get(below), below.checked_sub(1).map_or(0.0, |last| joins[last].height)) else {
        return;
    };
    let (_, y) = panel.place(0.0, 0.5 * (under + above.height));
    canvas.line((panel.left, y), (panel.right(), y), Stroke { colour: GREY, width: 1.0, dash: "4 3" });
}
