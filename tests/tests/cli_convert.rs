//! `gmm convert` to ONNX. crates/gmm-python/tests/test_onnx.py compares what the models compute.

use gmm_tests::{Folder, data};

fn fitted() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 --device cpu -q -o m.json", data("old_faithful.csv"))).ok();
    folder
}

#[test]
fn a_model_becomes_onnx_in_single_precision_unless_double_is_asked_for() {
    let folder = fitted();
    folder.gmm("convert m.json default.onnx").ok();
    folder.gmm("convert m.json single.onnx --precision f32").ok();
    folder.gmm("convert m.json double.onnx --precision f64").ok();
    assert_eq!(folder.read("default.onnx"), folder.read("single.onnx"));
    let model = gmm_data::read_model(folder.path("m.json")).expect("a model");
    let expected = gmm_data::model_to_onnx(&model, gmm_model::Precision::F64).expect("an ONNX model");
    assert_eq!(folder.read("double.onnx"), expected);
}

#[test]
fn tables_are_not_written_as_onnx_nor_onnx_read() {
    let folder = fitted();
    folder.write("x.csv", "a,b\n1,2\n");
    folder.refuses("convert x.csv y.onnx", 2, &["x.csv is a table, but y.onnx would be a model"]);
    folder.gmm("convert m.json m.onnx").ok();
    folder.refuses("convert m.onnx y.json", 2, &["m.onnx", "written, not read"]);
    folder.refuses("convert m.json y.json --precision f64", 2, &["--precision", "*.onnx"]);
}

#[test]
fn a_posterior_is_refused_with_what_to_try() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 --bayes dp --device cpu -q -o b.json", data("old_faithful.csv"))).ok();
    folder.refuses("convert b.json b.onnx", 3, &["b.onnx", "'posterior'", "t distributions", "delete this field"]);
}
