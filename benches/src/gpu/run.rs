//! Runs the workloads one by one: makes the data, checks, times, and returns a line.

use anyhow::Result;
use gmm_bench::Shape;
use gmm_bench::spread::Spread;
use gmm_host::{Engine, Resident, shift};
use gmm_model::{CovarianceType, Dataset, Precision};

use super::check;
use super::data::Source;
use super::line::{Failure, Line, Timed, What};
use super::timing::{self, Limits};
use super::workloads::{
    EVALUATIONS, FIT_GOAL_MS, FITS, INIT_GOAL_ITERATIONS, PRODUCTS, Square, WORKLOADS, Where, Workload, squares,
};
use super::{Arguments, init, likelihood, plan_name, products, small_fit};

/// Receives finished lines.
type Take<'a> = dyn FnMut(Line) -> Result<()> + 'a;

/// Runs the workloads whose names match, and passes each line to `take`.
///
/// # Errors
/// Any error of `take`, or of drawing data. A workload that fails gives a line, not an error.
pub(crate) fn everything(engine: &dyn Engine, arguments: &Arguments, take: &mut Take<'_>) -> Result<()> {
    let words: Vec<String> = arguments.workloads.iter().map(|word| word.to_lowercase()).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.to_lowercase().contains(word));
    let real = !arguments.quick;
    let limits = Limits { repeats: arguments.repeats.max(1), seconds: arguments.seconds };
    for case in FITS.iter().filter(|case| wanted(case.name)) {
        plan_name::take();
        let name = case.name.to_owned();
        let mut line = Line::new(What::Fit, name, CovarianceType::Full, Precision::F32, case.shape);
        line.goal_ms = real.then_some(FIT_GOAL_MS);
        take(line.filled(|line| {
            small_fit::run(engine, case, arguments.seed, limits, line)?;
            line.plan = plan_name::take();
            Ok(())
        }))?;
    }
    for case in PRODUCTS.iter().filter(|case| wanted(case.name)) {
        let asked = if arguments.quick { case.quick() } else { *case };
        let (m, k, n) = asked.shape;
        let mut line = product_line(case.name.to_owned(), asked.precision, (m, k, n));
        line.goal_ms = case.goal_ms.filter(|_| real);
        line.floor_ms = real.then_some(case.floor_ms);
        take(line.filled(|line| products::run(engine, &asked, arguments.seed, limits, line)))?;
    }
    // On a CPU engine there are no transfers and no residency to measure.
    let here = |case: &Square| case.place == Where::Cpu || engine.device_input().is_some();
    for case in squares().filter(|case| here(case) && wanted(&case.name())) {
        let name = case.name();
        let case = if arguments.quick { case.quick() } else { case };
        let line = product_line(name, case.precision, (case.side, case.side, case.side));
        take(line.filled(|line| products::square(engine, &case, arguments.seed, limits, line)))?;
    }
    let mut source: Option<Source> = None;
    for case in EVALUATIONS.iter().filter(|case| wanted(case.name)) {
        let case = if arguments.quick { case.quick() } else { *case };
        // All kinds of a size share its true mixture.
        let source = match source.take().filter(|source| source.shape == case.shape) {
            Some(same) => source.insert(same),
            None => source.insert(Source::new(case.shape, arguments.seed)?),
        };
        plan_name::take();
        let line = Line {
            goal_ms: case.goal_ms.filter(|_| real),
            floor_ms: real.then_some(case.floor_ms),
            ..Line::new(What::Likelihood, case.name.to_owned(), case.kind, Precision::F32, case.shape)
        };
        take(line.filled(|line| {
            likelihood::run(engine, &case, source, limits, line)?;
            line.plan = plan_name::take();
            Ok(())
        }))?;
    }
    for workload in &WORKLOADS {
        let init = workload.init && wanted(&workload.init_name());
        if !init && !wanted(&workload.name()) {
            continue;
        }
        let workload = if arguments.quick { workload.quick() } else { *workload };
        let source = match source.take().filter(|source| source.shape == workload.shape) {
            Some(same) => source.insert(same),
            None => source.insert(Source::new(workload.shape, arguments.seed)?),
        };
        Case { engine, workload, source, arguments, limits }.run(init, take)?;
    }
    Ok(())
}

/// A timed iteration: its seconds, and the rows on the host and in the engine.
struct Iterated {
    seconds: f64,
    data: Dataset,
    rows: Box<dyn Resident>,
}

struct Case<'a> {
    engine: &'a dyn Engine,
    workload: Workload,
    source: &'a Source,
    arguments: &'a Arguments,
    limits: Limits,
}

impl Case<'_> {
    fn run(&self, init: bool, take: &mut Take<'_>) -> Result<()> {
        plan_name::take();
        let mut timed = None;
        take(self.line(What::Em, self.workload.name()).filled(|line| {
            timed = self.em(line)?;
            Ok(())
        }))?;
        match timed.filter(|_| init) {
            Some(timed) => {
                let line = self.line(What::Init, self.workload.init_name());
                take(line.filled(|line| self.init(line, timed)))
            }
            None => Ok(()),
        }
    }

    /// Checks an iteration and, if the answer is right, times it over rows that are all distinct.
    fn em(&self, line: &mut Line) -> Result<Option<Iterated>> {
        let Workload { kind, precision, shape, checked: rows, fast, .. } = self.workload;
        let checked = check::check(self.engine, self.source, &self.workload)?;
        line.errors = [checked.origin, checked.offset, checked.looped].map(Some);
        line.effective_components = Some(checked.effective_components);
        if !line.judge(rows, checked.wrong.clone()) {
            return Ok(None);
        }
        let data = self.source.rows(shape.n, precision)?;
        let mut rows = self.engine.load(&data, precision, &shift::of_data(&data))?;
        let start = self.source.start(kind, false)?;
        let times = timing::em(rows.as_mut(), &start, (precision, fast), self.limits)?;
        line.plan = plan_name::take();
        let time = times.best();
        let (clock, wall, samples) = (times.clock(), times.wall.median, times.slopes);
        line.timed = Ok(Timed { time, clock, wall, samples, iterations: Some(times.iterations) });
        if fast {
            match check::loss(rows.as_mut(), &start, precision)? {
                Ok(note) => line.note = note,
                Err(why) => line.timed = Err(Failure::Wrong(why)),
            }
        }
        if let Some(why) = checked.other_than(times.way) {
            line.timed = Err(Failure::Wrong(why));
        }
        Ok(Some(Iterated { seconds: time.median, data, rows }))
    }

    /// Checks and times an initialisation over these rows.
    fn init(&self, line: &mut Line, Iterated { seconds, data, mut rows }: Iterated) -> Result<()> {
        let Self { workload, arguments, limits, .. } = self;
        line.kind = CovarianceType::Spherical;
        line.floor_ms = None;
        line.goal_ms = line.goal_ms.map(|_| INIT_GOAL_ITERATIONS * 1e3 * seconds);
        if !line.judge(workload.checked, check::check_kmeans(self.engine, self.source, workload)?) {
            return Ok(());
        }
        let at = shift::of_data(&data);
        let (all, note) = init::time(rows.as_mut(), &data, &at, workload.shape.k, arguments.seed, *limits)?;
        let iterations = Spread::of(all.clone()).median / seconds;
        line.note = format!("{iterations:.1} iterations of {}; {note}", workload.name());
        line.time("wall", all);
        Ok(())
    }

    fn line(&self, what: What, name: String) -> Line {
        let Workload { kind, precision, shape, floor_ms, goal_ms, .. } = self.workload;
        let real = !self.arguments.quick;
        Line {
            goal_ms: real.then_some(goal_ms),
            floor_ms: real.then_some(floor_ms),
            ..Line::new(what, name, kind, precision, shape)
        }
    }
}

/// The line of a product of an `(m, k)` matrix with `n` queries: `m` is recorded as rows, `n` as components.
fn product_line(name: String, precision: Precision, (m, k, n): (usize, usize, usize)) -> Line {
    Line::new(What::Product, name, CovarianceType::Full, precision, Shape { n: m, k: n, d: k })
}
