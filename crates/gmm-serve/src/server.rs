//! The server: bound, run, and stopped without losing a request.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gmm_host::Engine;
use gmm_model::Precision;
use serde_json::json;
use tokio::sync::{mpsc, watch};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::batch::BatchOptions;
use crate::connection::{self, Context, Phase};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::registry::{Loader, Models};
use crate::shared::Regions;
use crate::{Limits, LogLevel, Source, routes, tls};

/// Why the server does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A model file or a table cannot be read.
    #[error(transparent)]
    File(#[from] gmm_data::FileError),
    /// A file was read and cannot be served.
    #[error("{path}: {error}")]
    Load {
        /// The file.
        path: String,
        /// Why.
        error: String,
    },
    /// Names are not unique.
    #[error("{0}")]
    Names(String),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Threads cannot be started.
    #[error("cannot start the server's threads: {0}")]
    Threads(#[source] io::Error),
}

/// Files for TLS, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those of its chain.
    pub certificates: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// What is served and how.
#[derive(Clone)]
pub struct ServeOptions {
    /// Model files.
    pub models: Vec<Source>,
    /// Tables whose rows are a matrix.
    pub matrices: Vec<Source>,
    /// The address; port 0 is any free port.
    pub listen: SocketAddr,
    /// The engine of all models and matrices.
    pub engine: Arc<dyn Engine>,
    /// In which rows are stored and multiplied.
    pub precision: Precision,
    /// Threads that answer requests; 0 is one per core.
    pub threads: usize,
    /// How long the first row of a batch waits for others. 0 takes what is there: rows of all requests that have arrived.
    pub batch_delay: Duration,
    /// Rows of a batch.
    pub batch_rows: usize,
    /// Rows that may wait for one model; further requests are answered 429.
    pub queue_rows: usize,
    /// Limits of requests and connections.
    pub limits: Limits,
    /// The token that requests must bear, if any.
    pub token: Option<String>,
    /// Encrypts connections, if given.
    pub tls: Option<TlsFiles>,
    /// Whether clients may register shared memory of this user and machine, which is trusted not to become shorter.
    pub shared_memory: bool,
    /// How often the files are looked at; 0 is never.
    pub reload: Duration,
    /// How long clients are asked to close their connections before the server closes them.
    pub drain: Duration,
    /// How long requests may take to end when the server stops.
    pub grace: Duration,
    /// What is logged.
    pub log: LogLevel,
}

impl ServeOptions {
    /// Models on a free port of the loop-back, with the defaults of `gmm serve`.
    pub fn new(models: Vec<Source>, engine: Arc<dyn Engine>) -> Self {
        Self {
            models,
            matrices: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            engine,
            precision: Precision::F64,
            threads: 0,
            batch_delay: Duration::ZERO,
            batch_rows: 1 << 14,
            queue_rows: 1 << 20,
            limits: Limits::DEFAULT,
            token: None,
            tls: None,
            shared_memory: false,
            reload: Duration::from_secs(1),
            drain: Duration::from_millis(500),
            grace: Duration::from_secs(30),
            log: LogLevel::Error,
        }
    }
}

/// A server that listens, and answers once it runs.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    tls: Option<TlsAcceptor>,
    stop: (watch::Sender<bool>, watch::Receiver<bool>),
    options: ServeOptions,
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    /// Asks the server to stop: it answers the requests that it has, and returns from [`Server::run`].
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Server {
    /// Reads all files and listens. Clients can connect from now on, and are answered once the server runs.
    ///
    /// # Errors
    /// [`ServeError`] with the file or the address.
    pub fn bind(options: ServeOptions) -> Result<Self, ServeError> {
        let (metrics, log) = (Metrics::new(), Log(options.log));
        let batch =
            BatchOptions { delay: options.batch_delay, rows: options.batch_rows, queue_rows: options.queue_rows };
        let tls = options.tls.as_ref().map(|files| tls::acceptor(&files.certificates, &files.key)).transpose()?;
        let loader = Loader {
            engine: options.engine.clone(),
            precision: options.precision,
            threads: options.threads,
            batch,
            metrics: metrics.clone(),
            log,
        };
        let models = Models::load(&options.models, &options.matrices, loader)?;
        let failed = |error| ServeError::Listen { address: options.listen, error };
        let listener = std::net::TcpListener::bind(options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let app = Arc::new(App {
            models,
            metrics,
            limits: options.limits,
            log,
            token: options.token.clone(),
            regions: Regions::new(options.shared_memory, options.engine.clone()),
            is_draining: AtomicBool::new(false),
        });
        Ok(Self { listener, address, app, tls, stop: watch::channel(false), options })
    }

    /// The address, with the port that was free.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops this server when asked to.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.stop.0.clone())
    }

    /// Answers requests until a [`Stopper`] stops the server and the requests it has are answered.
    ///
    /// # Errors
    /// [`ServeError::Threads`].
    pub fn run(self) -> Result<(), ServeError> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.enable_io().enable_time().thread_name("gmm-serve");
        if self.options.threads > 0 {
            builder.worker_threads(self.options.threads);
        }
        let runtime = builder.build().map_err(ServeError::Threads)?;
        let (app, reload) = (self.app.clone(), self.options.reload);
        let watcher = std::thread::Builder::new().name("gmm-reload".to_owned());
        let watcher = watcher.spawn(move || {
            if !reload.is_zero() {
                app.models.watch(reload, || app.is_draining.load(Ordering::Relaxed));
            }
        });
        let watcher = watcher.map_err(ServeError::Threads)?;
        // Tasks of the server run on the runtime's threads, not on this one.
        let served = runtime.block_on(async { tokio::spawn(self.serve()).await });
        runtime.shutdown_timeout(Duration::from_secs(1));
        // Both return without an error unless they panicked.
        drop((served, watcher.join()));
        Ok(())
    }

    async fn serve(self) {
        let Self { listener, address, app, tls, stop: (sender, mut stop), options } = self;
        let _sender = sender;
        let (phase, seen) = watch::channel(Phase::Serving);
        let (open, mut closed) = mpsc::channel(1);
        let context = Context { app: app.clone(), router: routes::router(app.clone()), tls, phase: seen, open };
        let listener = match tokio::net::TcpListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return app.log.error("cannot listen", json!({"error": error.to_string()})),
        };
        let scheme = if context.tls.is_some() { "https" } else { "http" };
        app.log.info("listening", json!({"address": format!("{scheme}://{address}")}));
        let accepting = tokio::spawn(connection::accept(listener, context));
        drop(stop.wait_for(|stop| *stop).await);
        let stopping = Instant::now();
        app.log.info("stopping", json!({}));
        app.is_draining.store(true, Ordering::Relaxed);
        phase.send_replace(Phase::Draining);
        // All connections may have ended before.
        let all_closed = async { drop(accepting.await) };
        let _accepted = tokio::time::timeout(options.drain, all_closed).await;
        let _early = tokio::time::timeout(options.drain.saturating_sub(stopping.elapsed()), closed.recv()).await;
        phase.send_replace(Phase::Closing);
        let ended = tokio::time::timeout(options.grace, closed.recv()).await;
        let fields = json!({"seconds": stopping.elapsed().as_secs_f64()});
        match ended {
            Ok(_) => app.log.info("stopped", fields),
            Err(_) => app.log.error("stopped while requests were being answered: raise --grace", fields),
        }
    }
}
