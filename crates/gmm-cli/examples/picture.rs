//! Draws README's picture: Old Faithful, coloured by responsibility, with the one and two sigma ellipses of the fit.
//!
//! `cargo run --release -p gmm-cli --example picture` writes `docs/old_faithful.svg`.

use std::f64::consts::TAU;
use std::fmt::Write as _;
use std::path::Path;

use gmm_data::{ReadOptions, read_table};
use gmm_host::{CpuEngine, FitOptions, evaluate, fit};
use gmm_model::{Dataset, Mixture, Precision};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
/// Space for the axes' labels: left, top, right, bottom.
const MARGIN: [f64; 4] = [56.0, 16.0, 16.0, 48.0];
/// Dark enough on white and light enough on black; told apart in grey as well.
const COLOURS: [[f64; 3]; 2] = [[230.0, 120.0, 20.0], [40.0, 110.0, 200.0]];

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let table = read_table(root.join("data/old_faithful.csv"), &ReadOptions::default())?;
    let data = Dataset::new(table.matrix)?;
    let engine = CpuEngine::new(1)?;
    let mixture = fit(&engine, &data, &FitOptions::new(2))?.mixture;
    let r = evaluate::responsibilities(&engine, &mixture, &data, Precision::F64)?;
    let axes = Axes { x: [1.25, 5.5], y: [40.0, 100.0] };
    let mut svg = String::new();
    axes.draw(&mut svg)?;
    for row in 0..data.n_rows() {
        let (x, y) = axes.place(data.rows().at(row, 0), data.rows().at(row, 1));
        let mix = |channel: usize| (0..2).map(|c| r[[row, c]] * COLOURS[c][channel]).sum::<f64>().round();
        writeln!(
            svg,
            r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="rgb({},{},{})" fill-opacity="0.7"/>"#,
            mix(0),
            mix(1),
            mix(2)
        )?;
    }
    for component in 0..2 {
        for sigma in [1.0, 2.0] {
            ellipse(&mut svg, &axes, &mixture, component, sigma)?;
        }
    }
    let out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="13">
<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>
{svg}</svg>
"##
    );
    Ok(std::fs::write(root.join("docs/old_faithful.svg"), out)?)
}

/// Data ranges, drawn over the whole picture less the margins.
struct Axes {
    x: [f64; 2],
    y: [f64; 2],
}

impl Axes {
    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let [left, top, right, bottom] = MARGIN;
        let across = (x - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - left - right);
        let up = (y - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - top - bottom);
        (left + across, HEIGHT - bottom - up)
    }

    fn draw(&self, svg: &mut String) -> std::fmt::Result {
        let ((x0, y0), (x1, y1)) = (self.place(self.x[0], self.y[0]), self.place(self.x[1], self.y[1]));
        for tick in 2..=5 {
            let (x, _) = self.place(f64::from(tick), self.y[0]);
            writeln!(svg, r##"<path d="M{x:.1} {y0:.1}V{y1:.1}" stroke="#e4e4e4"/>"##)?;
            writeln!(svg, r##"<text x="{x:.1}" y="{:.1}" text-anchor="middle" fill="#444">{tick}</text>"##, y0 + 17.0)?;
        }
        for tick in (40..=100).step_by(10) {
            let (_, y) = self.place(self.x[0], f64::from(tick));
            writeln!(svg, r##"<path d="M{x0:.1} {y:.1}H{x1:.1}" stroke="#e4e4e4"/>"##)?;
            writeln!(
                svg,
                r##"<text x="{:.1}" y="{:.1}" text-anchor="end" fill="#444">{tick}</text>"##,
                x0 - 7.0,
                y + 4.5
            )?;
        }
        let (middle, low) = ((x0 + x1) / 2.0, y0 + 38.0);
        writeln!(
            svg,
            r##"<text x="{middle:.1}" y="{low:.1}" text-anchor="middle" fill="#222">eruption, minutes</text>"##
        )?;
        let (side, centre) = (16.0, (y0 + y1) / 2.0);
        writeln!(
            svg,
            r##"<text transform="translate({side} {centre:.1}) rotate(-90)" text-anchor="middle" fill="#222">wait for the next, minutes</text>"##
        )
    }
}

/// The points `mean + sigma L u` for `u` on the unit circle.
fn ellipse(svg: &mut String, axes: &Axes, mixture: &Mixture, c: usize, sigma: f64) -> std::fmt::Result {
    let (mean, l) = (mixture.means().row(c).to_owned(), mixture.factors().dense(c, 2));
    let mut path = String::new();
    for step in 0..96 {
        let (sin, cos) = (f64::from(step) / 96.0 * TAU).sin_cos();
        let x = mean[0] + sigma * l[[0, 0]] * cos;
        let y = mean[1] + sigma * (l[[1, 0]] * cos + l[[1, 1]] * sin);
        let (x, y) = axes.place(x, y);
        write!(path, "{}{x:.1} {y:.1}", if step == 0 { 'M' } else { 'L' })?;
    }
    let [r, g, b] = COLOURS[c].map(|v| v * 0.75);
    writeln!(svg, r#"<path d="{path}Z" fill="none" stroke="rgb({r:.0},{g:.0},{b:.0})" stroke-width="2"/>"#)
}
