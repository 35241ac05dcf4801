//! `growth`: measures how the time of an EM iteration grows with rows, components and columns, and whether any size
//! costs much more than its neighbours.

mod plot;
mod point;
mod points;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};
use gmm_host::{Device, Engine, shift};
use gmm_model::{CovarianceType, Precision};

pub(crate) use plot::Arguments as PlotArguments;
pub(crate) use plot::run as plot;

use self::point::{COLUMNS, Point, cliffs};
use self::points::{Sweep, USUAL_COMPONENTS, checked, floor_ms};
use gmm_bench::record::{Csv, Facts};

use super::check;
use super::data::Source;
use super::hardware::{self, Hardware};
use super::timing::{self, Limits, Times};
use super::workloads::Workload;
use crate::definition::Shape;
use gmm_bench::{flops, machine};

/// Seconds per iteration above which a size is left out.
const LONGEST: f64 = 1.0;

/// Times EM iterations of many sizes and writes a record, which `plot` draws.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Run only series whose names contain one of these words: n-full-f32, k-, d-diag, f64.
    series: Vec<String>,
    /// cuda, cuda:I, or cpu to try the program without a GPU.
    #[arg(long, default_value = "cuda")]
    engine: String,
    /// Seconds of measuring per size.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Seconds after which no size begins; the remaining sizes are recorded without times.
    #[arg(long, default_value_t = 900.0)]
    budget: f64,
    /// Number of components while rows or columns grow.
    #[arg(long, default_value_t = USUAL_COMPONENTS as u32, value_parser = clap::value_parser!(u32).range(1..))]
    components: u32,
    /// Largest size of each sweep, to try the program with small sizes.
    #[arg(long)]
    most: Option<usize>,
    /// The .csv file to write, or the folder for GPU/growth-DATE.csv.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to name in the record, if the program runs outside the repository.
    #[arg(long)]
    commit: Option<String>,
    /// Seed of the data and of random draws.
    #[arg(long, default_value_t = 4)]
    seed: u64,
}

/// Measures all sizes, writes the record and prints the cliffs.
///
/// # Errors
/// If the engine is not available, no series matches, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let device: Device = arguments.engine.parse()?;
    let opened = device.open(0)?;
    let engine = opened.engine.as_ref();
    let mut record = create(arguments, hardware::describe(engine))?;
    let began = Instant::now();
    let mut points: Vec<Point> = Vec::new();
    let (mut failed, mut unchecked) = (0, 0);
    for sweep in Sweep::ALL {
        let name = |(kind, precision)| format!("{}-{kind}-{precision}", sweep.name());
        let words = &arguments.series;
        let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
        let series: Vec<_> = sweep.series().into_iter().filter(|series| wanted(&name(*series))).collect();
        let shapes = sweep
            .shapes(arguments.components as usize)
            .into_iter()
            .filter(|shape| arguments.most.is_none_or(|m| sweep.of(*shape) <= m));
        for shape in shapes.filter(|_| !series.is_empty()) {
            // All series of a size share its true mixture.
            let source = Source::new(shape, arguments.seed)?;
            for &(kind, precision) in &series {
                let before = points.iter().rfind(|p| p.sweep == sweep && p.series == format!("{kind}-{precision}"));
                let too_long = before.and_then(|before| expected(before, kind, shape)).filter(|s| *s > LONGEST);
                let measured = if began.elapsed().as_secs_f64() > arguments.budget {
                    Measured::none("left", "no time was left".to_owned())
                } else if let Some(seconds) = too_long {
                    Measured::none("left", format!("an iteration would take some {seconds:.1} s"))
                } else {
                    measure(engine, &source, kind, precision, arguments.seconds)
                };
                failed += usize::from(matches!(measured.verdict, "wrong" | "error"));
                unchecked += usize::from(measured.verdict == UNCHECKED);
                let ms = measured.times.as_ref().map(|times| 1e3 * times.best().median);
                let floor_ms = floor_ms(kind, precision, shape);
                let point = Point { sweep, series: format!("{kind}-{precision}"), shape, ms, floor_ms };
                let line = measured.line(&point);
                println!("{line}");
                record.push(&line)?;
                points.push(point);
            }
        }
    }
    if points.is_empty() {
        bail!("no series' name contains {}", arguments.series.join(" or "));
    }
    println!("{} sizes in {:.0} s; {}", points.len(), began.elapsed().as_secs_f64(), record.path().display());
    tell_cliffs(&points);
    if unchecked > 0 {
        println!("{unchecked} sizes were timed by another way than was checked");
    }
    if failed > 0 {
        bail!("{failed} sizes gave wrong answers or none, and were not timed");
    }
    Ok(())
}

/// Prints the neighbouring sizes whose costs per operation differ by more than 1.5.
fn tell_cliffs(points: &[Point]) {
    let (found, compared) = cliffs(points);
    println!("{} of {compared} groups of neighbours differ by more than 1.5 per counted operation", found.len());
    found.iter().for_each(|text| println!("  {text}"));
}

/// Estimates the seconds of an iteration, if a counted operation costs the same as at the previous size.
fn expected(before: &Point, kind: CovarianceType, shape: Shape) -> Option<f64> {
    Some(before.ms? / 1e3 * flops::per_iteration(kind, shape) / flops::per_iteration(kind, before.shape))
}

/// The verdict if the timed code path is not the one that was checked.
const UNCHECKED: &str = "unchecked";

/// The result at a size.
struct Measured {
    /// `ok`, `wrong`, `error`, [`UNCHECKED`], or `left` if the size was left out.
    verdict: &'static str,
    times: Option<Times>,
    /// Errors of the sums at the origin and at the offset, and of the loop.
    errors: Option<[f64; 3]>,
    note: String,
}

impl Measured {
    const fn none(verdict: &'static str, note: String) -> Self {
        Self { verdict, times: None, errors: None, note }
    }

    /// The record's line, in the order of [`COLUMNS`].
    fn line(&self, point: &Point) -> String {
        let Shape { n, k, d } = point.shape;
        let or_empty = |v: Option<String>| v.unwrap_or_default();
        let error = |at: usize| or_empty(self.errors.map(|errors| format!("{:.2e}", errors[at])));
        let gflops = point.series.split('-').next().and_then(|kind| kind.parse().ok()).zip(point.ms);
        let gflops = gflops.map(|(kind, ms)| format!("{:.1}", flops::per_iteration(kind, point.shape) / ms / 1e6));
        let times = self.times.as_ref();
        [
            point.sweep.name().to_owned(),
            point.series.replace('-', ","),
            format!("{n},{k},{d}"),
            self.verdict.to_owned(),
            or_empty(point.ms.map(|ms| format!("{ms:.5}"))),
            format!("{:.6}", point.floor_ms),
            or_empty(point.share().map(|share| format!("{share:.4}"))),
            or_empty(gflops),
            times.map_or("", |times| times.way).to_owned(),
            times.map_or("", Times::clock).to_owned(),
            or_empty(times.map(|times| times.slopes.to_string())),
            or_empty(self.errors.map(|_| checked(point.shape).to_string())),
            error(0),
            error(1),
            error(2),
            self.note.replace(',', " ").replace('\n', "; "),
        ]
        .join(",")
    }
}

/// Checks the answers of a size, then times it.
fn measure(engine: &dyn Engine, source: &Source, kind: CovarianceType, precision: Precision, seconds: f64) -> Measured {
    let shape = source.shape;
    let (floor_ms, checked) = (floor_ms(kind, precision, shape), checked(shape));
    let workload = Workload {
        size: "growth",
        kind,
        precision,
        shape,
        checked,
        floor_ms,
        goal_ms: f64::INFINITY,
        init: false,
        fast: false,
    };
    let checked = match check::check(engine, source, &workload) {
        Ok(checked) => checked,
        Err(why) => return Measured::none("error", format!("{why:#}")),
    };
    let errors = Some([checked.origin.sums(), checked.offset.sums(), checked.looped.sums()]);
    if let Some(note) = checked.wrong {
        return Measured { errors, ..Measured::none("wrong", note) };
    }
    match time(engine, source, kind, precision, seconds) {
        Ok(times) => {
            let other = checked.other_than(times.way);
            let verdict = if other.is_some() { UNCHECKED } else { "ok" };
            Measured { verdict, times: Some(times), errors, note: other.unwrap_or_default() }
        }
        Err(why) => Measured { errors, ..Measured::none("error", format!("{why:#}")) },
    }
}

fn time(
    engine: &dyn Engine,
    source: &Source,
    kind: CovarianceType,
    precision: Precision,
    seconds: f64,
) -> Result<Times> {
    let data = source.rows(source.shape.n, precision)?;
    let mut rows = engine.load(&data, precision, &shift::of_data(&data))?;
    timing::em(rows.as_mut(), &source.start(kind, false)?, (precision, false), Limits { repeats: 40, seconds })
}

/// Creates a new record and writes its head.
fn create(arguments: &Arguments, hardware: Hardware) -> Result<Csv> {
    let Arguments { series, engine, seconds, budget, components, out, seed, commit, .. } = arguments;
    let commit = commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let command = format!(
        "growth --engine {engine} --seconds {seconds} --budget {budget} --components {components} --seed {seed} {}",
        series.join(" ")
    );
    let mut facts = Facts::new("milliseconds per EM iteration as sizes grow", commit, &command);
    facts.extend(hardware.facts);
    Csv::create(out, &hardware.slug, &format!("growth-{}", machine::today()), &facts, COLUMNS)
}
