//! Requests that come together: one batch, the same bits, and a queue with an end.

use std::time::Duration;

use gmm_host::{CpuEngine, evaluate};
use gmm_model::{Dataset, Precision};
use ndarray::Array2;
use serde_json::{Value, json};

use crate::client::{INFER, Running, infer_body, model, request, serve, serve_with};

/// Different rows for different requests.
fn row(i: usize) -> [f64; 2] {
    [(i as f64).sin() * 5.0, (i as f64 * 1.7).cos() * 3.0]
}

/// Sends `n` requests, all of them before any answer is read, and returns the outputs in order.
fn at_once(server: &Running, n: usize) -> Vec<Value> {
    let mut clients: Vec<_> = (0..n).map(|_| server.connect()).collect();
    for (i, client) in clients.iter_mut().enumerate() {
        client.write(&request("POST", INFER, &[], infer_body(&[row(i)], &[]).as_bytes()));
    }
    clients.iter_mut().map(|client| client.answer().expect("an answer").ok()["outputs"].clone()).collect()
}

fn metric(server: &Running, name: &str) -> f64 {
    let text = server.get("/metrics").text();
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.unwrap_or_else(|| panic!("no {name} in\n{text}")).split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn a_batch_gives_each_row_the_bits_that_it_has_alone() {
    let (server, alone) =
        (serve_with(&model(), |options, _| options.batch_delay = Duration::from_millis(200)), serve());
    let together = at_once(&server, 32);
    for (i, found) in together.iter().enumerate() {
        assert_eq!(*found, alone.post(INFER, &infer_body(&[row(i)], &[])).ok()["outputs"], "row {i}");
    }
    let batches = metric(&server, "gmm_batch_rows_count");
    assert!(batches < 32.0, "{batches} batches of 32 requests within a delay of 0.2 s");
    assert_eq!(metric(&server, "gmm_rows_total"), 32.0);
}

#[test]
fn requests_for_different_outputs_share_a_batch() {
    let server = serve_with(&model(), |options, _| options.batch_delay = Duration::from_millis(200));
    let wanted = [&["label"][..], &["log_density"], &["responsibilities", "label"], &["conditional_mean"]];
    let mut clients: Vec<_> = wanted.iter().map(|_| server.connect()).collect();
    for (client, outputs) in clients.iter_mut().zip(wanted) {
        client.write(&request("POST", INFER, &[], infer_body(&[[1.0, 2.0]], outputs).as_bytes()));
    }
    let all = serve()
        .post(INFER, &infer_body(&[[1.0, 2.0]], &["label", "log_density", "responsibilities", "conditional_mean"]))
        .ok();
    for (client, outputs) in clients.iter_mut().zip(wanted) {
        let answer = client.answer().expect("an answer").ok();
        let found = answer["outputs"].as_array().unwrap();
        assert_eq!(found.iter().map(|o| o["name"].as_str().unwrap()).collect::<Vec<_>>(), outputs);
        found.iter().for_each(|output| assert!(all["outputs"].as_array().unwrap().contains(output), "{output}"));
    }
}

#[test]
fn a_full_queue_is_answered_429_and_empties() {
    let server = serve_with(&model(), |options, _| {
        options.batch_delay = Duration::from_millis(500);
        options.queue_rows = 3;
    });
    let mut clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
    clients.iter_mut().for_each(|client| {
        client.write(&request("POST", INFER, &[], infer_body(&[[0.0, 0.0]], &[]).as_bytes()));
    });
    let answers: Vec<_> = clients.iter_mut().map(|client| client.answer().expect("an answer")).collect();
    let refused: Vec<_> = answers.iter().filter(|answer| answer.status == 429).collect();
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count() + refused.len(), 8);
    assert!((1..=5).contains(&refused.len()), "{} refused", refused.len());
    refused[0].refused(429, &["rows wait already", "--queue-rows"]);
    assert_eq!(refused[0].header("retry-after"), Some("1"));
    server.post(INFER, &infer_body(&[[0.0, 0.0]], &[])).ok();
}

#[test]
fn a_request_larger_than_a_batch_or_the_queue_is_served() {
    let server = serve_with(&model(), |options, _| (options.batch_rows, options.queue_rows) = (2, 3));
    let rows: Vec<[f64; 2]> = (0..10).map(row).collect();
    let found = server.post(INFER, &infer_body(&rows, &[])).ok();
    assert_eq!(found["outputs"], serve().post(INFER, &infer_body(&rows, &[])).ok()["outputs"]);
}

/// Bodies of 800 KB, which come in pieces, beside single rows that do not wait for them.
#[test]
fn requests_of_many_rows_are_batches_of_their_own() {
    const N: usize = 50_000;
    let server = serve_with(&model(), |options, _| options.queue_rows = 10 * N);
    let many: Vec<[f64; 2]> = (0..N).map(row).collect();
    let head = json!({
        "inputs": [{"name": "rows", "shape": [N, 2], "datatype": "FP64", "parameters": {"binary_data_size": N * 16}}],
        "outputs": [{"name": "log_density", "parameters": {"binary_data": true}}],
    });
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    // Heads of other lengths put the numbers at other places of the body.
    for (i, client) in clients.iter_mut().enumerate() {
        let head = format!("{head}{}", " ".repeat(i));
        let body: Vec<u8> = head.bytes().chain(many.iter().flatten().flat_map(|v| v.to_le_bytes())).collect();
        let length = head.len().to_string();
        client.write(&request("POST", INFER, &[("inference-header-content-length", &length)], &body));
    }
    let single = at_once(&server, 3);
    let alone = serve();
    for (i, found) in single.iter().enumerate() {
        assert_eq!(*found, alone.post(INFER, &infer_body(&[row(i)], &[])).ok()["outputs"], "row {i}");
    }
    let engine = CpuEngine::new(1).unwrap();
    let data = Dataset::new(Array2::from_shape_fn((N, 2), |(i, j)| many[i][j])).unwrap();
    let expected = evaluate::log_densities(&engine, &model().mixture, &data, Precision::F64).unwrap().0;
    for client in &mut clients {
        let answer = client.answer().expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        let length: usize = answer.header("inference-header-content-length").unwrap().parse().unwrap();
        let found: Vec<f64> =
            answer.body[length..].chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
        assert_eq!(found, expected.to_vec());
    }
    assert_eq!(metric(&server, "gmm_rows_total"), (4 * N + 3) as f64);
    assert!(metric(&server, "gmm_batch_rows_count") >= 5.0);
}

#[test]
fn an_incomplete_row_does_not_change_those_beside_it() {
    let server = serve_with(&model(), |options, _| options.batch_delay = Duration::from_millis(200));
    let (mut complete, mut incomplete) = (server.connect(), server.connect());
    let body = infer_body(&[[1.0, 2.0]], &[]);
    complete.write(&request("POST", INFER, &[], body.as_bytes()));
    incomplete.write(&request("POST", "/score", &[], br#"{"row": [1.0, null], "missing": "em"}"#));
    assert_eq!(complete.answer().unwrap().ok()["outputs"], serve().post(INFER, &body).ok()["outputs"]);
    assert_eq!(
        incomplete.answer().unwrap().ok(),
        serve().post("/score", r#"{"row": [1.0, null], "missing": "em"}"#).ok()
    );
}
