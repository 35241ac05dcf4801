//! A checkpoint as a file: a model file of the current mixture, with the rest of the state as a further object.

use std::path::Path;

use gmm_data::{ModelFile, Problem, model_and_state, model_to_json, read_model_bytes, write_model_and_state};
use gmm_host::{EmRun, FitState, Restart};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Basis;
use crate::output::file_error;

/// The version of the object that this program writes, and the only one that it reads.
const VERSION: u64 = 1;

/// The object `state` of the model file.
#[derive(Serialize, Deserialize)]
struct Record {
    version: u64,
    basis: Basis,
    /// Number of restarts begun.
    begun: usize,
    /// The running restart, whose mixture and posterior are those of the model file; `None` at the end of a fit.
    running: Option<RestartRecord>,
    /// The best completed restart. At the end of a fit its mixture is that of the model file.
    best: Option<RestartRecord>,
    /// Otherwise its mixture, as a model.
    best_model: Option<Value>,
}

/// A restart without its mixture. Convergence follows from the trace and `tol`.
#[derive(Serialize, Deserialize)]
struct RestartRecord {
    index: usize,
    empty_at_start: usize,
    trace: Vec<f64>,
    falls: Vec<(usize, f64)>,
    empty: Vec<usize>,
    /// Iterations that dropped components.
    #[serde(default)]
    drops: Vec<usize>,
}

impl RestartRecord {
    fn of(restart: &Restart) -> Self {
        let Restart { index, empty_at_start, run } = restart;
        let EmRun { trace, falls, empty, drops, .. } = run.clone();
        Self { index: *index, empty_at_start: *empty_at_start, trace, falls, empty, drops }
    }

    fn with(self, ModelFile { mixture, posterior, noise, .. }: ModelFile) -> Restart {
        let Self { index, empty_at_start, trace, falls, empty, drops } = self;
        let run = EmRun { posterior, noise, trace, falls, empty, drops, ..EmRun::new(mixture) };
        Restart { index, empty_at_start, run: EmRun { iterations: run.trace.len(), ..run } }
    }

    /// Whether its indices are possible in a fit of `k` components.
    fn is_possible(&self, begun: usize, k: usize) -> bool {
        let iterations = self.trace.len();
        self.index < begun
            && self.empty_at_start <= k
            && self.empty.iter().all(|&c| c < k)
            && self.falls.iter().all(|&(at, _)| (1..=iterations).contains(&at))
    }
}

/// Writes the file, whole or not at all.
///
/// # Errors
/// Errors from the system.
pub(super) fn write(path: &Path, names: Option<&[String]>, basis: &Basis, state: &FitState) -> anyhow::Result<()> {
    let FitState { begun, running, best } = state;
    let Some(current) = running.as_ref().or(best.as_ref()) else { return Ok(()) };
    let model = |run: &EmRun| ModelFile {
        feature_names: names.map(<[String]>::to_vec),
        posterior: run.posterior.clone(),
        noise: run.noise.clone(),
        ..ModelFile::from(run.mixture.clone())
    };
    let best_model = match best.as_ref().filter(|_| running.is_some()) {
        Some(best) => Some(serde_json::from_str(&model_to_json(&model(&best.run))?)?),
        None => None,
    };
    let record = Record {
        version: VERSION,
        basis: basis.clone(),
        begun: *begun,
        running: running.as_ref().map(RestartRecord::of),
        best: best.as_ref().map(RestartRecord::of),
        best_model,
    };
    Ok(write_model_and_state(path, &model(&current.run), &serde_json::to_value(record)?)?)
}

/// Reads the file.
///
/// # Errors
/// Errors if the file cannot be read, is damaged, is a model without a state, or has another version.
pub(super) fn read(path: &Path) -> anyhow::Result<(Basis, FitState)> {
    let wrong =
        |why: &dyn std::fmt::Display| file_error(path, Problem::Corrupt(format!("the state of the fit: {why}")));
    let bytes = gmm_data::read_bytes(path)?;
    let name = path.display().to_string();
    let (model, state) = model_and_state(&bytes, &name)?;
    let version = &state["version"];
    if version.as_u64() != Some(VERSION) {
        let why = format!(
            "its state has version {version}, this program resumes {VERSION}: use --init to go on from its mixture"
        );
        return Err(file_error(path, Problem::Format(why)).into());
    }
    let Record { basis, begun, running, best, best_model, .. } =
        serde_json::from_value(state).map_err(|error| wrong(&error))?;
    let k = model.mixture.n_components();
    let all = running.iter().chain(&best);
    if (running.is_none() && best.is_none()) || !all.clone().all(|restart| restart.is_possible(begun, k)) {
        return Err(wrong(&"its parts disagree").into());
    }
    let best_of = match best_model {
        Some(value) => read_model_bytes(value.to_string().as_bytes(), &name)?,
        None if running.is_some() && best.is_some() => return Err(wrong(&"the best mixture is missing").into()),
        None => model.clone(),
    };
    let running = running.map(|restart| restart.with(model));
    let best = best.map(|restart| restart.with(best_of));
    Ok((basis, FitState { begun, running, best }))
}
