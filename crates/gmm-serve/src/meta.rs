//! What the server says about itself and about what it serves.

use serde_json::{Value, json};

use crate::infer::ROWS;
use crate::products::QUESTIONS;
use crate::registry::{Models, Served, Slot};
use crate::shared::{self, Regions};

/// Extensions of the protocol.
pub(crate) fn extensions(regions: &Regions) -> Vec<&'static str> {
    std::iter::once("binary_tensor_data").chain(regions.is_on().then_some(shared::EXTENSION)).collect()
}

/// The kind of a model, in its metadata.
pub(crate) const MODEL_PLATFORM: &str = "gmm_mixture";

/// The kind of a matrix, in its metadata.
pub(crate) const MATRIX_PLATFORM: &str = "gmm_matrix";

/// A tensor in metadata: name, type and shape, in which −1 is any number.
pub(crate) type TensorMeta = (String, &'static str, Vec<i64>);

/// The metadata of a name and version.
pub(crate) struct ModelMeta {
    pub(crate) platform: &'static str,
    pub(crate) inputs: Vec<TensorMeta>,
    pub(crate) outputs: Vec<TensorMeta>,
}

/// The metadata of what is served now.
pub(crate) fn of(served: &Served) -> ModelMeta {
    let tensor = |name: &str, datatype: &'static str, shape: &[i64]| (name.to_owned(), datatype, shape.to_vec());
    match served {
        Served::Model(batcher) => {
            let (d, width) = (batcher.model.n_features() as i64, batcher.model.width() as i64);
            let mut outputs = vec![
                tensor("label", "INT32", &[-1]),
                tensor("responsibilities", "FP64", &[-1, width]),
                tensor("log_density", "FP64", &[-1]),
                tensor("conditional_mean", "FP64", &[-1, d]),
            ];
            if batcher.model.file.outliers.is_some() {
                outputs.push(tensor("outlier", "BOOL", &[-1]));
            }
            ModelMeta { platform: MODEL_PLATFORM, inputs: vec![tensor(ROWS, "FP64", &[-1, d])], outputs }
        }
        Served::Matrix(matrix) => {
            let (m, k) = (matrix.dim().0 as i64, matrix.dim().1 as i64);
            let mut outputs = vec![
                tensor("indices", "UINT64", &[-1, -1]),
                tensor("values", "FP64", &[-1, -1]),
                tensor("inner", "FP64", &[-1, m]),
            ];
            if m == k {
                outputs.extend([tensor("quadratic_form", "FP64", &[-1]), tensor("mahalanobis", "FP64", &[-1])]);
            }
            let datatype = if matrix.is_f32() { "FP32" } else { "FP64" };
            ModelMeta { platform: MATRIX_PLATFORM, inputs: vec![tensor(QUESTIONS, datatype, &[-1, k])], outputs }
        }
    }
}

/// The answer of `/v2/models/NAME`.
pub(crate) fn model(models: &Models, slot: &Slot) -> Value {
    let ModelMeta { platform, inputs, outputs } = of(&slot.served());
    let tensors = |all: Vec<TensorMeta>| -> Vec<Value> {
        let tensor = |(name, datatype, shape): TensorMeta| json!({"name": name, "datatype": datatype, "shape": shape});
        all.into_iter().map(tensor).collect()
    };
    json!({
        "name": slot.source.name,
        "versions": models.versions(&slot.source.name),
        "platform": platform,
        "inputs": tensors(inputs),
        "outputs": tensors(outputs),
    })
}

/// The answer of `/v2/models`: all names and versions.
pub(crate) fn list(models: &Models) -> Value {
    let one = |slot: &std::sync::Arc<Slot>| {
        let mut value = json!({
            "name": slot.source.name,
            "version": slot.source.version.to_string(),
            "platform": of(&slot.served()).platform,
        });
        if let Some(error) = slot.error() {
            value["stale"] = error.into();
        }
        value
    };
    Value::Array(models.slots.iter().map(one).collect())
}

/// The answer of `/v2`.
pub(crate) fn server(regions: &Regions) -> Value {
    json!({"name": "gmm", "version": env!("CARGO_PKG_VERSION"), "extensions": extensions(regions)})
}

/// The files that have changed and cannot be read.
pub(crate) fn stale(models: &Models) -> Vec<Value> {
    let one = |slot: &std::sync::Arc<Slot>| {
        let Slot { source, .. } = &**slot;
        slot.error().map(|error| json!({"name": source.name, "version": source.version.to_string(), "error": error}))
    };
    models.slots.iter().filter_map(one).collect()
}
