//! Connections: accepted, perhaps encrypted, limited in number and time, and ended when the server stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::Refusal;
use crate::app::App;
use crate::trace::Trace;

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// How far the server has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    Serving,
    /// No new connections; answers ask clients to close theirs.
    Draining,
    /// Connections are closed after the request that they are in.
    Closing,
}

/// What each connection needs.
#[derive(Clone)]
pub(crate) struct Context {
    pub(crate) app: Arc<App>,
    pub(crate) router: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) phase: watch::Receiver<Phase>,
    /// Held by each connection; the server has ended when all are dropped.
    pub(crate) open: tokio::sync::mpsc::Sender<Infallible>,
}

/// Accepts connections until the server drains, and then those that wait already.
pub(crate) async fn accept(listener: TcpListener, context: Context) {
    let mut phase = context.phase.clone();
    let is_draining = async move { drop(phase.wait_for(|phase| *phase >= Phase::Draining).await) };
    let mut is_draining = std::pin::pin!(is_draining);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut is_draining => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => begin(stream, &context),
            // Too many open files, or a client that has gone: others may still be served.
            Err(error) => {
                context.app.log.warn("a connection cannot be accepted", json!({"error": error.to_string()}));
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
    // A client whose connection the system has accepted already may have sent its request.
    let none_left = Duration::from_millis(20);
    while let Ok(Ok((stream, _))) = tokio::time::timeout(none_left, listener.accept()).await {
        begin(stream, &context);
    }
}

/// Serves a connection, unless too many are open.
fn begin(stream: TcpStream, context: &Context) {
    let metrics = &context.app.metrics;
    if context.open.strong_count() > context.app.limits.connections {
        metrics.refused_connections.inc();
        return;
    }
    metrics.connections.inc();
    let context = context.clone();
    tokio::spawn(async move {
        // Small answers must not wait for an acknowledgement.
        let _unsupported = stream.set_nodelay(true);
        match context.tls.clone() {
            None => serve(stream, &context).await,
            Some(tls) => {
                let greeting = tokio::time::timeout(context.app.limits.time, tls.accept(stream)).await;
                if let Ok(Ok(stream)) = greeting {
                    serve(stream, &context).await;
                }
            }
        }
        context.app.metrics.connections.dec();
    });
}

/// Answers the requests of a connection, one after another.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, context: &Context) {
    let service = service_fn(|request: Request<Incoming>| {
        let (app, router) = (context.app.clone(), context.router.clone());
        async move { Ok::<_, Infallible>(answer(app, router, request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(context.app.limits.time).max_headers(64);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let mut phase = context.phase.clone();
    let is_closing = async move { drop(phase.wait_for(|phase| *phase >= Phase::Closing).await) };
    tokio::select! {
        // An error is that of a client that has gone, or of a request that is no HTTP: hyper has answered the latter.
        _ended = connection.as_mut() => {}
        () = is_closing => {
            connection.as_mut().graceful_shutdown();
            let _ended = connection.await;
        }
    }
}

/// Answers a request, counts and logs it.
async fn answer(app: Arc<App>, mut router: Router, request: Request<Incoming>) -> Response<Body> {
    let started = Instant::now();
    let trace = Trace::of(request.headers().get(TRACE_PARENT).map(HeaderValue::as_bytes));
    let is_logged = app.log.has_requests();
    let about = is_logged.then(|| (request.method().clone(), request.uri().path().to_owned()));
    let mut response = if app.is_allowed(request.uri().path(), request.headers()) {
        match tokio::time::timeout(app.limits.time, router.call(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                let limit = app.limits.time.as_secs_f64();
                let message = format!("not complete within {limit} s: send the body faster, or fewer rows");
                let mut response = Refusal::new(StatusCode::REQUEST_TIMEOUT, message).into_response();
                // The rest of the body may still come.
                response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                response
            }
        }
    } else {
        let refusal = Refusal::new(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer TOKEN");
        let mut response = refusal.into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(trace.header())) {
        headers.insert(TRACE_PARENT, value);
    }
    if app.is_draining.load(Ordering::Relaxed) {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let (status, elapsed) = (response.status().as_u16(), started.elapsed().as_secs_f64());
    app.metrics.count(status, elapsed);
    if let Some((method, path)) = about {
        let fields = json!({
            "method": method.as_str(), "path": path, "status": status, "seconds": elapsed, "trace_id": trace.id(),
        });
        app.log.info("request", fields);
    } else if status >= 500 && !app.is_draining.load(Ordering::Relaxed) {
        app.log.error("a request failed", json!({"status": status, "trace_id": trace.id()}));
    }
    response
}
