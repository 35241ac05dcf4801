//! Models in the forms of other programs, besides ONNX. Each is recognised by its content when a model is read.

pub(super) mod kaldi;
pub(super) mod mclust;

use std::path::Path;

use super::{ModelFile, check_columns};
use crate::error::Fault;
use crate::{FileError, Problem, atomic};

/// A form of another program, in which a model can be written and read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExchangeFormat {
    /// Kaldi's `<DiagGMM>` as text, of kind diag or spherical: extension `dubm`.
    KaldiDiag,
    /// Kaldi's `<FullGMM>` as text, of any kind: extension `ubm`.
    KaldiFull,
    /// The list of a fit by R's mclust as JSON, for `jsonlite::fromJSON`: extension `mclust`.
    Mclust,
}

impl ExchangeFormat {
    /// The format that the extension names, if it is one of these.
    pub fn of_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "dubm" => Some(Self::KaldiDiag),
            "ubm" => Some(Self::KaldiFull),
            "mclust" => Some(Self::Mclust),
            _ => None,
        }
    }
}

/// Writes the mixture of a model in the form of another program, which [`read_model`](crate::read_model) reads too.
/// Equal models give equal bytes.
///
/// Names of columns and the record of a fit are not stored, except `n` and `loglik` in mclust's format. Anything else that the
/// format cannot store is an error.
///
/// # Errors
/// [`FileError`] if the model has a posterior or clusters, or noise where the form has none; if the form has no such
/// covariances, or a number is out of its range; or from the system. The file appears whole or not at all.
pub fn write_exchange(path: impl AsRef<Path>, model: &ModelFile, format: ExchangeFormat) -> Result<(), FileError> {
    let path = path.as_ref();
    let text = encode(model, format).map_err(|fault| fault.in_file(path))?;
    atomic::write_bytes(path, text.as_bytes())
}

/// The text that [`write_exchange`] writes.
///
/// # Errors
/// As [`write_exchange`].
pub fn model_to_exchange(model: &ModelFile, format: ExchangeFormat) -> Result<String, FileError> {
    encode(model, format).map_err(|fault| fault.in_named("<model>"))
}

fn encode(model: &ModelFile, format: ExchangeFormat) -> Result<String, Fault> {
    check_columns(model)?;
    let is_kaldi = format != ExchangeFormat::Mclust;
    let fields = [
        ("posterior", model.posterior.is_some()),
        ("clusters", model.clusters.is_some()),
        ("noise", model.noise.is_some() && is_kaldi),
    ];
    if let Some((field, _)) = fields.into_iter().find(|(_, exists)| *exists) {
        let what = if is_kaldi { "Kaldi's form" } else { "mclust's list" };
        let why = format!("{what} has no place for it: delete this field to write the mixture alone");
        return Err(Fault::field(field, Problem::Field(why)));
    }
    match format {
        ExchangeFormat::KaldiDiag => Ok(kaldi::to_string(&model.mixture, false).map_err(Problem::Text)?),
        ExchangeFormat::KaldiFull => Ok(kaldi::to_string(&model.mixture, true).map_err(Problem::Text)?),
        ExchangeFormat::Mclust => Ok(mclust::to_string(model)),
    }
}
