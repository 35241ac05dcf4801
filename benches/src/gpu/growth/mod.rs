//! `growth`: how an EM iteration's time grows with rows, components and columns, and that no size costs much more than
//! its neighbour.

mod plot;
mod point;
mod points;

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use gmm_host::{Device, Engine, shift};
use gmm_model::{CovarianceType, Precision};

pub(crate) use plot::Arguments as PlotArguments;
pub(crate) use plot::run as plot;

use self::point::{COLUMNS, Point, cliffs};
use self::points::{Sweep, USUAL_COMPONENTS, checked, floor_ms};
use super::check;
use super::data::Source;
use super::hardware::{self, Hardware};
use super::timing::{self, Limits, Times};
use super::workloads::Workload;
use crate::definition::Shape;
use crate::{flops, machine};

/// Seconds of an iteration beyond which a size is left out.
const LONGEST: f64 = 1.0;

/// Times EM iterations of many sizes and writes a record; `plot` draws it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Words of which a series' name must contain one: n-full-f32, k-, d-diag, f64.
    series: Vec<String>,
    /// cuda, cuda:I, or cpu to try the program where there is no GPU.
    #[arg(long, default_value = "cuda")]
    engine: String,
    /// Seconds of measuring after which a size has enough.
    #[arg(long, default_value_t = 0.2)]
    seconds: f64,
    /// Seconds after which no size begins; those that are left are in the record, without times.
    #[arg(long, default_value_t = 900.0)]
    budget: f64,
    /// Components while rows or columns grow.
    #[arg(long, default_value_t = USUAL_COMPONENTS as u32, value_parser = clap::value_parser!(u32).range(1..))]
    components: u32,
    /// Largest size of each sweep: tries the program, not the machine.
    #[arg(long)]
    most: Option<usize>,
    /// A .csv file to be written, or the folder below which GPU/growth-DATE.csv is.
    #[arg(long, default_value = "target/bench/record")]
    out: PathBuf,
    /// The commit to be named in the record, where the program runs away from the repository.
    #[arg(long)]
    commit: Option<String>,
    /// Seed of data and draws.
    #[arg(long, default_value_t = 4)]
    seed: u64,
}

/// Measures, writes, and tells of cliffs.
///
/// # Errors
/// Where there is no such engine, nothing matches, the record cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let device: Device = arguments.engine.parse()?;
    let opened = device.open(0)?;
    let engine = opened.engine.as_ref();
    let hardware = hardware::describe(engine);
    let (path, mut file) = create(arguments, &hardware)?;
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
            // The truth of a size serves all of its series.
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
                writeln!(file, "{line}").with_context(|| format!("cannot write {}", path.display()))?;
                points.push(point);
            }
        }
    }
    if points.is_empty() {
        bail!("no series' name contains {}", arguments.series.join(" or "));
    }
    println!("{} sizes in {:.0} s; {}", points.len(), began.elapsed().as_secs_f64(), path.display());
    tell_cliffs(&points);
    if unchecked > 0 {
        println!("{unchecked} sizes were timed by another way than was checked");
    }
    if failed > 0 {
        bail!("{failed} sizes gave wrong answers or none, and were not timed");
    }
    Ok(())
}

/// Prints neighbours that cost unlike.
fn tell_cliffs(points: &[Point]) {
    let (found, compared) = cliffs(points);
    println!("{} of {compared} groups of neighbours differ by more than 1.5 per counted operation", found.len());
    found.iter().for_each(|text| println!("  {text}"));
}

/// Seconds, if a counted operation costs what it did at the size before.
fn expected(before: &Point, kind: CovarianceType, shape: Shape) -> Option<f64> {
    Some(before.ms? / 1e3 * flops::per_iteration(kind, shape) / flops::per_iteration(kind, before.shape))
}

/// The verdict where another way was checked than timed.
const UNCHECKED: &str = "unchecked";

/// What was found at a size.
struct Measured {
    /// `ok`, `wrong`, `error`, [`UNCHECKED`], or `left` where it was left out.
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

    /// In the order of [`COLUMNS`].
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

/// The answer first, then the time.
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

/// Opens the record, which is there not yet, and writes its head.
fn create(arguments: &Arguments, hardware: &Hardware) -> Result<(PathBuf, File)> {
    let Arguments { series, engine, seconds, budget, components, out, seed, .. } = arguments;
    let path = if out.extension().is_some_and(|e| e == "csv") {
        out.clone()
    } else {
        let folder = out.join(&hardware.slug);
        let names = (1..).map(|i| if i == 1 { String::new() } else { format!("-{i}") });
        let mut paths = names.map(|suffix| folder.join(format!("growth-{}{suffix}.csv", machine::today())));
        paths.find(|path| !path.exists()).expect("names do not end")
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    let mut file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let commit = arguments.commit.clone().unwrap_or_else(|| machine::commit(Path::new(".")));
    let command = format!(
        "growth --engine {engine} --seconds {seconds} --budget {budget} --components {components} --seed {seed} "
    );
    let mut facts = vec![
        ("what", "milliseconds per EM iteration as sizes grow; see benches/README.md".to_owned()),
        ("date", machine::today()),
        ("commit", commit),
        ("command", (command + &series.join(" ")).trim_end().to_owned()),
    ];
    facts.extend(hardware.facts.iter().cloned());
    for (name, value) in facts {
        writeln!(file, "# {name}: {value}")?;
    }
    writeln!(file, "{COLUMNS}")?;
    Ok((path, file))
}
