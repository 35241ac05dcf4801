//! `plot`: a record of growth as pictures, on any machine.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use plotters::prelude::*;

use super::point::{self, Point};
use super::points::Sweep;

/// Draws a record of growth: one SVG for each sweep, time above and share of the floor below.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// The record, a .csv file that `growth` wrote.
    record: PathBuf,
    /// Folder for growth-n.svg, growth-k.svg and growth-d.svg.
    #[arg(long, default_value = "docs")]
    out: PathBuf,
}

const SIZE: (u32, u32) = (760, 820);

/// Distinct for most eyes: Okabe and Ito's.
const COLOURS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115), RGBColor(204, 121, 167)];

/// Draws, and tells of cliffs.
///
/// # Errors
/// Where the record cannot be read, is none or has no times, or a picture cannot be written.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let points = point::read(&arguments.record)?;
    std::fs::create_dir_all(&arguments.out)?;
    let mut drawn = 0;
    for sweep in Sweep::ALL {
        let of: Vec<&Point> = points.iter().filter(|point| point.sweep == sweep && point.ms.is_some()).collect();
        if !of.is_empty() {
            let path = arguments.out.join(format!("growth-{}.svg", sweep.name()));
            picture(&path, sweep, &of)?;
            println!("{}", path.display());
            drawn += 1;
        }
    }
    ensure!(drawn > 0, "{} has no times", arguments.record.display());
    super::tell_cliffs(&points);
    Ok(())
}

fn picture(path: &Path, sweep: Sweep, points: &[&Point]) -> Result<()> {
    let root = SVGBackend::new(path, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (above, below) = root.split_vertically(SIZE.1 / 2);
    let fixed = match sweep {
        Sweep::Rows => "K=16, d=16",
        Sweep::Components => "N=1e5, d=16",
        Sweep::Columns => "N=1e5, K=16",
    };
    let time = format!("An EM iteration as {} grows, {fixed}: milliseconds, dashed the floor", sweep.name());
    panel(&above, &time, sweep, points, |point| point.ms, Some(|point: &Point| Some(point.floor_ms)))?;
    panel(&below, "Share of the floor, percent", sweep, points, |p| Some(100.0 * p.share()?), None)?;
    root.present()?;
    Ok(())
}

/// One value over what grows, both logarithmic, a line for each series.
fn panel(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    sweep: Sweep,
    points: &[&Point],
    value: fn(&Point) -> Option<f64>,
    dashed: Option<fn(&Point) -> Option<f64>>,
) -> Result<()> {
    let at = |point: &Point, value: fn(&Point) -> Option<f64>| Some((sweep.of(point.shape) as f64, value(point)?));
    let all = || points.iter().flat_map(|p| [Some(value), dashed].into_iter().flatten().filter_map(|of| at(p, of)));
    let ends = |values: &mut dyn Iterator<Item = f64>| {
        let (least, most) = values.fold((f64::INFINITY, 0.0_f64), |(l, m), v| (l.min(v), m.max(v)));
        least / 1.3..most * 1.3
    };
    let (across, up) = (ends(&mut all().map(|(x, _)| x)), ends(&mut all().map(|(_, y)| y)));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 16))
        .margin(10)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(across.log_scale(), up.log_scale())?;
    let short = |v: &f64| if *v >= 1e4 || *v < 1e-2 { format!("{v:.0e}") } else { format!("{v}") };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(sweep.name())
        .x_label_formatter(&short)
        .y_label_formatter(&short)
        .draw()?;
    let mut series: Vec<&str> = points.iter().map(|point| point.series.as_str()).collect();
    series.sort_unstable();
    series.dedup();
    for (name, colour) in series.into_iter().zip(COLOURS) {
        let own = |value| points.iter().filter(|p| p.series == name).filter_map(|p| at(p, value)).collect::<Vec<_>>();
        let line: Vec<(f64, f64)> = own(value);
        if let Some(dashed) = dashed {
            chart.draw_series(DashedLineSeries::new(own(dashed), 4, 4, colour.stroke_width(1)))?;
        }
        chart
            .draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))?
            .label(name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(line.into_iter().map(|at| Circle::new(at, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_becomes_one_picture_for_each_sweep_that_has_times() {
        let folder = tempfile::tempdir().unwrap();
        let record = folder.path().join("r.csv");
        let line =
            |k: usize, ms: &str| format!("k,full,f32,100000,{k},16,ok,{ms},0.01,0.5,1,large,device,5,1000,0,0,0,\n");
        let lines = [line(16, "0.1"), line(32, "0.2"), line(64, "")].concat();
        std::fs::write(&record, format!("{}\n{lines}", point::COLUMNS)).unwrap();
        let out = folder.path().join("docs");
        run(&Arguments { record: record.clone(), out: out.clone() }).unwrap();
        let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["growth-k.svg"]);
        let svg = std::fs::read_to_string(out.join("growth-k.svg")).unwrap();
        // Two sizes in two panels, and the series by name in both.
        assert_eq!((svg.matches("<circle").count(), svg.matches("full-f32").count()), (4, 2), "{svg}");
        std::fs::write(&record, format!("{}\n{}", point::COLUMNS, line(16, ""))).unwrap();
        assert!(run(&Arguments { record, out }).unwrap_err().to_string().contains("no times"));
    }
}
