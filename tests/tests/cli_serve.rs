//! `gmm serve` as users start and stop it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data, program};
use serde_json::{Value, json};

/// A server that runs, and its address as it printed it.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// The log, unless it is being read; it keeps the pipe open.
    log: Option<BufReader<std::process::ChildStderr>>,
}

impl Server {
    pub(crate) fn start(folder: &Folder, arguments: &str) -> Self {
        let mut command = Command::new(program());
        command.current_dir(folder.path("")).arg("serve").args(arguments.split_whitespace());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("http://").unwrap_or_else(|| panic!("no address: {line}")).to_owned();
        let log = Some(BufReader::new(child.stderr.take().unwrap()));
        Self { child, address, log }
    }

    /// The body of the answer to a request, and its status.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(&self.address).expect("the server listens");
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).expect("the server reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        (status, serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}")))
    }

    /// The number of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Reads the log while the server runs, so that the pipe does not fill; the thread returns its lines.
    pub(crate) fn drain(&mut self) -> std::thread::JoinHandle<Vec<String>> {
        let log = self.log.take().expect("the log");
        std::thread::spawn(move || log.lines().map_while(Result::ok).collect())
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().expect("kill").success());
    }

    /// The exit code, and the lines of the log.
    pub(crate) fn end(mut self) -> (Option<i32>, Vec<Value>) {
        let mut text = String::new();
        if let Some(log) = &mut self.log {
            log.read_to_string(&mut text).expect("a log");
        }
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")));
        let lines = lines.collect();
        (self.child.wait().expect("an end").code(), lines)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended unless the test failed.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A folder with a model of Old Faithful.
fn folder() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o faithful.json -q", data("old_faithful.csv"))).ok();
    folder
}

fn rows() -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(data("old_faithful.csv")).unwrap();
    let number = |word: &str| word.trim().parse::<f64>().ok();
    text.lines().filter_map(|line| line.split(',').map(number).collect()).collect()
}

#[test]
fn scores_have_the_bits_of_gmm_score_and_gmm_predict() {
    let folder = folder();
    let server = Server::start(&folder, "faithful.json --listen 127.0.0.1:0");
    let column = |command: &str| -> Vec<f64> {
        let text = folder.gmm(&format!("{command} faithful.json {}", data("old_faithful.csv"))).ok().stdout;
        text.lines().skip(1).map(|line| line.parse().unwrap()).collect()
    };
    let (densities, labels) = (column("score --per-row"), column("predict"));
    let (status, answer) = server.ask("POST", "/score", &json!({"rows": rows()}).to_string());
    assert_eq!(status, 200, "{answer}");
    let of = |key: &str| -> Vec<f64> {
        answer["rows"].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).collect()
    };
    assert!(densities.len() > 200);
    assert_eq!(of("log_density"), densities);
    assert_eq!(of("label"), labels);
    // A row alone has the same bits as in a batch.
    for i in [0, 100, 271] {
        let (_, one) = server.ask("POST", "/score", &json!({"row": rows()[i]}).to_string());
        assert_eq!(one["rows"][0], answer["rows"][i]);
    }
}

#[test]
fn a_signal_ends_the_server_with_code_0_and_a_log_of_json_lines() {
    for name in ["TERM", "INT"] {
        let folder = folder();
        let server = Server::start(&folder, "faithful.json --listen 127.0.0.1:0 -v");
        assert_eq!(server.ask("GET", "/v2/health/ready", "").0, 200);
        server.signal(name);
        let (code, log) = server.end();
        let messages: Vec<&str> = log.iter().map(|line| line["message"].as_str().unwrap()).collect();
        assert_eq!((code, messages), (Some(0), vec!["listening", "request", "stopping", "stopped"]));
        assert_eq!(log[1]["path"], "/v2/health/ready");
        assert_eq!(log[1]["trace_id"].as_str().unwrap().len(), 32);
    }
}

#[test]
fn a_killed_server_can_be_started_again_at_once() {
    let folder = folder();
    let mut server = Server::start(&folder, "faithful.json --listen 127.0.0.1:0");
    let address = server.address.clone();
    let mut open = TcpStream::connect(&address).unwrap();
    open.write_all(b"POST /score HTTP/1.1\r\nhost: x\r\n").unwrap();
    server.ask("GET", "/v2", "");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let server = Server::start(&folder, &format!("faithful.json --listen {address}"));
    assert_eq!(server.address, address);
    assert_eq!(server.ask("GET", "/v2/health/ready", ""), (200, json!({"ready": true})));
}

#[test]
fn a_model_that_is_fitted_anew_is_served() {
    let folder = folder();
    let server = Server::start(&folder, "faithful.json --listen 127.0.0.1:0 --reload 20ms");
    let components = || {
        let (_, meta) = server.ask("GET", "/v2/models/faithful", "");
        meta["outputs"][1]["shape"][1].as_i64()
    };
    assert_eq!(components(), Some(2));
    folder.gmm(&format!("fit {} -k 3 -o faithful.json -q", data("old_faithful.csv"))).ok();
    let started = Instant::now();
    while components() != Some(3) {
        assert!(started.elapsed() < Duration::from_secs(30), "the new model is not served");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The book's unit file, with the program of this test in place of the installed one.
#[test]
fn the_unit_file_of_the_book_is_valid() {
    let mut analyze = Command::new("systemd-analyze");
    if analyze.arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no systemd-analyze");
        return;
    }
    let page = std::fs::read_to_string(gmm_tests::root().join("docs/src/serve.md")).unwrap();
    let unit = page.split("```text\n").find(|block| block.starts_with("[Unit]")).expect("a unit file");
    let unit = unit.split_once("```").expect("an end").0;
    let folder = Folder::new();
    let check = |unit: &str| {
        folder.write("gmm.service", unit);
        let mut analyze = Command::new("systemd-analyze");
        let output = analyze.arg("verify").arg(folder.path("gmm.service")).output().expect("it starts");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let unit = unit.replace("/usr/local/bin/gmm", &program().display().to_string());
    assert_eq!(check(&unit), (true, String::new()));
    // It does find what is wrong.
    assert_ne!(check(&unit.replace("DynamicUser=yes", "DynamicUser=perhaps")), (true, String::new()));
    // The options of the file are those of the program.
    let help = folder.gmm("serve --help").ok().stdout;
    for option in page.split_whitespace().filter_map(|word| word.strip_prefix("`--")) {
        let name = option.split(['`', '=']).next().unwrap();
        assert!(help.contains(&format!("--{name}")), "--{name}");
    }
}

#[test]
fn matrices_are_searched() {
    let folder = folder();
    folder.write("pages.csv", "x,y\n1,0\n0,1\n1,1\n");
    let server = Server::start(&folder, "--matrix pages=pages.csv --listen 127.0.0.1:0");
    let (status, answer) = server.ask("POST", "/search", r#"{"row": [2, 1], "count": 2}"#);
    assert_eq!((status, &answer["rows"][0]), (200, &json!([{"row": 2, "value": 3.0}, {"row": 0, "value": 2.0}])));
}

#[test]
fn what_cannot_be_served_is_refused_in_one_line() {
    let folder = folder();
    folder.write("bad.json", "{}");
    folder.write("empty", " \n");
    let refuses = |arguments: &str, code: i32, parts: &[&str]| {
        folder.refuses(&format!("serve --listen 127.0.0.1:0 {arguments}"), code, parts);
    };
    refuses("absent.json", 6, &["absent.json", "No such file"]);
    refuses("bad.json", 3, &["bad.json"]);
    refuses("faithful.json other/faithful.json", 6, &["other/faithful.json"]);
    refuses("faithful.json faithful=faithful.json", 2, &["two files are 'faithful', version 1", "NAME:VERSION=FILE"]);
    refuses("--matrix faithful.json", 2, &["unknown file type 'json'"]);
    refuses("a:0=faithful.json", 2, &["version", "from 1"]);
    refuses("a/b=faithful.json", 2, &["name 'a/b'"]);
    refuses("faithful.json --batch-delay 5", 2, &["--batch-delay", "200us"]);
    refuses("faithful.json --timeout 0", 2, &["--timeout", "above 0"]);
    refuses("faithful.json --token-file empty", 3, &["empty: the token is empty"]);
    refuses("faithful.json --token-file absent", 6, &["absent"]);
    refuses("faithful.json --tls-cert bad.json --tls-key bad.json", 3, &["bad.json: it has no certificate"]);
    folder.refuses("serve faithful.json --listen nowhere", 2, &["--listen", "127.0.0.1:8080"]);
    let server = Server::start(&folder, "faithful.json --listen 127.0.0.1:0");
    folder.refuses(&format!("serve faithful.json --listen {}", server.address), 6, &["cannot listen", "in use"]);
}
