//! The density of one column: a histogram of all rows, the mixture's density over it, and each component's share.

use gmm_model::{Mixture, Noise, NoiseRegion, reference};
use ndarray::{ArrayView1, aview1};

use super::Figure;
use crate::canvas::{Anchor, At, Canvas, Stroke, Text};
use crate::lines;
use crate::panel::Panel;
use crate::scale::Scale;
use crate::style::{INK, Look, TEXT, darker};

/// A histogram and curves, as densities.
pub(super) struct Density {
    /// Edges of the bars, one more than there are bars.
    edges: Vec<f64>,
    /// Heights of the bars.
    bars: Vec<f64>,
    mixture: Vec<At>,
    /// Weight times density of each component; empty if there are more than [`super::NAMED`].
    components: Vec<Vec<At>>,
}

/// Number of evenly spaced steps at which the mixture's curve is evaluated, besides points near the means.
const STEPS: usize = 400;
/// Maximum height of the axis over that of the highest bar: otherwise a very narrow component would leave no room for
/// the rest.
const HIGHEST: f64 = 2.5;

impl Density {
    pub(super) fn new(figure: &Figure<'_, '_>, at: usize, scale: &Scale) -> Self {
        let mixture = figure.mixture.marginal(&[at]).expect("the column is there");
        let (edges, bars) = histogram(figure, at, scale);
        let k = mixture.n_components();
        // The curves of many components would hide the histogram and make up most of the file.
        let shares = if k <= super::NAMED { 0..k } else { 0..0 };
        let rest = figure.fit.noise.map_or(0.0, Noise::log_rest);
        let share =
            |c: usize| curve(&places(&mixture, &[c], 60, scale), |x| rest + reference::log_joint(&mixture, c, x));
        let components = shares.map(share).collect();
        let all: Vec<usize> = (0..k).collect();
        let places = places(&mixture, &all, STEPS, scale);
        let uniform = uniform(figure, at);
        let mixture = curve(&places, |x| {
            let beside = if (uniform.0..=uniform.1).contains(&x[0]) { uniform.2 } else { f64::NEG_INFINITY };
            reference::log_sum_exp(&[beside, rest + reference::posterior(&mixture, x).0])
        });
        Self { edges, bars, mixture, components }
    }

    /// The vertical scale: from 0 to above the highest bar and the curve, within [`HIGHEST`].
    pub(super) fn scale(&self) -> Scale {
        let bar = self.bars.iter().copied().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let curve = self.mixture.iter().map(|at| at.1).filter(|v| v.is_finite()).fold(0.0, f64::max);
        let most = if bar > 0.0 { bar.max(curve.min(HIGHEST * bar)) } else { curve };
        let most = if most > 0.0 && most < f64::MAX / 4.0 { most } else { 1.0 };
        Scale::between(0.0, 1.08 * most)
    }

    pub(super) fn draw(&self, canvas: &mut Canvas, panel: &Panel, numbers: bool) {
        panel.grid(canvas);
        let line = panel.width > 300.0;
        canvas.inside((panel.left, panel.top), (panel.width, panel.height), |canvas| {
            for (edge, bar) in self.edges.windows(2).zip(&self.bars).filter(|(_, bar)| bar.is_finite() && **bar > 0.0) {
                let ((x0, bottom), (x1, top)) = (panel.place(edge[0], 0.0), panel.place(edge[1], *bar));
                // Bars of a few pixels have no white rim, so that they merge into one area.
                let rim = if x1 - x0 > 5.0 { Stroke::new("#ffffff", 0.5) } else { Stroke::new("#dddddd", 0.5) };
                canvas.rect((x0, top), (x1 - x0, bottom - top), "#dddddd", Some(rim));
            }
            for (c, curve) in self.components.iter().enumerate().filter(|_| self.components.len() > 1) {
                let look = Look::of(c);
                let colour = darker(look.colour);
                let dash = if look.dash.is_empty() { "4 2" } else { look.dash };
                lines::join(
                    canvas,
                    panel,
                    curve,
                    Stroke { colour: &colour, width: if line { 1.5 } else { 1.0 }, dash },
                );
            }
            lines::join(canvas, panel, &self.mixture, Stroke::new(INK, if line { 1.8 } else { 1.2 }));
        });
        panel.axes(canvas);
        if numbers && self.components.len() > 1 {
            self.number(canvas, panel);
        }
    }

    /// Draws each component's number above its curve's maximum, moved up if it would overlap another.
    fn number(&self, canvas: &mut Canvas, panel: &Panel) {
        let mut taken: Vec<At> = Vec::new();
        for (c, curve) in self.components.iter().enumerate() {
            let Some(top) = curve.iter().filter(|at| at.1.is_finite()).max_by(|a, b| a.1.total_cmp(&b.1)) else {
                continue;
            };
            let (x, y) = panel.place(top.0, top.1);
            let mut at = (x, (y - TEXT).clamp(panel.top + TEXT, panel.bottom() - TEXT));
            while taken.iter().any(|other| (other.0 - at.0).abs() < 18.0 && (other.1 - at.1).abs() < TEXT + 2.0) {
                at.1 -= TEXT + 2.0;
            }
            if at.1 < panel.top + TEXT / 2.0 || !x.is_finite() || x < panel.left || x > panel.right() {
                continue;
            }
            let colour = darker(Look::of(c).colour);
            canvas.text(
                at,
                &c.to_string(),
                Text { rim: true, ..Text::new(Anchor::Middle).size(TEXT + 1.0).colour(&colour) },
            );
            taken.push(at);
        }
    }
}

/// The ends of the noise along a column, and the logarithm of its weighted density there; −∞ without noise, and for a box
/// that is not along the columns, whose density is left out.
fn uniform(figure: &Figure<'_, '_>, at: usize) -> (f64, f64, f64) {
    match figure.fit.noise {
        Some(Noise { weight, region: Some(NoiseRegion { lower, upper, rotation: None }), .. }) => {
            let column = figure.fit.columns[at];
            let (low, high) = (lower[column], upper[column]);
            (low, high, weight.ln() - (high - low).ln())
        }
        _ => (0.0, 0.0, f64::NEG_INFINITY),
    }
}

/// Returns the edges and heights of a histogram over the span of a column. The number of bars is the square root of the
/// number of rows, within 8 to 60; a bar's height is its weight divided by total weight and width. Without rows there
/// are no bars.
fn histogram(figure: &Figure<'_, '_>, at: usize, scale: &Scale) -> (Vec<f64>, Vec<f64>) {
    let Some(data) = figure.fit.data else { return (Vec::new(), Vec::new()) };
    let column = figure.fit.columns[at];
    let (least, most) = figure.spans[at];
    // A constant column is one bar of 4 % of the axis.
    let (from, to, count) = if most > least {
        (least, most, (data.n_rows() as f64).sqrt().ceil().clamp(8.0, 60.0) as usize)
    } else {
        let (low, high) = scale.ends();
        (least - 0.02 * (high - low), least + 0.02 * (high - low), 1)
    };
    let mut bars = vec![0.0; count];
    let whole = Scale::between(from, to);
    for row in 0..data.n_rows() {
        let bin = (whole.share(data.rows().at(row, column)) * count as f64) as usize;
        bars[bin.min(count - 1)] += data.weight(row);
    }
    let width = (to / count as f64) - (from / count as f64);
    let total = data.total_weight();
    bars.iter_mut().for_each(|bar| *bar = *bar / total / width);
    let edges = (0..=count).map(|i| from + (i as f64 * width)).collect();
    (edges, bars)
}

/// Evaluates a density at these points, given its logarithm.
fn curve(places: &[f64], log: impl Fn(ArrayView1<'_, f64>) -> f64) -> Vec<At> {
    places.iter().map(|x| (*x, log(aview1(&[*x])).exp())).collect()
}

/// Returns ascending points at which to evaluate a curve: `steps` even steps over the axis, and more around the means
/// of these components, since narrow components would otherwise be missed.
fn places(mixture: &Mixture, components: &[usize], steps: usize, scale: &Scale) -> Vec<f64> {
    let (from, to) = scale.ends();
    let even = (0..=steps).map(|i| from + i as f64 * (to / steps as f64 - from / steps as f64));
    let near = components.iter().flat_map(|c| {
        let (mean, deviation) = (mixture.means()[[*c, 0]], mixture.covariances().matrix(*c, 1)[[0, 0]].sqrt());
        // With many components, fewer points for each are enough.
        let each = if components.len() > super::NAMED { 4 } else { 20 };
        (-each..=each).map(move |i| mean + f64::from(i) * 4.0 / f64::from(each) * deviation)
    });
    let mut places: Vec<f64> = even.chain(near).filter(|x| scale.has(*x)).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}
