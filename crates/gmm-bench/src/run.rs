//! Runs a definition: at each size answers are checked first, then engines and peers are timed in turns, within a time
//! budget.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use gmm_host::Engine;
use gmm_model::{CovarianceType, Precision};

use crate::check::Mixed;
use crate::definition::{Definition, What};
use crate::em::Em;
use crate::likelihood::Values;
use crate::product::Product;
use crate::programs::Programs;
use crate::quiet::{Spent, Watch};
use crate::row::{Row, Status, digits};
use crate::sizes::Sweep;
use crate::source::Source;
use crate::task::{Task, Turns};
use crate::timing::Limits;
use crate::{Shape, flops};

/// Turns of each engine and peer at a size, so that other activity on the machine affects all of them alike.
const TURNS: usize = 3;
/// Pause before a turn that follows a peer's, whose threads may spin this long.
const PAUSE: Duration = Duration::from_millis(40);
/// A call may take at most this fraction (1/6 for an engine, 1/30 for a peer) of the remaining budget: a call is
/// repeated several times, and the largest sizes of a sweep cost as much as all others together.
const PARTS: [f64; 2] = [6.0, 30.0];

/// Runs every size of a definition and passes each row to `take` when it is done. A wrong answer gives a row, not an
/// error.
///
/// # Errors
/// Any error of `take`; also if rows cannot be drawn or written for the peers.
pub(crate) fn run(definition: &Definition, cast: &mut Programs, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let scratch = (!cast.peers.is_empty()).then(tempfile::tempdir).transpose();
    let scratch = scratch.context("cannot create a temporary folder for the peers' input")?;
    let mut cases: Vec<Case<'_>> = Vec::new();
    // Products have no covariance kinds.
    let kinds: Vec<Option<CovarianceType>> = match definition.what {
        What::Product => vec![None],
        What::Em | What::Likelihood => definition.covariances.iter().copied().map(Some).collect(),
    };
    for sweep in &definition.sweeps {
        for shape in sweep.shapes() {
            for &precision in &definition.precisions {
                cases.extend(kinds.iter().map(|&kind| Case { definition, sweep, shape, precision, kind }));
            }
        }
    }
    let mut before: Vec<Row> = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let clock = Clock { left: definition.budget - cast.began.elapsed().as_secs_f64(), cases: cases.len() - i };
        let folder = scratch.as_ref().map(tempfile::TempDir::path);
        for row in case.run(cast, &before, folder, clock)? {
            before.push(row.clone());
            take(row)?;
        }
    }
    Ok(())
}

/// The remaining budget.
#[derive(Clone, Copy)]
struct Clock {
    /// Remaining seconds.
    left: f64,
    /// Remaining cases, including the current one.
    cases: usize,
}

/// Timeout of a peer's answer: much longer than it should take, but only a quarter of the remaining budget.
fn patience(clock: Clock) -> Duration {
    Duration::from_secs_f64((clock.left / 4.0).max(20.0))
}

/// A size with one precision and kind.
struct Case<'a> {
    definition: &'a Definition,
    sweep: &'a Sweep,
    shape: Shape,
    precision: Precision,
    kind: Option<CovarianceType>,
}

/// An engine or peer at one size.
struct Contestant<'a> {
    row: Row,
    /// `None` if there is no answer, or a wrong one.
    turns: Option<Box<dyn Turns + 'a>>,
    /// The process id of a peer.
    peer: Option<u32>,
    spent: Spent,
}

impl Case<'_> {
    /// Runs the case; returns a row for each engine and peer.
    fn run(&self, cast: &mut Programs, before: &[Row], folder: Option<&Path>, clock: Clock) -> Result<Vec<Row>> {
        // An engine that does not support the requested precision (the reference is always f64) is left out; it runs in
        // the precision that it supports.
        let engines: Vec<&dyn Engine> = cast.engines.iter().map(AsRef::as_ref).collect();
        let engines: Vec<&dyn Engine> =
            engines.into_iter().filter(|engine| engine.precision(self.precision) == self.precision).collect();
        let rows = |names: Vec<String>, part: f64| -> Vec<Row> {
            names.iter().map(|name| self.row(name, before, clock.left, part)).collect()
        };
        let of_engines = rows(engines.iter().map(|engine| engine.name()).collect(), PARTS[0]);
        let of_peers = rows(cast.peers.iter().map(|(name, _)| name.clone()).collect(), PARTS[1]);
        let is_left = |row: &Row| row.status == Status::Left;
        if of_engines.iter().chain(&of_peers).all(is_left) {
            return Ok(of_engines.into_iter().chain(of_peers).collect());
        }
        let task = self.task()?;
        let mut all: Vec<Contestant<'_>> = Vec::new();
        for (engine, row) in engines.into_iter().zip(of_engines) {
            let mut one = Contestant { row, turns: None, peer: None, spent: Spent::default() };
            if !is_left(&one.row) {
                one.begin(|row| self.begin(task.as_ref(), engine, row));
            }
            all.push(one);
        }
        if let (Some(folder), false) = (folder, of_peers.iter().all(is_left)) {
            task.hand_out(folder)?;
        }
        let ours = all.iter().find_map(|one| one.row.log_likelihood);
        for ((_, peer), row) in cast.peers.iter_mut().zip(of_peers) {
            let mut one = Contestant { row, turns: None, peer: Some(peer.id()), spent: Spent::default() };
            if let (Some(folder), false) = (folder, is_left(&one.row)) {
                peer.wait_at_most(patience(clock));
                one.begin(|row| task.begin_peer(peer, folder, ours, row).map(Some));
            }
            all.push(one);
        }
        Ok(self.turns(all, clock))
    }

    /// Times all engines and peers in turns, within the time that each may use.
    fn turns(&self, mut all: Vec<Contestant<'_>>, clock: Clock) -> Vec<Row> {
        let repeats = self.definition.repeats;
        let share = clock.left / (2 * clock.cases * all.len().max(1)) as f64;
        let whole = Limits { repeats: repeats.most, seconds: repeats.seconds.min(share.max(0.0)) };
        let turns = TURNS.min(repeats.most.max(1));
        let each = Limits { repeats: whole.repeats.div_ceil(turns), seconds: whole.seconds / turns as f64 };
        let mut spins = all.iter().any(|one| one.peer.is_some() && one.turns.is_some());
        for _ in 0..turns {
            for one in &mut all {
                // One call is enough if it takes longer than the whole limit.
                if one.turns.as_ref().is_none_or(|turns| turns.measured() >= whole.seconds && turns.measured() > 0.0) {
                    continue;
                }
                if spins {
                    std::thread::sleep(PAUSE);
                }
                one.turn(each);
                spins = one.peer.is_some();
            }
        }
        all.into_iter().map(|one| one.finish(whole)).collect()
    }

    /// Creates the task, drawing its rows and parameters, or factors.
    fn task(&self) -> Result<Box<dyn Task>> {
        let Definition { what, seed, iterations, .. } = *self.definition;
        let mixed = |kind| Mixed::new(&Source::new(self.shape, seed)?, kind, self.precision);
        Ok(match (what, self.kind, self.precision) {
            (What::Em, Some(kind), _) => Box::new(Em { mixed: mixed(kind)?, iterations }),
            (What::Likelihood, Some(kind), _) => Box::new(Values { mixed: mixed(kind)? }),
            (_, _, Precision::F64) => Box::new(Product::<f64>::new(self.shape, seed, self.precision)),
            (_, _, Precision::F32) => Box::new(Product::<f32>::new(self.shape, seed, self.precision)),
        })
    }

    /// Estimates the seconds of a call from the two smaller sizes before it, if there are any. The time per operation
    /// is taken from the growth between these two; the remainder of a call's time is assumed constant.
    fn estimate(&self, engine: &str, before: &[Row]) -> Option<f64> {
        let like = |r: &&Row| (r.engine.as_str(), r.covariance, r.precision) == (engine, self.kind, self.precision);
        let operations = |shape| match self.kind {
            Some(kind) => flops::per_iteration(kind, shape),
            None => flops::product(shape),
        };
        let mut timed = before.iter().rev().filter(like).filter_map(|r| Some((1e-3 * r.ms?, operations(r.shape()))));
        let (last, work) = timed.next()?;
        // The time if it grew in proportion to the work: the upper bound of the estimate.
        let most = last * operations(self.shape) / work;
        let earlier = timed.find(|(seconds, less)| 1.5 * less < work && *seconds > 0.0);
        let each = earlier.map_or(last / work, |(seconds, less)| ((last - seconds) / (work - less)).max(0.0));
        Some((last + each * (operations(self.shape) - work)).clamp(most.min(last), most.max(last)))
    }

    /// A row without measurements. It has the status `left` if a call would take too much of the remaining time.
    fn row(&self, engine: &str, before: &[Row], left: f64, part: f64) -> Row {
        let mut row = Row::new(self.definition.what.name(), &self.sweep.name, engine, self.shape);
        (row.covariance, row.precision) = (self.kind, self.precision);
        let budget = self.definition.budget;
        if left <= 0.0 {
            (row.status, row.note) = (Status::Left, format!("the budget of {budget:.0} s is used up"));
            return row;
        }
        let seconds = self.estimate(engine, before).unwrap_or(0.0);
        if seconds > self.definition.longest.min(left / part) {
            row.status = Status::Left;
            row.note = format!("a call would take about {seconds:.1} s and {left:.0} s of {budget:.0} are left");
        }
        row
    }

    /// Checks an engine's answer, and makes its first calls if the answer is right.
    fn begin<'a>(
        &self,
        task: &'a dyn Task,
        engine: &'a dyn Engine,
        row: &mut Row,
    ) -> Result<Option<Box<dyn Turns + 'a>>> {
        let error = task.error(engine)?;
        row.error = digits(error, 2);
        let allowed = self.definition.tolerance.of(self.precision);
        // False also if the error is NaN.
        let right = error <= allowed;
        if !right {
            row.status = Status::Wrong;
            row.note = format!("{error:.1e} from the reference, but only {allowed:.0e} is allowed");
            return Ok(None);
        }
        task.begin(engine, self.definition.repeats.warm_up, row).map(Some)
    }
}

impl<'a> Contestant<'a> {
    fn begin(&mut self, begin: impl FnOnce(&mut Row) -> Result<Option<Box<dyn Turns + 'a>>>) {
        match begin(&mut self.row) {
            Ok(turns) => self.turns = turns,
            Err(why) => self.fail(&why),
        }
    }

    fn turn(&mut self, limits: Limits) {
        let Some(turns) = &mut self.turns else {
            return;
        };
        let watch = Watch::begin(self.peer);
        let done = turns.turn(limits);
        self.spent = self.spent.and(watch.spent());
        if let Err(why) = done {
            self.fail(&why);
        }
    }

    fn finish(mut self, limits: Limits) -> Row {
        if let Some(turns) = self.turns.take() {
            self.row.others = self.spent.share().and_then(|share| digits(share, 2));
            self.row.status = if self.spent.disturbed() { Status::Disturbed } else { Status::Ok };
            if let Err(why) = turns.finish(limits, &mut self.row) {
                self.fail(&why);
            }
        }
        self.row
    }

    fn fail(&mut self, why: &anyhow::Error) {
        self.turns = None;
        // A peer that does not support the task is not a failure.
        self.row.status = if self.peer.is_some() { Status::Left } else { Status::Error };
        self.row.note = format!("{why:#}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_judged_by_how_the_two_before_it_grew() {
        let (_, definition) = Definition::open("likelihood-sweep").unwrap();
        let (sweep, kind) = (&definition.sweeps[0], Some(CovarianceType::Diag));
        let row = |n: usize, ms: f64| {
            let mut row = Row::new("likelihood", "n", "cpu", Shape { n, k: 8, d: 13 });
            (row.covariance, row.precision, row.ms) = (kind, Precision::F64, Some(ms));
            row
        };
        let shape = Shape { n: 100_000, k: 8, d: 13 };
        let case = Case { definition: &definition, sweep, shape, precision: Precision::F64, kind };
        let check = |rows: &[Row], expected: Option<f64>| {
            let found = case.estimate("cpu", rows);
            assert!(found.zip(expected).map_or(found == expected, |(a, b)| (a / b - 1.0).abs() < 1e-9), "{found:?}");
        };
        check(&[], None);
        check(&[row(1000, 5.0)], Some(0.5));
        // The time grows in proportion, by a tenth of that, not at all, or falls (counted as constant).
        check(&[row(1000, 5.0), row(10_000, 50.0)], Some(0.5));
        check(&[row(1000, 45.5), row(10_000, 50.0)], Some(0.095));
        check(&[row(1000, 50.0), row(10_000, 50.0)], Some(0.05));
        check(&[row(1000, 60.0), row(10_000, 50.0)], Some(0.05));
        // From a larger size to a smaller one.
        check(&[row(100_000, 10.0), row(1_000_000, 100.0)], Some(0.01));
        check(&[row(1000, 5.0), Row { precision: Precision::F32, ..row(10_000, 1.0) }], Some(0.5));
    }
}
