//! The record, written line by line: a run that is cut short leaves what it measured.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::hardware::Hardware;
use super::line::{COLUMNS, Line};
use crate::machine::today;

/// An open record.
pub(crate) struct Record {
    path: PathBuf,
    file: File,
}

impl Record {
    /// Opens `out` where it ends in `.csv`, else `out/GPU/DATE.csv`, or `DATE-2.csv` and so on: no record is ever
    /// overwritten. Writes the head.
    ///
    /// # Errors
    /// Where it cannot be written, or is there already.
    pub(crate) fn create(out: &Path, hardware: &Hardware, facts: &[(&'static str, String)]) -> Result<Self> {
        let path = gmm_bench::record::new_path(out, &hardware.slug, &today())?;
        let file = File::create_new(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut record = Self { path, file };
        for (name, value) in facts.iter().chain(&hardware.facts) {
            record.write(&format!("# {name}: {value}"))?;
        }
        record.write(COLUMNS)?;
        Ok(record)
    }

    /// Adds a line.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(crate) fn push(&mut self, line: &Line) -> Result<()> {
        self.write(&line.fields().join(","))
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn write(&mut self, line: &str) -> Result<()> {
        writeln!(self.file, "{line}").with_context(|| format!("cannot write {}", self.path.display()))
    }
}
