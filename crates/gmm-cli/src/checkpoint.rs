//! The mixture of a running fit in a file, so that an interrupted fit need not start again.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gmm_data::ModelFile;
use gmm_model::Mixture;

use crate::output;

/// Often enough to lose little, seldom enough to cost nothing.
const EVERY: Duration = Duration::from_secs(3);

/// Writes a mixture at most every few seconds; `--init FILE` goes on from it.
pub(crate) struct Checkpoint {
    path: PathBuf,
    names: Option<Vec<String>>,
    written: Option<Instant>,
    /// A mixture later than that in the file.
    latest: Option<Mixture>,
}

impl Checkpoint {
    pub(crate) fn new(path: PathBuf, names: Option<Vec<String>>) -> Self {
        Self { path, names, written: None, latest: None }
    }

    /// Writes the mixture if the last one is old enough, or if this one is the `last`.
    ///
    /// # Errors
    /// From the file; the fit should then stop, since what was asked for cannot be done.
    pub(crate) fn offer(&mut self, mixture: &Mixture, last: bool) -> anyhow::Result<()> {
        self.latest = Some(mixture.clone());
        if !last && self.written.is_some_and(|at| at.elapsed() < EVERY) {
            return Ok(());
        }
        self.flush()
    }

    /// Writes the latest mixture that was offered, unless the file has it: when a fit fails on its way.
    ///
    /// # Errors
    /// From the file, which then has an earlier mixture, or is as it was before the fit.
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
