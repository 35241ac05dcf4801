//! `gmm convert` of models to the forms of other programs. crates/gmm-python/tests/test_onnx.py compares what ONNX models
//! compute.

use gmm_tests::{Folder, data, golden};

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

#[test]
fn models_go_to_kaldi_and_mclust_and_come_back_with_the_same_scores() {
    let folder = fitted();
    let score = |model: &str| folder.gmm(&format!("score {model} {} --device cpu", data("old_faithful.csv"))).ok();
    folder.gmm(&format!("fit {} -k 2 --covariance diag --device cpu -q -o d.json", data("old_faithful.csv"))).ok();
    for (model, copies) in [("m.json", ["m.ubm", "m.mclust"].as_slice()), ("d.json", &["d.dubm", "d.ubm", "d.mclust"])]
    {
        let expected = score(model).stdout;
        for copy in copies {
            folder.gmm(&format!("convert {model} {copy}")).ok();
            assert_eq!(score(copy).stdout, expected, "{copy}");
            folder.gmm(&format!("convert {copy} again.json")).ok();
            assert_eq!(score("again.json").stdout, expected, "{copy}");
        }
    }
    // Other programs choose other names.
    std::fs::rename(folder.path("m.ubm"), folder.path("final.mdl")).expect("it was written");
    folder.gmm("convert final.mdl renamed.json").ok();
    assert_eq!(score("renamed.json").stdout, score("m.json").stdout);
    folder.gmm(&format!("convert {} vvv.json", golden("mclust_VVV.json"))).ok();
}

#[test]
fn what_a_form_of_another_program_cannot_hold_is_refused() {
    let folder = fitted();
    folder.refuses("convert m.json m.dubm", 3, &["m.dubm", "<DiagGMM> has no full covariances", "*.ubm"]);
    assert!(!folder.path("m.dubm").exists());
    folder.write("x.csv", "a,b\n1,2\n");
    folder.refuses("convert x.csv x.ubm", 2, &["x.csv is a table, but x.ubm would be a model"]);
    folder.write("binary.ubm", "\0B<FullGMM> ");
    folder.refuses("convert binary.ubm m2.json", 3, &["binary.ubm", "fgmm-global-copy --binary=false"]);
    folder.write("bad.dubm", "<DiagGMM>\n<WEIGHTS> [ 1 ]\n<MEANS_INVVARS> [\n 1 x ]\n");
    folder.refuses("convert bad.dubm m2.json", 3, &["bad.dubm: line 4", "'x' is not a number"]);
}

#[test]
fn options_of_tables_are_refused_for_models() {
    let folder = fitted();
    folder.gmm("convert m.json m.ubm --columns 0,1").failed(2, &["for a model", "--columns"]);
    folder.gmm("report m.json -o r.html --columns nope").failed(2, &["without ROWS", "--columns"]);
    assert!(!folder.path("m.ubm").exists() && !folder.path("r.html").exists());
}
