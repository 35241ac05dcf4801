//! Results of rows: the values of the engine and of the reference, in JSON and in binary form, and what is refused.

use gmm_data::ModelFile;
use gmm_host::{CpuEngine, evaluate, impute, noise};
use gmm_model::{Dataset, OutlierThreshold, Precision, reference};
use ndarray::{Array2, array, aview1};
use serde_json::{Value, json};

use crate::client::{INFER, Running, infer_body, model, output, serve, serve_with};

const ROWS: [[f64; 2]; 4] = [[0.1, -0.2], [4.2, 1.1], [2.0, 0.5], [-30.0, 55.0]];

fn data() -> Dataset {
    Dataset::new(Array2::from(ROWS.to_vec())).unwrap()
}

#[test]
fn results_have_the_bits_of_the_engine() {
    let (server, mixture) = (serve(), model().mixture);
    let answer = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    let engine = CpuEngine::new(2).unwrap();
    let densities = evaluate::log_densities(&engine, &mixture, &data(), Precision::F64).unwrap().0;
    let responsibilities = evaluate::responsibilities(&engine, &mixture, &data(), Precision::F64).unwrap();
    let labels = evaluate::labels(&engine, &mixture, &data(), Precision::F64).unwrap();
    assert_eq!(output(&answer, "log_density"), densities.to_vec());
    assert_eq!(output(&answer, "responsibilities"), responsibilities.into_iter().collect::<Vec<_>>());
    assert_eq!(output(&answer, "label"), labels.iter().map(|v| f64::from(*v)).collect::<Vec<_>>());
    assert_eq!(answer["model_name"], "two");
}

#[test]
fn densities_are_those_of_the_reference() {
    let (server, mixture) = (serve(), model().mixture);
    let found = output(&server.post(INFER, &infer_body(&ROWS, &["log_density"])).ok(), "log_density");
    for (row, found) in ROWS.iter().zip(found) {
        let expected = reference::posterior(&mixture, aview1(row)).0;
        // A few sums of terms of the size of the result.
        assert!((found - expected).abs() <= 32.0 * f64::EPSILON * expected.abs(), "{found} is not {expected}");
    }
}

/// Sends `ROWS` in binary form and reads the outputs in it.
fn binary(server: &Running, datatype: &str, rows: &[u8], outputs: Value) -> (Value, Vec<u8>) {
    let head = json!({
        "id": "7",
        "inputs": [{
            "name": "rows", "shape": [4, 2], "datatype": datatype, "parameters": {"binary_data_size": rows.len()},
        }],
        "outputs": outputs,
    });
    let head = head.to_string();
    let body = [head.as_bytes(), rows].concat();
    let length = head.len().to_string();
    let answer = server.connect().send("POST", INFER, &[("inference-header-content-length", &length)], &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    match answer.header("inference-header-content-length") {
        Some(length) => {
            let (head, rest) = answer.body.split_at(length.parse().unwrap());
            (serde_json::from_slice(head).unwrap(), rest.to_vec())
        }
        None => (answer.json(), Vec::new()),
    }
}

#[test]
fn binary_tensors_have_the_bits_of_json() {
    let server = serve();
    let in_json = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    let bytes: Vec<u8> = ROWS.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
    let outputs = json!([
        {"name": "log_density", "parameters": {"binary_data": true}},
        {"name": "label", "parameters": {"binary_data": false}},
        {"name": "responsibilities", "parameters": {"binary_data": true}},
    ]);
    let (head, rest) = binary(&server, "FP64", &bytes, outputs);
    assert_eq!(head["id"], "7");
    assert_eq!(head["outputs"][0]["parameters"], json!({"binary_data_size": 32}));
    assert_eq!(output(&head, "label"), output(&in_json, "label"));
    let numbers: Vec<f64> = rest.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    let (densities, responsibilities) = numbers.split_at(4);
    assert_eq!(densities, output(&in_json, "log_density"));
    assert_eq!(responsibilities, output(&in_json, "responsibilities"));
}

#[test]
fn rows_in_binary_form_that_are_not_finite_are_named() {
    let server = serve();
    let send = |rows: &[[f64; 2]], outputs: Value| {
        let bytes: Vec<u8> = rows.iter().flatten().flat_map(|v| v.to_le_bytes()).collect();
        let input = json!({
            "name": "rows", "shape": [rows.len(), 2], "datatype": "FP64", "parameters": {"binary_data_size": bytes.len()},
        });
        let mut head = json!({"inputs": [input], "outputs": outputs}).to_string();
        // The numbers are used where they are only at an address that they may have.
        head.push_str(&" ".repeat(7 - (head.len() + 7) % 8));
        let length = head.len().to_string();
        let body = [head.as_bytes(), &bytes].concat();
        server.connect().send("POST", INFER, &[("inference-header-content-length", &length)], &body)
    };
    for outputs in [json!([{"name": "log_density"}]), json!([{"name": "label"}]), json!([])] {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            // Few rows, and as many as come in several pieces and are a batch of their own.
            for n in [3, 20_000] {
                let mut rows = ROWS.repeat(n / 4 + 1);
                rows[n - 1][1] = bad;
                let answer = send(&rows, outputs.clone());
                let named = format!("row {}, column 1 ('b') is", n - 1);
                assert_eq!(answer.status, 400, "{bad} {n} {outputs}: {}", answer.text());
                assert!(answer.text().contains(&named), "{}", answer.text());
            }
        }
    }
    // Without a density that could tell.
    assert_eq!(send(&ROWS, json!([{"name": "label"}])).status, 200);
    // So far away that the density is 0.
    let mut far = ROWS.to_vec();
    far[2][0] = 1e200;
    let answer = send(&far, json!([{"name": "log_density"}]));
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn single_precision_and_integers_are_converted_exactly() {
    let server = serve();
    let rounded = ROWS.map(|row| row.map(|v| f64::from(v as f32)));
    let expected = output(&server.post(INFER, &infer_body(&rounded, &[])).ok(), "log_density");
    let bytes: Vec<u8> = ROWS.iter().flatten().flat_map(|v| (*v as f32).to_le_bytes()).collect();
    let (answer, _) = binary(&server, "FP32", &bytes, json!([{"name": "log_density"}]));
    assert_eq!(output(&answer, "log_density"), expected);
    let whole = ROWS.map(|row| row.map(f64::trunc));
    let expected = output(&server.post(INFER, &infer_body(&whole, &[])).ok(), "log_density");
    let bytes: Vec<u8> = ROWS.iter().flatten().flat_map(|v| (*v as i16).to_le_bytes()).collect();
    let (answer, _) = binary(&server, "INT16", &bytes, json!([{"name": "log_density"}]));
    assert_eq!(output(&answer, "log_density"), expected);
}

#[test]
fn columns_may_be_given_by_name_and_in_any_order() {
    let server = serve();
    let column = |name: &str, i: usize| json!({"name": name, "shape": [4, 1], "datatype": "FP64", "data": ROWS.map(|row| row[i])});
    let body = json!({"inputs": [column("b", 1), column("a", 0)]}).to_string();
    let expected = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    assert_eq!(server.post(INFER, &body).ok()["outputs"], expected["outputs"]);
}

#[test]
fn missing_values_are_replaced_by_conditional_means_if_asked_for() {
    let (server, mixture) = (serve(), model().mixture);
    let body = r#"{"inputs": [{"name": "rows", "shape": [2, 2], "datatype": "FP64", "data": [1.5, null, 3.0, 4.0]}],
                   "outputs": [{"name": "conditional_mean"}, {"name": "log_density"}]}"#;
    let answer = server.post(INFER, body).ok();
    let rows = Dataset::with_holes(array![[1.5, f64::NAN], [3.0, 4.0]]).unwrap();
    let engine = CpuEngine::new(2).unwrap();
    let filled = impute::impute(&engine, &mixture, &rows, Precision::F64, impute::Imputation::Mean).unwrap();
    assert_eq!(output(&answer, "conditional_mean"), filled.into_iter().collect::<Vec<_>>());
    // The density of the observed value alone is that of the marginal mixture.
    let marginal = reference::posterior(&mixture.marginal(&[0]).unwrap(), aview1(&[1.5])).0;
    let found = output(&answer, "log_density")[0];
    assert!((found - marginal).abs() <= 32.0 * f64::EPSILON * marginal.abs(), "{found} is not {marginal}");
    let by_name = json!({
        "inputs": [{"name": "a", "shape": [1], "datatype": "FP64", "data": [1.5]}],
        "outputs": [{"name": "conditional_mean"}],
    });
    let found = output(&server.post(INFER, &by_name.to_string()).ok(), "conditional_mean");
    assert_eq!(found, output(&answer, "conditional_mean")[..2]);
}

#[test]
fn a_missing_value_is_refused_unless_asked_for() {
    let server = serve();
    let body = |more: &str| {
        format!(r#"{{"inputs": [{{"name": "rows", "shape": [1, 2], "datatype": "FP64", "data": [1.0, null]}}]{more}}}"#)
    };
    server.post(INFER, &body("")).refused(400, &["row 0, column 1 ('b') is missing or NaN", "conditional_mean"]);
    server.post(INFER, &body(r#","parameters": {"missing": "em"}"#)).ok();
    server.post(INFER, &body(r#","parameters": {"missing": "drop"}"#)).refused(400, &["'drop'", "error or em"]);
}

#[test]
fn noise_clusters_and_thresholds_of_the_model_count() {
    let file = ModelFile {
        noise: Some(gmm_model::Noise { weight: 0.2, log_volume: 1e3f64.ln(), region: None }),
        clusters: Some(vec![0, 0]),
        outliers: Some(OutlierThreshold { log_density: -5.0, contamination: None, level: None }),
        ..model()
    };
    let server = serve_with(&file, |_, _| {});
    let answer = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    assert_eq!(output(&answer, "label"), [0.0, 0.0, 0.0, -1.0]);
    let engine = CpuEngine::new(2).unwrap();
    let (densities, all, _) =
        noise::evaluate(&engine, &file.mixture, file.noise.as_ref().unwrap(), &data(), Precision::F64).unwrap();
    assert_eq!(output(&answer, "log_density"), densities.to_vec());
    let summed: Vec<f64> = all.outer_iter().flat_map(|row| [row[0] + row[1], row[2]]).collect();
    assert_eq!(output(&answer, "responsibilities"), summed);
    let outliers: Vec<f64> = densities.iter().map(|v| f64::from(u8::from(*v < -5.0))).collect();
    assert_eq!(output(&answer, "outlier"), outliers);
}

#[test]
fn what_does_not_fit_the_model_is_refused_with_the_reason() {
    let server = serve();
    let check = |body: &str, parts: &[&str]| server.post(INFER, body).refused(400, parts);
    let input = |shape: &str, datatype: &str, data: &str| {
        format!(r#"{{"inputs": [{{"name": "rows", "shape": {shape}, "datatype": "{datatype}", "data": {data}}}]}}"#)
    };
    check(&input("[1, 3]", "FP64", "[1, 2, 3]"), &["shape [1, 3]", "[n, 2]"]);
    check(&input("[2]", "FP64", "[1, 2, 3]"), &["shape [2] needs 2 values, and data has 3"]);
    check(&input("[0, 2]", "FP64", "[]"), &["shape [0, 2]"]);
    check(&input("[1, 1, 2]", "FP64", "[1, 2]"), &["shape [1, 1, 2]"]);
    check(&input("[4294967296, 4294967296, 2]", "FP64", "[]"), &["too large"]);
    check(&input("[1, 2]", "FP16x", "[1, 2]"), &["datatype 'FP16x'", "FP64"]);
    check(&input("[1, 2]", "BYTES", "[1, 2]"), &["datatype 'BYTES'"]);
    check(&input("[1, 2]", "FP64", "[1, \"x\"]"), &["not valid JSON", "expected a number"]);
    check(&input("[1, 2]", "FP64", "[1, 1e999]"), &["not valid JSON", "out of range"]);
    for (datatype, value) in [
        ("INT32", "1.5"),
        ("INT32", "2147483648"),
        ("INT8", "-129"),
        ("UINT8", "-1"),
        ("UINT8", "256"),
        ("UINT16", "65536"),
        ("INT16", "1e5"),
        ("UINT32", "4294967296"),
        ("INT64", "0.5"),
        ("UINT64", "-1"),
        ("BOOL", "2"),
        ("FP32", "1e39"),
    ] {
        check(
            &input("[1, 2]", datatype, &format!("[1, {value}]")),
            &["'rows': value 1 of data", &format!("no {datatype}")],
        );
    }
    for (datatype, value) in [
        ("INT32", "-2147483648"),
        ("INT8", "127"),
        ("UINT8", "255"),
        ("UINT64", "18446744073709551615"),
        ("BOOL", "true"),
        ("INT64", "9223372036854775807"),
        ("FP32", "3.4028234663852886e38"),
        ("FP32", "0.1"),
        ("FP64", "1e39"),
    ] {
        server.post(INFER, &input("[1, 2]", datatype, &format!("[1, {value}]"))).ok();
    }
    check(r#"{"inputs": []}"#, &["0 inputs: give one, 'rows'"]);
    check(r#"{"inputs": [{"name": "rows", "shape": [1, 2], "datatype": "FP64"}]}"#, &["it has no data"]);
    check(r#"{"inputs": [{"name": "c", "shape": [1], "datatype": "FP64", "data": [1]}]}"#, &["no input 'c'", "a, b"]);
    check(&infer_body(&ROWS, &["class"]), &["no output 'class'", "log_density"]);
    check(&infer_body(&ROWS, &["outlier"]), &["no threshold", "gmm outliers --save"]);
    check("", &["not valid JSON"]);
}

#[test]
fn plain_scores_have_the_same_numbers() {
    let server = serve();
    let expected = server.post(INFER, &infer_body(&ROWS, &[])).ok();
    let answer = server.post("/score", &json!({"rows": ROWS}).to_string()).ok();
    let of =
        |key: &str| answer["rows"].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(of("log_density"), output(&expected, "log_density"));
    assert_eq!(of("label"), output(&expected, "label"));
    let named = server.post("/score", r#"{"model": "two", "row": {"b": -0.2, "a": 0.1}}"#).ok();
    assert_eq!(named["rows"][0], answer["rows"][0]);
    server.post("/score", r#"{"row": [1]}"#).refused(400, &["row 0 has 1 values, and the model 2 columns"]);
    server.post("/score", r#"{"row": {"z": 1}}"#).refused(400, &["no column 'z'", "a, b"]);
    server.post("/score", r#"{"row": {"a": "x"}}"#).refused(400, &["column 'a' is not a number"]);
    server.post("/score", "{}").refused(400, &["\"row\""]);
    server.post("/score", r#"{"rows": [], "model": "two"}"#).refused(400, &["at least one"]);
    server.post("/score", r#"{"row": [1, 2], "modle": "two"}"#).refused(400, &["modle"]);
    server.post("/score", r#"{"row": {"a": 1, "b": 2, "a": 3}}"#).refused(400, &["row 0: column 'a' is given twice"]);
}

#[test]
fn plain_scores_refuse_a_missing_value_unless_asked_for() {
    let server = serve();
    for row in [r#"{"a": 0.1}"#, r#"{"a": 0.1, "b": null}"#, "[0.1, null]"] {
        for body in [format!(r#"{{"row": {row}}}"#), format!(r#"{{"row": {row}, "missing": "error"}}"#)] {
            let why = ["row 0, column 1 ('b') is missing or NaN", r#"set "missing": "em""#];
            server.post("/score", &body).refused(400, &why);
        }
        let found = server.post("/score", &format!(r#"{{"row": {row}, "missing": "em"}}"#)).ok();
        assert_eq!(found["rows"][0]["conditional_mean"][0], 0.1);
    }
    server.post("/score", r#"{"rows": [[1, 2], [null, 2]]}"#).refused(400, &["row 1, column 0 ('a')"]);
    server.post("/score", r#"{"row": [1, 2], "missing": "drop"}"#).refused(400, &["'drop'", "error or em"]);
}
