//! A server on a free port, and a client that reads and writes HTTP/1.1 by hand, so that it can also write it wrongly.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use gmm_data::ModelFile;
use gmm_host::CpuEngine;
use gmm_model::{Covariances, Mixture};
use gmm_serve::{ServeError, ServeOptions, Server, Stopper};
use ndarray::array;
use serde_json::Value;
use tempfile::TempDir;

/// Longest wait for an answer, so that a test that hangs fails.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, and the folder of its files.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) stopper: Stopper,
    pub(crate) folder: TempDir,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

/// Two components in two columns, `a` and `b`.
pub(crate) fn model() -> ModelFile {
    let covariances = array![[[2.0, 0.5], [0.5, 1.0]], [[1.0, -0.3], [-0.3, 0.5]]];
    let mixture = Mixture::new(array![0.25, 0.75], array![[0.0, 0.0], [4.0, 1.0]], Covariances::Full(covariances))
        .expect("valid");
    ModelFile { feature_names: Some(vec!["a".to_owned(), "b".to_owned()]), ..mixture.into() }
}

/// Serves the model as `two`, with options changed by `change`, which also gets the folder.
pub(crate) fn serve_with(file: &ModelFile, change: impl FnOnce(&mut ServeOptions, &TempDir)) -> Running {
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("two.json");
    gmm_data::write_model(&path, file).expect("a model file");
    let source = format!("two={}", path.display()).parse().expect("a source");
    let engine = Arc::new(CpuEngine::new(2).expect("threads"));
    let mut options = ServeOptions::new(vec![source], engine);
    options.drain = Duration::from_millis(100);
    change(&mut options, &folder);
    let server = Server::bind(options).expect("a server");
    let (address, stopper) = (server.address(), server.stopper());
    let thread = Some(std::thread::spawn(move || server.run()));
    Running { address, stopper, folder, thread }
}

/// Serves [`model`] as `two`.
pub(crate) fn serve() -> Running {
    serve_with(&model(), |_, _| {})
}

impl Running {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn connect(&self) -> Client {
        Client::new(TcpStream::connect(self.address).expect("the server listens"))
    }

    /// One request on a connection of its own.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.connect().send("GET", path, &[], b"")
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Answer {
        self.connect().send("POST", path, &[], body.as_bytes())
    }

    /// Stops the server and waits for its end.
    pub(crate) fn stop(mut self) {
        self.stopper.stop();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic").expect("no error");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if !std::thread::panicking() {
            self.join();
        }
    }
}

/// A connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a request and reads its answer.
    pub(crate) fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        self.write(&request(method, path, headers, body));
        self.answer().expect("an answer")
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the server reads");
    }

    /// The next answer; `None` if the server has closed the connection.
    pub(crate) fn answer(&mut self) -> Option<Answer> {
        let mut line = String::new();
        if self.stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let status = line.split(' ').nth(1)?.parse().ok()?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.stream.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_lowercase(), value.to_owned()));
        }
        let length = headers.iter().find(|(name, _)| name == "content-length")?.1.parse().ok()?;
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).ok()?;
        Some(Answer { status, headers, body })
    }
}

/// The bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: test\r\ncontent-length: {}\r\n", body.len());
    headers.iter().for_each(|(name, value)| text.push_str(&format!("{name}: {value}\r\n")));
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("text")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    /// The JSON of an answer with status 200.
    #[track_caller]
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text());
        self.json()
    }

    /// Asserts a status, and an error that contains all of `parts`.
    #[track_caller]
    pub(crate) fn refused(&self, status: u16, parts: &[&str]) {
        assert_eq!(self.status, status, "{}", self.text());
        let error = self.json()["error"].as_str().expect("an error").to_owned();
        parts.iter().for_each(|part| assert!(error.contains(part), "'{part}' is not in: {error}"));
    }
}

/// The numbers of an output.
#[track_caller]
pub(crate) fn output(answer: &Value, name: &str) -> Vec<f64> {
    let outputs = answer["outputs"].as_array().expect("outputs");
    let found = outputs.iter().find(|output| output["name"] == name).unwrap_or_else(|| panic!("no {name}: {answer}"));
    let number = |v: &Value| v.as_f64().unwrap_or_else(|| f64::from(u8::from(v.as_bool().expect("a number"))));
    found["data"].as_array().expect("data").iter().map(number).collect()
}

/// The body of an inference request for rows.
pub(crate) fn infer_body(rows: &[[f64; 2]], outputs: &[&str]) -> String {
    let outputs: Vec<Value> = outputs.iter().map(|name| serde_json::json!({"name": name})).collect();
    let input = serde_json::json!({"name": "rows", "shape": [rows.len(), 2], "datatype": "FP64", "data": rows});
    serde_json::json!({"inputs": [input], "outputs": outputs}).to_string()
}

pub(crate) const INFER: &str = "/v2/models/two/infer";
