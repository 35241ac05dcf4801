//! What all requests share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;

use crate::Limits;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::registry::Models;
use crate::shared::Regions;

pub(crate) struct App {
    pub(crate) models: Models,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: Limits,
    pub(crate) log: Log,
    pub(crate) token: Option<String>,
    pub(crate) regions: Regions,
    /// Whether the server is about to stop: it is no longer ready, and asks clients to close their connections.
    pub(crate) is_draining: AtomicBool,
}

impl App {
    /// Whether a request to this path may be answered: health and the page need no token, since neither has data.
    pub(crate) fn is_allowed(&self, path: &str, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let health = ["/v2/health/live", "/v2/health/ready"];
        let of_grpc = ["ServerLive", "ServerReady"];
        let method = path.strip_prefix("/inference.GRPCInferenceService/");
        if health.contains(&path) || method.is_some_and(|method| of_grpc.contains(&method)) || path == "/" {
            return true;
        }
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes()).unwrap_or_default();
        given
            .split_at_checked(7)
            .is_some_and(|(scheme, given)| scheme.eq_ignore_ascii_case(b"bearer ") && is_same(given, token.as_bytes()))
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
