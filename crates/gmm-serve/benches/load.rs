//! Requests a second and their times, beside other servers in turns: `cargo bench -p gmm-serve --bench load -- [NAME=ADDRESS ..] [--out FOLDER]`.
//!
//! Single rows of 13 columns over 64 connections and batches of 10,000 rows over 4, for a mixture of 8 components with full
//! covariances. The server of this project runs in this process; clients and servers share the machine's cores. Answers are
//! compared with the engine's before anything is timed; those of other servers, such as the ones of `benches/serve.sh`, are not,
//! since they have other parameters. With `--out` the lines are also a record.
//!
//! The last load has rows and results in shared memory, so that only a line of JSON passes through the socket.
//!
//! `of_engine` compares rows a second with those of the engine alone, to which no client takes time of the cores.
//! The engine computes the same outputs (labels and log densities) of the same batches from memory, with as many threads as the
//! server has. `of_engine_cpu` compares times of the processor: of the engine alone for as many rows, with that of the server for a
//! request, `server_cpu_us`, from socket to socket and without the client, whose own is `client_cpu_us`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gmm_bench::machine;
use gmm_bench::record::{Csv, Facts};
use gmm_host::{CpuEngine, Engine, EvaluateOptions};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, SyntheticOptions, sample, synthetic};
use gmm_serve::{ServeOptions, Server};
use ndarray::Array2;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const COLUMNS: usize = 13;
const COMPONENTS: usize = 8;
const BATCH: usize = 10_000;
/// Different batches, more than the caches of a core hold: rows of a server are new ones.
const BATCHES: usize = 8;
/// Time of one measurement.
const TIME: Duration = Duration::from_secs(3);
/// Measurements of each load on each server, of which the record has the medians.
const TURNS: usize = 3;
const RECORD: &str = "workload,program,connections,rows,status,ms,p99_ms,max_ms,requests_per_s,rows_per_s,of_engine,of_engine_cpu,server_cpu_us,client_cpu_us,note";

/// What is sent to every server, or with `ours` only to the one of this project.
struct Load {
    name: &'static str,
    rows: usize,
    connections: usize,
    requests: Vec<Vec<u8>>,
    ours: bool,
}

fn main() {
    let (peers, out) = arguments();
    let (mixture, rows) = workload();
    let folder = std::env::temp_dir().join(format!("gmm-serve-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("load.json");
    gmm_data::write_model(&path, &mixture.clone().into()).expect("a model file");
    let engine = Arc::new(CpuEngine::new(0).expect("threads"));
    let options =
        ServeOptions::new(vec![format!("load={}", path.display()).parse().expect("a source")], engine.clone());
    let server = Server::bind(ServeOptions { shared_memory: true, ..options }).expect("a server");
    let (address, stopper) = (server.address(), server.stopper());
    let serving = std::thread::spawn(move || server.run());
    let batch = |i: usize| rows.slice(ndarray::s![i * BATCH..(i + 1) * BATCH, ..]).to_owned();
    let data: Vec<Dataset> = (0..BATCHES).map(|i| Dataset::new(batch(i)).expect("finite")).collect();
    check(address, &rows, &engine_alone(&*engine, &mixture, &data, Duration::ZERO).0);
    let mut record = out.map(|out| open_record(&out, &engine.description(), &peers));
    println!("{RECORD}");
    let shared = Shared::new(address, &rows);
    for load in loads(&rows, &shared) {
        let all = std::iter::once(("gmm serve", address)).chain(peers.iter().map(|(name, at)| (name.as_str(), *at)));
        let servers: Vec<_> = all.take(if load.ours { 1 } else { usize::MAX }).collect();
        let mut found = vec![Vec::new(); servers.len()];
        let mut alone = Vec::new();
        for _ in 0..TURNS {
            alone.push(engine_alone(&*engine, &mixture, &data, TIME / 3).1);
            for ((_, at), found) in servers.iter().zip(&mut found) {
                let before = CpuTimes::now();
                let times = run(*at, load.connections, &load.requests);
                found.push(Measured::of(times, before, *at == address));
            }
        }
        for ((name, _), found) in servers.iter().zip(&found) {
            let line = line(&load, name, found, &alone);
            println!("{line}");
            if let Some(record) = &mut record {
                record.push(&line).expect("the record is written");
            }
        }
    }
    stopper.stop();
    serving.join().expect("no panic").expect("no error");
    std::fs::remove_dir_all(&folder).expect("the folder");
}

/// Names and addresses of other servers, and the folder of records.
fn arguments() -> (Vec<(String, SocketAddr)>, Option<PathBuf>) {
    let mut out = None;
    let mut peers = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.split_once('=') {
            Some((name, address)) => peers.push((name.to_owned(), address.parse().expect("NAME=ADDRESS"))),
            None if argument == "--out" => out = Some(PathBuf::from(arguments.next().expect("a folder after --out"))),
            // Cargo passes options of its own.
            None => {}
        }
    }
    (peers, out)
}

fn open_record(out: &std::path::Path, engine: &str, peers: &[(String, SocketAddr)]) -> Csv {
    let machine = machine::describe();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut facts = Facts::new("serve: requests a second of servers", machine::commit(&root), "benches/serve.sh");
    facts.add("engine", engine);
    facts.extend(machine.facts());
    facts.add(
        "servers",
        ["gmm serve"].into_iter().chain(peers.iter().map(|(name, _)| &**name)).collect::<Vec<_>>().join("; "),
    );
    facts.add("note", format!("medians of {TURNS} turns of {TIME:?}; clients and servers share the cores"));
    Csv::create(out, &machine.slug, &format!("{}-serve", machine::today()), &facts, RECORD).expect("a record")
}

fn loads(rows: &Array2<f64>, shared: &Shared) -> [Load; 5] {
    let single = (0..64).map(|i| binary_request(rows, i, 1)).collect();
    [
        Load { name: "one row JSON", rows: 1, connections: 64, requests: vec![json_request(rows, 0, 1)], ours: false },
        Load { name: "one row binary", rows: 1, connections: 64, requests: single, ours: true },
        Load {
            name: "batch JSON",
            rows: BATCH,
            connections: 4,
            requests: vec![json_request(rows, 0, BATCH)],
            ours: false,
        },
        Load {
            name: "batch binary",
            rows: BATCH,
            connections: 4,
            requests: (0..BATCHES).map(|i| binary_request(rows, i * BATCH, BATCH)).collect(),
            ours: true,
        },
        Load {
            name: "batch in shared memory",
            rows: BATCH,
            connections: 4,
            requests: (0..BATCHES).map(|i| shared.request(i)).collect(),
            ours: true,
        },
    ]
}

/// Times of the processor that this process has taken, in seconds; NaN where the system does not tell.
#[derive(Clone, Copy)]
struct CpuTimes {
    /// All threads.
    process: f64,
    /// The main thread, on which the clients run.
    client: f64,
}

impl CpuTimes {
    fn now() -> Self {
        // Fields 14 and 15, of which 11 follow the name in parentheses, in ticks, a hundred a second on Linux.
        let of = |path: &str| {
            let text = std::fs::read_to_string(path).ok()?;
            let fields = text.rsplit_once(')')?.1.split_whitespace().skip(11).take(2);
            Some(fields.map(|ticks| ticks.parse::<f64>().unwrap_or(f64::NAN)).sum::<f64>() / 100.0)
        };
        let main = format!("/proc/self/task/{}/stat", std::process::id());
        Self { process: of("/proc/self/stat").unwrap_or(f64::NAN), client: of(&main).unwrap_or(f64::NAN) }
    }

    /// What has been taken since: by all threads but the clients', and by theirs.
    fn since(self) -> [f64; 2] {
        let now = Self::now();
        let client = now.client - self.client;
        [now.process - self.process - client, client]
    }
}

/// Times of the requests of one measurement, in milliseconds.
#[derive(Clone)]
struct Measured {
    middle: f64,
    p99: f64,
    max: f64,
    per_second: f64,
    /// Times of the processor for a request, in microseconds; the server's are known if it is of this process.
    server_cpu: f64,
    client_cpu: f64,
}

impl Measured {
    fn of(mut times: Vec<Duration>, before: CpuTimes, is_own: bool) -> Self {
        let [server, client] = before.since().map(|seconds| seconds * 1e6 / times.len() as f64);
        times.sort_unstable();
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
        Self {
            middle: at(0.5),
            p99: at(0.99),
            max: at(1.0),
            per_second: times.len() as f64 / TIME.as_secs_f64(),
            server_cpu: if is_own { server } else { f64::NAN },
            client_cpu: client,
        }
    }
}

/// The engine alone.
#[derive(Clone, Copy)]
struct Alone {
    rows_per_second: f64,
    /// Time of the processor for a row, in microseconds.
    cpu: f64,
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut all: Vec<f64> = values.collect();
    all.sort_unstable_by(f64::total_cmp);
    all[all.len() / 2]
}

/// A line of the record.
fn line(load: &Load, program: &str, found: &[Measured], alone: &[Alone]) -> String {
    let of = |value: fn(&Measured) -> f64| median(found.iter().map(value));
    let of_alone = |value: fn(&Alone) -> f64| median(alone.iter().map(value));
    let known = |value: f64, digits: usize| if value.is_finite() { format!("{value:.digits$}") } else { String::new() };
    let Load { name, rows, connections, .. } = load;
    let per_second = of(|m| m.per_second);
    let rows_per_second = per_second * *rows as f64;
    let (ms, p99, max) = (of(|m| m.middle), of(|m| m.p99), of(|m| m.max));
    let share = rows_per_second / of_alone(|a| a.rows_per_second);
    let (server, client) = (of(|m| m.server_cpu), of(|m| m.client_cpu));
    let of_cpu = known(of_alone(|a| a.cpu) * *rows as f64 / server, 3);
    let (server, client) = (known(server, 1), known(client, 1));
    format!(
        "{name}: {program},{program},{connections},{rows},ok,{ms:.3},{p99:.3},{max:.3},{per_second:.0},{rows_per_second:.0},{share:.3},{of_cpu},{server},{client},"
    )
}

fn workload() -> (Mixture, Array2<f64>) {
    let mixture = synthetic(COMPONENTS, COLUMNS, CovarianceType::Full, 0, &SyntheticOptions::default());
    let mixture = mixture.expect("a mixture");
    let (rows, _) = sample(&mixture, BATCHES * BATCH, 0).expect("rows");
    (mixture, rows)
}

/// The log densities of the first batch if `time` is 0, and the speed of the engine on data sets in memory.
fn engine_alone(engine: &dyn Engine, mixture: &Mixture, data: &[Dataset], time: Duration) -> (Vec<f64>, Alone) {
    let scorer = engine.scorer(mixture, Precision::F64).expect("the CPU engine has one");
    let (mut densities, mut labels) = (vec![0.0; BATCH], vec![0; BATCH]);
    let (before, started, mut count) = (CpuTimes::now(), Instant::now(), 0);
    while count == 0 || started.elapsed() < time {
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            labels: Some(&mut labels),
            ..EvaluateOptions::default()
        };
        scorer.evaluate(&data[count / BATCH % data.len()], want).expect("an evaluation");
        count += BATCH;
    }
    let cpu = before.since().iter().sum::<f64>() * 1e6 / count as f64;
    (densities, Alone { rows_per_second: count as f64 / started.elapsed().as_secs_f64(), cpu })
}

fn request(headers: &str, body: &[u8]) -> Vec<u8> {
    let head =
        format!("POST /v2/models/load/infer HTTP/1.1\r\nhost: load\r\n{headers}content-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn json_request(rows: &Array2<f64>, first: usize, n: usize) -> Vec<u8> {
    let data: Vec<f64> = rows.slice(ndarray::s![first..first + n, ..]).iter().copied().collect();
    let input = json!({"name": "rows", "shape": [n, COLUMNS], "datatype": "FP64", "data": data});
    let body = json!({"inputs": [input], "outputs": [{"name": "label"}, {"name": "log_density"}]});
    request("content-type: application/json\r\n", body.to_string().as_bytes())
}

fn binary_request(rows: &Array2<f64>, first: usize, n: usize) -> Vec<u8> {
    let data: Vec<u8> = rows.slice(ndarray::s![first..first + n, ..]).iter().flat_map(|v| v.to_le_bytes()).collect();
    let size = json!({"binary_data_size": data.len()});
    let input = json!({"name": "rows", "shape": [n, COLUMNS], "datatype": "FP64", "parameters": size});
    let outputs = json!([{"name": "label"}, {"name": "log_density"}]);
    let head = json!({"inputs": [input], "outputs": outputs, "parameters": {"binary_data_output": true}}).to_string();
    let headers = format!("inference-header-content-length: {}\r\n", head.len());
    request(&headers, &[head.as_bytes(), &data].concat())
}

/// Bytes of the rows and of the results of a batch: labels and log densities.
const ROWS_BYTES: usize = 8 * BATCH * COLUMNS;
const RESULT_BYTES: usize = (4 + 8) * BATCH;

/// All batches, and behind them room for their results, in shared memory that is registered as `load`.
struct Shared(PathBuf);

impl Shared {
    fn new(address: SocketAddr, rows: &Array2<f64>) -> Self {
        let name = format!("gmm-serve-load-{}", std::process::id());
        let shared = Self(PathBuf::from("/dev/shm").join(&name));
        let mut bytes: Vec<u8> = rows.iter().flat_map(|v| v.to_le_bytes()).collect();
        bytes.resize(BATCHES * (ROWS_BYTES + RESULT_BYTES), 0);
        std::fs::write(&shared.0, &bytes).expect("shared memory");
        let body = json!({"key": format!("/{name}"), "byte_size": bytes.len()}).to_string();
        let head = "POST /v2/systemsharedmemory/region/load/register HTTP/1.1\r\nhost: load\r\n";
        send(address, format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
        shared
    }

    fn request(&self, batch: usize) -> Vec<u8> {
        let at = |offset: usize, size: usize| json!({"shared_memory_region": "load", "shared_memory_offset": offset, "shared_memory_byte_size": size});
        let (from, to) = (batch * ROWS_BYTES, BATCHES * ROWS_BYTES + batch * RESULT_BYTES);
        let rows =
            json!({"name": "rows", "shape": [BATCH, COLUMNS], "datatype": "FP64", "parameters": at(from, ROWS_BYTES)});
        let labels = json!({"name": "label", "parameters": at(to + 8 * BATCH, 4 * BATCH)});
        let densities = json!({"name": "log_density", "parameters": at(to, 8 * BATCH)});
        request("", json!({"inputs": [rows], "outputs": [labels, densities]}).to_string().as_bytes())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).expect("shared memory of this program");
    }
}

/// The body of the answer to one request.
fn send(address: SocketAddr, request: &[u8]) -> Vec<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(request).await.expect("the server reads");
        let mut buffer = Vec::new();
        let (head, length) = answer(&mut stream, &mut buffer).await;
        buffer[head..head + length].to_vec()
    })
}

/// Asserts that an answer has the densities of the engine.
fn check(address: SocketAddr, rows: &Array2<f64>, densities: &[f64]) {
    let body = send(address, &json_request(rows, 0, 100));
    let found: Value = serde_json::from_slice(&body).expect("JSON");
    let found: Vec<f64> = serde_json::from_value(found["outputs"][1]["data"].clone()).expect("numbers");
    assert_eq!(found, densities[..100], "the server's densities are not the engine's");
}

/// Reads an answer into the buffer: the lengths of its head and of its body.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> (usize, usize) {
    buffer.clear();
    loop {
        assert!(stream.read_buf(buffer).await.expect("an answer") > 0, "the server closed the connection");
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = std::str::from_utf8(&buffer[..end]).expect("a head in ASCII");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        let lower = head.to_ascii_lowercase();
        let length = lower.split("\r\ncontent-length: ").nth(1).expect("a length").lines().next().expect("a line");
        let (head, length) = (end + 4, length.parse::<usize>().expect("a number"));
        while buffer.len() < head + length {
            assert!(stream.read_buf(buffer).await.expect("an answer") > 0, "the server closed the connection");
        }
        return (head, length);
    }
}

/// Sends requests over several connections for [`TIME`], each as soon as the one before is answered; their times.
fn run(address: SocketAddr, connections: usize, requests: &[Vec<u8>]) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let requests: Arc<[Vec<u8>]> = requests.into();
    runtime.block_on(async {
        let end = Instant::now() + TIME;
        let clients: Vec<_> = (0..connections)
            .map(|i| {
                let requests = requests.clone();
                tokio::spawn(async move {
                    let mut stream = TcpStream::connect(address).await.expect("the server listens");
                    stream.set_nodelay(true).expect("an option of TCP");
                    let (mut times, mut buffer) = (Vec::with_capacity(1 << 16), Vec::with_capacity(1 << 12));
                    let mut next = i;
                    while Instant::now() < end {
                        let started = Instant::now();
                        stream.write_all(&requests[next % requests.len()]).await.expect("the server reads");
                        answer(&mut stream, &mut buffer).await;
                        times.push(started.elapsed());
                        next += 1;
                    }
                    times
                })
            })
            .collect();
        let mut all = Vec::new();
        for client in clients {
            all.extend(client.await.expect("no panic"));
        }
        all
    })
}
