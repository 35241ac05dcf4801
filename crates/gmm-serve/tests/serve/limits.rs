//! Limits: too much, too slow, too many, and what is no HTTP.

use std::io::Write;
use std::time::{Duration, Instant};

use crate::client::{INFER, infer_body, model, request, serve, serve_with};

#[test]
fn a_body_that_states_too_many_bytes_is_refused_before_it_is_sent() {
    let server = serve_with(&model(), |options, _| options.limits.body = 1000);
    let mut client = server.connect();
    // A gigabyte is announced, and none of it is sent.
    client.write(b"POST /v2/models/two/infer HTTP/1.1\r\nhost: x\r\ncontent-length: 1073741824\r\n\r\n");
    client.answer().expect("an answer").refused(413, &["1000 bytes", "--max-body"]);
    server.post(INFER, &infer_body(&[[0.0, 0.0]], &[])).ok();
}

#[test]
fn a_body_of_unknown_length_is_refused_once_it_is_too_large() {
    let server = serve_with(&model(), |options, _| options.limits.body = 1000);
    let mut client = server.connect();
    client.write(b"POST /score HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    for _ in 0..3 {
        client.write(format!("190\r\n{}\r\n", " ".repeat(400)).as_bytes());
    }
    client.answer().expect("an answer").refused(413, &["1000 bytes"]);
}

#[test]
fn a_body_in_pieces_is_put_together() {
    let server = serve();
    let body = infer_body(&[[0.25, 0.5]], &["log_density"]);
    let mut client = server.connect();
    client.write(b"POST /v2/models/two/infer HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    for piece in body.as_bytes().chunks(7) {
        client.write(format!("{:x}\r\n", piece.len()).as_bytes());
        client.write(piece);
        client.write(b"\r\n");
    }
    client.write(b"0\r\n\r\n");
    let answer = client.answer().expect("an answer").ok();
    assert_eq!(answer["outputs"], server.post(INFER, &body).ok()["outputs"]);
}

#[test]
fn too_many_rows_are_refused() {
    let server = serve_with(&model(), |options, _| options.limits.rows = 2);
    let rows = [[0.0, 0.0]; 3];
    server.post(INFER, &infer_body(&rows, &[])).refused(413, &["3 rows, and at most 2"]);
    server.post("/score", &serde_json::json!({"rows": rows}).to_string()).refused(413, &["3 rows, and at most 2"]);
    let column = serde_json::json!({"name": "a", "shape": [3], "datatype": "FP64", "data": [0.0, 0.0, 0.0]});
    let by_name = serde_json::json!({"inputs": [column], "parameters": {"missing": "em"}});
    server.post(INFER, &by_name.to_string()).refused(413, &["3 rows, and at most 2"]);
    server.post(INFER, &infer_body(&rows[..2], &[])).ok();
}

#[test]
fn a_body_that_does_not_come_is_answered_in_time() {
    let server = serve_with(&model(), |options, _| options.limits.time = Duration::from_millis(300));
    let mut client = server.connect();
    client.write(b"POST /score HTTP/1.1\r\nhost: x\r\ncontent-length: 30\r\n\r\n{\"row\":");
    let started = Instant::now();
    let answer = client.answer().expect("an answer");
    answer.refused(408, &["not complete within 0.3 s"]);
    assert_eq!(answer.header("connection"), Some("close"));
    assert!(started.elapsed() < Duration::from_secs(20));
}

#[test]
fn a_head_that_does_not_come_closes_the_connection() {
    let server = serve_with(&model(), |options, _| options.limits.time = Duration::from_millis(300));
    let mut client = server.connect();
    client.write(b"POST /score HTTP/1.1\r\nhost:");
    assert!(client.answer().is_none_or(|answer| answer.status == 408));
}

#[test]
fn half_a_request_harms_nobody_else() {
    let server = serve();
    let whole = request("POST", INFER, &[], infer_body(&[[0.0, 0.0]], &[]).as_bytes());
    for length in [1, 10, whole.len() / 2, whole.len() - 1] {
        let mut client = server.connect();
        client.write(&whole[..length]);
        drop(client);
    }
    server.post(INFER, &infer_body(&[[0.0, 0.0]], &[])).ok();
}

#[test]
fn slow_clients_do_not_slow_others() {
    let server = serve();
    let whole = request("POST", INFER, &[], infer_body(&[[0.0, 0.0]], &[]).as_bytes());
    let mut slow: Vec<_> = (0..50).map(|_| server.connect()).collect();
    slow.iter_mut().for_each(|client| client.write(&whole[..whole.len() - 10]));
    for _ in 0..100 {
        server.post(INFER, &infer_body(&[[0.0, 0.0]], &[])).ok();
    }
    for client in &mut slow {
        client.write(&whole[whole.len() - 10..]);
        client.answer().expect("an answer").ok();
    }
}

#[test]
fn connections_beyond_the_limit_are_closed() {
    let server = serve_with(&model(), |options, _| options.limits.connections = 2);
    let mut open: Vec<_> = (0..2).map(|_| server.connect()).collect();
    open.iter_mut().for_each(|client| assert_eq!(client.send("GET", "/v2", &[], b"").status, 200));
    let mut further = server.connect();
    // The server may have closed the connection before the request is written.
    let _closed = further.stream.get_mut().write_all(&request("GET", "/v2", &[], b""));
    assert!(further.answer().is_none());
    assert_eq!(open[0].send("GET", "/v2", &[], b"").status, 200);
}

#[test]
fn what_is_no_http_is_answered_400_or_closed() {
    let server = serve();
    for text in
        ["hello\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\0\0\0\0\r\n\r\n", "GET /v2 HTTP/1.1\r\nbad header\r\n\r\n"]
    {
        let mut client = server.connect();
        client.write(text.as_bytes());
        assert!(client.answer().is_none_or(|answer| answer.status == 400 || answer.status == 505), "{text:?}");
    }
    assert_eq!(server.get("/v2").status, 200);
}

#[test]
fn the_stated_length_of_json_is_checked() {
    let server = serve();
    let body = infer_body(&[[0.0, 0.0]], &[]);
    let send = |length: &str| {
        server.connect().send("POST", INFER, &[("inference-header-content-length", length)], body.as_bytes())
    };
    send(&body.len().to_string()).ok();
    send("100000").refused(400, &["Inference-Header-Content-Length is 100000"]);
    send("-1").refused(400, &["not a number"]);
    send("10").refused(400, &["not valid JSON"]);
    let more = format!("{body}xy");
    let answer = server.connect().send(
        "POST",
        INFER,
        &[("inference-header-content-length", &body.len().to_string())],
        more.as_bytes(),
    );
    answer.refused(400, &["2 bytes follow the last binary input"]);
}

#[test]
fn a_client_that_does_not_read_its_answer_is_left() {
    const ROWS: usize = 400_000;
    let server = serve_with(&model(), |options, _| options.limits.time = Duration::from_secs(4));
    let input = serde_json::json!({
        "name": "rows", "shape": [ROWS, 2], "datatype": "BOOL", "parameters": {"binary_data_size": 2 * ROWS},
    });
    let outputs = ["responsibilities", "conditional_mean", "log_density"].map(|name| serde_json::json!({"name": name}));
    let head = serde_json::json!({
        "inputs": [input], "outputs": outputs, "parameters": {"binary_data_output": true},
    });
    let head = head.to_string();
    // The answer, 16 MB, is more than the buffers of the system hold.
    let body = [head.as_bytes(), &vec![1; 2 * ROWS]].concat();
    let mut client = server.connect();
    client.write(&request("POST", INFER, &[("inference-header-content-length", &head.len().to_string())], &body));
    let open = || {
        let text = server.get("/metrics").text();
        let line = text.lines().find_map(|line| line.strip_prefix("gmm_connections "));
        line.expect("a number").parse::<usize>().expect("a number")
    };
    let started = Instant::now();
    // The connection that asks is open too.
    while open() > 1 {
        assert!(started.elapsed() < Duration::from_secs(60), "the connection stays open");
        std::thread::sleep(Duration::from_millis(50));
    }
    // If the whole answer is there, the server did not leave the client but was done.
    assert!(client.answer().is_none(), "the whole answer arrived");
}
