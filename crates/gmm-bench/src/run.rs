//! A definition run: engines and peers in turns at each size, answers first, all within a budget of time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use gmm_host::{Device, Engine, ResidentMatrix};
use gmm_model::{CovarianceType, Precision};
use ndarray::Array2;

use crate::check::Mixed;
use crate::definition::{Definition, Sweep, What};
use crate::em::Em;
use crate::hardware::{self, Hardware};
use crate::likelihood::Values;
use crate::peer::Peer;
use crate::product::Product;
use crate::quiet::{Spent, Watch};
use crate::row::{Row, Status, digits};
use crate::source::Source;
use crate::task::{Task, Turns};
use crate::timing::Limits;
use crate::{Shape, flops};

/// How a definition is run here.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Engines in place of the definition's.
    pub engines: Vec<String>,
    /// Threads of the CPU engine and of peers; 0 takes one per core.
    pub threads: usize,
    /// A Python in which peers may be installed.
    pub python: Option<PathBuf>,
}

/// Who computes, opened once for all sizes.
pub struct Cast {
    engines: Vec<Box<dyn Engine>>,
    peers: Vec<(String, Peer)>,
    /// What each is and took to start, for the head of a record.
    pub facts: Vec<(String, String)>,
    /// Who is not there, and why.
    pub notes: Vec<String>,
    /// When opening began: the budget's time runs from there.
    began: Instant,
}

/// No engine could be opened: the last one's reason decides how the program ends.
fn nobody(notes: &[String], why: Option<gmm_host::Error>) -> anyhow::Error {
    let text = format!("none of the engines is there: {}", notes.join("; "));
    match why {
        Some(why) => anyhow::Error::new(why).context(text),
        None => anyhow::Error::msg(text),
    }
}

impl Cast {
    /// Opens what is there. Start-up is timed here, apart from every call.
    ///
    /// # Errors
    /// Where an engine's name is none, or not one of the engines is there.
    pub fn open(definition: &Definition, options: &Options) -> Result<Self> {
        let (engines, peers, began) = (Vec::new(), Vec::new(), Instant::now());
        let mut cast = Self { engines, peers, facts: Vec::new(), notes: Vec::new(), began };
        let mut last = None;
        let names = if options.engines.is_empty() { &definition.engines } else { &options.engines };
        for name in names {
            let device: Device = name.parse()?;
            let began = Instant::now();
            match device.open(options.threads) {
                Ok(opened) => {
                    let engine = opened.engine;
                    // Not every engine multiplies matrices.
                    if definition.what == What::Product
                        && let Err(why) = ResidentMatrix::<f64>::new(engine.as_ref(), Array2::zeros((1, 1)))
                    {
                        cast.notes.push(format!("engine {name} has no products: {why}"));
                        last = Some(why);
                        continue;
                    }
                    let ms = 1e3 * began.elapsed().as_secs_f64();
                    let start = format!("{}; started in {ms:.1} ms", engine.description());
                    cast.facts.push((format!("engine {}", engine.name()), start));
                    cast.engines.push(engine);
                }
                Err(why) => {
                    cast.notes.push(format!("engine {name} is not there: {why}"));
                    last = Some(why);
                }
            }
        }
        if cast.engines.is_empty() {
            return Err(nobody(&cast.notes, last));
        }
        let threads = match options.threads {
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads,
        };
        let Some(python) = &options.python else {
            if !definition.peers.is_empty() {
                cast.notes.push(format!("no Python is named that could run {}", definition.peers.join(", ")));
            }
            return Ok(cast);
        };
        for name in &definition.peers {
            match Peer::named(python, name, threads).and_then(|mut peer| Ok((peer.versions()?, peer))) {
                Ok((versions, peer)) => {
                    cast.facts.push((format!("peer {name}"), versions));
                    cast.peers.push((name.clone(), peer));
                }
                Err(why) => cast.notes.push(format!("peer {name} is not there: {why:#}")),
            }
        }
        Ok(cast)
    }
}

impl Cast {
    /// What it runs on: the GPU where an engine has one, since that names the machine, else the processor.
    pub(crate) fn hardware(&self) -> Hardware {
        let gpu = self.engines.iter().find(|engine| engine.device_input().is_some());
        hardware::describe(gpu.unwrap_or(&self.engines[0]).as_ref())
    }
}

/// Turns of each at a size: what a machine does meanwhile hits all alike.
const TURNS: usize = 3;
/// Before a turn after another program's, whose threads may spin for so long.
const PAUSE: Duration = Duration::from_millis(40);
/// The part of what is left of the budget that a call of an engine may take, and one of a peer. A call comes several times,
/// and the largest sizes of a sweep cost as much as all others together.
const PARTS: [f64; 2] = [6.0, 30.0];

/// Runs every size of a definition, and gives each row as it comes. A wrong answer is a row and no error.
///
/// # Errors
/// What `take` says, and where rows cannot be drawn or kept for peers.
pub fn run(definition: &Definition, cast: &mut Cast, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let scratch = (!cast.peers.is_empty()).then(tempfile::tempdir).transpose();
    let scratch = scratch.context("no folder for what peers read")?;
    let mut cases: Vec<Case<'_>> = Vec::new();
    // Products have no kinds.
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

/// What is left of the budget.
#[derive(Clone, Copy)]
struct Clock {
    /// Seconds.
    left: f64,
    /// Cases, with the one at hand.
    cases: usize,
}

/// How long a peer's answer may take: much more than it should, and less than would cost the budget.
fn patience(clock: Clock) -> Duration {
    Duration::from_secs_f64((clock.left / 4.0).max(20.0))
}

/// A size in one precision and kind.
struct Case<'a> {
    definition: &'a Definition,
    sweep: &'a Sweep,
    shape: Shape,
    precision: Precision,
    kind: Option<CovarianceType>,
}

/// One who computes at a size.
struct Contestant<'a> {
    row: Row,
    /// None for who has no answer, or whose answer is wrong.
    turns: Option<Box<dyn Turns + 'a>>,
    /// The process, of a peer.
    peer: Option<u32>,
    spent: Spent,
}

impl Case<'_> {
    /// A row for each engine and peer.
    fn run(&self, cast: &mut Cast, before: &[Row], folder: Option<&Path>, clock: Clock) -> Result<Vec<Row>> {
        // The reference holds f64 whatever is asked for; that is a row of its own.
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

    /// All in turns, as long as each may measure.
    fn turns(&self, mut all: Vec<Contestant<'_>>, clock: Clock) -> Vec<Row> {
        let repeats = self.definition.repeats;
        let share = clock.left / (2 * clock.cases * all.len().max(1)) as f64;
        let whole = Limits { repeats: repeats.most, seconds: repeats.seconds.min(share.max(0.0)) };
        let turns = TURNS.min(repeats.most.max(1));
        let each = Limits { repeats: whole.repeats.div_ceil(turns), seconds: whole.seconds / turns as f64 };
        let mut spins = all.iter().any(|one| one.peer.is_some() && one.turns.is_some());
        for _ in 0..turns {
            for one in &mut all {
                // Of what takes long one call tells enough.
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

    /// What is done here. Rows, parameters or factors are drawn.
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

    /// Seconds of a call, judged by sizes before it, where there are any: operations cost what they did from the one but last to
    /// the last, and what a call costs besides stays as it is.
    fn estimate(&self, engine: &str, before: &[Row]) -> Option<f64> {
        let like = |r: &&Row| (r.engine.as_str(), r.covariance, r.precision) == (engine, self.kind, self.precision);
        let operations = |shape| match self.kind {
            Some(kind) => flops::per_iteration(kind, shape),
            None => flops::product(shape),
        };
        let mut timed = before.iter().rev().filter(like).filter_map(|r| Some((1e-3 * r.ms?, operations(r.shape()))));
        let (last, work) = timed.next()?;
        // Work alone, and nothing else, would grow so.
        let most = last * operations(self.shape) / work;
        let earlier = timed.find(|(seconds, less)| 1.5 * less < work && *seconds > 0.0);
        let each = earlier.map_or(last / work, |(seconds, less)| ((last - seconds) / (work - less)).max(0.0));
        Some((last + each * (operations(self.shape) - work)).clamp(most.min(last), most.max(last)))
    }

    /// A row without figures, and whether it is left out: where a call would take too much of the time that is left.
    fn row(&self, engine: &str, before: &[Row], left: f64, part: f64) -> Row {
        let mut row = Row::new(self.definition.what.name(), &self.sweep.name, engine, self.shape);
        (row.covariance, row.precision) = (self.kind, self.precision);
        let budget = self.definition.budget;
        if left <= 0.0 {
            (row.status, row.note) = (Status::Left, format!("the {budget:.0} s of the budget are over"));
            return row;
        }
        let seconds = self.estimate(engine, before).unwrap_or(0.0);
        if seconds > self.definition.longest.min(left / part) {
            row.status = Status::Left;
            row.note = format!("it would take some {seconds:.1} s a call and {left:.0} s of {budget:.0} are left");
        }
        row
    }

    /// The answer, and the first call where it is right.
    fn begin<'a>(
        &self,
        task: &'a dyn Task,
        engine: &'a dyn Engine,
        row: &mut Row,
    ) -> Result<Option<Box<dyn Turns + 'a>>> {
        let error = task.error(engine)?;
        row.error = digits(error, 2);
        let allowed = self.definition.tolerance.of(self.precision);
        // Also where it is not a number.
        let right = error <= allowed;
        if !right {
            row.status = Status::Wrong;
            row.note = format!("{error:.1e} from the reference, where {allowed:.0e} is allowed");
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
        // A peer that has no such thing is no fault.
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
        // All of it grows, a tenth of it does, none does, and what falls does not grow.
        check(&[row(1000, 5.0), row(10_000, 50.0)], Some(0.5));
        check(&[row(1000, 45.5), row(10_000, 50.0)], Some(0.095));
        check(&[row(1000, 50.0), row(10_000, 50.0)], Some(0.05));
        check(&[row(1000, 60.0), row(10_000, 50.0)], Some(0.05));
        // From a larger size to a smaller one.
        check(&[row(100_000, 10.0), row(1_000_000, 100.0)], Some(0.01));
        check(&[row(1000, 5.0), Row { precision: Precision::F32, ..row(10_000, 1.0) }], Some(0.5));
    }
}
