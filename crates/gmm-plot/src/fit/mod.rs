//! Draws rows and the mixture fitted to them: a pair of columns, a grid of pairs, or the density of one column.

mod density;
mod ellipse;
mod scatter;

use gmm_model::{Dataset, Draws, Mixture, Noise};
use ndarray::ArrayView2;

use crate::canvas::{Anchor, Canvas, Text};
use crate::panel::{self, Axis, Panel};
use crate::scale::Scale;
use crate::style::{INK, Look, MARGIN, TEXT};
use crate::{Error, Picture};

/// Maximum number of columns in a grid: with more, the panels are too small to read.
pub const MOST_COLUMNS: usize = 8;
/// Maximum number of points in a picture, so that a browser can show the file without delay.
pub const MOST_POINTS: usize = 50_000;

/// Maximum number of components that are numbered and listed in the legend; more would hide the data.
pub const NAMED: usize = 24;

/// The contents of a picture of a fit.
#[derive(Clone, Debug)]
pub struct Fit<'a> {
    /// The mixture, `k` components in `d` dimensions.
    pub mixture: &'a Mixture,
    /// The uniform noise beside the mixture, if there is some. Points that are noise are grey.
    pub noise: Option<&'a Noise>,
    /// All rows, `(n, d)`. Histograms count all of them, by weight, and the axes cover all of them. `None` draws the mixture
    /// alone: its ellipses and densities.
    pub data: Option<&'a Dataset>,
    /// Indices of the rows drawn as points: see [`drawn`].
    pub drawn: &'a [usize],
    /// Responsibilities of the drawn rows, `(drawn.len(), k)`; with noise `(drawn.len(), k + 1)`, of which the last is the
    /// noise.
    pub responsibilities: ArrayView2<'a, f64>,
    /// Columns to draw: one for its density, two for a panel, up to [`MOST_COLUMNS`] for a grid of all pairs.
    pub columns: &'a [usize],
    /// Names of all `d` columns.
    pub names: &'a [String],
    /// Second line above the picture: the source of the rows, and which of them are drawn.
    pub note: String,
}

/// The default maximum number of points of a picture with this many columns.
pub fn points_of(columns: usize) -> usize {
    match columns * columns.saturating_sub(1) / 2 {
        0 | 1 => 3000,
        panels => (15_000 / panels).clamp(500, 3000),
    }
}

/// Returns the indices of `most` of `n` rows, drawn uniformly without replacement, in ascending order; all rows if
/// `n <= most`.
///
/// The same seed gives the same rows on every machine.
pub fn drawn(n: usize, most: usize, seed: u64) -> Vec<usize> {
    if n <= most {
        return (0..n).collect();
    }
    let mut rows = Draws::for_purpose("rows of a picture", seed, 0).distinct_indices(n, most);
    rows.sort_unstable();
    rows
}

/// Draws rows and mixture. A point has the marker of its most likely component, and that component's colour, mixed with
/// others by responsibility if it is not certain. Each component has ellipses at one and two standard deviations. A
/// single column, or the diagonal of a grid, is a histogram with the mixture's density and each component's share.
///
/// # Errors
/// [`Error::Columns`] if there are no columns or too many, or a column does not exist or is given twice; also if names,
/// rows or responsibilities do not match the mixture's size. [`Error::Nothing`] if every row has weight 0.
///
/// Cost: `n` reads for each column drawn.
pub fn fit(fit: &Fit<'_>) -> Result<Picture, Error> {
    check(fit)?;
    let mixture = fit.mixture.marginal(fit.columns).map_err(|error| Error::Columns(error.to_string()))?;
    let spans: Vec<(f64, f64)> = fit
        .columns
        .iter()
        .enumerate()
        .map(|(at, j)| fit.data.map_or_else(|| Some(reach(&mixture, at)), |data| span(data, *j)))
        .collect::<Option<_>>()
        .ok_or_else(|| Error::Nothing("every row has a weight of 0".to_owned()))?;
    let figure = Figure { fit, mixture, spans, points: scatter::points(fit) };
    Ok(match fit.columns.len() {
        1 => figure.one(),
        2 => figure.pair(),
        _ => figure.grid(),
    })
}

fn check(fit: &Fit<'_>) -> Result<(), Error> {
    let (d, k) = (fit.mixture.n_features(), fit.mixture.n_components());
    let (n, of_rows) = fit.data.map_or((0, d), |data| (data.n_rows(), data.n_features()));
    let wrong = |what: String| Err(Error::Columns(what));
    if fit.columns.is_empty() || fit.columns.len() > MOST_COLUMNS {
        return wrong(format!("{} columns to draw: from 1 to {MOST_COLUMNS} are possible", fit.columns.len()));
    }
    if of_rows != d || fit.names.len() != d {
        let names = fit.names.len();
        return wrong(format!("the mixture has {d} columns, the rows {of_rows}, and {names} are named"));
    }
    let columns = k + usize::from(fit.noise.is_some());
    if fit.responsibilities.dim() != (fit.drawn.len(), columns) || fit.drawn.iter().any(|row| *row >= n) {
        let (rows, drawn) = (fit.responsibilities.dim(), fit.drawn.len());
        return wrong(format!("responsibilities are {rows:?} for {drawn} rows of {n} and {k} components"));
    }
    Ok(())
}

/// Smallest and largest value of a column, over rows of positive weight.
fn span(data: &Dataset, column: usize) -> Option<(f64, f64)> {
    let values = (0..data.n_rows()).filter(|row| data.weight(*row) > 0.0).map(|row| data.rows().at(row, column));
    values.fold(None, |ends, v| Some(ends.map_or((v, v), |(least, most): (f64, f64)| (least.min(v), most.max(v)))))
}

/// Where the components of a mixture lie in one of its columns: their means and two standard deviations around them.
fn reach(mixture: &Mixture, at: usize) -> (f64, f64) {
    let ends = (0..mixture.n_components()).map(|c| {
        let (mean, deviation) = (mixture.means()[[c, at]], ellipse::covariance(mixture, c, [at, at])[0].sqrt());
        (mean - 2.0 * deviation, mean + 2.0 * deviation)
    });
    ends.fold((f64::INFINITY, f64::NEG_INFINITY), |all, one| (all.0.min(one.0), all.1.max(one.1)))
}

/// The data that all panels of a picture share.
struct Figure<'f, 'a> {
    fit: &'f Fit<'a>,
    /// The marginal mixture of the drawn columns.
    mixture: Mixture,
    /// Smallest and largest value of each drawn column.
    spans: Vec<(f64, f64)>,
    points: Vec<scatter::Point>,
}

impl Figure<'_, '_> {
    fn heading(&self, canvas: &mut Canvas) -> f64 {
        let (k, kind) = (self.mixture.n_components(), self.mixture.covariance_type());
        let components = if k == 1 { "1 component".to_owned() } else { format!("{k} components") };
        let beside = if self.fit.noise.is_some() { ", and noise" } else { "" };
        canvas.heading(
            &format!("Gaussian mixture: {components}, {kind} covariances{beside}"),
            std::slice::from_ref(&self.fit.note),
        )
    }

    fn name(&self, at: usize) -> &str {
        &self.fit.names[self.fit.columns[at]]
    }

    /// The scale of a column: it covers all rows, and the ellipses up to a quarter of the span beyond the rows.
    fn scale(&self, at: usize) -> Scale {
        let (least, most) = self.spans[at];
        let beyond = 0.25 * (most - least);
        let reach = (0..self.mixture.n_components()).flat_map(|c| {
            let (mean, deviation) = (self.mixture.means()[[c, at]], self.deviation(c, at));
            [mean - 2.0 * deviation, mean + 2.0 * deviation]
        });
        let reach: Vec<f64> = match most > least {
            true => reach.map(|v| v.clamp(least - beyond, most + beyond)).collect(),
            // A constant column has no span, so the components' deviations determine the scale.
            false => reach.filter(|v| (v - least).abs() < 1e3 * least.abs().max(1.0)).collect(),
        };
        Scale::linear([least, most].into_iter().chain(reach), 0.03)
    }

    fn deviation(&self, c: usize, at: usize) -> f64 {
        ellipse::covariance(&self.mixture, c, [at, at])[0].sqrt()
    }

    fn one(&self) -> Picture {
        let mut canvas = Canvas::new(640.0, 420.0);
        let top = self.heading(&mut canvas);
        let x = Axis::new(self.scale(0), self.name(0));
        let density = density::Density::new(self, 0, &x.scale);
        let y = Axis::new(density.scale(), "density");
        let panel = Panel::within((MARGIN, top), (640.0 - 2.0 * MARGIN - 4.0, 420.0 - top - MARGIN), x, y);
        density.draw(&mut canvas, &panel, self.mixture.n_components() <= NAMED);
        Picture::new(canvas)
    }

    fn pair(&self) -> Picture {
        let mut canvas = Canvas::new(640.0, 460.0);
        let top = self.heading(&mut canvas);
        let (x, y) = (Axis::new(self.scale(0), self.name(0)), Axis::new(self.scale(1), self.name(1)));
        let panel = Panel::within((MARGIN, top), (640.0 - 2.0 * MARGIN - 4.0, 460.0 - top - MARGIN), x, y);
        scatter::draw(&mut canvas, &panel, self, [0, 1], self.mixture.n_components() <= NAMED);
        Picture::new(canvas)
    }

    fn grid(&self) -> Picture {
        let d = self.fit.columns.len();
        let cell = (960.0 / d as f64).clamp(130.0, 230.0);
        let gap = 10.0;
        let scales: Vec<Scale> = (0..d).map(|at| self.scale(at)).collect();
        // Room to the left of all panels for the widest numbers and a title.
        let axis = |at: usize| Axis::new(scales[at], self.name(at));
        let room = (0..d).map(|at| panel::beside(&axis(at), cell)).fold(0.0, f64::max);
        let side = d as f64 * cell + (d as f64 - 1.0) * gap;
        let mut canvas = Canvas::new(2.0 * MARGIN + room + side + 6.0, 0.0);
        let top = self.heading(&mut canvas);
        canvas.height = top + side + panel::BELOW + MARGIN;
        let left = MARGIN + room;
        let place = |row: usize, column: usize| {
            let [down, right] = [row, column].map(|at| at as f64 * (cell + gap));
            (left + right, top + down)
        };
        let few = self.mixture.n_components() <= 9;
        for row in 0..d {
            for column in 0..=row {
                let x = if row == d - 1 { axis(column) } else { Axis::bare(scales[column]) };
                if row == column {
                    let density = density::Density::new(self, row, &x.scale);
                    let panel = Panel::at(place(row, column), (cell, cell), x, Axis::bare(density.scale()));
                    let panel = panel.with_y_ticks(crate::scale::Ticks::default()).among_others();
                    density.draw(&mut canvas, &panel, false);
                } else {
                    let y = if column == 0 { axis(row) } else { Axis::bare(scales[row]) };
                    let panel = Panel::at(place(row, column), (cell, cell), x, y).among_others();
                    scatter::draw(&mut canvas, &panel, self, [column, row], few);
                }
            }
        }
        self.legend(&mut canvas, place(0, d / 2 + 1), (d - 1) as f64 * (cell + gap) - (d / 2) as f64 * (cell + gap));
        Picture::new(canvas)
    }

    /// Lists the components by marker and weight in the empty corner of a grid; `room` is the height available there.
    fn legend(&self, canvas: &mut Canvas, (left, top): (f64, f64), room: f64) {
        let (k, step) = (self.mixture.n_components(), TEXT + 6.0);
        let most = ((room / step) as usize).clamp(2, NAMED);
        for (i, c) in (0..k.min(most)).enumerate() {
            let (look, y) = (Look::of(c), top + step * (i as f64 + 0.5));
            let text = if k > most && i == most - 1 {
                format!(".. and {} more", k - i)
            } else {
                canvas.markers(look.marker, &[(left + 10.0, y)], 4.0, look.colour, false);
                format!("component {c}, weight {:.3}", self.mixture.weights()[c])
            };
            canvas.text((left + 24.0, y), &text, Text::new(Anchor::Start).size(TEXT).colour(INK));
        }
    }
}
