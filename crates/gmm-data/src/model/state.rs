//! The state of a program inside a model file: a checkpoint that is a model to every other reader.
//!
//! The state is a further field, `state`. In the JSON form `checksum` follows as the last field: the SHA-256 of all
//! text before it. The checksum of the safetensors form covers the state like the other fields.

use std::io::Write;
use std::path::Path;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::exchange::kaldi;
use super::parts::Fields;
use super::safetensors::{CHECKSUM, damaged, hex};
use super::{Content, ModelFile, content, encode, json, safetensors};
use crate::error::Fault;
use crate::{FileError, Problem, atomic};

/// The name of the field.
pub(super) const STATE: &str = "state";

/// As [`write_model`](crate::write_model), with a further object that other readers of the model ignore. It must not
/// contain NaN or infinity.
///
/// # Errors
/// As for [`write_model`](crate::write_model).
pub fn write_model_and_state(path: impl AsRef<Path>, model: &ModelFile, state: &Value) -> Result<(), FileError> {
    let path = path.as_ref();
    let bytes = encode(path, model, Some(state)).map_err(|fault| fault.in_file(path))?;
    atomic::stage(path, |out| out.write_all(&bytes).map_err(|e| Fault::from(e).in_file(path)))?.publish()
}

/// Reads a model and the state that [`write_model_and_state`] wrote, from bytes that are called `name` in errors. Every
/// `f64` has the bits that were written.
///
/// # Errors
/// As for [`read_model_bytes`](crate::read_model_bytes). [`Problem::Corrupt`] if the checksum differs;
/// [`Problem::Field`] if the file is a model without a state.
pub fn model_and_state(bytes: &[u8], name: &str) -> Result<(ModelFile, Value), FileError> {
    parse(bytes).map_err(|fault| fault.in_named(name))
}

fn parse(bytes: &[u8]) -> Result<(ModelFile, Value), Fault> {
    let (model, state) = match content(bytes)? {
        Content::Safetensors(bytes) => safetensors::parse_with_state(bytes)?,
        Content::Kaldi(text) => (kaldi::parse(text)?, None),
        Content::Json(bytes) => {
            let model = json::parse(bytes)?;
            let text = std::str::from_utf8(bytes).map_err(|e| damaged(&e.to_string()))?;
            let fields = Fields::split(text)?;
            let state: Option<Value> = fields.optional(STATE)?;
            if state.is_some() {
                let written: String = fields.get(CHECKSUM)?;
                let covered = text.rfind(&checksum_key()).map_or("", |at| &text[..at]);
                if written != checksum(covered) {
                    return Err(damaged("its checksum is not that of its contents"));
                }
            }
            (model, state)
        }
    };
    let none = || Fault::field(STATE, Problem::Field("missing: the file is a model, not a checkpoint".to_owned()));
    Ok((model, state.ok_or_else(none)?))
}

/// Appends the state and the checksum to the JSON text of a model.
pub(super) fn into_json(model: &str, state: &Value) -> String {
    let open = model.strip_suffix("\n}\n").expect("the text of a model ends with its brace");
    let covered = format!("{open},\n  \"{STATE}\": {state}");
    let sum = checksum(&covered);
    format!("{covered}{}\"{sum}\"\n}}\n", checksum_key())
}

/// What precedes the checksum.
fn checksum_key() -> String {
    format!(",\n  \"{CHECKSUM}\": ")
}

fn checksum(text: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(text);
    hex(hash)
}
