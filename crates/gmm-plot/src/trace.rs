//! The convergence of EM: the log-likelihood at each iteration, and its change.

use crate::canvas::{Canvas, Stroke};
use crate::lines::{self, Series};
use crate::panel::{Axis, Panel};
use crate::scale::Scale;
use crate::style::{Look, MARGIN};
use crate::{Error, Picture};

/// The log-likelihoods of a fit's iterations.
#[derive(Clone, Debug)]
pub struct Trace<'a> {
    /// Mean log-likelihood per row at each iteration, in nats.
    pub values: &'a [f64],
    /// The change below which the fit stops; drawn only if it is above 0.
    pub tol: f64,
    /// First line above the picture.
    pub title: String,
    /// Second line above the picture.
    pub note: String,
}

const WIDTH: f64 = 640.0;

/// Draws the log-likelihood over the iterations, and below it the change at each iteration on a logarithmic scale. A
/// decrease is drawn at its absolute value, with a marker that is white inside.
///
/// # Errors
/// [`Error::Nothing`] if no value is finite.
pub fn trace(trace: &Trace<'_>) -> Result<Picture, Error> {
    let Trace { values, tol, title, note } = trace;
    let points: Vec<(f64, f64)> = (1..).map(f64::from).zip(values.iter().copied()).collect();
    if !values.iter().any(|v| v.is_finite()) {
        return Err(Error::Nothing("the trace has no value that is finite".to_owned()));
    }
    let changes: Vec<(f64, f64)> = points.windows(2).map(|two| (two[1].0, two[1].1 - two[0].1)).collect();
    let sizes = || changes.iter().map(|(_, change)| change.abs()).filter(|size| size.is_finite() && *size > 0.0);
    let below = sizes().next().is_some();
    let mut canvas = Canvas::new(WIDTH, if below { 560.0 } else { 360.0 });
    let falls = changes.iter().filter(|(_, change)| *change < 0.0).count();
    let fell = match falls {
        0 => String::new(),
        1 => "; 1 fall (white inside)".to_owned(),
        _ => format!("; {falls} falls (white inside)"),
    };
    let top = canvas.heading(title, &[format!("{note}{fell}")]);
    let tolerance = format!("tol {tol:e}");
    let shows_tol = below && *tol > 0.0;
    let right = if shows_tol { lines::beside([tolerance.as_str()]) } else { 8.0 };
    let left = MARGIN;
    let size = (
        WIDTH - left - right - MARGIN,
        (canvas.height - top - MARGIN - if below { 16.0 } else { 0.0 }) / if below { 2.0 } else { 1.0 },
    );

    let last = points.len() as f64;
    let across = Scale::linear([1.0, last.max(2.0)], 0.02);
    let up = Axis::new(Scale::linear(values.iter().copied(), 0.06), "log-likelihood, nats per row");
    let down = Axis::new(Scale::logarithmic(sizes().chain(shows_tol.then_some(*tol)), 0.06), "change, nats per row");
    // Both panels have the same left edge.
    let margin = [&up, &down]
        .map(|axis| crate::panel::beside(axis, size.1 - crate::panel::BELOW))
        .into_iter()
        .fold(0.0, f64::max);
    let panel = |y: f64, axis: Axis| {
        let place = (left + margin, y);
        let size = (size.0 - margin, size.1 - crate::panel::BELOW);
        let panel = Panel::at(place, size, Axis::new(across, "iteration"), axis);
        panel.with_x_ticks(lines::whole(across, size.0))
    };
    let above = panel(top, up);
    let line = [Series::new(String::new(), points, Look { dash: "", ..Look::of(0) })];
    above.grid(&mut canvas);
    lines::draw(&mut canvas, &above, &line);
    above.axes(&mut canvas);
    if below {
        let panel = panel(top + size.1 + 16.0, down);
        panel.grid(&mut canvas);
        let open = changes.iter().map(|(_, change)| *change < 0.0).collect();
        let points =
            changes.iter().map(|(i, change)| (*i, if *change == 0.0 { f64::NAN } else { change.abs() })).collect();
        let look = Look { dash: "", ..Look::of(0) };
        lines::draw(&mut canvas, &panel, &[Series { name: String::new(), points, look, open }]);
        panel.axes(&mut canvas);
        if shows_tol {
            let (from, to) = across.ends();
            let look = Look::of(1);
            lines::join(
                &mut canvas,
                &panel,
                &[(from, *tol), (to, *tol)],
                Stroke { colour: look.colour, width: 1.4, dash: look.dash },
            );
            let (x, y) = panel.place(to, *tol);
            let text = crate::canvas::Text::new(crate::canvas::Anchor::Start).size(crate::style::TEXT);
            canvas.text((x + 8.0, y), &tolerance, text);
        }
    }
    Ok(Picture::new(canvas))
}
