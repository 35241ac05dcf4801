//! `served`: requests to a resident matrix behind `gmm serve`, from the first byte sent to the last byte of the answer.
//!
//! The server runs in this process, its files are written to a temporary folder, and one client sends one request after
//! another over the loop-back. The workloads: the quadratic forms of all rows that are served with a matrix that each
//! request brings, in f64 (`forms sent`), or with one that is served too (`forms named`); those of the request's own vectors,
//! which are in shared memory (`forms shared`); and the best ten rows for one vector (`search`). Before anything is timed some
//! forms and the whole search are compared with naive sums in f64. `engine_ms` is the same product by a call of the library
//! in this process, with all rows resident.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use gmm_data::Table;
use gmm_host::ResidentMatrix;
use gmm_serve::{ServeOptions, Server};
use ndarray::{Array2, ArrayView1};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::turns::{EngineTurns, TurnOptions};

/// Rows and columns of the vectors of quadratic forms, and of the matrix that is searched.
const SIZES: [(usize, usize); 2] = [(50_000, 1000), (1_000_000, 256)];

/// Those of a quick run.
const QUICK: [(usize, usize); 2] = [(2_000, 100), (10_000, 64)];

/// Rows that a search finds.
const BEST: usize = 10;

/// Forms that are compared with naive sums.
const CHECKED: usize = 50;

/// Requests of a turn; the first ones of a workload are not timed.
const REQUESTS: usize = 50;
const FIRST: usize = 5;

const COLUMNS: &str =
    "workload,rows,columns,precision,turn,ms,min_ms,p90_ms,max_ms,engine_ms,request_bytes,answer_bytes,error";

/// Checks and times all workloads, and writes the record.
///
/// # Errors
/// If a file cannot be written, or an answer is wrong.
pub(crate) fn run(arguments: &EngineTurns) -> Result<()> {
    let TurnOptions { quick, turns, seed, .. } = &arguments.common;
    let title = "milliseconds of requests to resident matrices, from socket to answer";
    let (engine, mut record) = arguments.open("served", title, COLUMNS)?;
    let [(n, k), (m, d)] = if *quick { QUICK } else { SIZES };
    let (vectors, pages) = (random(n, k, *seed), random(m, d, *seed + 1));
    let square = random(k, k, *seed + 2).mapv(f64::from);
    let question: Vec<f64> = random(1, d, *seed + 3).iter().map(|v| f64::from(*v)).collect();

    let folder = std::env::temp_dir().join(format!("gmm-served-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let mut options = ServeOptions::new(Vec::new(), engine.clone());
    // The files are removed once they are read.
    options.reload = Duration::ZERO;
    options.shared_memory = true;
    let doubles = vectors.mapv(f64::from);
    let tables = [
        ("doubles", Table::new(doubles)),
        ("singles", Table::new(vectors.clone())),
        ("pages", Table::new(pages.clone())),
    ];
    let squares = [("square", Table::new(square.clone())), ("single_square", Table::new(square.mapv(|v| v as f32)))];
    for (name, table) in tables.into_iter().chain(squares) {
        let path = folder.join(format!("{name}.npy"));
        gmm_data::write_table(&path, &table)?;
        options.matrices.push(format!("{name}={}", path.display()).parse().map_err(anyhow::Error::msg)?);
    }
    let server = Server::bind(options)?;
    std::fs::remove_dir_all(&folder)?;
    let (address, stopper) = (server.address(), server.stopper());
    let serving = std::thread::spawn(move || server.run());
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut client = Client { stream, answer: Vec::new() };

    let of_square = ResidentMatrix::new(&*engine, square.clone())?;
    let of_pages = ResidentMatrix::new(&*engine, pages.clone())?;
    let asked = Array2::from_shape_vec((1, d), question.iter().map(|v| *v as f32).collect())?;
    let shared = Shared::new(&mut client, &vectors)?;
    for workload in ["forms sent", "forms named", "forms shared", "search"] {
        let precisions: &[&str] = if workload == "search" { &["f32"] } else { &["f64", "f32"] };
        for precision in precisions {
            let is_single = *precision == "f32";
            let request = match workload {
                "forms sent" => {
                    let input = Input { name: "matrix", shape: &[k, k], values: square.as_slice(), is_single };
                    request(of_precision(precision), Some(input), json!({}))?
                }
                "forms named" => request(of_precision(precision), None, json!({"matrix": "square"}))?,
                "forms shared" => shared.request(vectors.dim(), precision),
                _ => {
                    let input = Input { name: "questions", shape: &[1, d], values: Some(&question), is_single: false };
                    request("pages", Some(input), json!({"count": BEST}))?
                }
            };
            let answer = client.ask(&request)?;
            let (answer_bytes, error) = match workload {
                "search" => (answer.len(), search_error(answer, &pages, &question)?),
                _ => (answer.len(), forms_error(answer, &vectors, &square)?),
            };
            let allowed = if workload != "search" && *precision == "f32" { 1e-6 } else { 1e-12 };
            ensure!(error < allowed, "{workload} in {precision}: an error of {error:.1e} is above {allowed:.0e}");
            for _ in 0..FIRST {
                client.ask(&request)?;
            }
            let singles = ResidentMatrix::new(&*engine, vectors.clone())?;
            let doubles = ResidentMatrix::new(&*engine, vectors.mapv(f64::from))?;
            let form_of_singles = ResidentMatrix::new(&*engine, square.mapv(|v| v as f32))?;
            let alone = || -> Result<()> {
                match (workload, *precision) {
                    ("search", _) => drop(of_pages.top_k(asked.view(), BEST)?),
                    // The matrix is a new one for each request.
                    ("forms sent", "f64") => {
                        let sent = ResidentMatrix::new(&*engine, square.clone())?;
                        drop(sent.quadratic_form(doubles.as_questions()?)?);
                    }
                    ("forms sent", _) => {
                        let sent = ResidentMatrix::new(&*engine, square.mapv(|v| v as f32))?;
                        drop(sent.quadratic_form(singles.as_questions()?)?);
                    }
                    (_, "f32") => drop(form_of_singles.quadratic_form(singles.as_questions()?)?),
                    _ => drop(of_square.quadratic_form(doubles.as_questions()?)?),
                }
                Ok(())
            };
            alone()?;
            for turn in 0..*turns {
                let count = if *quick { 2 * FIRST } else { REQUESTS };
                let mut times = timed(count, || client.ask(&request).map(drop))?;
                let of_engine = timed(count, alone)?[count / 2];
                times.sort_unstable_by(f64::total_cmp);
                let at = |share: f64| times[((count - 1) as f64 * share) as usize];
                let (rows, columns) = if workload == "search" { (m, d) } else { (n, k) };
                let line = format!(
                    "{workload},{rows},{columns},{precision},{turn},{:.3},{:.3},{:.3},{:.3},{of_engine:.3},{},{answer_bytes},{error:.1e}",
                    at(0.5),
                    at(0.0),
                    at(0.9),
                    at(1.0),
                    request.len()
                );
                println!("{line}");
                record.push(&line)?;
            }
        }
    }
    stopper.stop();
    drop(client);
    serving.join().map_err(|_| anyhow::anyhow!("the server panicked"))??;
    println!("{}", record.path().display());
    Ok(())
}

/// The vectors in shared memory: in f64, and behind them in f32.
struct Shared(std::path::PathBuf);

impl Shared {
    fn new(client: &mut Client, vectors: &Array2<f32>) -> Result<Self> {
        let name = format!("gmm-served-{}", std::process::id());
        let shared = Self(std::path::Path::new("/dev/shm").join(&name));
        let mut bytes: Vec<u8> = vectors.iter().flat_map(|v| f64::from(*v).to_le_bytes()).collect();
        bytes.extend(vectors.iter().flat_map(|v| v.to_le_bytes()));
        std::fs::write(&shared.0, &bytes)?;
        let body = json!({"key": format!("/{name}"), "byte_size": bytes.len()}).to_string();
        let head = "POST /v2/systemsharedmemory/region/vectors/register HTTP/1.1\r\nhost: served\r\n";
        client.ask(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())?;
        Ok(shared)
    }

    fn request(&self, (n, k): (usize, usize), precision: &str) -> Vec<u8> {
        let (name, datatype, offset, number) =
            if precision == "f32" { ("single_square", "FP32", 8 * n * k, 4) } else { ("square", "FP64", 0, 8) };
        let at = json!({"shared_memory_region": "vectors", "shared_memory_offset": offset,
                        "shared_memory_byte_size": number * n * k});
        let input = json!({"name": "questions", "shape": [n, k], "datatype": datatype, "parameters": at});
        let outputs = json!([{"name": "quadratic_form"}]);
        let parameters = json!({"binary_data_output": true});
        let body = json!({"inputs": [input], "outputs": outputs, "parameters": parameters}).to_string();
        let head = format!("POST /v2/models/{name}/infer HTTP/1.1\r\nhost: served\r\n");
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()).into_bytes()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.0);
    }
}

fn of_precision(precision: &str) -> &'static str {
    if precision == "f32" { "singles" } else { "doubles" }
}

/// Numbers of a normal distribution's scale that f32 has exactly.
fn random(n: usize, d: usize, seed: u64) -> Array2<f32> {
    let mut draws = ChaCha8Rng::seed_from_u64(seed);
    let mut number = || (draws.next_u32() >> 8) as f32 / (1 << 22) as f32 - 2.0;
    Array2::from_shape_simple_fn((n, d), &mut number)
}

/// Times of calls in milliseconds.
fn timed(count: usize, mut call: impl FnMut() -> Result<()>) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let began = Instant::now();
        call()?;
        times.push(1e3 * began.elapsed().as_secs_f64());
    }
    Ok(times)
}

/// A binary input, sent in f32 or f64.
struct Input<'a> {
    name: &'a str,
    shape: &'a [usize],
    values: Option<&'a [f64]>,
    is_single: bool,
}

/// A request for binary outputs, with an input if there is one.
fn request(name: &str, input: Option<Input<'_>>, mut parameters: Value) -> Result<Vec<u8>> {
    parameters["binary_data_output"] = true.into();
    let (mut inputs, mut data) = (Vec::new(), Vec::new());
    if let Some(Input { name, shape, values, is_single }) = input {
        let values = values.context("numbers in order")?;
        data = match is_single {
            true => values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect(),
            false => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        };
        let datatype = if is_single { "FP32" } else { "FP64" };
        let size = json!({"binary_data_size": data.len()});
        inputs.push(json!({"name": name, "shape": shape, "datatype": datatype, "parameters": size}));
    }
    let outputs = match name {
        "pages" => json!([{"name": "indices"}, {"name": "values"}]),
        _ => json!([{"name": "quadratic_form"}]),
    };
    let head = json!({"inputs": inputs, "outputs": outputs, "parameters": parameters}).to_string();
    let length = head.len() + data.len();
    let headers = format!(
        "POST /v2/models/{name}/infer HTTP/1.1\r\nhost: served\r\ninference-header-content-length: {}\r\n\
         content-length: {length}\r\n\r\n",
        head.len()
    );
    Ok([headers.as_bytes(), head.as_bytes(), &data].concat())
}

/// A connection, and the answer that it got last.
struct Client {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Client {
    /// The bytes of the binary outputs.
    fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        self.stream.write_all(request)?;
        self.answer.resize(1 << 14, 0);
        let mut length = 0;
        let (end, json, body) = loop {
            let read = self.stream.read(&mut self.answer[length..])?;
            ensure!(read > 0, "the server closed the connection");
            length += read;
            if let Some(end) = self.answer[..length].windows(4).position(|four| four == b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.answer[..end])?.to_ascii_lowercase();
                ensure!(head.starts_with("http/1.1 200"), "{}", String::from_utf8_lossy(&self.answer[..length]));
                let number = |name: &str| -> Result<usize> {
                    let rest = head.split(&format!("\r\n{name}: ")).nth(1).with_context(|| name.to_owned())?;
                    Ok(rest.lines().next().unwrap_or_default().parse()?)
                };
                // Without that header all is JSON.
                let body = number("content-length")?;
                break (end + 4, number("inference-header-content-length").unwrap_or(body), body);
            }
        };
        if end + body > self.answer.len() {
            self.answer.resize(end + body, 0);
        }
        self.stream.read_exact(&mut self.answer[length..end + body])?;
        Ok(&self.answer[end + json..end + body])
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = [u8; 8]> + '_ {
    bytes.as_chunks::<8>().0.iter().copied()
}

/// The largest error of some forms, relative to the sum of the absolute values of their terms.
fn forms_error(answer: &[u8], vectors: &Array2<f32>, square: &Array2<f64>) -> Result<f64> {
    let found: Vec<f64> = words(answer).map(f64::from_le_bytes).collect();
    ensure!(found.len() == vectors.nrows(), "{} forms", found.len());
    let mut worst = 0.0_f64;
    for row in (0..CHECKED).map(|i| i * (vectors.nrows() - 1) / (CHECKED - 1)) {
        let x = vectors.row(row).mapv(f64::from);
        let (mut sum, mut size) = (0.0, 0.0);
        for (x_i, a) in x.iter().zip(square.rows()) {
            for (x_j, a) in x.iter().zip(a) {
                sum += x_i * a * x_j;
                size += (x_i * a * x_j).abs();
            }
        }
        let error = (found[row] - sum).abs() / size;
        worst = if error.is_nan() { f64::INFINITY } else { worst.max(error) };
    }
    Ok(worst)
}

/// The largest error of the best values, relative to the largest; an error if other rows are better.
fn search_error(answer: &[u8], pages: &Array2<f32>, question: &[f64]) -> Result<f64> {
    ensure!(answer.len() == 16 * BEST, "{} bytes", answer.len());
    let dot = |row: ArrayView1<'_, f32>| row.iter().zip(question).map(|(a, b)| f64::from(*a) * b).sum::<f64>();
    let mut all: Vec<(usize, f64)> = pages.rows().into_iter().map(dot).enumerate().collect();
    all.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let found = words(&answer[..8 * BEST]).map(u64::from_le_bytes);
    let values = words(&answer[8 * BEST..]).map(f64::from_le_bytes);
    let mut worst = 0.0_f64;
    for ((index, value), (expected, best)) in found.zip(values).zip(&all) {
        // Values are rounded to f32, and rows whose values round alike are ranked by index.
        let exact = all.iter().find(|(row, _)| *row as u64 == index).map_or(f64::NAN, |(_, exact)| *exact);
        ensure!((exact as f32).to_bits() == (*best as f32).to_bits(), "row {index} in place of {expected}");
        worst = worst.max((value - f64::from(*best as f32)).abs() / all[0].1);
    }
    Ok(worst)
}
