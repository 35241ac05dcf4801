//! The addresses of the server and what answers them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use crate::app::App;
use crate::registry::Served;
use crate::{Refusal, grpc, infer, meta, plain, tensor};

mod regions;

/// The length of the JSON before bytes of tensors, in requests and in answers.
const JSON_LENGTH: HeaderName = HeaderName::from_static("inference-header-content-length");

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");

type AppState = State<Arc<App>>;

/// All routes.
pub(crate) fn router(app: Arc<App>) -> Router {
    let with_version = "/v2/models/{name}/versions/{version}";
    let at = |rest: &str| format!("{with_version}{rest}");
    Router::new()
        .route("/", get(page))
        .route("/openapi.json", get(openapi))
        .route("/metrics", get(metrics))
        .route("/score", post(score))
        .route("/search", post(search))
        .route("/models/{name}", get(model_file))
        .route("/v2", get(server))
        .route("/v2/", get(server))
        .route("/v2/health/live", get(|| async { json_of(&json!({"live": true})) }))
        .route("/v2/health/ready", get(ready))
        .route("/v2/models", get(list))
        .route("/v2/models/{name}", get(metadata))
        .route("/v2/models/{name}/ready", get(model_ready))
        .route("/v2/models/{name}/infer", post(infer_latest))
        .route(with_version, get(metadata_of_version))
        .route(&at("/ready"), get(version_ready))
        .route(&at("/infer"), post(infer_version))
        .merge(regions::routes())
        .merge(grpc::routes())
        .fallback(|| async { Refusal::unknown("no such address: see /openapi.json for all") })
        .method_not_allowed_fallback(|| async {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "the address has no such method: see /openapi.json")
        })
        .with_state(app)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, json_of(&json!({"error": self.message}))).into_response();
        if matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

fn json_of(value: &Value) -> Response {
    typed(JSON, value.to_string().into_bytes())
}

fn typed(kind: HeaderValue, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

async fn page() -> Response {
    let mut response =
        typed(HeaderValue::from_static("text/html; charset=utf-8"), Bytes::from_static(include_bytes!("page.html")));
    let policy = "default-src 'none'; connect-src 'self'; img-src data:; script-src 'unsafe-inline'; \
                  style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    response.headers_mut().insert("content-security-policy", HeaderValue::from_static(policy));
    response
}

async fn openapi() -> Response {
    typed(JSON, Bytes::from_static(include_bytes!("openapi.json")))
}

async fn metrics(State(app): AppState) -> Response {
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    typed(kind, app.metrics.text().into_bytes())
}

async fn ready(State(app): AppState) -> Response {
    let is_ready = !app.is_draining.load(Ordering::Relaxed);
    let mut answer = json!({"ready": is_ready});
    let stale = meta::stale(&app.models);
    if !stale.is_empty() {
        answer["stale"] = stale.into();
    }
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, json_of(&answer)).into_response()
}

async fn server(State(app): AppState) -> Response {
    json_of(&meta::server(&app.regions))
}

async fn list(State(app): AppState) -> Response {
    json_of(&json!({"models": meta::list(&app.models)}))
}

async fn metadata(State(app): AppState, Path(name): Path<String>) -> Result<Response, Refusal> {
    Ok(json_of(&meta::model(&app.models, app.models.find(&name, None)?)))
}

async fn metadata_of_version(
    State(app): AppState,
    Path((name, version)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    Ok(json_of(&meta::model(&app.models, app.models.find(&name, Some(&version))?)))
}

async fn model_ready(State(app): AppState, Path(name): Path<String>) -> Result<Response, Refusal> {
    app.models.find(&name, None)?;
    Ok(json_of(&json!({"name": name, "ready": true})))
}

async fn version_ready(
    State(app): AppState,
    Path((name, version)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    app.models.find(&name, Some(&version))?;
    Ok(json_of(&json!({"name": name, "version": version, "ready": true})))
}

/// The model file, as `gmm convert` writes it: for the page.
async fn model_file(State(app): AppState, Path(name): Path<String>) -> Result<Response, Refusal> {
    let served = app.models.find(&name, None)?.served();
    let Served::Model(batcher) = &*served else {
        return Err(Refusal::unknown(format!("'{name}' is a matrix, not a model")));
    };
    let text = gmm_data::model_to_json(&batcher.model.file).map_err(|e| Refusal::fault(e.to_string()))?;
    Ok(typed(JSON, text))
}

async fn infer_latest(State(app): AppState, Path(name): Path<String>, request: Request) -> Result<Response, Refusal> {
    infer_with(&app, &name, None, request).await
}

async fn infer_version(
    State(app): AppState,
    Path((name, version)): Path<(String, String)>,
    request: Request,
) -> Result<Response, Refusal> {
    infer_with(&app, &name, Some(&version), request).await
}

async fn infer_with(app: &App, name: &str, version: Option<&str>, request: Request) -> Result<Response, Refusal> {
    let slot = app.models.find(name, version)?;
    let json = json_length(request.headers())?;
    let body = body_of(app, request, json.unwrap_or(0)).await?;
    let request = tensor::parse(&body, json, &app.regions)?;
    drop(body);
    let (answer, json) = infer::answer(slot, request, app).await?;
    let Some(json) = json else { return Ok(typed(JSON, answer)) };
    let mut response = typed(BYTES, answer);
    response.headers_mut().insert(JSON_LENGTH, HeaderValue::from(json));
    Ok(response)
}

async fn score(State(app): AppState, request: Request) -> Result<Response, Refusal> {
    let body = body_of(&app, request, 0).await?;
    Ok(typed(JSON, plain::score(&app.models, &body, &app.limits).await?))
}

async fn search(State(app): AppState, request: Request) -> Result<Response, Refusal> {
    let body = body_of(&app, request, 0).await?;
    Ok(typed(JSON, plain::search(&app.models, &body, &app.limits)?))
}

fn json_length(headers: &HeaderMap) -> Result<Option<usize>, Refusal> {
    let Some(value) = headers.get(JSON_LENGTH) else { return Ok(None) };
    let length = value.to_str().ok().and_then(|text| text.parse().ok());
    length.map(Some).ok_or_else(|| Refusal::bad("Inference-Header-Content-Length is not a number of bytes"))
}

/// Reads the whole body. If it comes in pieces, byte `aligned` of it is at an address that a number may have, so that tensors
/// in binary form need no further copy.
///
/// # Errors
/// 413 if it is too large, before it is read if its length is stated; 400 if the client ends it early.
async fn body_of(app: &App, request: Request, aligned: usize) -> Result<Bytes, Refusal> {
    let mut body = request.into_body();
    let stated = axum::body::HttpBody::size_hint(&body);
    if stated.lower() > app.limits.body as u64 {
        return Err(app.limits.body_refusal());
    }
    let (mut parts, mut padding) = (BytesMut::new(), 0);
    let mut first: Option<Bytes> = None;
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| Refusal::bad(format!("the body is not complete: {e}")))?;
        // Trailers have no meaning here.
        let Ok(data) = frame.into_data() else { continue };
        let length = parts.len() - padding + first.as_ref().map_or(0, Bytes::len) + data.len();
        if length > app.limits.body {
            return Err(app.limits.body_refusal());
        }
        match (&first, parts.is_empty()) {
            // Most bodies come in one piece, which is not copied.
            (None, true) => first = Some(data),
            _ => {
                if let Some(first) = first.take() {
                    // A stated length is within the limit; memory is touched only as the body arrives.
                    parts.reserve(usize::try_from(stated.lower()).unwrap_or(0).max(length) + size_of::<f64>());
                    padding = parts.as_ptr().wrapping_add(aligned).align_offset(size_of::<f64>());
                    parts.resize(padding, 0);
                    parts.extend_from_slice(&first);
                }
                parts.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| parts.freeze().slice(padding..)))
}
