//! `gmm serve`: answers requests for scores over HTTP, until a signal stops it.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use gmm_host::{Device, Engine};
use gmm_model::{Precision, shown};
use gmm_serve::{Limits, LogLevel, ServeOptions, Server, Source, Stopper, TlsFiles};

use crate::args::{self, EngineArgs};
use crate::exit::Failure;
use crate::interrupt;
use crate::output::Console;

const EXAMPLES: &str = "\
Speaks the Open Inference Protocol (KServe v2) with binary tensors: /v2/models/NAME/infer takes the input rows and \
gives label, responsibilities, log_density, outlier and conditional_mean. /score and /search take plain JSON, \
/openapi.json lists all addresses, /metrics is for Prometheus, and / is a page to look at. Standard error has a log of \
JSON lines; -v logs every request.

Results have the bits of gmm predict and gmm score on the same engine, whatever rows a batch has beside them. A model \
file that changes is read again; if it cannot be read, the old model is kept. On SIGTERM or SIGINT the server answers the \
requests it has and ends with code 0; a second signal ends it at once. --device auto is the CPU here: small batches do not \
pay on a GPU.

Examples:
  gmm serve model.json                               http://127.0.0.1:8080
  gmm serve wine=a.json wine:2=b.json speech=c.json  two versions of one model, and another model
  gmm serve --matrix pages=pages.npy                 inner products and nearest rows
  gmm serve model.json --listen 0.0.0.0:8443 --tls-cert chain.pem --tls-key key.pem --token-file token
  curl -d '{\"row\": [5.1, 3.5, 1.4, 0.2]}' http://127.0.0.1:8080/score";

/// Serve models and matrices over HTTP
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ServeArgs {
    /// Model files: json or safetensors. The name is that of the file without extensions, and the version 1
    #[arg(value_name = "[NAME[:VERSION]=]MODEL", required_unless_present = "matrix")]
    models: Vec<Source>,
    /// A table whose rows are searched and multiplied, in any format that gmm matmul reads; may be repeated
    #[arg(long, value_name = "NAME=FILE")]
    matrix: Vec<Source>,
    /// Address and port; only programs on this machine reach the default
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", value_parser = address)]
    listen: SocketAddr,
    #[command(flatten)]
    engine: EngineArgs,
    /// How long the first row of a batch waits for others, such as 200us or 2ms. With 0 a batch has the rows that have
    /// arrived by the time it begins
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    batch_delay: Duration,
    /// Rows of a batch, unless one request has more
    #[arg(long, value_name = "N", default_value_t = 16384, value_parser = args::at_least_one, allow_negative_numbers = true)]
    batch_rows: usize,
    /// Rows that may wait for a model; further requests are answered 429
    #[arg(long, value_name = "N", default_value_t = 1 << 20, value_parser = args::at_least_one, allow_negative_numbers = true)]
    queue_rows: usize,
    /// Bytes of a request, such as 64MiB; larger ones are answered 413
    #[arg(long, value_name = "SIZE", default_value = "64MiB", value_parser = gmm_data::parse_size)]
    max_body: u64,
    /// Rows of a request; more are answered 413
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = args::at_least_one, allow_negative_numbers = true)]
    max_rows: usize,
    /// Open connections; further ones are closed
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = args::at_least_one, allow_negative_numbers = true)]
    max_connections: usize,
    /// Time for a request, from its first byte to its answer; longer ones are answered 408
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = positive_duration)]
    timeout: Duration,
    /// File with a token that requests must bear (Authorization: Bearer TOKEN), all but those for health and the page
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// File with the certificate and its chain, in PEM: connections are encrypted
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// File with the private key, in PEM
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Let programs of the same user on this machine pass tensors in shared memory (the system shared memory extension of
    /// Triton). They are trusted: one that truncates its memory ends the server. Needs a loop-back address
    #[arg(long)]
    shared_memory: bool,
    /// How often the files are looked at for changes; 0 is never
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    reload: Duration,
    /// After a signal: how long clients are asked to close their connections before the server closes them
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    drain: Duration,
    /// After that: how long the requests that are being answered may take
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    grace: Duration,
}

pub(crate) fn run(args: &ServeArgs, console: &Console) -> anyhow::Result<()> {
    let options = options(args, console)?;
    let is_open = options.token.is_none() && !options.listen.ip().is_loopback();
    let server = Server::bind(options)?;
    if is_open {
        console.warn("anyone who reaches this address may send requests: consider --token-file");
    }
    // The port may be one that the system chose: programs that start the server read it here.
    let scheme = if args.tls_cert.is_some() { "https" } else { "http" };
    if !console.quiet {
        crate::output::print(&format!("{scheme}://{}\n", server.address()))?;
    }
    let _deferred = interrupt::hold();
    let ended = Arc::new(AtomicBool::new(false));
    let waiting = std::thread::spawn({
        let (stopper, ended) = (server.stopper(), ended.clone());
        move || stop_on_signal(&stopper, &ended)
    });
    let result = server.run();
    ended.store(true, Ordering::Relaxed);
    // It returns within a few milliseconds.
    drop(waiting.join());
    interrupt::obeyed();
    Ok(result?)
}

/// Stops the server at the first signal.
fn stop_on_signal(stopper: &Stopper, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        if interrupt::received().is_some() {
            return stopper.stop();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn options(args: &ServeArgs, console: &Console) -> anyhow::Result<ServeOptions> {
    if args.shared_memory && !args.listen.ip().is_loopback() {
        let listen = args.listen;
        return Err(
            Failure::Usage(format!("--shared-memory needs a loop-back address, and --listen is {listen}")).into()
        );
    }
    let token = args.token_file.as_ref().map(|path| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        match text.trim() {
            "" => Err(Failure::BadData(format!("{}: the token is empty", path.display())).into()),
            token => anyhow::Ok(token.to_owned()),
        }
    });
    let tls = args.tls_cert.clone().zip(args.tls_key.clone());
    let log = match (console.quiet, console.verbose) {
        (true, _) => LogLevel::Error,
        (_, true) => LogLevel::Requests,
        _ => LogLevel::Info,
    };
    let limits = Limits {
        body: usize::try_from(args.max_body).unwrap_or(usize::MAX),
        rows: args.max_rows,
        time: args.timeout,
        connections: args.max_connections,
    };
    Ok(ServeOptions {
        matrices: args.matrix.clone(),
        listen: args.listen,
        precision: args.engine.precision().unwrap_or(Precision::F64),
        threads: args.engine.threads,
        batch_delay: args.batch_delay,
        batch_rows: args.batch_rows,
        queue_rows: args.queue_rows,
        limits,
        token: token.transpose()?,
        tls: tls.map(|(certificates, key)| TlsFiles { certificates, key }),
        shared_memory: args.shared_memory,
        reload: args.reload,
        drain: args.drain,
        grace: args.grace,
        log,
        ..ServeOptions::new(args.models.clone(), engine(args)?)
    })
}

/// The engine. Small batches are the common work of a server, so `auto` is the CPU.
fn engine(args: &ServeArgs) -> anyhow::Result<Arc<dyn Engine>> {
    let device = match args.engine.device {
        Device::Auto => Device::Cpu,
        other => other,
    };
    Ok(Arc::from(device.open(args.engine.threads)?.engine))
}

/// An address and a port; a name is looked up.
fn address(text: &str) -> Result<SocketAddr, String> {
    let bad = |why: String| format!("it must be an address and a port, such as 127.0.0.1:8080: {why}");
    let mut found = text.to_socket_addrs().map_err(|e| bad(e.to_string()))?;
    found.next().ok_or_else(|| bad("the name has no address".to_owned()))
}

/// A number with the unit us, ms, s or min; 0 needs none.
fn duration(text: &str) -> Result<Duration, String> {
    /// A day: longer ones are mistakes.
    const MOST: f64 = 86_400.0;
    let bad = || format!("'{}' must be a time such as 200us, 5ms, 30s or 2min, and at most a day", shown(text));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
    let scale = match &text[unit..] {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        _ => return Err(bad()),
    };
    let seconds = text[..unit].parse::<f64>().map_err(|_| bad())? * scale;
    if (0.0..=MOST).contains(&seconds) { Ok(Duration::from_secs_f64(seconds)) } else { Err(bad()) }
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("it must be above 0".to_owned()),
        found => Ok(found),
    }
}
