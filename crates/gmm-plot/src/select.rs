//! A model-selection criterion against the number of components, with a line for each kind of covariance.

use crate::canvas::{At, Canvas, Stroke};
use crate::lines::{self, Series};
use crate::panel::{Axis, BELOW, Panel, beside};
use crate::scale::Scale;
use crate::style::{INK, Look, MARGIN};
use crate::{Error, Picture};

/// One of the fits compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Kind of covariance; each kind is a line of the picture.
    pub kind: String,
    /// Number of components.
    pub k: usize,
    /// The criterion, lower is better; not finite if the fit failed.
    pub value: f64,
    /// Whether the fit converged.
    pub converged: bool,
}

const WIDTH: f64 = 640.0;
/// Heights of the panels of the criterion and of its difference from the lowest, with numbers and titles.
const HEIGHTS: [f64; 2] = [350.0, 270.0];
/// Ratio of the largest to the smallest number of components from which the axis is logarithmic.
const WIDE: f64 = 24.0;

/// Draws a line for each kind of covariance. A ring marks the lowest value; fits that did not converge are white
/// inside. A second panel below shows the difference from the lowest on a logarithmic scale, which resolves differences
/// among the best.
///
/// `criterion` is its name, such as `BIC`; `title` and `note` are the lines above the picture.
///
/// # Errors
/// [`Error::Nothing`] if no candidate has a finite value.
pub fn select(candidates: &[Candidate], criterion: &str, title: &str, note: &str) -> Result<Picture, Error> {
    let fits = || candidates.iter().filter(|candidate| candidate.value.is_finite());
    let Some(best) = fits().min_by(|a, b| a.value.total_cmp(&b.value)) else {
        return Err(Error::Nothing("no candidate has a finite criterion".to_owned()));
    };
    let mut kinds: Vec<&str> = Vec::new();
    for candidate in fits() {
        if !kinds.contains(&candidate.kind.as_str()) {
            kinds.push(&candidate.kind);
        }
    }
    let series: Vec<Series> = kinds
        .iter()
        .enumerate()
        .map(|(i, kind)| {
            let mut own: Vec<&Candidate> = fits().filter(|candidate| candidate.kind == *kind).collect();
            own.sort_by_key(|candidate| candidate.k);
            let points = own.iter().map(|candidate| (candidate.k as f64, candidate.value)).collect();
            let open = own.iter().map(|candidate| !candidate.converged).collect();
            Series { name: (*kind).to_owned(), points, look: Look::of(i), open }
        })
        .collect();
    let (failed, early) = (candidates.len() - fits().count(), fits().filter(|candidate| !candidate.converged).count());
    let mut notes = vec![format!("lowest {criterion}: {}, {} (ringed)", components(best.k), best.kind)];
    if early > 0 {
        notes.push(format!("{early} not converged (white inside)"));
    }
    if failed > 0 {
        notes.push(format!("{failed} without a fit"));
    }
    let mut canvas = Canvas::new(WIDTH, 0.0);
    let top = canvas.heading(title, &[note.to_owned(), notes.join("; ")]);
    let right = lines::beside(kinds.iter().copied());
    let ks = || fits().map(|candidate| candidate.k as f64);
    let (least, most) = ks().fold((f64::INFINITY, 0.0_f64), |(l, m), k| (l.min(k), m.max(k)));
    let across = match most / least {
        ratio if ratio >= WIDE => Scale::logarithmic(ks(), 0.04),
        _ if most == least => Scale::between(least - 1.0, most + 1.0),
        _ => Scale::linear(ks(), 0.04),
    };
    let values = fits().map(|candidate| candidate.value);
    let y = Axis::new(Scale::linear(values, 0.06), format!("{criterion} (lower is better)"));
    let gaps = || fits().map(|candidate| candidate.value - best.value).filter(|gap| *gap > 0.0 && gap.is_finite());
    let gap = Axis::new(Scale::logarithmic(gaps(), 0.06), format!("{criterion} above the lowest (ringed)"));
    // The second panel is drawn only if there are more than two differences to show.
    let below = gaps().count() > 2;
    canvas.height = if below { top + HEIGHTS[0] + HEIGHTS[1] + MARGIN } else { top + HEIGHTS[0] };
    let heights = HEIGHTS.map(|height| height - BELOW - MARGIN);
    let margin = beside(&y, heights[0]).max(if below { beside(&gap, heights[1]) } else { 0.0 });
    // The lowest has a difference of 0, which a logarithmic scale lacks: it is drawn at the lower edge.
    let zero = gap.scale.ends().0;
    let mut draw = |top: f64, height: f64, y: Axis, series: &[Series], (lowest, ring): At| {
        let size = (WIDTH - right - margin - 2.0 * MARGIN, height);
        let panel = Panel::at((MARGIN + margin, top), size, Axis::new(across, "components"), y);
        let panel = panel.with_x_ticks(lines::whole(across, size.0));
        panel.grid(&mut canvas);
        lines::draw(&mut canvas, &panel, series);
        let at = panel.place(best.k as f64, lowest);
        canvas.ellipse(at, (ring, ring), 0.0, Stroke::new(INK, 1.8));
        panel.axes(&mut canvas);
        lines::names(&mut canvas, &panel, series);
    };
    draw(top, heights[0], y, &series, (best.value, 8.5));
    if below {
        let above = |value: f64| if value > best.value { value - best.value } else { zero };
        let gaps = series
            .into_iter()
            .map(|one| Series { points: one.points.iter().map(|(k, value)| (*k, above(*value))).collect(), ..one });
        draw(top + HEIGHTS[0] + MARGIN, heights[1], gap, &gaps.collect::<Vec<_>>(), (zero, 6.0));
    }
    Ok(Picture::new(canvas))
}

fn components(k: usize) -> String {
    if k == 1 { "1 component".to_owned() } else { format!("{k} components") }
}
