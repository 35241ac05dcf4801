//! Health, metadata, errors and the other addresses of the protocol.

use serde_json::json;

use crate::client::{INFER, infer_body, model, serve, serve_with};

#[test]
fn health_and_readiness_are_told() {
    let server = serve();
    assert_eq!(server.get("/v2/health/live").ok(), json!({"live": true}));
    assert_eq!(server.get("/v2/health/ready").ok(), json!({"ready": true}));
    assert_eq!(server.get("/v2/models/two/ready").ok()["ready"], true);
    assert_eq!(server.get("/v2/models/two/versions/1/ready").ok()["ready"], true);
}

#[test]
fn metadata_name_the_tensors_with_their_types_and_shapes() {
    let server = serve();
    let meta = server.get("/v2").ok();
    assert_eq!((&meta["name"], &meta["extensions"]), (&json!("gmm"), &json!(["binary_tensor_data"])));
    let meta = server.get("/v2/models/two").ok();
    assert_eq!(meta["versions"], json!(["1"]));
    assert_eq!(meta["inputs"], json!([{"name": "rows", "datatype": "FP64", "shape": [-1, 2]}]));
    let outputs: Vec<_> = meta["outputs"].as_array().unwrap().iter().map(|o| o["name"].as_str().unwrap()).collect();
    assert_eq!(outputs, ["label", "responsibilities", "log_density", "conditional_mean"]);
    assert_eq!(server.get("/v2/models/two/versions/1").ok(), meta);
}

#[test]
fn a_request_without_a_version_gets_the_highest() {
    let server = serve_with(&model(), |options, folder| {
        let other = folder.path().join("other.json");
        let one = gmm_model::Mixture::new(
            ndarray::array![1.0],
            ndarray::array![[7.0, 8.0]],
            gmm_model::Covariances::Spherical(ndarray::array![1.0]),
        );
        gmm_data::write_model(&other, &one.unwrap().into()).unwrap();
        options.models.push(format!("two:10={}", other.display()).parse().unwrap());
    });
    let body = infer_body(&[[7.0, 8.0]], &["responsibilities"]);
    let shape = |path: &str| server.post(path, &body).ok()["outputs"][0]["shape"].clone();
    assert_eq!(shape(INFER), json!([1, 1]));
    assert_eq!(shape("/v2/models/two/versions/10/infer"), json!([1, 1]));
    assert_eq!(shape("/v2/models/two/versions/1/infer"), json!([1, 2]));
    assert_eq!(server.post(INFER, &body).ok()["model_version"], "10");
    server.post("/v2/models/two/versions/3/infer", &body).refused(404, &["no version '3'", "1, 10"]);
}

#[test]
fn unknown_names_addresses_and_methods_are_refused_with_what_there_is() {
    let server = serve();
    server.get("/v2/models/three").refused(404, &["no model 'three'", "two"]);
    server.post("/v2/models/three/infer", "{}").refused(404, &["no model 'three'"]);
    server.get("/v3").refused(404, &["/openapi.json"]);
    server.get(INFER).refused(405, &["method"]);
}

#[test]
fn the_trace_of_the_caller_is_in_the_answer() {
    let server = serve();
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let given = format!("00-{trace}-00f067aa0ba902b7-01");
    let answer = server.connect().send("GET", "/v2", &[("traceparent", &given)], b"");
    let found = answer.header("traceparent").expect("a trace");
    assert!(found.starts_with(&format!("00-{trace}-")) && found.ends_with("-01") && found != given, "{found}");
    assert!(server.get("/v2").header("traceparent").is_some_and(|new| !new.contains(trace)));
}

#[test]
fn requests_and_rows_are_counted_for_prometheus() {
    let server = serve();
    server.post(INFER, &infer_body(&[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], &[])).ok();
    server.post(INFER, "{").refused(400, &["JSON"]);
    let text = server.get("/metrics").text();
    for line in ["gmm_rows_total 3", "gmm_requests_total{status=\"4xx\"} 1", "gmm_stale{model=\"two:1\"} 0", "# EOF"] {
        assert!(text.lines().any(|own| own == line), "'{line}' is not in\n{text}");
    }
}

#[test]
fn a_token_is_needed_for_all_but_health_and_the_page() {
    let server = serve_with(&model(), |options, _| options.token = Some("secret".to_owned()));
    let get = |path: &str, token: &str| server.connect().send("GET", path, &[("authorization", token)], b"").status;
    assert_eq!(server.get("/v2").status, 401);
    assert_eq!(server.get("/v2").header("www-authenticate"), Some("Bearer"));
    assert_eq!(get("/v2", "Bearer secret"), 200);
    assert_eq!(get("/v2", "bearer secret"), 200);
    for wrong in ["Bearer secret1", "Bearer secre", "Bearer ", "Basic secret", "secret"] {
        assert_eq!(get("/v2", wrong), 401, "{wrong}");
    }
    assert_eq!(server.get("/metrics").status, 401);
    assert_eq!(server.get("/v2/health/ready").status, 200);
    assert_eq!(server.get("/").status, 200);
}

#[test]
fn the_page_loads_nothing_from_elsewhere() {
    let server = serve();
    let page = server.get("/");
    let text = page.text();
    assert!(text.starts_with("<!doctype html>") && text.contains("lang=\"en\""));
    assert!(!text.contains("http://") && !text.contains("https://"), "an address of another host");
    assert!(page.header("content-security-policy").unwrap().contains("default-src 'none'"));
}

#[test]
fn the_openapi_document_has_every_address_and_every_address_answers() {
    let server = serve();
    let document = server.get("/openapi.json").ok();
    let paths = document["paths"].as_object().expect("paths");
    assert!(paths.len() >= 15, "{}", paths.len());
    for (path, methods) in paths {
        let path = path.replace("{name}", "two").replace("{version}", "1");
        for method in methods.as_object().unwrap().keys() {
            let status = server.connect().send(&method.to_uppercase(), &path, &[], b"").status;
            assert!(![404, 405, 500].contains(&status), "{method} {path}: {status}");
        }
    }
}
