//! Models as ONNX files, for programs that evaluate them without this one.

mod builder;
mod graph;
mod messages;

use std::path::Path;

use gmm_model::Precision;
use prost::Message;
use serde_json::json;

use crate::error::Fault;
use crate::{FileError, ModelFile, Problem, atomic};

use messages::{ModelProto, OperatorSetIdProto, StringStringEntryProto};

/// The version of the standard operators in ONNX files. It is the oldest in which all of them have one meaning and both
/// precisions: runtimes since the end of 2020 (ONNX 1.8) read it.
pub const ONNX_OPSET: i64 = 13;

/// The version of the file format that came with [`ONNX_OPSET`].
const IR_VERSION: i64 = 7;

/// Protocol buffers are limited to 2 GiB.
const MOST_BYTES: usize = i32::MAX as usize;

/// Writes a model as an ONNX file: see [`model_to_onnx`].
///
/// # Errors
/// As [`model_to_onnx`], and from the system; the file appears whole or not at all.
pub fn write_onnx(path: impl AsRef<Path>, model: &ModelFile, precision: Precision) -> Result<(), FileError> {
    let path = path.as_ref();
    let bytes = encode(model, precision).map_err(|fault| fault.in_file(path))?;
    atomic::write_bytes(path, &bytes)
}

/// The bytes of an ONNX model of standard operators (opset [`ONNX_OPSET`]) that evaluates a mixture in `precision`.
///
/// - Input `X`, `(N, d)`, of the precision. The number of rows `N` is free.
/// - Output `label`, `(N,)`, int64: the component of largest responsibility, or the cluster if components were combined,
///   the first among equals; −1 for noise.
/// - Output `responsibilities`, `(N, k)`: of the components, or clusters; that of noise is in a further, last column.
/// - Output `log_density`, `(N,)`: `ln p(x)`, −∞ if it is below all numbers of the precision. If it is in f64, the
///   responsibilities are the weights.
///
/// A file of f32 takes distances in f64: its outputs are those of f64, rounded to f32 but for a few units in the last place.
///
/// The metadata have the names of the columns (`feature_names`, a JSON list), `covariance_type`, `n_components`,
/// `precision`, `mean_log_likelihood` of the fit, and `outlier_log_density`, the threshold of outliers, as far as they are
/// known. Equal models give equal bytes. Cost: `k*d³/3` flops for full covariances. A run of the model takes `2*k*N*d`
/// numbers of memory.
///
/// # Errors
/// [`FileError`] if the model has a posterior, whose predictive density is no Gaussian mixture; if a number exceeds the
/// range of the precision; if the file would exceed the 2 GiB of the format; or if a field is inconsistent.
pub fn model_to_onnx(model: &ModelFile, precision: Precision) -> Result<Vec<u8>, FileError> {
    encode(model, precision).map_err(|fault| fault.in_named("<model>"))
}

fn encode(model: &ModelFile, precision: Precision) -> Result<Vec<u8>, Fault> {
    crate::model::check_columns(model)?;
    if model.posterior.is_some() {
        let why = "the predictive density of variational Bayes is a mixture of t distributions, for which there is no \
                   ONNX writer: delete this field to write the Gaussian mixture of the posterior means";
        return Err(Fault::field("posterior", Problem::Field(why.to_owned())));
    }
    let (k, d) = model.mixture.means().dim();
    let graph = graph::graph(model, precision).map_err(Problem::Text)?;
    let proto = ModelProto {
        ir_version: IR_VERSION,
        producer_name: "gmm-rs".to_owned(),
        producer_version: env!("CARGO_PKG_VERSION").to_owned(),
        doc_string: format!(
            "Gaussian mixture: {k} components, {d} columns, {} covariances",
            model.mixture.covariance_type().name()
        ),
        graph: Some(graph),
        opset_import: vec![OperatorSetIdProto { domain: String::new(), version: ONNX_OPSET }],
        metadata_props: metadata(model, precision),
    };
    let bytes = proto.encoded_len();
    if bytes > MOST_BYTES {
        let why = format!("it would have {bytes} bytes, and ONNX files have at most 2 GiB: use precision f32, or diag");
        return Err(Problem::Text(why).into());
    }
    Ok(proto.encode_to_vec())
}

/// What is known of a model beyond its computation.
fn metadata(model: &ModelFile, precision: Precision) -> Vec<StringStringEntryProto> {
    let (k, kind) = (model.mixture.n_components(), model.mixture.covariance_type());
    let fit = model.fit.as_ref();
    [
        ("covariance_type", Some(kind.name().to_owned())),
        ("n_components", Some(k.to_string())),
        ("precision", Some(precision.name().to_owned())),
        ("feature_names", model.feature_names.as_ref().map(|names| json!(names).to_string())),
        ("mean_log_likelihood", fit.map(|fit| json!(fit.mean_log_likelihood).to_string())),
        ("n_rows", fit.map(|fit| fit.n_rows.to_string())),
        ("outlier_log_density", model.outliers.map(|outliers| json!(outliers.log_density).to_string())),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some(StringStringEntryProto { key: key.to_owned(), value: value? }))
    .collect()
}
