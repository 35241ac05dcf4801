//! The protocol over gRPC: messages are written byte by byte from the field numbers of the specification, so that they do not
//! share a mistake with the server's declarations.

use bytes::Bytes;
use gmm_serve::ServeOptions;

use crate::client::{INFER, Running, infer_body, model, output, serve, serve_with};

/// Fields of a message by number, with the bytes or the number of each.
#[derive(Clone, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(mut self, mut value: u64) -> Self {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
        self
    }

    /// A field of bytes, text, packed numbers or another message: wire type 2.
    fn bytes(self, field: u64, bytes: &[u8]) -> Self {
        let mut made = self.varint(field << 3 | 2).varint(bytes.len() as u64);
        made.0.extend_from_slice(bytes);
        made
    }

    fn text(self, field: u64, text: &str) -> Self {
        self.bytes(field, text.as_bytes())
    }
}

/// Reads the fields of a message; numbers of wire type 0 as eight little-endian bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = bytes[0];
            *bytes = &bytes[1..];
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte < 0x80 {
                return value;
            }
        }
    }
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            2 => {
                let length = varint(&mut bytes) as usize;
                let (own, rest) = bytes.split_at(length);
                bytes = rest;
                own.to_vec()
            }
            other => panic!("wire type {other}"),
        };
        all.push((key >> 3, value));
    }
    all
}

fn field(message: &[u8], number: u64) -> Vec<Vec<u8>> {
    fields(message).into_iter().filter(|(own, _)| *own == number).map(|(_, value)| value).collect()
}

/// The status of a call, its text, and its answer.
type Called = (u32, String, Vec<u8>);

fn call(server: &Running, method: &str, message: &[u8]) -> Called {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    let address = server.address;
    let uri = format!("http://test/inference.GRPCInferenceService/{method}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        let request =
            axum::http::Request::post(uri).header("content-type", "application/grpc").header("te", "trailers");
        let (answer, mut sending) = client.send_request(request.body(()).unwrap(), false).unwrap();
        sending.send_data(Bytes::from(frame), true).unwrap();
        let answer = answer.await.unwrap();
        let (head, mut body) = answer.into_parts();
        let mut bytes = Vec::new();
        while let Some(data) = body.data().await {
            let data = data.unwrap();
            body.flow_control().release_capacity(data.len()).unwrap();
            bytes.extend(data);
        }
        let trailers = body.trailers().await.unwrap().unwrap_or_default();
        let told = |name: &str| {
            let value = trailers.get(name).or_else(|| head.headers.get(name));
            value.map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
        };
        (told("grpc-status").parse().unwrap(), told("grpc-message"), bytes.get(5..).unwrap_or_default().to_vec())
    })
}

const ROWS: [[f64; 2]; 2] = [[0.1, -0.2], [4.2, 1.1]];

/// `ModelInferRequest` without data: `model_name` 1, `id` 3, an input 5 with name 1, datatype 2 and shape 3.
fn infer_request(name: &str, shape: &[u8], contents: Option<&[u8]>) -> Message {
    let mut input = Message::default().text(1, "rows").text(2, "FP64").bytes(3, shape);
    if let Some(contents) = contents {
        // `InferTensorContents.fp64_contents` is 7.
        input = input.bytes(5, &Message::default().bytes(7, contents).0);
    }
    Message::default().text(1, name).text(3, "42").bytes(5, &input.0)
}

fn rows() -> Vec<u8> {
    ROWS.iter().flatten().flat_map(|v| v.to_le_bytes()).collect()
}

fn f64s(bytes: &[u8]) -> Vec<f64> {
    bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn health_and_metadata_are_told() {
    let server = serve();
    for method in ["ServerLive", "ServerReady"] {
        assert_eq!(call(&server, method, &[]), (0, String::new(), vec![1 << 3, 1]), "{method}");
    }
    let named = Message::default().text(1, "two").0;
    assert_eq!(call(&server, "ModelReady", &named).2, [1 << 3, 1]);
    let (_, _, meta) = call(&server, "ServerMetadata", &[]);
    assert_eq!((field(&meta, 1), field(&meta, 3)), (vec![b"gmm".to_vec()], vec![b"binary_tensor_data".to_vec()]));
    let (_, _, meta) = call(&server, "ModelMetadata", &named);
    let inputs = field(&meta, 4);
    assert_eq!((field(&inputs[0], 1), field(&inputs[0], 2)), (vec![b"rows".to_vec()], vec![b"FP64".to_vec()]));
    // −1 as a varint of ten bytes, then 2.
    let any = Message::default().varint(u64::MAX).varint(2).0;
    assert_eq!(field(&inputs[0], 3), [any]);
    assert_eq!(field(&meta, 5).len(), 4);
}

#[test]
fn results_have_the_bits_of_those_over_http() {
    let server = serve();
    let expected = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    let message = infer_request("two", &[2, 2], Some(&rows())).bytes(6, &Message::default().text(1, "log_density").0).0;
    let (status, text, answer) = call(&server, "ModelInfer", &message);
    assert_eq!((status, text.as_str()), (0, ""));
    assert_eq!((field(&answer, 1), field(&answer, 3)), (vec![b"two".to_vec()], vec![b"42".to_vec()]));
    let contents = field(&field(&answer, 5)[0], 5);
    assert_eq!(f64s(&field(&contents[0], 7)[0]), output(&expected, "log_density"));
}

#[test]
fn raw_contents_are_answered_in_raw_form() {
    let server = serve();
    let expected = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    let message = infer_request("two", &[2, 2], None).bytes(7, &rows()).0;
    let (status, _, answer) = call(&server, "ModelInfer", &message);
    assert_eq!(status, 0);
    let raw = field(&answer, 6);
    assert_eq!(raw.len(), 3);
    assert_eq!(f64s(&raw[1]), output(&expected, "responsibilities"));
    assert_eq!(f64s(&raw[2]), output(&expected, "log_density"));
    let names: Vec<Vec<u8>> = field(&answer, 5).iter().flat_map(|output| field(output, 1)).collect();
    assert_eq!(names, [&b"label"[..], b"responsibilities", b"log_density"]);
}

#[test]
fn refusals_have_the_codes_of_grpc() {
    let server = serve();
    let check = |method: &str, message: &[u8], code: u32, part: &str| {
        let (status, text, _) = call(&server, method, message);
        assert_eq!(status, code, "{text}");
        assert!(text.contains(part), "'{part}' is not in: {text}");
    };
    check("ModelInfer", &infer_request("three", &[2, 2], Some(&rows())).0, 5, "no%20model");
    check("ModelInfer", &infer_request("two", &[2, 3], Some(&rows())).0, 3, "needs%206%20values");
    check("ModelInfer", &infer_request("two", &[2, 2], None).0, 3, "no%20contents");
    check("ModelInfer", &infer_request("two", &[2, 2], None).bytes(7, &[1, 2, 3]).0, 3, "has%203%20bytes");
    let both = infer_request("two", &[2, 2], Some(&rows())).bytes(7, &rows()).0;
    check("ModelInfer", &both, 3, "both");
    let (status, _, _) = call(&server, "ModelInfer", &[0xff; 30]);
    assert!([3, 13].contains(&status), "malformed: {status}");
}

#[test]
fn limits_and_tokens_hold_for_grpc_too() {
    let change = |options: &mut ServeOptions, _: &tempfile::TempDir| {
        options.limits.body = 60;
        options.token = Some("secret".to_owned());
    };
    let server = serve_with(&model(), change);
    assert_eq!(call(&server, "ServerReady", &[]).0, 0);
    assert_eq!(call(&server, "ServerMetadata", &[]).0, 16);
    let open = serve_with(&model(), |options, _| options.limits.body = 60);
    let (status, text, _) = call(&open, "ModelInfer", &infer_request("two", &[2, 2], Some(&rows())).0);
    assert!([8, 11].contains(&status), "{status}: {text}");
}

#[test]
fn changed_messages_are_answered_or_refused() {
    let server = serve();
    let message = infer_request("two", &[2, 2], None).bytes(7, &rows()).0;
    let mut seed = 1u64;
    for _ in 0..300 {
        let mut changed = message.clone();
        for _ in 0..3 {
            // Knuth's MMIX constants.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (seed >> 33) as usize % changed.len();
            changed[at] = (seed >> 25) as u8;
        }
        let (status, text, _) = call(&server, "ModelInfer", &changed);
        assert!([0, 3, 5, 8, 11, 13].contains(&status), "{status}: {text}");
    }
    assert_eq!(call(&server, "ServerReady", &[]).0, 0);
}

#[test]
fn contents_are_those_of_the_datatype() {
    let server = serve();
    // One row of two values in the field `number` of `InferTensorContents`.
    let ask = |datatype: &str, number: u64, packed: &[u8]| {
        let contents = Message::default().bytes(number, packed);
        let input = Message::default().text(1, "rows").text(2, datatype).bytes(3, &[1, 2]).bytes(5, &contents.0);
        call(&server, "ModelInfer", &Message::default().text(1, "two").bytes(5, &input.0).0)
    };
    // 1 and 2; 1 and 200; 1 and 70000.
    let (small, large, larger): (&[u8], &[u8], &[u8]) = (&[1, 2], &[1, 0xc8, 1], &[1, 0xf0, 0xa2, 4]);
    for (datatype, number) in [("INT8", 2), ("INT16", 2), ("INT32", 2), ("UINT8", 4), ("UINT16", 4), ("UINT32", 4)] {
        assert_eq!(ask(datatype, number, small).0, 0, "{datatype}");
    }
    for (datatype, number) in [("INT64", 3), ("UINT64", 5)] {
        assert_eq!(ask(datatype, number, larger).0, 0, "{datatype}");
    }
    let refused = |datatype: &str, number: u64, packed: &[u8], words: &[&str]| {
        let (status, message, _) = ask(datatype, number, packed);
        let message = message.replace("%20", " ").replace("%2C", ",");
        assert_eq!(status, 3, "{message}");
        words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
    };
    refused("INT8", 2, large, &["input 'rows'", "value 1 of int_contents", "is 200, which is no INT8"]);
    refused("UINT8", 4, larger, &["value 1 of uint_contents", "is 70000, which is no UINT8"]);
    refused("INT16", 2, larger, &["is 70000, which is no INT16"]);
    refused("FP64", 6, &[0; 8], &["FP64 has its values in fp64_contents, not in fp32_contents"]);
    refused("INT32", 3, small, &["INT32 has its values in int_contents, not in int64_contents"]);
    refused("BOOL", 4, small, &["bool_contents"]);
}
