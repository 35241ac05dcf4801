//! Saves the state of a running fit to a file, so that an interrupted fit can be continued.

mod basis;
mod record;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gmm_host::{FitState, Iteration};

pub(crate) use basis::{Basis, FitRecord};

/// Shortest time between two writes: little work is lost, and the cost is negligible.
const EVERY: Duration = Duration::from_secs(3);
/// The interval grows until writing takes at most 1/`SHARE` of the time.
const SHARE: u32 = 20;

/// Writes the state at most once per [`EVERY`]; `--resume FILE` continues from it.
pub(crate) struct Checkpoint {
    path: PathBuf,
    names: Option<Vec<String>>,
    basis: Basis,
    every: Duration,
    written: Option<Instant>,
    state: FitState,
    /// Whether the file lacks the latest state.
    pending: bool,
}

impl Checkpoint {
    pub(crate) fn new(path: PathBuf, names: Option<Vec<String>>, basis: Basis) -> Self {
        let state = FitState::default();
        Self { path, names, basis, every: EVERY, written: None, state, pending: false }
    }

    /// Writes the state if the previous write is at least [`EVERY`] ago, or if this one is the `last`.
    ///
    /// # Errors
    /// Errors if the file cannot be written. The fit should then stop, since the checkpoint was requested.
    pub(crate) fn offer(&mut self, step: &Iteration<'_>, last: bool) -> anyhow::Result<()> {
        step.save(&mut self.state);
        self.pending = true;
        if !last && self.written.is_some_and(|at| at.elapsed() < self.every) {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the state at the end of the fit.
    ///
    /// # Errors
    /// As for [`flush`](Self::flush).
    pub(crate) fn done(&mut self, state: &FitState) -> anyhow::Result<()> {
        self.state.clone_from(state);
        self.pending = true;
        self.flush()
    }

    /// Writes the latest state if the file does not have it yet. Also called when a fit fails.
    ///
    /// # Errors
    /// Errors if the file cannot be written. It then holds an earlier state, or its content from before the fit.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        if !self.pending {
            return Ok(());
        }
        let began = Instant::now();
        record::write(&self.path, self.names.as_deref(), &self.basis, &self.state)?;
        self.written = Some(Instant::now());
        self.every = EVERY.max(SHARE * began.elapsed());
        self.pending = false;
        Ok(())
    }

    pub(crate) fn display(&self) -> String {
        self.path.display().to_string()
    }
}

/// A checkpoint that was read.
pub(crate) struct Saved {
    path: PathBuf,
    pub(crate) basis: Basis,
    pub(crate) state: FitState,
}

impl Saved {
    /// Reads a checkpoint.
    ///
    /// # Errors
    /// Errors if the file cannot be read, is damaged, or is a model without the state of a fit.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let (basis, state) = record::read(path)?;
        Ok(Self { path: path.to_owned(), basis, state })
    }

    pub(crate) fn display(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests;
