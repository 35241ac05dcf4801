//! Saves the mixture of a running fit to a file, so that an interrupted fit can be continued.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gmm_data::ModelFile;
use gmm_model::Mixture;

use crate::output;

/// Shortest time between two writes: little work is lost, and the cost is negligible.
const EVERY: Duration = Duration::from_secs(3);

/// Writes the mixture at most once per [`EVERY`]; `--init FILE` continues from it.
pub(crate) struct Checkpoint {
    path: PathBuf,
    names: Option<Vec<String>>,
    written: Option<Instant>,
    /// The latest mixture, if it is not in the file yet.
    latest: Option<Mixture>,
}

impl Checkpoint {
    pub(crate) fn new(path: PathBuf, names: Option<Vec<String>>) -> Self {
        Self { path, names, written: None, latest: None }
    }

    /// Writes the mixture if the previous write is at least [`EVERY`] ago, or if this one is the `last`.
    ///
    /// # Errors
    /// Errors if the file cannot be written. The fit should then stop, since the checkpoint was requested.
    pub(crate) fn offer(&mut self, mixture: &Mixture, last: bool) -> anyhow::Result<()> {
        self.latest = Some(mixture.clone());
        if !last && self.written.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the latest offered mixture if the file does not have it yet. Also called when a fit fails.
    ///
    /// # Errors
    /// Errors if the file cannot be written. It then holds an earlier mixture, or its content from before the fit.
    pub(crate) fn flush(&mut self) -> anyhow::Result<()> {
        let Some(mixture) = &self.latest else { return Ok(()) };
        let model = ModelFile { feature_names: self.names.clone(), ..ModelFile::from(mixture.clone()) };
        output::write_model(&self.path, &model)?;
        self.written = Some(Instant::now());
        self.latest = None;
        Ok(())
    }

    pub(crate) fn display(&self) -> String {
        self.path.display().to_string()
    }
}
