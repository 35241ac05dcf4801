//! The Open Inference Protocol over gRPC: `inference.GRPCInferenceService`, beside HTTP on the same port.

mod messages;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response as HttpResponse;
use axum::routing::post;
use bytes::Bytes;
use prost::Message;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::app::App;
use crate::infer::{self, Sink};
use crate::meta::{self, ModelMeta, TensorMeta};
use crate::tensor::{self, Datatype, Elements, Tensor, Values};
use crate::{Refusal, tensor::Request as InferRequest};
use messages::{
    Empty, InferParameter, InferTensor, InferTensorContents, ModelInferRequest, ModelInferResponse,
    ModelMetadataResponse, ModelRequest, ParameterChoice, ReadyResponse, ServerLiveResponse, ServerMetadataResponse,
    TensorMetadata,
};

/// The methods of the service.
pub(crate) fn routes() -> Router<Arc<App>> {
    let at = |method: &str| format!("/inference.GRPCInferenceService/{method}");
    Router::new()
        .route(&at("ServerLive"), post(|app, request| unary(app, request, server_live)))
        .route(&at("ServerReady"), post(|app, request| unary(app, request, server_ready)))
        .route(&at("ModelReady"), post(|app, request| unary(app, request, model_ready)))
        .route(&at("ServerMetadata"), post(|app, request| unary(app, request, server_metadata)))
        .route(&at("ModelMetadata"), post(|app, request| unary(app, request, model_metadata)))
        .route(&at("ModelInfer"), post(|app, request| unary(app, request, model_infer)))
}

/// Whether a request is one of gRPC, and its refusal must be one.
pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get("content-type").is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// A refusal as gRPC tells it: status 200, and the error in headers.
pub(crate) fn refusal(refusal: Refusal) -> HttpResponse {
    Status::from(refusal).into_http()
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal.status {
            StatusCode::BAD_REQUEST => Code::InvalidArgument,
            StatusCode::UNAUTHORIZED => Code::Unauthenticated,
            StatusCode::NOT_FOUND => Code::NotFound,
            StatusCode::REQUEST_TIMEOUT => Code::DeadlineExceeded,
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::TOO_MANY_REQUESTS => Code::ResourceExhausted,
            StatusCode::SERVICE_UNAVAILABLE => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, refusal.message)
    }
}

/// A method, as tonic calls it.
struct Method<F>(F);

impl<R, M, F, Answer> UnaryService<R> for Method<F>
where
    F: FnMut(R) -> Answer,
    Answer: Future<Output = Result<Response<M>, Status>>,
{
    type Response = M;
    type Future = Answer;

    fn call(&mut self, request: Request<R>) -> Answer {
        (self.0)(request.into_inner())
    }
}

/// Reads a message, calls `method`, and writes its answer.
async fn unary<Q, A, F, Answer>(State(app): State<Arc<App>>, request: HttpRequest, method: F) -> HttpResponse
where
    Q: Message + Default + Send + 'static,
    A: Message + Default + Send + 'static,
    F: Fn(Arc<App>, Q) -> Answer + Send + Sync + 'static,
    Answer: Future<Output = Result<A, Refusal>> + Send + 'static,
{
    let most = app.limits.body;
    let mut grpc = Grpc::new(ProstCodec::<A, Q>::default()).max_decoding_message_size(most);
    grpc = grpc.max_encoding_message_size(usize::MAX);
    let service = Method(move |message: Q| {
        let answer = method(app.clone(), message);
        async move { answer.await.map(Response::new).map_err(Status::from) }
    });
    grpc.unary(service, request).await.map(Body::new)
}

async fn server_live(_: Arc<App>, _: Empty) -> Result<ServerLiveResponse, Refusal> {
    Ok(ServerLiveResponse { live: true })
}

async fn server_ready(app: Arc<App>, _: Empty) -> Result<ReadyResponse, Refusal> {
    Ok(ReadyResponse { ready: !app.is_draining.load(Ordering::Relaxed) })
}

/// `None` for the empty text, which is how gRPC leaves a field out.
fn given(text: &str) -> Option<&str> {
    (!text.is_empty()).then_some(text)
}

async fn model_ready(app: Arc<App>, request: ModelRequest) -> Result<ReadyResponse, Refusal> {
    app.models.find(&request.name, given(&request.version))?;
    Ok(ReadyResponse { ready: true })
}

async fn server_metadata(app: Arc<App>, _: Empty) -> Result<ServerMetadataResponse, Refusal> {
    Ok(ServerMetadataResponse {
        name: "gmm".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        extensions: meta::extensions(&app.regions).into_iter().map(str::to_owned).collect(),
    })
}

async fn model_metadata(app: Arc<App>, request: ModelRequest) -> Result<ModelMetadataResponse, Refusal> {
    let slot = app.models.find(&request.name, given(&request.version))?;
    let ModelMeta { platform, inputs, outputs } = meta::of(&slot.served());
    let tensors = |all: Vec<TensorMeta>| -> Vec<TensorMetadata> {
        let tensor =
            |(name, datatype, shape): TensorMeta| TensorMetadata { name, datatype: datatype.to_owned(), shape };
        all.into_iter().map(tensor).collect()
    };
    Ok(ModelMetadataResponse {
        versions: app.models.versions(&request.name),
        name: request.name,
        platform: platform.to_owned(),
        inputs: tensors(inputs),
        outputs: tensors(outputs),
    })
}

async fn model_infer(app: Arc<App>, request: ModelInferRequest) -> Result<ModelInferResponse, Refusal> {
    let slot = app.models.find(&request.model_name, given(&request.model_version))?;
    let ModelInferRequest { id, parameters, inputs, outputs, raw_input_contents: raw, .. } = request;
    let is_raw = !raw.is_empty();
    if is_raw && raw.len() != inputs.len() {
        return Err(Refusal::bad(format!("{} inputs, but {} raw_input_contents", inputs.len(), raw.len())));
    }
    let raw = raw.into_iter().map(Some).chain(std::iter::repeat(None));
    let inputs = inputs.into_iter().zip(raw).map(|(input, raw)| tensor_of(input, raw)).collect::<Result<_, _>>()?;
    let text = |name: &str| match parameters.get(name) {
        Some(InferParameter { parameter_choice: Some(ParameterChoice::String(text)) }) => Some(text.clone()),
        _ => None,
    };
    let count = match parameters.get("count").and_then(|parameter| parameter.parameter_choice.as_ref()) {
        Some(ParameterChoice::Int64(count)) => Some(*count),
        Some(ParameterChoice::Uint64(count)) => i64::try_from(*count).ok(),
        _ => None,
    };
    let count = count.map(|count| usize::try_from(count).map_err(|_| Refusal::bad("count must not be negative")));
    let (missing, matrix, count) = (text("missing"), text("matrix"), count.transpose()?);
    let served = slot.served();
    let names: Vec<&str> = match outputs.as_slice() {
        [] => infer::default_names(&served),
        all => all.iter().map(|output| output.name.as_str()).collect(),
    };
    let request = InferRequest { id: None, inputs, outputs: Vec::new(), is_binary: is_raw, missing, matrix, count };
    let mut answer = Answer { outputs: Vec::new(), raw: Vec::new(), is_raw };
    infer::infer(&served, request, &names, &app.models, &app.limits, &mut answer).await?;
    Ok(ModelInferResponse {
        model_name: slot.source.name.clone(),
        model_version: slot.source.version.to_string(),
        id,
        parameters: messages::Parameters::new(),
        outputs: answer.outputs,
        raw_output_contents: answer.raw,
    })
}

/// The tensor of an input, whose data are in `raw` or in its contents.
fn tensor_of(input: InferTensor, raw: Option<Bytes>) -> Result<Tensor, Refusal> {
    let InferTensor { name, datatype, shape, contents, .. } = input;
    let (datatype, size) = tensor::checked(&name, &datatype, &shape)?;
    let named = |why: String| Refusal::bad(format!("input '{}': {why}", gmm_model::shown(&name)));
    let values = match (raw, contents) {
        (Some(bytes), None) => {
            let wanted = size.saturating_mul(datatype.size());
            if bytes.len() != wanted {
                let of = format!("shape {shape:?} of {}", datatype.name());
                return Err(named(format!("raw_input_contents has {} bytes, but {of} needs {wanted}", bytes.len())));
            }
            Elements::decode(datatype, bytes)
        }
        (None, Some(contents)) => numbers(contents, datatype).map_err(named)?.into(),
        (Some(_), Some(_)) => return Err(named("it has both contents and raw_input_contents: give one".to_owned())),
        (None, None) => return Err(named("it has no contents".to_owned())),
    };
    if values.len() != size {
        return Err(named(format!("shape {shape:?} needs {size} values, and there are {}", values.len())));
    }
    Ok(Tensor { name, shape: shape.into_iter().map(|side| side as usize).collect(), values })
}

/// The numbers in the field of the type.
///
/// # Errors
/// Numbers in the field of another type, or that this type cannot hold: an INT8 comes in an `int32`.
fn numbers(contents: InferTensorContents, datatype: Datatype) -> Result<Vec<f64>, String> {
    let own = match datatype {
        Datatype::Bool => "bool_contents",
        Datatype::I8 | Datatype::I16 | Datatype::I32 => "int_contents",
        Datatype::U8 | Datatype::U16 | Datatype::U32 => "uint_contents",
        Datatype::I64 => "int64_contents",
        Datatype::U64 => "uint64_contents",
        Datatype::F32 => "fp32_contents",
        Datatype::F64 => "fp64_contents",
    };
    let given = [
        ("bool_contents", contents.bool_contents.len()),
        ("int_contents", contents.int_contents.len()),
        ("int64_contents", contents.int64_contents.len()),
        ("uint_contents", contents.uint_contents.len()),
        ("uint64_contents", contents.uint64_contents.len()),
        ("fp32_contents", contents.fp32_contents.len()),
        ("fp64_contents", contents.fp64_contents.len()),
        ("bytes_contents", contents.bytes_contents.len()),
    ];
    if let Some((other, _)) = given.iter().find(|(name, length)| *name != own && *length > 0) {
        return Err(format!("{} has its values in {own}, not in {other}", datatype.name()));
    }
    let values: Vec<f64> = match datatype {
        Datatype::Bool => contents.bool_contents.into_iter().map(|v| f64::from(u8::from(v))).collect(),
        Datatype::I8 | Datatype::I16 | Datatype::I32 => contents.int_contents.into_iter().map(f64::from).collect(),
        Datatype::U8 | Datatype::U16 | Datatype::U32 => contents.uint_contents.into_iter().map(f64::from).collect(),
        Datatype::I64 => contents.int64_contents.into_iter().map(|v| v as f64).collect(),
        Datatype::U64 => contents.uint64_contents.into_iter().map(|v| v as f64).collect(),
        Datatype::F32 => contents.fp32_contents.into_iter().map(f64::from).collect(),
        Datatype::F64 => contents.fp64_contents,
    };
    match datatype.unfit(&values) {
        // Infinite numbers are refused with their row and column.
        Some((at, value)) if value.is_finite() => {
            Err(format!("value {at} of {own} (counted from 0) is {value}, which is no {}", datatype.name()))
        }
        _ => Ok(values),
    }
}

/// The outputs of an answer: raw if the inputs were.
struct Answer {
    outputs: Vec<InferTensor>,
    raw: Vec<Bytes>,
    is_raw: bool,
}

impl Sink for Answer {
    fn put(&mut self, name: &str, shape: &[usize], values: Values<'_>, _: usize) -> Result<(), Refusal> {
        let mut output = InferTensor {
            name: name.to_owned(),
            datatype: values.datatype().name().to_owned(),
            shape: shape.iter().map(|side| *side as i64).collect(),
            ..InferTensor::default()
        };
        if self.is_raw {
            let mut bytes = Vec::new();
            values.put_bytes(&mut bytes);
            self.raw.push(bytes.into());
        } else {
            let mut contents = InferTensorContents::default();
            match values {
                Values::F64(all) => contents.fp64_contents = all.to_vec(),
                Values::I32(all) => contents.int_contents = all.to_vec(),
                Values::U64(all) => contents.uint64_contents = all.to_vec(),
                Values::Bool(all) => contents.bool_contents = all.to_vec(),
            }
            output.contents = Some(contents);
        }
        self.outputs.push(output);
        Ok(())
    }
}
