//! Model files: human-readable JSON, or safetensors with the same content; and the forms of other programs.

mod exchange;
mod factors;
mod groups;
mod json;
mod parts;
mod posterior;
mod safetensors;
mod sets;
mod state;

use std::io::Write;
use std::path::Path;

use gmm_model::bayes::Posterior;
use gmm_model::{FitSummary, Mixture, Noise, OutlierThreshold, RowStorage};
use serde_json::Value;

use crate::compressed::Compression;
use crate::error::Fault;
use crate::{FileError, Problem, atomic};

pub use exchange::{ExchangeFormat, model_to_exchange, write_exchange};
pub use groups::{
    GroupModels, MODELS_FORMAT, ModelOrGroups, group_models_to_json, read_model_or_groups, write_group_models,
};
pub use sets::read_mixtures;
pub use state::{model_and_state, write_model_and_state};

/// The version of the model format that this program writes; the latest that it can read.
pub const MODEL_VERSION: u64 = 1;

/// The value of the `format` field that identifies a model file.
pub const MODEL_FORMAT: &str = "gmm-model";

const CHOICES: &str = "json or safetensors";

/// The contents of a model file: a mixture, its feature names, and what is known of its fit.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelFile {
    /// The mixture: `k` components in `d` dimensions.
    pub mixture: Mixture,
    /// Names of the `d` columns that the mixture was fitted to.
    pub feature_names: Option<Vec<String>>,
    /// Summary of the fit, if the mixture was fitted.
    pub fit: Option<FitSummary>,
    /// How the rows were stored for the passes of the fit. A later pass that stores its rows alike gives the bits that
    /// the fit would have.
    pub storage: Option<RowStorage>,
    /// Mean log-likelihoods of the passes of a fit in separate steps, in order; empty otherwise. Those of a fit by one
    /// process are in `fit`.
    pub trace: Vec<f64>,
    /// The log density below which a row is an outlier, if it was chosen.
    pub outliers: Option<OutlierThreshold>,
    /// The cluster of each component, `(k,)`, if components were combined into clusters: the numbers from 0 on, without
    /// a gap. A row's cluster is then the one of largest total responsibility.
    pub clusters: Option<Vec<usize>>,
    /// Prior and posterior, if the mixture was fitted by variational Bayes: `mixture` is that of the posterior means.
    pub posterior: Option<Posterior>,
    /// The uniform noise beside the mixture, if it was fitted with some. Older programs ignore it.
    pub noise: Option<Noise>,
}

impl ModelFile {
    /// The mean log-likelihood of each pass so far, of a fit by one process or in separate steps.
    pub fn full_trace(&self) -> &[f64] {
        match &self.fit {
            Some(fit) if self.trace.is_empty() => &fit.trace,
            _ => &self.trace,
        }
    }
}

impl From<Mixture> for ModelFile {
    fn from(mixture: Mixture) -> Self {
        Self {
            mixture,
            feature_names: None,
            fit: None,
            storage: None,
            trace: Vec::new(),
            outliers: None,
            clusters: None,
            posterior: None,
            noise: None,
        }
    }
}

/// Reads a model; JSON, safetensors and the forms of Kaldi and mclust are told apart by the content.
///
/// Every `f64` round-trips bit for bit, except that NaN and infinity in `fit` (a mixture has none) are written as
/// `null` and read as NaN. Unknown fields are ignored.
///
/// # Errors
/// [`FileError`] with the field, for a later version, another format, a missing or invalid field, inconsistent shapes,
/// or parameters that do not form a valid mixture. Memory use is bounded by a small multiple of the file's length.
pub fn read_model(path: impl AsRef<Path>) -> Result<ModelFile, FileError> {
    let path = path.as_ref();
    let bytes = crate::read_bytes(path)?;
    parse(&bytes).map_err(|fault| fault.in_file(path))
}

/// Reads a model from bytes, called `name` in errors.
///
/// # Errors
/// As [`read_model`].
pub fn read_model_bytes(bytes: &[u8], name: &str) -> Result<ModelFile, FileError> {
    parse(bytes).map_err(|fault| fault.in_named(name))
}

/// Writes a model in the format that the extension names: `json` or `safetensors`. Equal models give equal bytes.
///
/// # Errors
/// [`FileError`] for any other extension, for a wrong number of feature names, or from the system; the file appears
/// whole or not at all.
pub fn write_model(path: impl AsRef<Path>, model: &ModelFile) -> Result<(), FileError> {
    stage_model(path, model)?.publish()
}

/// As [`write_model`], except that the file is not yet renamed to its final name: see [`atomic::stage`].
///
/// # Errors
/// As [`write_model`].
pub fn stage_model(path: impl AsRef<Path>, model: &ModelFile) -> Result<atomic::Staged, FileError> {
    let path = path.as_ref();
    let bytes = encode(path, model, None).map_err(|fault| fault.in_file(path))?;
    atomic::stage(path, |out| out.write_all(&bytes).map_err(|e| Fault::from(e).in_file(path)))
}

/// Returns the JSON text of a model, as [`write_model`] writes it.
///
/// # Errors
/// [`FileError`] if the number of feature names is wrong.
pub fn model_to_json(model: &ModelFile) -> Result<String, FileError> {
    check_columns(model).map_err(|fault| fault.in_named("<model>"))?;
    Ok(json::to_string(model))
}

/// Returns the safetensors bytes of a model, as [`write_model`] writes them.
///
/// # Errors
/// [`FileError`] if the number of feature names is wrong.
pub fn model_to_safetensors(model: &ModelFile) -> Result<Vec<u8>, FileError> {
    check_columns(model).and_then(|()| safetensors::to_bytes(model, None)).map_err(|fault| fault.in_named("<model>"))
}

fn parse(bytes: &[u8]) -> Result<ModelFile, Fault> {
    match content(bytes)? {
        Content::Json(text) => json::parse(text),
        Content::Safetensors(bytes) => safetensors::parse(bytes),
        Content::Kaldi(text) => exchange::kaldi::parse(text),
    }
}

/// The bytes of a model, by their form.
enum Content<'a> {
    Json(&'a [u8]),
    Safetensors(&'a [u8]),
    /// One mixture as text.
    Kaldi(&'a [u8]),
}

fn content(bytes: &[u8]) -> Result<Content<'_>, Fault> {
    // Skip the UTF-8 byte order mark that Windows editors write, but only before a brace: the same bytes may also begin
    // a safetensors file's length.
    let brace = |text: &&[u8]| text.trim_ascii_start().first() == Some(&b'{');
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").filter(brace).unwrap_or(bytes);
    // A safetensors file starts with the header's length in 8 bytes, followed by the header's opening brace. A JSON
    // text whose ninth byte is a brace starts with a brace or white space.
    let first = bytes.iter().find(|b| !b.is_ascii_whitespace());
    if bytes.get(8) == Some(&b'{') && bytes[..8] != [b' '; 8] && !(bytes[0] == b'{' && bytes[7] != 0) {
        return Ok(Content::Safetensors(bytes));
    }
    match first {
        None => Err(Problem::Format("the file is empty".to_owned()).into()),
        Some(b'{') => Ok(Content::Json(bytes)),
        Some(_) if exchange::kaldi::is_text(bytes) => Ok(Content::Kaldi(bytes)),
        Some(_) => Err(Problem::Format(match (Compression::of_bytes(bytes), description(bytes)) {
            (Some(compression), _) => {
                let name = compression.name();
                format!("it is compressed by {name}: decompress it first ({name} -d)")
            }
            (None, Some(what)) => format!("it is {what}"),
            _ => format!("it is not {CHOICES}"),
        })
        .into()),
    }
}

/// What a file is that is no model, if it is known.
fn description(bytes: &[u8]) -> Option<&'static str> {
    let other = || crate::content::of_bytes(bytes).filter(|(format, _)| format.is_none()).map(|(_, what)| what);
    exchange::kaldi::advice(bytes).or_else(other)
}

/// The bytes of a model in the form that the extension names, with the state of a program if there is one.
fn encode(path: &Path, model: &ModelFile, state: Option<&Value>) -> Result<Vec<u8>, Fault> {
    check_columns(model)?;
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
    match extension.as_str() {
        "json" => {
            let text = json::to_string(model);
            Ok(state.map_or_else(|| text.clone(), |state| state::into_json(&text, state)).into_bytes())
        }
        "safetensors" => safetensors::to_bytes(model, state),
        _ => Err(Problem::Extension { extension: crate::error::one_line(&extension), choices: CHOICES }.into()),
    }
}

/// Checks the lengths of the fields that have a number or a name per column or component, and the threshold of outliers.
pub(crate) fn check_columns(model: &ModelFile) -> Result<(), Fault> {
    let d = model.mixture.n_features();
    if let Some(RowStorage { shift, .. }) = &model.storage
        && (shift.len() != d || shift.iter().any(|v| !v.is_finite()))
    {
        let why = format!("the shift must have {d} finite numbers, one per column");
        return Err(Fault::field("storage", Problem::Field(why)));
    }
    if model.outliers.is_some_and(|threshold| !threshold.log_density.is_finite()) {
        return Err(Fault::field("outliers", Problem::Field("the log density must be finite".to_owned())));
    }
    if let Some(noise) = &model.noise {
        noise.check(d).map_err(|e| Fault::field("noise", Problem::Model(e)))?;
    }
    if let Some(clusters) = &model.clusters {
        check_clusters(clusters, model.mixture.n_components())?;
    }
    if model.posterior.as_ref().is_some_and(|posterior| *posterior.mixture() != model.mixture) {
        let why = "it must be the posterior of the model's mixture".to_owned();
        return Err(Fault::field("posterior", Problem::Field(why)));
    }
    match &model.feature_names {
        Some(names) if names.len() != d => {
            Err(Fault::field("feature_names", Problem::Field(format!("{} names for {d} columns", names.len()))))
        }
        _ => Ok(()),
    }
}

/// Checks that there is a cluster for each component, and a component in each cluster.
fn check_clusters(clusters: &[usize], k: usize) -> Result<(), Fault> {
    let wrong = |why: String| Err(Fault::field("clusters", Problem::Field(why)));
    if clusters.len() != k {
        return wrong(format!("{} clusters for {k} components", clusters.len()));
    }
    let mut used = vec![false; k];
    for (component, &cluster) in clusters.iter().enumerate() {
        match used.get_mut(cluster) {
            Some(used) => *used = true,
            None => return wrong(format!("component {component} is in cluster {cluster}, of at most {k}")),
        }
    }
    let count = used.iter().rposition(|used| *used).map_or(0, |last| last + 1);
    match used[..count].iter().position(|used| !used) {
        Some(empty) => wrong(format!("no component is in cluster {empty}: the numbers must have no gap")),
        None => Ok(()),
    }
}
