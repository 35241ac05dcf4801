//! Addresses of the shared memory extension.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Request};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::json;

use super::{AppState, body_of, json_of};
use crate::Refusal;
use crate::app::App;

pub(super) fn routes() -> Router<Arc<App>> {
    let at = |rest: &str| format!("/v2/systemsharedmemory/{rest}");
    Router::new()
        .route(&at("status"), get(status))
        .route(&at("unregister"), post(unregister_all))
        .route(&at("region/{name}/status"), get(status_of))
        .route(&at("region/{name}/register"), post(register))
        .route(&at("region/{name}/unregister"), post(unregister))
}

async fn status(app: AppState) -> Result<Response, Refusal> {
    Ok(json_of(&app.regions.status(None)?))
}

async fn status_of(app: AppState, Path(name): Path<String>) -> Result<Response, Refusal> {
    Ok(json_of(&app.regions.status(Some(&name))?))
}

async fn register(app: AppState, Path(name): Path<String>, request: Request) -> Result<Response, Refusal> {
    let body = body_of(&app, request, 0).await?;
    tokio::task::block_in_place(|| app.regions.register(&name, &body))?;
    Ok(json_of(&json!({})))
}

async fn unregister(app: AppState, Path(name): Path<String>) -> Result<Response, Refusal> {
    app.regions.unregister(Some(&name))?;
    Ok(json_of(&json!({})))
}

async fn unregister_all(app: AppState) -> Result<Response, Refusal> {
    app.regions.unregister(None)?;
    Ok(json_of(&json!({})))
}
