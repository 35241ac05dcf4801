//! A server that stops answers every request that it has.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::client::{INFER, infer_body, model, request, serve_with};

#[test]
fn a_request_in_flight_is_answered_after_the_stop() {
    let server = serve_with(&model(), |options, _| options.batch_delay = Duration::from_millis(400));
    let mut client = server.connect();
    client.write(&request("POST", INFER, &[], infer_body(&[[0.0, 0.0]], &[]).as_bytes()));
    // The request is in its batch by now.
    std::thread::sleep(Duration::from_millis(100));
    let stopper = server.stopper.clone();
    stopper.stop();
    client.answer().expect("an answer").ok();
    server.stop();
}

#[test]
fn busy_clients_lose_nothing_when_the_server_stops() {
    let server = serve_with(&model(), |options, _| options.drain = Duration::from_secs(2));
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let body = infer_body(&[[0.0, 0.0]], &[]);
                    let mut client = server.connect();
                    loop {
                        let answer = client.send("POST", INFER, &[], body.as_bytes());
                        answer.ok();
                        answered.fetch_add(1, Ordering::Relaxed);
                        // As any client does, this one sends nothing on a connection that is to be closed.
                        if answer.header("connection") == Some("close") {
                            return;
                        }
                    }
                })
            })
            .collect();
        while answered.load(Ordering::Relaxed) < 200 {
            std::thread::sleep(Duration::from_millis(1));
        }
        server.stopper.stop();
        clients.into_iter().for_each(|client| client.join().expect("every request is answered"));
    });
    server.stop();
}

#[test]
fn a_stopping_server_is_not_ready_and_then_refuses_connections() {
    let server = serve_with(&model(), |options, _| options.drain = Duration::from_millis(800));
    let mut client = server.connect();
    assert_eq!(client.send("GET", "/v2/health/ready", &[], b"").status, 200);
    server.stopper.stop();
    std::thread::sleep(Duration::from_millis(200));
    let answer = client.send("GET", "/v2/health/ready", &[], b"");
    assert_eq!((answer.status, answer.json()["ready"].as_bool()), (503, Some(false)));
    let address = server.address;
    server.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn an_idle_connection_does_not_hold_the_server_up() {
    let server = serve_with(&model(), |options, _| options.grace = Duration::from_secs(1));
    let mut idle = server.connect();
    assert_eq!(idle.send("GET", "/v2", &[], b"").status, 200);
    let mut half = server.connect();
    half.stream.get_mut().write_all(b"POST /score HT").unwrap();
    server.stop();
    assert!(idle.answer().is_none());
}
