//! Runs a definition and records the results: the common part of `gmm bench` and `cargo xtask bench run`.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::definition::Definition;
use crate::programs::Programs;
use crate::record::{Csv, Facts, Record};
use crate::row::Row;
use crate::{machine, overtaking, run, table};

/// Command-line options for running a definition.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Engines in place of the definition's.
    pub engines: Vec<String>,
    /// Threads of the CPU engine and of peers; 0 takes one per core.
    pub threads: usize,
    /// A Python in which peers may be installed.
    pub python: Option<PathBuf>,
    /// Total time budget in seconds, in place of the definition's.
    pub budget: Option<f64>,
    /// Whether to run only small sizes with few measurements.
    pub quick: bool,
}

impl Options {
    /// The command as one would type it, for the record, without folders of this machine.
    pub fn command(&self, program: &str) -> String {
        let mut words = vec![program.to_owned()];
        words.extend((!self.engines.is_empty()).then(|| format!("--engine {}", self.engines.join(","))));
        words.extend((self.threads > 0).then(|| format!("--threads {}", self.threads)));
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        words.extend(self.python.as_deref().map(|python| format!("--python {}", name(python))));
        words.extend(self.budget.map(|budget| format!("--budget {budget}")));
        words.extend(self.quick.then(|| "--quick".to_owned()));
        words.join(" ")
    }
}

/// A definition with open engines, peers and record.
pub struct Session {
    definition: Definition,
    cast: Programs,
    record: Record,
}

impl Session {
    /// Opens the available engines and peers, and the record if `out` is given: `out` itself if it ends in `.csv`, else
    /// `MACHINE/DATE-NAME.csv` below it. `program` is the command that was called, `commit` its version.
    ///
    /// # Errors
    /// If no engine is available, or the record cannot be written.
    pub fn open(
        (name, mut definition): (String, Definition),
        options: &Options,
        out: Option<&Path>,
        program: &str,
        commit: String,
    ) -> Result<Self> {
        if options.quick {
            definition = definition.quick();
        }
        definition.budget = options.budget.unwrap_or(definition.budget);
        let cast = Programs::open(&definition, &options.engines, options.threads, options.python.as_deref())?;
        let hardware = cast.hardware();
        let mut facts = Facts::new(&format!("{name}: {}", definition.title), commit, &options.command(program));
        // The facts of `cast` describe each engine.
        facts.extend(hardware.facts.into_iter().filter(|(name, _)| *name != "engine"));
        facts.extend(cast.facts.iter().cloned());
        facts.extend(cast.notes.iter().map(|note| ("note", note.clone())));
        let stem = format!("{}-{name}", machine::today());
        let csv = out.map(|out| Csv::create(out, &hardware.slug, &stem, &facts, &Row::columns())).transpose()?;
        Ok(Self { definition, cast, record: Record { facts, rows: Vec::new(), csv } })
    }

    /// The record's file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        self.record.csv.as_ref().map(Csv::path)
    }

    /// Runs all sizes. `show` gets the head, the table and the comparisons as they are produced.
    ///
    /// # Errors
    /// Any error of `show`; also if rows or the record cannot be written. A wrong answer gives a row, not an error.
    pub fn run(mut self, mut show: impl FnMut(&str) -> Result<()>) -> Result<Record> {
        show(&format!("{}{}\n", self.record.facts, table::heading()))?;
        run::run(&self.definition, &mut self.cast, &mut |row| {
            show(&format!("{}\n", table::line(&row)))?;
            self.record.push(row)
        })?;
        self.record.finish()?;
        show(&overtaking::text(&self.record.rows))?;
        Ok(self.record)
    }
}
