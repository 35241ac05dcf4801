//! The messages of `inference.GRPCInferenceService`, declared in Rust: names and field numbers are those of
//! <https://github.com/kserve/open-inference-protocol/blob/main/specification/protocol/open_inference_grpc.proto>.

use std::collections::HashMap;

use bytes::Bytes;
use prost::{Message, Oneof};

/// Parameters by name.
pub(crate) type Parameters = HashMap<String, InferParameter>;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Empty {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerLiveResponse {
    #[prost(bool, tag = "1")]
    pub(crate) live: bool,
}

/// Also the answer of `ModelReady`, which has the same field.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ReadyResponse {
    #[prost(bool, tag = "1")]
    pub(crate) ready: bool,
}

/// The request of `ModelReady` and of `ModelMetadata`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelRequest {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServerMetadataResponse {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(string, repeated, tag = "3")]
    pub(crate) extensions: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TensorMetadata {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelMetadataResponse {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) versions: Vec<String>,
    #[prost(string, tag = "3")]
    pub(crate) platform: String,
    #[prost(message, repeated, tag = "4")]
    pub(crate) inputs: Vec<TensorMetadata>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) outputs: Vec<TensorMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferParameter {
    #[prost(oneof = "ParameterChoice", tags = "1, 2, 3, 4, 5")]
    pub(crate) parameter_choice: Option<ParameterChoice>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum ParameterChoice {
    #[prost(bool, tag = "1")]
    Bool(bool),
    #[prost(int64, tag = "2")]
    Int64(i64),
    #[prost(string, tag = "3")]
    String(String),
    #[prost(double, tag = "4")]
    Double(f64),
    #[prost(uint64, tag = "5")]
    Uint64(u64),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferTensorContents {
    #[prost(bool, repeated, tag = "1")]
    pub(crate) bool_contents: Vec<bool>,
    #[prost(int32, repeated, tag = "2")]
    pub(crate) int_contents: Vec<i32>,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) int64_contents: Vec<i64>,
    #[prost(uint32, repeated, tag = "4")]
    pub(crate) uint_contents: Vec<u32>,
    #[prost(uint64, repeated, tag = "5")]
    pub(crate) uint64_contents: Vec<u64>,
    #[prost(float, repeated, tag = "6")]
    pub(crate) fp32_contents: Vec<f32>,
    #[prost(double, repeated, tag = "7")]
    pub(crate) fp64_contents: Vec<f64>,
    #[prost(bytes = "bytes", repeated, tag = "8")]
    pub(crate) bytes_contents: Vec<Bytes>,
}

/// An input or an output tensor.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferTensor {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) datatype: String,
    #[prost(int64, repeated, tag = "3")]
    pub(crate) shape: Vec<i64>,
    #[prost(map = "string, message", tag = "4")]
    pub(crate) parameters: Parameters,
    #[prost(message, optional, tag = "5")]
    pub(crate) contents: Option<InferTensorContents>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct InferRequestedOutputTensor {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(map = "string, message", tag = "2")]
    pub(crate) parameters: Parameters,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelInferRequest {
    #[prost(string, tag = "1")]
    pub(crate) model_name: String,
    #[prost(string, tag = "2")]
    pub(crate) model_version: String,
    #[prost(string, tag = "3")]
    pub(crate) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(crate) parameters: Parameters,
    #[prost(message, repeated, tag = "5")]
    pub(crate) inputs: Vec<InferTensor>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) outputs: Vec<InferRequestedOutputTensor>,
    #[prost(bytes = "bytes", repeated, tag = "7")]
    pub(crate) raw_input_contents: Vec<Bytes>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ModelInferResponse {
    #[prost(string, tag = "1")]
    pub(crate) model_name: String,
    #[prost(string, tag = "2")]
    pub(crate) model_version: String,
    #[prost(string, tag = "3")]
    pub(crate) id: String,
    #[prost(map = "string, message", tag = "4")]
    pub(crate) parameters: Parameters,
    #[prost(message, repeated, tag = "5")]
    pub(crate) outputs: Vec<InferTensor>,
    #[prost(bytes = "bytes", repeated, tag = "6")]
    pub(crate) raw_output_contents: Vec<Bytes>,
}
