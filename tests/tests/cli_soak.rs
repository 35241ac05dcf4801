//! `gmm serve` under mixed traffic for a while: right answers, refusals of what is wrong, and memory, files and threads that
//! do not grow. `GMM_SOAK_SECONDS` is how long it takes.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gmm_tests::{Folder, data};
use serde_json::{Value, json};

use crate::cli_serve::Server;

/// Seconds of traffic unless the environment says otherwise: what every run of the tests can afford.
const SECONDS: u64 = 8;

/// Bytes that the resident memory may grow by between the middle and the end: pages of the allocator's arenas, of which
/// each thread of the server has one. A leak of 100 bytes a request would exceed it within a minute.
const GROWTH: usize = 8 << 20;

/// The traffic that all clients share.
struct Traffic<'a> {
    address: &'a str,
    stop: AtomicBool,
    /// Requests by what became of them: answered, refused, broken off.
    counts: [AtomicUsize; 3],
}

impl Traffic<'_> {
    /// Calls `work` until the end, with the number of the call.
    fn repeat(&self, pause: Duration, mut work: impl FnMut(usize)) {
        let mut i = 0;
        while !self.stop.load(Ordering::Relaxed) {
            work(i);
            i += 1;
            std::thread::sleep(pause);
        }
    }

    fn connect(&self) -> BufReader<TcpStream> {
        let stream = TcpStream::connect(self.address).expect("the server listens");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time limit");
        BufReader::new(stream)
    }

    fn count(&self, what: usize) {
        self.counts[what].fetch_add(1, Ordering::Relaxed);
    }

    /// Sends a request on an open connection and returns status and body.
    fn ask(&self, stream: &mut BufReader<TcpStream>, method: &str, path: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n\r\n", body.len());
        stream.get_mut().write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
        let (status, body) = answer(stream).expect("an answer");
        assert!(status < 500, "{method} {path}: {status} {}", String::from_utf8_lossy(&body));
        self.count(usize::from(status >= 400));
        (status, body)
    }
}

/// Status and body of the next answer; `None` if the connection is closed.
fn answer(stream: &mut BufReader<TcpStream>) -> Option<(u16, Vec<u8>)> {
    let (mut line, mut length) = (String::new(), 0);
    stream.read_line(&mut line).ok().filter(|n| *n > 0)?;
    let status = line.split(' ').nth(1)?.parse().ok()?;
    loop {
        line.clear();
        stream.read_line(&mut line).ok()?;
        match line.trim_end().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse().ok()?,
            Some(_) => (),
            None => break,
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).ok()?;
    Some((status, body))
}

/// Resident bytes, open files and threads of a process.
fn usage(id: u32) -> [usize; 3] {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("a process");
    let of = |key: &str| -> usize {
        let line = status.lines().find(|line| line.starts_with(key)).expect("a key");
        line.split_whitespace().nth(1).expect("a value").parse().expect("a number")
    };
    let files = fs::read_dir(format!("/proc/{id}/fd")).expect("files").count();
    [of("VmRSS:") << 10, files, of("Threads:")]
}

/// The largest of each of `usage` over a time.
fn largest(id: u32, time: Duration) -> [usize; 3] {
    let (started, mut most) = (Instant::now(), [0; 3]);
    while started.elapsed() < time {
        let now = usage(id);
        (0..3).for_each(|i| most[i] = most[i].max(now[i]));
        std::thread::sleep(Duration::from_millis(100));
    }
    most
}

#[test]
fn mixed_traffic_is_answered_and_nothing_grows() {
    if !Path::new("/proc/self/status").exists() {
        eprintln!("skipped: there is no /proc, which tells the memory of a process");
        return;
    }
    let seconds = std::env::var("GMM_SOAK_SECONDS").map_or(SECONDS, |text| text.parse().expect("a number of seconds"));
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    for k in [2, 3] {
        folder.gmm(&format!("fit {x} -k {k} -o {k}.json -q")).ok();
    }
    fs::copy(folder.path("2.json"), folder.path("m.json")).expect("a copy");
    // A small limit of bodies, so that memory does not depend on whether one is being read at this moment.
    let options = "m.json --listen 127.0.0.1:0 --reload 50ms --timeout 1s --max-connections 256 --max-body 1MiB";
    let mut server = Server::start(&folder, options);
    let log = server.drain();
    let id = server.id();
    let traffic = Traffic { address: &server.address, stop: AtomicBool::new(false), counts: Default::default() };
    let third = Duration::from_millis(1000 * seconds / 3);
    let (middle, end) = std::thread::scope(|scope| {
        for client in clients() {
            let traffic = &traffic;
            scope.spawn(move || client(traffic));
        }
        scope.spawn(|| reload(&traffic, &folder));
        std::thread::sleep(third);
        let middle = largest(id, third);
        let end = largest(id, third);
        traffic.stop.store(true, Ordering::Relaxed);
        (middle, end)
    });
    let counts = traffic.counts.map(AtomicUsize::into_inner);
    eprintln!(
        "{seconds} s: {} requests answered, {} refused, {} broken off; resident memory {} KiB, then {} KiB; files {}, {}; \
         threads {}, {}",
        counts[0],
        counts[1],
        counts[2],
        middle[0] >> 10,
        end[0] >> 10,
        middle[1],
        end[1],
        middle[2],
        end[2]
    );
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    assert!(end[0] <= middle[0] + GROWTH, "resident memory: {} bytes, then {}", middle[0], end[0]);
    assert!(end[1] <= middle[1] + 32, "open files: {}, then {}", middle[1], end[1]);
    assert!(end[2] <= middle[2] + 2, "threads: {}, then {}", middle[2], end[2]);
    // Closed connections are closed here too.
    let started = Instant::now();
    while usage(id)[1] > 32 {
        assert!(started.elapsed() < Duration::from_secs(10), "{} files are open", usage(id)[1]);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(server.ask("GET", "/v2/health/ready", "").0, 200);
    server.signal("TERM");
    assert_eq!(server.end().0, Some(0));
    // Files that cannot be read are in the log, and nothing else that is wrong.
    let errors: Vec<String> =
        log.join().expect("the log ends").into_iter().filter(|line| line.contains("panic")).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// What each client does until the end.
fn clients() -> Vec<fn(&Traffic<'_>)> {
    vec![singles, singles, batches, halves, slow, stalled, giants, garbage, pages]
}

const ROW: &[u8] = br#"{"row": [4.5, 80]}"#;
const PAUSE: Duration = Duration::from_millis(2);

/// Asserts that a row has a label, and responsibilities of one of the two models.
fn check_row(row: &Value) {
    let responsibilities: Vec<f64> =
        row["responsibilities"].as_array().expect("an array").iter().map(|v| v.as_f64().expect("a number")).collect();
    assert!([2, 3].contains(&responsibilities.len()), "{row}");
    assert!((responsibilities.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{row}");
}

/// Single rows on one connection.
fn singles(traffic: &Traffic<'_>) {
    let mut stream = traffic.connect();
    traffic.repeat(PAUSE, |_| {
        let (status, body) = traffic.ask(&mut stream, "POST", "/score", ROW);
        assert_eq!(status, 200);
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        check_row(&answer["rows"][0]);
    });
}

/// Batches by the protocol and in plain JSON.
fn batches(traffic: &Traffic<'_>) {
    let rows: Vec<[f64; 2]> = (0..500).map(|i| [1.5 + 0.007 * f64::from(i), 45.0 + 0.1 * f64::from(i)]).collect();
    let plain = json!({"rows": rows}).to_string();
    let input = json!({"name": "rows", "shape": [rows.len(), 2], "datatype": "FP64", "data": rows});
    let infer = json!({"inputs": [input]}).to_string();
    traffic.repeat(10 * PAUSE, |i| {
        let mut stream = traffic.connect();
        let (path, body) = if i % 2 == 0 { ("/score", &plain) } else { ("/v2/models/m/infer", &infer) };
        let (status, body) = traffic.ask(&mut stream, "POST", path, body.as_bytes());
        assert_eq!(status, 200);
        let answer: Value = serde_json::from_slice(&body).expect("JSON");
        if i % 2 == 0 {
            answer["rows"].as_array().expect("rows").iter().for_each(check_row);
        }
    });
}

/// Requests that end after some of their bytes.
fn halves(traffic: &Traffic<'_>) {
    let head = format!("POST /score HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n\r\n", ROW.len());
    let whole = [head.as_bytes(), ROW].concat();
    traffic.repeat(PAUSE, |i| {
        let mut stream = traffic.connect();
        stream.get_mut().write_all(&whole[..1 + i % (whole.len() - 1)]).expect("the server reads");
        traffic.count(2);
    });
}

/// A client that takes its time, but less than the limit.
fn slow(traffic: &Traffic<'_>) {
    let head = format!("POST /score HTTP/1.1\r\nhost: soak\r\ncontent-length: {}\r\n\r\n", ROW.len());
    let whole = [head.as_bytes(), ROW].concat();
    traffic.repeat(PAUSE, |_| {
        let mut stream = traffic.connect();
        for piece in whole.chunks(10) {
            stream.get_mut().write_all(piece).expect("the server reads");
            std::thread::sleep(Duration::from_millis(20));
        }
        let (status, _) = answer(&mut stream).expect("an answer");
        // On a busy machine the time limit may pass.
        assert!([200, 408].contains(&status), "{status}");
        traffic.count(usize::from(status != 200));
    });
}

/// A client that never ends its request is answered 408, or its connection is closed.
fn stalled(traffic: &Traffic<'_>) {
    traffic.repeat(PAUSE, |_| {
        let mut stream = traffic.connect();
        stream
            .get_mut()
            .write_all(b"POST /score HTTP/1.1\r\nhost: soak\r\ncontent-length: 9\r\n\r\n{")
            .expect("it reads");
        let status = answer(&mut stream).map(|(status, _)| status);
        assert!(status.is_none_or(|status| status == 408), "{status:?}");
        traffic.count(1);
    });
}

/// Bodies of 1 GB, with their length stated and without.
fn giants(traffic: &Traffic<'_>) {
    const GIGABYTE: usize = 1 << 30;
    let piece = vec![b' '; 1 << 16];
    traffic.repeat(50 * PAUSE, |i| {
        let mut stream = traffic.connect();
        if i % 8 != 0 {
            let head = format!("POST /score HTTP/1.1\r\nhost: soak\r\ncontent-length: {GIGABYTE}\r\n\r\n");
            stream.get_mut().write_all(head.as_bytes()).expect("the server reads");
        } else {
            let head = b"POST /score HTTP/1.1\r\nhost: soak\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.get_mut().write_all(head).expect("the server reads");
            for _ in 0..GIGABYTE / piece.len() {
                let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
                // The server answers and closes before the end.
                if stream.get_mut().write_all(&chunk).is_err() {
                    break;
                }
            }
        }
        let status = answer(&mut stream).map(|(status, _)| status);
        // A closed connection may lose the answer, if bytes were still underway.
        assert!(status.is_none_or(|status| [413, 408].contains(&status)), "{status:?}");
        traffic.count(1);
    });
}

/// What is no request, and requests that make no sense.
fn garbage(traffic: &Traffic<'_>) {
    let bodies: [&[u8]; 8] = [
        b"",
        b"{",
        b"[1, 2]",
        b"{\"row\": [1e999, 0]}",
        b"{\"row\": [1, 2, 3]}",
        b"\xff\xfe\x00",
        b"{\"rows\": [[]]}",
        b"{\"row\": null}",
    ];
    traffic.repeat(PAUSE, |i| {
        let mut stream = traffic.connect();
        let (status, _) = traffic.ask(&mut stream, "POST", "/score", bodies[i % bodies.len()]);
        assert_eq!(status, 400);
        let mut stream = traffic.connect();
        let bytes: Vec<u8> =
            (0..200_usize).map(|j| (i.wrapping_mul(31) ^ j.wrapping_mul(17) ^ (j * j)) as u8).collect();
        stream.get_mut().write_all(&bytes).expect("the server reads");
        stream.get_mut().shutdown(std::net::Shutdown::Write).expect("an open connection");
        let status = answer(&mut stream).map(|(status, _)| status);
        assert!(status.is_none_or(|status| (400..500).contains(&status)), "{status:?}");
        traffic.count(2);
    });
}

/// What people and monitors read.
fn pages(traffic: &Traffic<'_>) {
    let paths = ["/", "/metrics", "/openapi.json", "/v2/models", "/models/m", "/v2/health/ready", "/nowhere"];
    let mut stream = traffic.connect();
    traffic.repeat(PAUSE, |i| {
        let path = paths[i % paths.len()];
        let (status, _) = traffic.ask(&mut stream, "GET", path, b"");
        assert_eq!(status, if path == "/nowhere" { 404 } else { 200 }, "{path}");
    });
}

/// The model file changes all the time, and now and then it cannot be read.
fn reload(traffic: &Traffic<'_>, folder: &Folder) {
    traffic.repeat(Duration::from_millis(150), |i| {
        let new = folder.path("new");
        match i % 5 {
            4 => fs::write(&new, "{\"weights\": ").expect("a file"),
            i => drop(fs::copy(folder.path(["2.json", "3.json"][i % 2]), &new).expect("a copy")),
        }
        fs::rename(&new, folder.path("m.json")).expect("a new model");
    });
}
