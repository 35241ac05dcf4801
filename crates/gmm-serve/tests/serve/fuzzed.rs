//! Random changes of valid requests: every answer is a result or a clear refusal, and the server goes on.

use serde_json::json;

use crate::client::{Answer, INFER, Running, infer_body, serve};

/// Pseudo-random numbers (Knuth's MMIX constants), so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n
    }
}

/// Bytes that JSON gives a meaning to, and some that it does not.
const BYTES: &[u8] = b"{}[]\",:0123456789.eE+-ntf \\/\x00\xff\x80u";

/// Changes, inserts, deletes and repeats some bytes.
fn mutate(body: &[u8], numbers: &mut Numbers) -> Vec<u8> {
    let mut out = body.to_vec();
    for _ in 0..1 + numbers.below(4) {
        let at = numbers.below(out.len().max(1));
        match numbers.below(5) {
            0 if !out.is_empty() => out[at] = BYTES[numbers.below(BYTES.len())],
            1 => out.insert(at, BYTES[numbers.below(BYTES.len())]),
            2 if !out.is_empty() => drop(out.remove(at)),
            3 => out.truncate(at),
            _ => {
                let end = (at + 1 + numbers.below(12)).min(out.len());
                let piece = out[at.min(end)..end].to_vec();
                out.splice(at..at, piece);
            }
        }
    }
    out
}

#[track_caller]
fn check(answer: &Answer, body: &[u8]) {
    let shown = String::from_utf8_lossy(body);
    assert!([200, 400, 404, 413].contains(&answer.status), "{}: {}: {shown}", answer.status, answer.text());
    match answer.status {
        200 if answer.header("inference-header-content-length").is_none() => drop(answer.json()),
        200 => {}
        _ => assert!(answer.json()["error"].as_str().is_some_and(|error| !error.is_empty()), "{shown}"),
    }
}

fn mutations(server: &Running, path: &str, headers: &[(&str, &str)], body: &[u8], seed: u64) {
    let (mut numbers, mut client) = (Numbers(seed), server.connect());
    let mut accepted = 0;
    for _ in 0..1500 {
        let body = mutate(body, &mut numbers);
        let answer = client.send("POST", path, headers, &body);
        check(&answer, &body);
        accepted += usize::from(answer.status == 200);
        if answer.header("connection") == Some("close") {
            client = server.connect();
        }
    }
    assert!((1..1500).contains(&accepted), "{accepted} accepted");
}

#[test]
fn changed_json_is_answered_or_refused() {
    let server = serve();
    mutations(&server, INFER, &[], infer_body(&[[0.1, -2.5e-3], [4.0, 1.0]], &["label", "log_density"]).as_bytes(), 1);
    mutations(
        &server,
        "/score",
        &[],
        br#"{"model": "two", "missing": "em", "rows": [[0.1, -2.5e-3], {"a": 4.0, "b": null}]}"#,
        2,
    );
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[test]
fn changed_binary_requests_are_answered_or_refused() {
    let server = serve();
    let rows: Vec<u8> = [0.1f64, -2.5e-3, 4.0, 1.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let input = json!({"name": "rows", "shape": [2, 2], "datatype": "FP64", "parameters": {"binary_data_size": 32}});
    let head = json!({"inputs": [input], "parameters": {"binary_data_output": true}}).to_string();
    let body = [head.as_bytes(), &rows].concat();
    for (seed, length) in [head.len(), head.len() - 1, head.len() + 1, 0, body.len()].into_iter().enumerate() {
        let length = length.to_string();
        let headers = [("inference-header-content-length", length.as_str())];
        let (mut numbers, mut client) = (Numbers(10 + seed as u64), server.connect());
        for _ in 0..500 {
            let body = mutate(&body, &mut numbers);
            check(&client.send("POST", INFER, &headers, &body), &body);
        }
    }
    assert_eq!(server.get("/v2/health/ready").status, 200);
}

#[test]
fn deep_nesting_is_refused() {
    let server = serve();
    let deep = "[".repeat(100_000);
    let body = format!(r#"{{"inputs": [{{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": {deep}"#);
    server.post(INFER, &body).refused(400, &["recursion"]);
    server.post("/score", &format!("{{\"row\": {deep}")).refused(400, &["recursion"]);
}
