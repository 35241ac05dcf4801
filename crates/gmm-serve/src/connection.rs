//! Connections: accepted, perhaps encrypted, limited in number and time, and ended when the server stops.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, WWW_AUTHENTICATE};
use axum::http::{HeaderName, HeaderValue, Request, StatusCode, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

use crate::app::App;
use crate::patience::Patient;
use crate::trace::Trace;
use crate::{Refusal, grpc};

const CLOSE: HeaderValue = HeaderValue::from_static("close");

const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");

/// Requests of a connection of HTTP/2 at a time.
const STREAMS: u32 = 256;

/// Bytes that a request of HTTP/2 may send ahead: the default of 64 KiB makes a body of a megabyte wait 16 times.
const WINDOW: u32 = 1 << 20;

/// Largest piece of a body that is read at a time: it is copied behind the others while a core's cache still has it. Bodies of
/// a megabyte took 5 % more time in pieces of up to 400 KiB, hyper's default.
const PIECE: usize = 1 << 17;

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
        let mut phase = context.phase.clone();
        let is_closing = async move { drop(phase.wait_for(|phase| *phase >= Phase::Closing).await) };
        let time = context.app.limits.time;
        match context.tls.clone() {
            None => {
                // A client that has not begun a request does not hold up the end of the server.
                let is_http2 = tokio::select! {
                    is_http2 = greeting(&stream, time) => is_http2,
                    () = is_closing => None,
                };
                if let Some(is_http2) = is_http2 {
                    serve(stream, is_http2, &context).await;
                }
            }
            Some(tls) => {
                let stream = tokio::select! {
                    stream = tokio::time::timeout(time, tls.accept(stream)) => stream.ok().and_then(Result::ok),
                    () = is_closing => None,
                };
                if let Some(stream) = stream {
                    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    serve(stream, is_http2, &context).await;
                }
            }
        }
        context.app.metrics.connections.dec();
    });
}

/// Whether the client speaks HTTP/2, whose preface begins with `PRI`. None if it sends nothing in time, or ends.
async fn greeting(stream: &TcpStream, time: Duration) -> Option<bool> {
    const PREFACE: &[u8] = b"PRI";
    /// Milliseconds for the rest of the preface, which clients send whole. The first bytes hide the end of the stream, so
    /// that HTTP/1 must take over.
    const TRIES: usize = 100;
    let first = async {
        let mut bytes = [0; PREFACE.len()];
        for _ in 0..TRIES {
            match stream.peek(&mut bytes).await {
                Ok(0) | Err(_) => return None,
                Ok(n) if n < PREFACE.len() && PREFACE.starts_with(&bytes[..n]) => {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                Ok(n) => return Some(&bytes[..n] == PREFACE),
            }
        }
        Some(false)
    };
    tokio::time::timeout(time, first).await.ok().flatten()
}

/// Answers the requests of a connection.
async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_http2: bool, context: &Context) {
    let (app, router) = (context.app.clone(), context.router.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (app, router) = (app.clone(), router.clone());
        async move { Ok::<_, Infallible>(answer(app, router, request).await) }
    });
    let time = context.app.limits.time;
    let mut phase = context.phase.clone();
    let is_closing = async move { drop(phase.wait_for(|phase| *phase >= Phase::Closing).await) };
    let stream = TokioIo::new(Patient::new(stream, time));
    // Runs a connection, and lets it end when the server does. An error is that of a client that has gone or does not read, or
    // of a request that is no HTTP: hyper has answered the latter.
    macro_rules! run {
        ($connection:expr) => {{
            let mut connection = std::pin::pin!($connection);
            tokio::select! {
                _ended = connection.as_mut() => {}
                () = is_closing => {
                    connection.as_mut().graceful_shutdown();
                    let _ended = connection.await;
                }
            }
        }};
    }
    if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.timer(TokioTimer::new()).keep_alive_interval(Some(time)).max_concurrent_streams(STREAMS);
        builder.initial_stream_window_size(WINDOW).initial_connection_window_size(4 * WINDOW);
        run!(builder.serve_connection(stream, service));
    } else {
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(time).max_headers(64).max_buf_size(PIECE);
        run!(builder.serve_connection(stream, service));
    }
}

/// Answers a request, counts and logs it.
async fn answer(app: Arc<App>, mut router: Router, request: Request<Incoming>) -> Response<Body> {
    let started = Instant::now();
    let _in_progress = app.metrics.begin();
    let trace = Trace::of(request.headers().get(TRACE_PARENT).map(HeaderValue::as_bytes));
    let is_logged = app.log.has_requests();
    let about = is_logged.then(|| (request.method().clone(), request.uri().path().to_owned()));
    let (is_grpc, is_http2) = (grpc::is_grpc(request.headers()), request.version() == Version::HTTP_2);
    let refused = |refusal: Refusal| match is_grpc {
        true => grpc::refusal(refusal),
        false => refusal.into_response(),
    };
    let mut response = if app.is_allowed(request.uri().path(), request.headers()) {
        match tokio::time::timeout(app.limits.time, router.call(request)).await {
            Ok(Ok(response)) => response,
            Err(_) => {
                let limit = app.limits.time.as_secs_f64();
                let message = format!("not complete within {limit} s: send the body faster, or fewer rows");
                let mut response = refused(Refusal::new(StatusCode::REQUEST_TIMEOUT, message));
                if !is_http2 {
                    // The rest of the body may still come.
                    response.headers_mut().insert(CONNECTION, CLOSE);
                }
                response
            }
        }
    } else {
        let message = "a token is needed: Authorization: Bearer TOKEN";
        let mut response = refused(Refusal::new(StatusCode::UNAUTHORIZED, message));
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    };
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_maybe_shared(bytes::Bytes::from(trace.header())) {
        headers.insert(TRACE_PARENT, value);
    }
    // HTTP/2 has no such header; its connections are told when they close.
    if app.is_draining.load(Ordering::Relaxed) && !is_http2 {
        headers.insert(CONNECTION, CLOSE);
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
