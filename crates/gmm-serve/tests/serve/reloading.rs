//! Changed files take the place of old ones, without a lost or a wrong request; broken ones do not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gmm_data::ModelFile;
use gmm_model::Mixture;
use ndarray::array;

use crate::client::{INFER, Running, infer_body, model, output, serve_with};

fn quick() -> Running {
    serve_with(&model(), |options, _| options.reload = Duration::from_millis(10))
}

/// The model moved by `by` in both columns.
fn moved(by: f64) -> ModelFile {
    let ModelFile { mixture, feature_names, .. } = model();
    let means = &mixture.means() + by;
    let mixture = Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap();
    ModelFile { feature_names, ..mixture.into() }
}

/// Waits until `is_so`, which must happen soon.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what} does not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn density(server: &Running) -> f64 {
    output(&server.post(INFER, &infer_body(&[[0.0, 0.0]], &["log_density"])).ok(), "log_density")[0]
}

#[test]
fn a_changed_file_is_served_under_load_without_a_lost_or_wrong_answer() {
    let server = quick();
    let of = |by: f64| {
        let other = serve_with(&moved(by), |_, _| {});
        density(&other).to_bits()
    };
    let valid = [of(0.0), of(1.0), of(2.0), of(3.0)];
    let is_done = AtomicBool::new(false);
    let answers = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let (mut client, mut count) = (server.connect(), 0);
                    let body = infer_body(&[[0.0, 0.0]], &["log_density"]);
                    while !is_done.load(Ordering::Relaxed) {
                        let answer = client.send("POST", INFER, &[], body.as_bytes()).ok();
                        let found = output(&answer, "log_density")[0].to_bits();
                        assert!(valid.contains(&found), "{}", f64::from_bits(found));
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        // Also if the reload does not happen: the clients would go on for ever.
        let done = SetOnDrop(&is_done);
        for round in 1..20 {
            gmm_data::write_model(server.path("two.json"), &moved(f64::from(round % 4))).unwrap();
            let expected = valid[round as usize % 4];
            wait_until("the reload", || density(&server).to_bits() == expected);
        }
        drop(done);
        clients.into_iter().map(|client| client.join().unwrap()).sum::<usize>()
    });
    assert!(answers > 20, "{answers} answers");
}

/// Sets a flag at its end, also if a test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(unix)]
#[test]
fn a_file_renamed_within_a_tick_of_the_clock_is_served() {
    let server = quick();
    let before = density(&server);
    let (old, new) = (server.path("two.json"), server.path("new.json"));
    gmm_data::write_model(&old, &moved(1.0)).unwrap();
    wait_until("the first reload", || density(&server) != before);
    let first = density(&server);
    gmm_data::write_model(&new, &moved(2.0)).unwrap();
    let meta = std::fs::metadata(&old).unwrap();
    assert_eq!(meta.len(), std::fs::metadata(&new).unwrap().len());
    std::fs::File::options().write(true).open(&new).unwrap().set_modified(meta.modified().unwrap()).unwrap();
    std::fs::rename(&new, &old).unwrap();
    wait_until("the second reload", || density(&server) != first);
}

#[test]
fn a_broken_file_keeps_the_old_model_and_is_told() {
    let server = quick();
    let before = density(&server);
    std::fs::write(server.path("two.json"), "{\"format\": \"gmm-mod").unwrap();
    wait_until("the report", || server.get("/v2/health/ready").json().get("stale").is_some());
    let ready = server.get("/v2/health/ready");
    assert_eq!(ready.status, 200, "the old model is served");
    assert!(ready.json()["stale"][0]["error"].as_str().unwrap().contains("two.json"));
    assert_eq!(density(&server), before);
    let text = server.get("/metrics").text();
    assert!(
        text.contains("gmm_stale{model=\"two:1\"} 1\n")
            && text.contains("gmm_reload_failures_total{model=\"two:1\"} 1\n")
    );
    gmm_data::write_model(server.path("two.json"), &moved(1.0)).unwrap();
    wait_until("the recovery", || density(&server) != before);
    assert_eq!(server.get("/v2/health/ready").json().get("stale"), None);
    std::fs::remove_file(server.path("two.json")).unwrap();
    wait_until("the report", || server.get("/v2/health/ready").json().get("stale").is_some());
    density(&server);
}

#[test]
fn a_new_shape_is_served_and_told() {
    let server = quick();
    let covariances = gmm_model::Covariances::Spherical(array![1.0]);
    let one = Mixture::new(array![1.0], array![[0.0, 0.0, 0.0]], covariances).unwrap();
    gmm_data::write_model(server.path("two.json"), &one.into()).unwrap();
    wait_until("the reload", || server.get("/v2/models/two").ok()["inputs"][0]["shape"][1] == 3);
    server.post(INFER, &infer_body(&[[0.0, 0.0]], &[])).refused(400, &["[n, 3]"]);
}
