//! Requests a second and their times, of a server in this process: `cargo bench -p gmm-serve`.
//!
//! Single rows of 13 columns over 64 connections, in JSON and in binary form, and batches of 10,000 rows beside the engine
//! alone, for a mixture of 8 components with full covariances. Clients and server share the machine's cores. Answers are
//! compared with the engine's before anything is timed. With an address (`cargo bench -p gmm-serve -- 127.0.0.1:8000`) the same
//! JSON goes to the server there, such as that of `benches/peers/serve_sklearn.py`, and its answers are not compared.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gmm_host::{CpuEngine, Engine, EvaluateOptions};
use gmm_model::{CovarianceType, Dataset, Mixture, Precision, SyntheticOptions, sample, synthetic};
use gmm_serve::{ServeOptions, Server};
use ndarray::Array2;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const COLUMNS: usize = 13;
const COMPONENTS: usize = 8;
const CONNECTIONS: usize = 64;
const BATCH: usize = 10_000;
const TIME: Duration = Duration::from_secs(5);

fn main() {
    let (mixture, rows) = workload();
    // Cargo passes options of its own.
    if let Some(peer) = std::env::args().skip(1).find_map(|argument| argument.parse().ok()) {
        return report("peer, JSON, one row", 1, &run(peer, CONNECTIONS, &[json_request(&rows, 0, 1)]));
    }
    let folder = std::env::temp_dir().join(format!("gmm-serve-load-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("load.json");
    gmm_data::write_model(&path, &mixture.clone().into()).expect("a model file");
    let engine = Arc::new(CpuEngine::new(0).expect("threads"));
    let options =
        ServeOptions::new(vec![format!("load={}", path.display()).parse().expect("a source")], engine.clone());
    let server = Server::bind(options).expect("a server");
    let (address, stopper) = (server.address(), server.stopper());
    let serving = std::thread::spawn(move || server.run());
    let (densities, alone) = engine_alone(&*engine, &mixture, &rows);
    check(address, &rows, &densities);
    println!("{} cores, {}; {CONNECTIONS} connections, {TIME:?} each", cores(), engine.description());
    report("JSON, one row, label and log density", 1, &run(address, CONNECTIONS, &[json_request(&rows, 0, 1)]));
    let requests: Vec<Vec<u8>> = (0..64).map(|i| binary_request(&rows, i, 1)).collect();
    report("binary, one row, label and log density", 1, &run(address, CONNECTIONS, &requests));
    let requests = [binary_request(&rows, 0, BATCH)];
    for connections in [1, 2, 4] {
        let times = run(address, connections, &requests);
        report(&format!("binary, {BATCH} rows, {connections} connections"), BATCH, &times);
        let share = times.len() as f64 * BATCH as f64 / TIME.as_secs_f64() / alone;
        println!("    {:.0} % of the engine alone, {alone:.0} rows/s", 100.0 * share);
    }
    stopper.stop();
    serving.join().expect("no panic").expect("no error");
    std::fs::remove_dir_all(&folder).expect("the folder");
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn workload() -> (Mixture, Array2<f64>) {
    let mixture = synthetic(COMPONENTS, COLUMNS, CovarianceType::Full, 0, &SyntheticOptions::default());
    let mixture = mixture.expect("a mixture");
    let (rows, _) = sample(&mixture, BATCH, 0).expect("rows");
    (mixture, rows)
}

/// The log densities of all rows, and rows a second of the engine.
fn engine_alone(engine: &dyn Engine, mixture: &Mixture, rows: &Array2<f64>) -> (Vec<f64>, f64) {
    let scorer = engine.scorer(mixture, Precision::F64).expect("the CPU engine has one");
    let (mut densities, mut labels) = (vec![0.0; BATCH], vec![0; BATCH]);
    let (started, mut count) = (Instant::now(), 0);
    while started.elapsed() < TIME / 2 {
        let data = Dataset::new(rows.clone()).expect("finite");
        let want = EvaluateOptions {
            log_densities: Some(&mut densities),
            labels: Some(&mut labels),
            ..EvaluateOptions::default()
        };
        scorer.evaluate(&data, want).expect("an evaluation");
        count += BATCH;
    }
    (densities, count as f64 / started.elapsed().as_secs_f64())
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

/// Asserts that an answer has the densities of the engine.
fn check(address: SocketAddr, rows: &Array2<f64>, densities: &[f64]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    let body = runtime.block_on(async {
        let mut stream = TcpStream::connect(address).await.expect("the server listens");
        stream.write_all(&json_request(rows, 0, 100)).await.expect("the server reads");
        let mut buffer = Vec::new();
        let (head, length) = answer(&mut stream, &mut buffer).await;
        buffer[head..head + length].to_vec()
    });
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

fn report(what: &str, rows: usize, times: &[Duration]) {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let per_second = times.len() as f64 / TIME.as_secs_f64();
    println!(
        "{what}: {per_second:.0} requests/s, {:.0} rows/s, p50 {:.2} ms, p99 {:.2} ms, most {:.2} ms",
        per_second * rows as f64,
        at(0.5),
        at(0.99),
        at(1.0)
    );
}
