//! Common parts of the comparisons with another program: opening engine and peer, the record's head and its lines.

use std::str::FromStr;

use anyhow::{Result, bail};
use gmm_bench::Status;
use gmm_bench::machine;
use gmm_bench::pairs::Times;
use gmm_bench::peer::Peer;
use gmm_bench::record::{Csv, Facts};
use gmm_bench::spread::Spread;
use gmm_host::{Device, Engine};

use crate::cpu::Arguments;
use crate::definition::{self, Definition};

/// An open engine and peer, and the head of their record.
pub(crate) struct Setup {
    pub(crate) definition: Definition,
    pub(crate) threads: usize,
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) peer: Peer,
    pub(crate) facts: Facts,
    slug: String,
}

impl Setup {
    /// Opens the engine `device` and the peer `benches/peers/SCRIPT`, to measure `what`. If `commit` is `None`, it is
    /// read from the repository.
    ///
    /// # Errors
    /// If a program or the definition is missing.
    pub(crate) fn open(
        arguments: &Arguments,
        what: &str,
        device: &str,
        script: &str,
        commit: Option<String>,
    ) -> Result<Self> {
        let Arguments { root, python, command, .. } = arguments;
        let definition = definition::read(&root.join("benches/definitions/cpu.toml"))?;
        let threads = arguments.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let engine = Device::from_str(device)?.open(threads)?.engine;
        let machine = machine::describe();
        let mut facts = Facts::new(what, commit.unwrap_or_else(|| machine::commit(root)), command);
        facts.extend(machine.facts());
        let mut peer = Peer::start(python, &root.join("benches/peers").join(script), threads)?;
        facts.extend([
            ("compiler", machine.compiler),
            ("threads", threads.to_string()),
            ("ours", engine.description()),
            ("peer", peer.versions()?),
        ]);
        let slug = match engine.device_input() {
            // Records of a GPU are in a folder named after it.
            Some(_) => machine::slug(engine.description().split(',').next().unwrap_or_default()),
            None => machine.slug,
        };
        Ok(Self { definition, threads, engine, peer, facts, slug })
    }

    /// Creates `RECORD/MACHINE/DATE-NAME.csv`, with `-2` and so on appended if that exists.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn record(&self, arguments: &Arguments, name: &str, columns: &str) -> Result<Lines> {
        let stem = format!("{}-{name}", machine::today());
        Ok(Lines { csv: Csv::create(&arguments.record, &self.slug, &stem, &self.facts, columns)?, wrong: 0 })
    }
}

/// The lines of a record, and the number of wrong answers.
pub(crate) struct Lines {
    csv: Csv,
    wrong: usize,
}

impl Lines {
    /// Adds a line.
    ///
    /// # Errors
    /// If it cannot be written.
    pub(crate) fn push(&mut self, line: &str, right: bool) -> Result<()> {
        self.wrong += usize::from(!right);
        self.csv.push(line)
    }

    /// Prints the record's path.
    ///
    /// # Errors
    /// If an answer was wrong.
    pub(crate) fn finish(self) -> Result<()> {
        eprintln!("recorded in {}", self.csv.path().display());
        match self.wrong {
            0 => Ok(()),
            wrong => bail!("{wrong} answers were wrong and not timed"),
        }
    }
}

/// The first fields of a line: precision, kind and sizes.
pub(crate) fn key(precision: impl ToString, kind: impl ToString, sizes: &[usize]) -> Vec<String> {
    let sizes = sizes.iter().map(ToString::to_string);
    [precision.to_string(), kind.to_string()].into_iter().chain(sizes).collect()
}

/// The fields `status`, and median, minimum and maximum of our time, the peer's (milliseconds) and the ratio; empty
/// times if the answer was wrong.
pub(crate) fn times(times: Option<&Times>, ratio_decimals: usize) -> Vec<String> {
    let status = times.map_or(Status::Wrong, Times::status);
    let mut fields = vec![status.name().to_owned()];
    let of = |of: fn(&Times) -> Spread| times.map(of);
    let spreads = [(of(|t| t.ours), 1e3, 4), (of(|t| t.peer), 1e3, 4), (of(|t| t.ratio), 1.0, ratio_decimals)];
    for (spread, scale, decimals) in spreads {
        let values = spread.map(|Spread { median, min, max, .. }| [median, min, max].map(|v| scale * v));
        fields.extend((0..3).map(|at| self::decimals(values.map(|values| values[at]), decimals)));
    }
    fields
}

/// A number as a field; empty if there is no value.
pub(crate) fn decimals(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(String::new, |v| format!("{v:.decimals$}"))
}
