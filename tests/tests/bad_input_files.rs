//! Bad input, rows 51 to 57: files and the process.
//!
//! Row 56, signals, is in `cli_process.rs` with the other behaviour of the process. Row 58, resuming against other
//! data, is in `cli_resume.rs`. Row 59, fork after CUDA was opened, needs CUDA.

use gmm_tests::{Folder, data, golden, npy};
use serde_json::{Value, json};

/// Asserts that a file is read whole but refused at several shorter lengths, with an error that contains `also`.
fn truncated(name: &str, whole: &[u8], also: &[&str]) {
    let folder = Folder::new();
    folder.write(name, whole);
    folder.gmm(&format!("convert {name} y.csv")).ok();
    for part in [0, 3, 8, whole.len() / 3, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        let folder = Folder::new();
        folder.write(name, &whole[..part]);
        let mut parts = vec![name];
        parts.extend(also);
        folder.refuses(&format!("fit {name} -k 1 -o m.json"), 3, &parts);
    }
}

fn converted(to: &str) -> Vec<u8> {
    let folder = Folder::new();
    folder.gmm(&format!("convert {} {to}", data("old_faithful.csv"))).ok();
    folder.read(to)
}

#[test]
fn row_51_truncated_npy() {
    truncated("x.npy", &converted("x.npy"), &["truncated or corrupt", "byte"]);
}

#[test]
fn row_51_truncated_npz() {
    truncated("x.npz", &std::fs::read(golden("one.npz")).unwrap(), &["truncated or corrupt"]);
}

#[test]
fn row_51_truncated_parquet() {
    truncated("x.parquet", &converted("x.parquet"), &["truncated or corrupt"]);
}

#[test]
fn row_51_truncated_arrow() {
    truncated("x.arrow", &converted("x.arrow"), &[]);
}

#[test]
fn row_51_a_file_of_another_kind_than_its_name_says() {
    for name in ["x.npy", "x.npz", "x.parquet", "x.arrow", "x.feather"] {
        Folder::with(name, "a,b\n1,2\n3,4\n").refuses(&format!("fit {name} -k 1 -o m.json"), 3, &[name]);
    }
    Folder::with("x.xlsx", "").refuses("fit x.xlsx -k 1 -o m.json", 2, &["x.xlsx", "csv, tsv", "parquet"]);
}

#[test]
fn row_52_ragged_and_header_only_text() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3\n5,6\n");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "line 3", "1 fields", "2"]);
    Folder::with("x.csv", "a,b\n").refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "no data rows"]);
    Folder::with("x.csv", "").refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "no data rows"]);
}

#[test]
fn row_53_pickled_objects_are_never_loaded() {
    let folder = Folder::new();
    folder.write("x.npy", npy("|O", false, "(2, 1)", b"\x80\x03]q\x00."));
    folder.refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "pickle"]);
}

fn model_with(field: &str, value: Value) -> Folder {
    let mut model = json!({
        "format": "gmm-model", "version": 1, "covariance_type": "diag", "n_components": 2, "n_features": 1,
        "feature_names": null, "weights": [0.5, 0.5], "means": [[2.0], [4.0]], "covariances": [[1.0], [1.0]]
    });
    model[field] = value;
    Folder::with("m.json", &model.to_string())
}

#[test]
fn row_54_a_model_file_that_is_newer_or_disagrees_with_itself() {
    let check = |folder: Folder, parts: &[&str]| folder.refuses("sample m.json -n 3 -o y.csv", 3, parts);
    check(model_with("version", json!(2)), &["m.json", "version is 2", "up to 1", "update"]);
    check(model_with("format", json!("other")), &["m.json", "other"]);
    check(model_with("n_features", json!(3)), &["m.json", "means", "[2, 1]", "[2, 3]"]);
    check(model_with("covariances", json!([1.0, 1.0])), &["m.json", "covariances"]);
    check(model_with("covariance_type", json!("round")), &["m.json", "round", "full, tied, diag, spherical"]);
    check(model_with("weights", json!([0.5, null])), &["m.json", "weights"]);
    let text = model_with("version", json!(1)).text("m.json").replacen("0.5", "NaN", 1);
    check(Folder::with("m.json", &text), &["m.json", "weights", "NaN"]);
    check(Folder::with("m.json", "{\"format\": \"gmm-mo"), &["m.json", "line 1"]);
    check(Folder::with("m.json", "a,b\n1,2\n"), &["m.json", "json or safetensors"]);
    check(Folder::with("m.json", ""), &["m.json", "empty"]);
}

#[test]
fn row_54_a_compressed_model_is_to_be_decompressed_first() {
    let folder = model_with("version", json!(1));
    folder.bash("gzip -k m.json && cp m.json.gz n.json").ok();
    let parts = ["compressed by gzip: decompress it first (gzip -d)"];
    for command in ["show m.json.gz", "show n.json", "convert m.json.gz y.json", "sample n.json -n 3 -o y.csv"] {
        folder.refuses(command, 3, &parts);
    }
    folder.refuses("convert m.json.gz y.csv", 2, &["m.json.gz is a model"]);
}

#[test]
fn row_54_a_truncated_safetensors_model() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.safetensors", data("old_faithful.csv"))).ok();
    let whole = folder.read("m.safetensors");
    for part in [0, 7, 9, whole.len() / 2, whole.len() - 1] {
        let folder = Folder::new();
        folder.write("m.safetensors", &whole[..part]);
        folder.refuses("sample m.safetensors -n 3 -o y.csv", 3, &["m.safetensors"]);
    }
}

#[test]
fn row_55_a_full_disk_leaves_the_old_file() {
    // A limit on file sizes fails as a full disk does; bash counts blocks of 1024 bytes.
    for (name, command) in [
        ("y.csv", "sample m.json -n 2000 -o y.csv"),
        ("y.npy", "sample m.json -n 2000 -o y.npy"),
        ("y.parquet", "sample m.json -n 20000 -o y.parquet"),
        ("y.arrow", "sample m.json -n 20000 -o y.arrow"),
        ("y.json", "fit w.csv -k 6 -o y.json"),
        ("y.safetensors", "fit w.csv -k 6 -o y.safetensors"),
        ("y.json", "fit w.csv -k 6 --checkpoint y.json"),
    ] {
        let folder = Folder::with(name, "old");
        folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
        std::fs::copy(data("wine.csv"), folder.path("w.csv")).unwrap();
        let before = folder.files();
        folder.bash(&format!("trap '' XFSZ; ulimit -f 1; exec $GMM {command}")).failed(6, &[name]);
        assert_eq!(folder.text(name), "old", "{command}");
        assert_eq!(folder.files(), before, "{command}: a temporary file was left");
    }
    Folder::new().bash("exec $GMM doctor > /dev/full").failed(6, &[]);
}

#[test]
fn row_57_a_closed_standard_output_is_no_error() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    for command in [
        "sample m.json -n 200000",
        "generate -n 200000 -k 2 -d 3 -o -",
        "convert x.npy -",
        "predict m.json x.npy",
        "score m.json x.npy --per-row",
        "completions bash",
        "show m.json",
        "--help",
    ] {
        folder.gmm("sample m.json -n 100000 -o x.npy").ok();
        let run = folder.bash(&format!("$GMM {command} | true; echo ${{PIPESTATUS[0]}}"));
        assert_eq!((run.stdout.as_str(), run.stderr.as_str()), ("0\n", ""), "{command}");
    }
}

#[test]
fn files_that_are_not_there_are_errors_of_the_file() {
    let folder = Folder::with("m.csv", "a\n1\n2\n");
    folder.refuses("fit nothing.csv -k 1 -o m.json", 6, &["nothing.csv", "No such file"]);
    folder.refuses("show nothing.json", 6, &["nothing.json", "No such file"]);
    folder.refuses("fit m.csv -k 1 -o nowhere/m.json", 6, &["nowhere/m.json", "no folder"]);
    folder.refuses("fit m.csv -k 1 --checkpoint nowhere/m.json", 6, &["nowhere/m.json", "no folder"]);
    folder.refuses("fit m.csv -k 1 -o m.pickle", 2, &["m.pickle", "json or safetensors"]);
    folder.refuses("convert m.csv y.npz", 2, &["y.npz", "only read", "use csv, tsv, npy"]);
    folder.refuses("convert m.csv y.csv.gz", 2, &["y.csv.gz", "only read", "gzip"]);
    folder.refuses("convert m.csv y.json", 2, &["m.csv is a table", "y.json"]);
}

#[test]
fn an_output_that_is_the_input_is_refused() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,1\n8,9\n7,9\n");
    folder.gmm("fit x.csv -k 1 -o m.json").ok();
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.path(name)).unwrap();
    link("x.csv", "s.csv");
    link("s.csv", "s.json");
    link("m.json", "m.csv");
    for (command, output) in [
        ("predict m.json x.csv -o x.csv", "x.csv"),
        ("predict m.json x.csv -o ./x.csv", "./x.csv"),
        ("predict m.json x.csv --proba -o s.csv", "s.csv"),
        ("predict m.json s.csv -o x.csv", "x.csv"),
        ("predict m.json x.csv -o m.csv", "m.csv"),
        ("score m.json x.csv --per-row -o x.csv", "x.csv"),
        ("sample m.json -n 3 -o m.csv", "m.csv"),
        ("convert x.csv x.csv", "x.csv"),
        ("convert x.csv s.csv", "s.csv"),
        ("convert m.json m.json", "m.json"),
        ("fit x.csv -k 1 -o s.json", "s.json"),
        ("fit x.csv -k 1 --checkpoint s.json", "s.json"),
        ("select x.csv -k 1..2 -o s.json", "s.json"),
    ] {
        folder.refuses(command, 2, &[&format!("output {output} is the input"), "another name"]);
    }
    // A fit that starts from a model may replace it, and existing files that are not inputs may be replaced.
    folder.gmm("fit x.csv --init m.json -o m.json").ok();
    folder.gmm("predict m.json x.csv -o labels.csv").ok();
    folder.gmm("predict m.json x.csv -o labels.csv").ok();
    folder.gmm("convert x.csv /dev/null").failed(2, &["unknown file type"]);
}

#[test]
fn a_sample_that_the_disk_cannot_hold_is_refused_before_it_is_drawn() {
    let folder = model_with("version", json!(1));
    for name in ["y.npy", "y.csv", "y.parquet", "y.arrow"] {
        folder.refuses(&format!("sample m.json -n 9e15 -o {name}"), 6, &[name, "no room", "bytes are needed"]);
    }
    folder.refuses("generate -n 9e15 -k 2 -d 3 -o y.npy --truth t.json", 6, &["y.npy", "no room", "free on this disk"]);
    // Writing to standard output starts at once; `head` cuts it off here.
    assert_eq!(folder.bash("$GMM sample m.json -n 9e15 | head -n 2 | wc -l").ok().stdout.trim(), "2");
}

#[cfg(target_os = "linux")]
#[test]
fn rows_beyond_memory_are_generated() {
    // 512 MB of rows in 430 MB of address space (bash counts KiB), of which each thread reserves 64 MB. They are
    // written to /dev/null, since only memory matters here. Parquet buffers a row group of 64 MB.
    for name in ["x.npy", "x.parquet"] {
        let folder = Folder::new();
        std::os::unix::fs::symlink("/dev/null", folder.path(name)).unwrap();
        let limit = "ulimit -v 420000; export RAYON_NUM_THREADS=2";
        folder.bash(&format!("{limit}; exec $GMM generate -n 8e6 -k 3 -d 8 --covariance diag -o {name}")).ok();
    }
}

#[test]
fn row_72_a_fit_that_fails_on_its_way_leaves_the_mixture_before_in_the_checkpoint() {
    // The first component shrinks to the two rows at zero, and at the second iteration no other row belongs to it.
    let folder = model_with("means", json!([[0.0], [7.0]]));
    folder.write("x.csv", "0\n0\n5\n6\n7\n8\n9\n");
    let fit = "fit x.csv --init m.json --reg-covar 0 --tol 0";
    folder.gmm(&format!("{fit} --max-iter 1 -o one.json")).ok();
    let run = folder.gmm(&format!("{fit} --checkpoint run.json -o y.json"));
    run.failed(4, &["iteration 2", "component 0", "the mixture after 1 iterations is in run.json: --init run.json"]);
    assert!(!folder.path("y.json").exists());
    for field in ["weights", "means", "covariances"] {
        assert_eq!(folder.json("run.json")[field], folder.json("one.json")[field]);
    }
    folder.gmm("fit x.csv --init run.json -o y.json").ok();
}

#[test]
fn an_output_that_could_not_be_written_is_refused_before_anything_is_read() {
    // Model and rows do not exist: a command that read them first would report that instead.
    let folder = Folder::new();
    for (output, code, part) in [
        ("y.txt", 2, "use csv, tsv, npy, parquet"),
        ("y.npz", 2, "use csv, tsv, npy, parquet"),
        ("y", 2, "unknown"),
        (".", 6, "directory"),
    ] {
        for command in ["predict no.json no.csv", "score no.json no.csv --per-row", "sample no.json -n 3"] {
            folder.refuses(&format!("{command} -o {output}"), code, &[output, part]);
        }
    }
    for (name, command) in [("there.csv", "predict no.json no.csv"), ("there.json", "fit no.csv -k 2")] {
        std::fs::create_dir(folder.path(name)).unwrap();
        folder.gmm(&format!("{command} -o {name}")).failed(6, &[name, "is a directory"]);
    }
}
