//! Shared memory: tensors that do not pass through the socket.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::client::{INFER, Running, infer_body, model, output, serve, serve_with};

/// A shared memory object of this test, removed at its end.
struct Object {
    key: String,
    path: PathBuf,
    file: File,
}

impl Object {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let key = format!("/gmm-test-{}-{name}", std::process::id());
        let path = PathBuf::from(format!("/dev/shm{key}"));
        let mut file = File::options().create(true).truncate(true).read(true).write(true).open(&path).unwrap();
        file.write_all(bytes).unwrap();
        Self { key, path, file }
    }

    fn bytes(&mut self, at: u64, count: usize) -> Vec<u8> {
        let mut found = vec![0; count];
        self.file.seek(SeekFrom::Start(at)).unwrap();
        self.file.read_exact(&mut found).unwrap();
        found
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let _gone = std::fs::remove_file(&self.path);
    }
}

fn serve_shared() -> Running {
    serve_with(&model(), |options, _| options.shared_memory = true)
}

fn register(server: &Running, name: &str, body: Value) -> crate::client::Answer {
    server.post(&format!("/v2/systemsharedmemory/region/{name}/register"), &body.to_string())
}

const ROWS: [[f64; 2]; 3] = [[0.1, -0.2], [4.2, 1.1], [2.0, 0.5]];

fn doubles() -> Vec<u8> {
    ROWS.iter().flatten().flat_map(|v| v.to_le_bytes()).collect()
}

fn placed(name: &str, datatype: &str, offset: usize, size: usize) -> Value {
    let at = json!({"shared_memory_region": "in", "shared_memory_offset": offset, "shared_memory_byte_size": size});
    json!({"name": name, "shape": [3, 2], "datatype": datatype, "parameters": at})
}

#[test]
fn rows_and_results_stay_in_shared_memory() {
    let server = serve_shared();
    let expected = server.post(INFER, &infer_body(&ROWS, &["log_density", "label"])).ok();
    let singles: Vec<u8> = ROWS.iter().flatten().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    // Rows in f64 from byte 8 on, and in f32 behind them.
    let rows = Object::new("in", &[&[0; 8], &doubles()[..], &singles].concat());
    let mut results = Object::new("out", &[0; 4096]);
    register(&server, "in", json!({"key": rows.key, "byte_size": 8 + 48 + 24})).ok();
    register(&server, "out", json!({"key": results.key, "offset": 16, "byte_size": 64})).ok();
    let log_density = |size: usize| {
        let at = json!({"shared_memory_region": "out", "shared_memory_offset": 8, "shared_memory_byte_size": size});
        json!({"name": "log_density", "parameters": at})
    };
    let ask = |input: Value, size: usize| {
        let body = json!({"inputs": [input], "outputs": [log_density(size), {"name": "label"}]});
        server.post(INFER, &body.to_string())
    };
    let answer = ask(placed("rows", "FP64", 8, 48), 24).ok();
    assert_eq!(output(&answer, "label"), output(&expected, "label"));
    let placed_output = &answer["outputs"][0];
    assert_eq!((&placed_output["shape"], placed_output.get("data")), (&json!([3]), None));
    let at = json!({"shared_memory_region": "out", "shared_memory_byte_size": 24, "shared_memory_offset": 8});
    assert_eq!(placed_output["parameters"], at);
    let found = results.bytes(16 + 8, 24);
    let found: Vec<f64> = found.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(found, output(&expected, "log_density"));
    // Not aligned, and of the other type.
    ask(placed("rows", "FP32", 56, 24), 24).ok();
    let close = results.bytes(16 + 8, 8);
    let close = f64::from_le_bytes(close.try_into().unwrap());
    assert!((close - found[0]).abs() < 1e-6, "{close} {}", found[0]);
    ask(placed("rows", "FP64", 8, 48), 23).refused(400, &["23 bytes of region 'out'", "too few for an output of 24"]);
    ask(placed("rows", "FP64", 8, 40), 24).refused(400, &["shared_memory_byte_size is 40", "needs 48 bytes"]);
    ask(placed("rows", "FP64", 40, 48), 24).refused(400, &["region 'in' has 80 bytes: 48 from byte 40"]);
    ask(placed("rows", "FP64", usize::MAX, 48), 24).refused(400, &["region 'in' has 80 bytes"]);
}

#[test]
fn regions_are_listed_and_forgotten() {
    let server = serve_shared();
    let object = Object::new("status", &[0; 64]);
    assert_eq!(server.get("/v2").ok()["extensions"], json!(["binary_tensor_data", "system_shared_memory"]));
    register(&server, "a", json!({"key": object.key, "byte_size": 64})).ok();
    register(&server, "b", json!({"key": object.key, "offset": 8, "byte_size": 8})).ok();
    let shown = |name: &str, offset: u64, size: u64| json!({"name": name, "key": object.key, "offset": offset, "byte_size": size});
    let status = "/v2/systemsharedmemory/status";
    assert_eq!(server.get(status).ok(), json!([shown("a", 0, 64), shown("b", 8, 8)]));
    assert_eq!(server.get("/v2/systemsharedmemory/region/b/status").ok(), json!([shown("b", 8, 8)]));
    register(&server, "a", json!({"key": object.key, "byte_size": 64})).refused(400, &["'a'", "registered already"]);
    server.post("/v2/systemsharedmemory/region/a/unregister", "").ok();
    server.post("/v2/systemsharedmemory/region/a/unregister", "").ok();
    server.get("/v2/systemsharedmemory/region/a/status").refused(400, &["no region 'a'"]);
    server.post("/v2/systemsharedmemory/unregister", "").ok();
    assert_eq!(server.get(status).ok(), json!([]));
}

#[test]
fn only_shared_memory_of_this_user_is_mapped_and_only_on_request() {
    let off = serve();
    assert_eq!(off.get("/v2").ok()["extensions"], json!(["binary_tensor_data"]));
    let body = json!({"key": "/x", "byte_size": 8});
    register(&off, "x", body.clone()).refused(400, &["start it with --shared-memory"]);
    let input = placed("rows", "FP64", 0, 48);
    off.post(INFER, &json!({"inputs": [input]}).to_string()).refused(400, &["start it with --shared-memory"]);

    let server = serve_shared();
    let object = Object::new("small", &[0; 64]);
    register(&server, "x", body).refused(400, &["region 'x' of the shared memory '/x'", "No such file"]);
    for key in ["/../etc/passwd", "/a/b", "", "/", "/.hidden", "/a\u{0}b"] {
        register(&server, "x", json!({"key": key, "byte_size": 8})).refused(400, &["the key must be '/' and letters"]);
    }
    for (offset, size) in [(0, 65), (60, 8), (64, 1), (u64::MAX, 1), (0, 0)] {
        let body = json!({"key": object.key, "offset": offset, "byte_size": size});
        register(&server, "x", body).refused(400, &["not within its 64 bytes"]);
    }
    let link = PathBuf::from(format!("/dev/shm/gmm-test-{}-link", std::process::id()));
    std::os::unix::fs::symlink("/etc/hostname", &link).unwrap();
    let key = format!("/{}", link.file_name().unwrap().to_str().unwrap());
    let refused = register(&server, "x", json!({"key": key, "byte_size": 1}));
    std::fs::remove_file(&link).unwrap();
    refused.refused(400, &["region 'x'"]);
    register(&server, "x", json!({"byte_size": 1})).refused(400, &["the registration is not valid", "key"]);
    let half = json!({"shared_memory_region": "in"});
    let input = json!({"name": "rows", "shape": [3, 2], "datatype": "FP64", "parameters": half});
    let body = json!({"inputs": [input]});
    server.post(INFER, &body.to_string()).refused(400, &["both shared_memory_region and shared_memory_byte_size"]);
    let input = placed("rows", "FP64", 0, 48);
    server.post(INFER, &json!({"inputs": [input]}).to_string()).refused(400, &["no region 'in' is registered"]);
}
