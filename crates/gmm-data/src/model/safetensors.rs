//! The safetensors form of a model: tensors `weights`, `means` and `covariances` as `f64`, and all else as JSON under
//! the metadata key `gmm-model`. Its field `checksum` is the SHA-256 of the other fields and of the tensors.

use std::collections::HashMap;

use gmm_model::Covariances;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::parts::{Fields, Numbers, assemble};
use super::state::STATE;
use super::{MODEL_FORMAT, ModelFile, json};
use crate::Problem;
use crate::error::Fault;

pub(super) fn parse(bytes: &[u8]) -> Result<ModelFile, Fault> {
    Ok(parse_with_state(bytes)?.0)
}

/// The model, and the state of a program if the file has one.
pub(super) fn parse_with_state(bytes: &[u8]) -> Result<(ModelFile, Option<Value>), Fault> {
    let corrupt = |e: safetensors::SafeTensorError| Fault::from(Problem::Corrupt(format!("not safetensors: {e}")));
    let tensors = SafeTensors::deserialize(bytes).map_err(corrupt)?;
    let (_, metadata): (usize, Metadata) = SafeTensors::read_metadata(bytes).map_err(corrupt)?;
    let head = metadata.metadata().as_ref().and_then(|m| m.get(MODEL_FORMAT)).ok_or_else(|| {
        Fault::field("__metadata__", Problem::Format(format!("its metadata has no '{MODEL_FORMAT}'")))
    })?;
    let fields = Fields::parse(head)?;
    let state: Option<Value> = fields.optional(STATE)?;
    // Files written by earlier versions have no checksum, and no state.
    if let Some(written) = fields.optional::<String>(CHECKSUM)? {
        let head: Map<String, Value> = serde_json::from_str(head).map_err(|e| damaged(&e.to_string()))?;
        if written != checksum(head, |name| tensors.tensor(name).ok()) {
            return Err(damaged("its checksum is not that of its contents"));
        }
    } else if state.is_some() {
        return Err(damaged("it has no checksum"));
    }
    let [weights, means, covariances] = TENSORS.map(|name| numbers(&tensors, name));
    let model = assemble(&fields, weights?, means?, covariances?)?;
    Ok((model, state))
}

const TENSORS: [&str; 3] = ["weights", "means", "covariances"];
pub(super) const CHECKSUM: &str = "checksum";

pub(super) fn damaged(why: &str) -> Fault {
    Fault::field(CHECKSUM, Problem::Corrupt(format!("{why}: the file was damaged, or changed by another program")))
}

/// Returns the SHA-256 of the fields except the checksum, as compact JSON in their order, followed by each existing
/// tensor's name, shape as JSON, and bytes.
fn checksum<'a>(mut head: Map<String, Value>, tensor: impl Fn(&str) -> Option<TensorView<'a>>) -> String {
    head.shift_remove(CHECKSUM);
    let mut hash = Sha256::new();
    hash.update(Value::Object(head).to_string());
    for (name, tensor) in TENSORS.into_iter().filter_map(|name| Some((name, tensor(name)?))) {
        hash.update(format!("{name}{}", Value::from(tensor.shape())));
        hash.update(tensor.data());
    }
    hex(hash)
}

/// A digest in hexadecimal.
pub(super) fn hex(hash: Sha256) -> String {
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Result<Numbers, Fault> {
    let wrong = |why: String| Fault::field(name, Problem::Field(why));
    let tensor = tensors.tensor(name).map_err(|_| wrong("missing tensor".to_owned()))?;
    if tensor.dtype() != Dtype::F64 {
        return Err(wrong(format!("type {}, but F64 is required", tensor.dtype())));
    }
    let (values, _) = tensor.data().as_chunks::<8>();
    Ok(Numbers { shape: tensor.shape().to_vec(), values: values.iter().map(|&b| f64::from_le_bytes(b)).collect() })
}

pub(super) fn to_bytes(model: &ModelFile, state: Option<&Value>) -> Result<Vec<u8>, Fault> {
    fn bytes<'a>(values: impl Iterator<Item = &'a f64>) -> Vec<u8> {
        values.flat_map(|v| v.to_le_bytes()).collect()
    }
    let mixture = &model.mixture;
    let (k, d) = mixture.means().dim();
    let covariances = match mixture.covariances() {
        Covariances::Full(a) => bytes(a.iter()),
        Covariances::Tied(a) | Covariances::Diag(a) => bytes(a.iter()),
        Covariances::Spherical(a) => bytes(a.iter()),
    };
    let (weights, means) = (bytes(mixture.weights().iter()), bytes(mixture.means().iter()));
    let view = |shape, data| TensorView::new(Dtype::F64, shape, data).map_err(failed);
    let shapes = [vec![k], vec![k, d], mixture.covariances().shape().to_vec()];
    let [a, b, c] = shapes;
    let views = [view(a, &weights)?, view(b, &means)?, view(c, &covariances)?];
    let tensors: Vec<_> = TENSORS.into_iter().zip(views).collect();
    let mut head: Map<String, Value> = json::head(model).into_iter().map(|(key, v)| (key.to_owned(), v)).collect();
    head.insert("fit".to_owned(), json::fit(model));
    if let Some(state) = state {
        head.insert(STATE.to_owned(), state.clone());
    }
    let of = |name: &str| tensors.iter().find(|(of, _)| *of == name).map(|(_, tensor)| tensor.clone());
    head.insert(CHECKSUM.to_owned(), checksum(head.clone(), of).into());
    // A single key, because several would be written in the random order of a hash map, and equal models must give
    // equal bytes.
    let metadata = HashMap::from([(MODEL_FORMAT.to_owned(), Value::Object(head).to_string())]);
    safetensors::serialize(tensors, Some(metadata)).map_err(failed)
}

fn failed(e: safetensors::SafeTensorError) -> Fault {
    std::io::Error::other(e).into()
}
