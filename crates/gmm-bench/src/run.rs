//! A definition run: engine by engine at each size, answers first.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use gmm_host::{Device, Engine};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision};

use crate::check::{Repeated, relative};
use crate::definition::{Definition, Sweep, What};
use crate::em::REG_COVAR;
use crate::hardware::{self, Hardware};
use crate::peer::{Peer, Turn};
use crate::quiet::{DISTURBED, Watch};
use crate::row::{Row, Status, digits, ms};
use crate::source::Source;
use crate::timing::Limits;
use crate::{Shape, em, flops, likelihood};

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
        let mut cast = Self { engines: Vec::new(), peers: Vec::new(), facts: Vec::new(), notes: Vec::new() };
        let mut last = None;
        let names = if options.engines.is_empty() { &definition.engines } else { &options.engines };
        for name in names {
            let device: Device = name.parse()?;
            let began = Instant::now();
            match device.open(options.threads) {
                Ok(opened) => {
                    let engine = opened.engine;
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
        let gpu = self.engines.iter().find(|engine| engine.as_cuda().is_some());
        hardware::describe(gpu.unwrap_or(&self.engines[0]).as_ref())
    }
}

/// Runs every size of a definition, and gives each row as it comes. A wrong answer is a row and no error.
///
/// # Errors
/// What `take` says, and where rows cannot be drawn or kept for peers.
pub fn run(definition: &Definition, cast: &mut Cast, take: &mut dyn FnMut(Row) -> Result<()>) -> Result<()> {
    let scratch = (!cast.peers.is_empty()).then(tempfile::tempdir).transpose();
    let scratch = scratch.context("no folder for the rows that peers read")?;
    let file = scratch.as_ref().map(|folder| folder.path().join("rows.npy")).unwrap_or_default();
    let mut before: Vec<Row> = Vec::new();
    for sweep in &definition.sweeps {
        for shape in sweep.shapes() {
            let source = Source::new(shape, definition.seed)?;
            for &precision in &definition.precisions {
                let data = source.rows(shape.n, precision)?;
                if scratch.is_some() {
                    gmm_data::write_table(&file, &gmm_data::Table::new(data.rows().clone()))?;
                }
                for &kind in &definition.covariances {
                    let start = source.start(kind, false)?;
                    let case = Case { definition, sweep, shape, precision, kind, source: &source, data: &data, start };
                    for row in case.run(cast, &before, &file)? {
                        before.push(row.clone());
                        take(row)?;
                    }
                }
            }
        }
    }
    Ok(())
}

struct Case<'a> {
    definition: &'a Definition,
    sweep: &'a Sweep,
    shape: Shape,
    precision: Precision,
    kind: CovarianceType,
    source: &'a Source,
    data: &'a Dataset,
    start: Mixture,
}

impl Case<'_> {
    /// A row for each engine and peer.
    fn run(&self, cast: &mut Cast, before: &[Row], file: &Path) -> Result<Vec<Row>> {
        let repeated = Repeated::new(self.source, &self.start, self.precision)?;
        let mut rows: Vec<Row> = Vec::new();
        for engine in &cast.engines {
            // The reference holds f64 whatever is asked for; that is a row of its own.
            if engine.precision(self.precision) != self.precision {
                continue;
            }
            let mut row = self.row(&engine.name());
            if !self.too_long(before, &mut row)
                && let Err(why) = self.time(engine.as_ref(), &repeated, &mut row)
            {
                row.status = Status::Error;
                row.note = format!("{why:#}");
            }
            rows.push(row);
        }
        let ours = rows.iter().find_map(|row| row.log_likelihood);
        for (name, peer) in &mut cast.peers {
            let mut row = self.row(name);
            if !self.too_long(before, &mut row)
                && let Err(why) = self.time_peer(peer, file, ours, &mut row)
            {
                // A peer that has no such thing is no fault.
                row.status = Status::Left;
                row.note = format!("{why:#}");
            }
            rows.push(row);
        }
        Ok(rows)
    }

    fn row(&self, engine: &str) -> Row {
        let mut row = Row::new(self.definition.what.name(), &self.sweep.name, engine, self.shape);
        (row.covariance, row.precision) = (self.kind, self.precision);
        row
    }

    /// Whether a call would take longer than the definition allows, if an operation costs what it did at the size before.
    fn too_long(&self, before: &[Row], row: &mut Row) -> bool {
        let like = |r: &&Row| {
            (r.engine.as_str(), r.covariance, r.precision) == (row.engine.as_str(), self.kind, self.precision)
        };
        let operations = |shape| flops::per_iteration(self.kind, shape);
        let Some((ms, shape)) = before.iter().rev().filter(like).find_map(|r| Some((r.ms?, r.shape()))) else {
            return false;
        };
        let seconds = ms / 1e3 * operations(self.shape) / operations(shape);
        if seconds > self.definition.longest {
            row.status = Status::Left;
            row.note = format!("it would take some {seconds:.0} s");
        }
        row.status == Status::Left
    }

    fn time(&self, engine: &dyn Engine, repeated: &Repeated, row: &mut Row) -> Result<()> {
        let error = match self.definition.what {
            What::Em => repeated.em(engine, self.precision)?,
            What::Likelihood => repeated.likelihood(engine, self.precision)?,
        };
        row.error = digits(error, 2);
        let allowed = self.definition.tolerance.of(self.precision);
        // Also where it is not a number.
        let right = error <= allowed;
        if !right {
            row.status = Status::Wrong;
            row.note = format!("{error:.1e} from the reference, where {allowed:.0e} is allowed");
            return Ok(());
        }
        let watch = Watch::begin(None);
        let time = match self.definition.what {
            What::Em => em::time,
            What::Likelihood => likelihood::time,
        };
        time(engine, self.data, &self.start, self.precision, self.definition, row)?;
        row.others = watch.others().and_then(|share| digits(share, 2));
        row.status = if row.others.is_some_and(|share| share > DISTURBED) { Status::Disturbed } else { Status::Ok };
        Ok(())
    }

    fn time_peer(&self, peer: &mut Peer, file: &Path, ours: Option<f64>, row: &mut Row) -> Result<()> {
        let repeats = self.definition.repeats;
        peer.load(file, self.precision)?;
        peer.start_from(&self.start, REG_COVAR)?;
        let watch = Watch::begin(Some(peer.id()));
        let mut call = |seconds: f64| -> Result<(f64, f64)> {
            match self.definition.what {
                What::Em => peer.fit_once(self.definition.iterations),
                What::Likelihood => {
                    let (took, sum) = peer.score(Turn { at_least: 1, at_most: 10_000, seconds })?;
                    Ok((took, sum / self.shape.n as f64))
                }
            }
        };
        let (first, value) = call(0.0)?;
        row.first_ms = ms(first);
        row.iterations = (self.definition.what == What::Em).then_some(self.definition.iterations);
        row.log_likelihood = digits(value, 12);
        row.error = ours.and_then(|ours| digits(relative(value, ours), 2));
        let mut seconds = Vec::new();
        let limits = Limits { repeats: repeats.most, seconds: repeats.seconds };
        let began = Instant::now();
        while limits.more(seconds.len(), began) {
            seconds.push(call(2e-3)?.0);
        }
        row.time(seconds);
        row.others = watch.others().and_then(|share| digits(share, 2));
        row.status = if row.others.is_some_and(|share| share > DISTURBED) { Status::Disturbed } else { Status::Ok };
        Ok(())
    }
}
