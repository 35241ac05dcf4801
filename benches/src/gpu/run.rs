//! One workload after another: data, check, times, line.

use anyhow::Result;
use gmm_host::{Engine, shift};
use gmm_model::{CovarianceType, Precision};

use super::check::{self, Checked, Errors};
use super::data::Source;
use super::line::{Failure, Line, Timed, What};
use super::timing::{self, Limits};
use super::workloads::{
    EVALUATIONS, Evaluations, FIT_GOAL_MS, FITS, INIT_GOAL_ITERATIONS, PRODUCTS, SmallFit, WORKLOADS, Workload, squares,
};
use super::{Arguments, init, likelihood, plan_name, products, small_fit};

/// Where lines go.
type Take<'a> = dyn FnMut(Line) -> Result<()> + 'a;

/// Runs what matches, and gives each line as it comes.
///
/// # Errors
/// What `take` says: a workload that fails is a line and no error.
pub(crate) fn everything(engine: &dyn Engine, arguments: &Arguments, take: &mut Take<'_>) -> Result<()> {
    let words: Vec<String> = arguments.workloads.iter().map(|word| word.to_lowercase()).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.to_lowercase().contains(word));
    let limits = Limits { repeats: arguments.repeats.max(1), seconds: arguments.seconds };
    for case in FITS.iter().filter(|case| wanted(case.name)) {
        take(small(engine, case, arguments, limits))?;
    }
    for case in PRODUCTS.iter().filter(|case| wanted(case.name)) {
        let asked = if arguments.quick { case.quick() } else { *case };
        let (m, k, n) = asked.shape;
        let real = !arguments.quick;
        let mut line = product_line(case.name.to_owned(), asked.precision, (m, k, n));
        line.goal_ms = case.goal_ms.filter(|_| real);
        line.floor_ms = real.then_some(case.floor_ms);
        take(answered(line, products::run(engine, &asked, arguments.seed, limits)))?;
    }
    for case in squares().filter(|case| wanted(&case.name())) {
        let name = case.name();
        let case = if arguments.quick { case.quick() } else { case };
        let line = product_line(name, case.precision, (case.side, case.side, case.side));
        if let Some(done) = products::square(engine, &case, arguments.seed, limits).transpose() {
            take(answered(line, done))?;
        }
    }
    let mut source: Option<Source> = None;
    for case in EVALUATIONS.iter().filter(|case| wanted(case.name)) {
        let case = if arguments.quick { case.quick() } else { *case };
        // The truth of a size serves all of its kinds.
        let source = match source.take().filter(|source| source.shape == case.shape) {
            Some(same) => source.insert(same),
            None => source.insert(Source::new(case.shape, arguments.seed)?),
        };
        take(evaluated(engine, &case, source, arguments, limits))?;
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
        let mut line = self.line(What::Em, self.workload.name());
        let checked = match check::check(self.engine, self.source, &self.workload) {
            Ok(checked) => checked,
            Err(why) => {
                line.timed = Err(Failure::Error(format!("{why:#}")));
                return take(line);
            }
        };
        let Checked { origin, offset, looped, effective_components, .. } = checked;
        line.errors = [Some(origin), Some(offset), Some(looped)];
        line.checked = Some(self.workload.checked);
        line.effective_components = Some(effective_components);
        if let Some(why) = checked.wrong {
            line.timed = Err(Failure::Wrong(why));
            return take(line);
        }
        if let Err(why) = self.time(line.clone(), &checked, init, take) {
            line.timed = Err(Failure::Error(format!("{why:#}")));
            take(line)?;
        }
        Ok(())
    }

    /// Times what was checked, and initialisation beside it. An error before the first line is the line's.
    fn time(&self, mut line: Line, checked: &Checked, init: bool, take: &mut Take<'_>) -> Result<()> {
        let Workload { kind, precision, shape, .. } = self.workload;
        let data = self.source.rows(shape.n, precision)?;
        let at = shift::of_data(&data);
        let mut rows = self.engine.load(&data, precision, &at)?;
        let (start, fast) = (self.source.start(kind, false)?, self.workload.fast);
        let times = timing::em(rows.as_mut(), &start, (precision, fast), self.limits)?;
        line.plan = plan_name::take();
        let iteration = times.best();
        line.timed = Ok(Timed {
            time: iteration,
            clock: times.clock(),
            wall: times.wall.median,
            samples: times.slopes,
            iterations: Some(times.iterations),
        });
        if fast {
            // On the rows that were timed, of which all are different.
            match check::loss(rows.as_mut(), &start, precision)? {
                Ok(note) => line.note = note,
                Err(why) => line.timed = Err(Failure::Wrong(why)),
            }
        }
        if let Some(why) = checked.other_than(times.way) {
            line.timed = Err(Failure::Wrong(why));
        }
        take(line)?;
        if !init {
            return Ok(());
        }
        let mut line = self.line(What::Init, self.workload.init_name());
        line.kind = CovarianceType::Spherical;
        line.floor_ms = None;
        line.goal_ms = line.goal_ms.map(|_| INIT_GOAL_ITERATIONS * 1e3 * iteration.median);
        let timed = match check::check_kmeans(self.engine, self.source, &self.workload) {
            Ok(Some(why)) => Err(Failure::Wrong(why)),
            Ok(None) => init::time(rows.as_mut(), &data, &at, shape.k, self.arguments.seed, self.limits)
                .map_err(|why| Failure::Error(format!("{why:#}"))),
            Err(why) => Err(Failure::Error(format!("{why:#}"))),
        };
        line.checked = Some(self.workload.checked);
        line.timed = timed.map(|times| {
            let iterations = times.total.median / iteration.median;
            line.note = format!("{iterations:.1} iterations of {}; {}", self.workload.name(), times.note);
            let (time, wall) = (times.total, times.total.median);
            Timed { time, clock: "wall", wall, samples: times.runs, iterations: None }
        });
        take(line)
    }

    fn line(&self, what: What, name: String) -> Line {
        let Workload { kind, precision, shape, floor_ms, goal_ms, .. } = self.workload;
        let real = !self.arguments.quick;
        Line {
            goal_ms: real.then_some(goal_ms),
            floor_ms: real.then_some(floor_ms),
            ..empty(what, name, kind, precision, shape)
        }
    }
}

fn evaluated(engine: &dyn Engine, case: &Evaluations, source: &Source, arguments: &Arguments, limits: Limits) -> Line {
    plan_name::take();
    let real = !arguments.quick;
    let mut line = Line {
        goal_ms: case.goal_ms.filter(|_| real),
        floor_ms: real.then_some(case.floor_ms),
        ..empty(What::Likelihood, case.name.to_owned(), case.kind, Precision::F32, case.shape)
    };
    match likelihood::run(engine, case, source, limits) {
        Err(why) => line.timed = Err(Failure::Error(format!("{why:#}"))),
        Ok(done) => {
            line.errors[0] = Some(done.errors);
            line.checked = Some(case.shape.n);
            line.plan = plan_name::take();
            line.note = done.note;
            let wall = done.time.median;
            let timed = Timed { time: done.time, clock: "wall", wall, samples: done.samples, iterations: None };
            line.timed = done.wrong.map_or(Ok(timed), |why| Err(Failure::Wrong(why)));
        }
    }
    line
}

/// Rows and questions stand where a fit has rows and components.
fn product_line(name: String, precision: Precision, (m, k, n): (usize, usize, usize)) -> Line {
    let shape = crate::definition::Shape { n: m, k: n, d: k };
    empty(What::Product, name, CovarianceType::Full, precision, shape)
}

fn answered(mut line: Line, done: Result<products::Outcome>) -> Line {
    match done {
        Err(why) => line.timed = Err(Failure::Error(format!("{why:#}"))),
        Ok(done) => {
            line.errors[0] = Some(done.errors);
            line.checked = Some(done.checked);
            line.note = done.note;
            let wall = done.time.median;
            let timed = Timed { time: done.time, clock: done.clock, wall, samples: done.samples, iterations: None };
            line.timed = done.wrong.map_or(Ok(timed), |why| Err(Failure::Wrong(why)));
        }
    }
    line
}

fn small(engine: &dyn Engine, case: &SmallFit, arguments: &Arguments, limits: Limits) -> Line {
    plan_name::take();
    let mut line = empty(What::Fit, case.name.to_owned(), CovarianceType::Full, Precision::F32, case.shape);
    line.goal_ms = (!arguments.quick).then_some(FIT_GOAL_MS);
    match small_fit::run(engine, case, arguments.seed, limits) {
        Err(why) => line.timed = Err(Failure::Error(format!("{why:#}"))),
        Ok(done) => {
            let errors = Errors {
                weight: done.parameters,
                first: done.parameters,
                second: done.parameters,
                log_likelihood: done.log_likelihood,
            };
            line.errors[2] = Some(errors);
            line.checked = Some(case.shape.n);
            line.plan = plan_name::take();
            let wall = done.time.median;
            let timed = Timed { time: done.time, clock: "wall", wall, samples: done.calls, iterations: None };
            line.timed = done.wrong.map_or(Ok(timed), |why| Err(Failure::Wrong(why)));
        }
    }
    line
}

fn empty(
    what: What,
    name: String,
    kind: CovarianceType,
    precision: Precision,
    shape: crate::definition::Shape,
) -> Line {
    Line {
        what,
        name,
        kind,
        precision,
        shape,
        goal_ms: None,
        floor_ms: None,
        errors: [None; 3],
        checked: None,
        effective_components: None,
        plan: None,
        note: String::new(),
        timed: Err(Failure::Error("not run".to_owned())),
    }
}
