//! Bad input, rows 1 to 20: shape and type of the data.
//!
//! Rows about Python objects are tested here with the corresponding files: 12 is a complex npy, 13 the npz in which
//! SciPy stores a sparse matrix, 19 a model file without parameters. Strides and memory maps of row 16 exist only in
//! Python; Fortran order, big-endian numbers and a read-only file are tested here.

use gmm_tests::{Folder, close, data, f4, f8, golden, npy, numbers};

/// Six rows of two columns, in two groups.
const ROWS: [f64; 12] = [0.0, 1.0, 0.5, 0.0, 1.0, 0.5, 8.0, 9.0, 9.0, 8.0, 8.5, 9.5];

fn with_npy(descr: &str, shape: &str, values: &[u8]) -> Folder {
    let folder = Folder::new();
    folder.write("x.npy", npy(descr, false, shape, values));
    folder
}

#[test]
fn row_01_zero_rows() {
    with_npy("<f8", "(0, 2)", &[]).refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "(0, 2)", "at least one row"]);
}

#[test]
fn row_02_zero_columns() {
    with_npy("<f8", "(3, 0)", &[]).refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "(3, 0)", "column"]);
}

#[test]
fn row_03_a_one_dimensional_array_is_to_be_reshaped() {
    let folder = with_npy("<f8", "(3,)", &f8(&[1.0, 2.0, 3.0]));
    folder.refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "one-dimensional", "reshape"]);
}

#[test]
fn row_04_three_dimensions() {
    let folder = with_npy("<f8", "(1, 2, 2)", &f8(&[1.0, 2.0, 3.0, 4.0]));
    folder.refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "[1, 2, 2]", "3 dimensions"]);
}

#[test]
fn row_05_fewer_than_two_rows() {
    Folder::with("x.csv", "a,b\n1,2\n").refuses("fit x.csv -k 1 -o m.json", 3, &["rows is 1", "at least 2"]);
}

#[test]
fn row_06_more_components_than_rows() {
    Folder::with("x.csv", "a,b\n1,2\n3,4\n").refuses("fit x.csv -k 3 -o m.json", 3, &["3 components", "2 rows"]);
}

#[test]
fn row_07_as_many_components_as_rows() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,9\n7,4\n");
    folder.gmm("fit x.csv -k 3 -o m.json").ok();
    let model = folder.json("m.json");
    close(&numbers(&model["weights"]), &[1.0 / 3.0; 3], 1e-9);
    let mut means = numbers(&model["means"]);
    means.sort_by(f64::total_cmp);
    close(&means, &[1.0, 2.0, 3.0, 4.0, 7.0, 9.0], 1e-9);
}

#[test]
fn row_08_components_that_are_no_number_of_components() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,4\n");
    for k in ["0", "-1", "2.5", "two", "1e300", "nan"] {
        folder.refuses(&format!("fit x.csv -k {k} -o m.json"), 2, &[&format!("'{k}'"), "-k"]);
        folder.refuses(&format!("select x.csv -k {k} -o m.json"), 2, &[k, "-k"]);
    }
}

#[test]
fn row_09_not_a_number_is_reported_with_row_and_column() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,nan\nnan,4\n");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "'b'", "row 1, column 1 is NaN"]);
    folder.refuses(&format!("score {} x.csv", golden("model.json")), 3, &["x.csv"]);
    let missing = Folder::with("x.csv", "a,b\n1,2\n3,\n5,6\n");
    missing.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "line 3", "'b'", "missing value"]);
}

#[test]
fn row_10_infinities_are_reported_with_row_and_column() {
    for (word, problem) in [
        ("inf", "row 1, column 0 is inf"),
        ("-Infinity", "row 1, column 0 is -inf"),
        ("1e999", "line 3, column 0 ('a'): '1e999' is beyond float64's range"),
    ] {
        let folder = Folder::with("x.csv", &format!("a,b\n1,2\n{word},3\n"));
        folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "'a'", problem]);
    }
}

#[test]
fn row_11_text_where_numbers_belong() {
    let folder = Folder::with("x.csv", "a,b\n1,2\n3,four\n");
    folder.refuses("fit x.csv -k 1 -o m.json", 3, &["x.csv", "line 3", "column 1 ('b')", "'four' is not a number"]);
    folder.gmm("fit x.csv -k 1 --columns a").ok();
}

#[test]
fn row_12_complex_numbers() {
    let folder = with_npy("<c16", "(2, 1)", &f8(&[1.0, 2.0, 3.0, 4.0]));
    folder.refuses("fit x.npy -k 1 -o m.json", 3, &["x.npy", "c16", "complex"]);
}

#[test]
fn row_13_sparse_matrices() {
    let folder = Folder::new();
    folder.write("x.npz", stored_zip(&["indices", "indptr", "format", "shape", "data"]));
    folder.refuses("fit x.npz -k 1 -o m.json", 3, &["x.npz"]);
}

/// A zip archive with one npy of 3 integers for each name, as `scipy.sparse.save_npz` writes it.
fn stored_zip(names: &[&str]) -> Vec<u8> {
    let content = npy("<i8", false, "(3,)", &[1, 2, 3].map(i64::to_le_bytes).concat());
    let checksum = crc32(&content);
    let (mut out, mut directory) = (Vec::new(), Vec::new());
    for name in names {
        let name = format!("{name}.npy");
        let offset = out.len() as u32;
        let mut common = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
        common.extend(checksum.to_le_bytes());
        common.extend((content.len() as u32).to_le_bytes().repeat(2));
        common.extend((name.len() as u32).to_le_bytes());
        out.extend(b"PK\x03\x04");
        out.extend(&common);
        out.extend(name.as_bytes());
        out.extend(&content);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&common);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = out.len() as u32;
    out.extend(&directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend((names.len() as u16).to_le_bytes().repeat(2));
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, &byte: &u8| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { (c >> 1) ^ 0xEDB8_8320 } else { c >> 1 })
    };
    !bytes.iter().fold(u32::MAX, step)
}

#[test]
fn row_14_integers_and_halves_are_converted() {
    let whole: Vec<f64> = ROWS.iter().map(|v| v * 2.0).collect();
    let expected = {
        let folder = with_npy("<f8", "(6, 2)", &f8(&whole));
        folder.gmm("fit x.npy -k 2 -o m.json").ok();
        folder.json("m.json")
    };
    let i4: Vec<u8> = whole.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect();
    let u1: Vec<u8> = whole.iter().map(|v| *v as u8).collect();
    // f16 has 1 + 5 + 10 bits; these values are whole and below 2048, so they are exact.
    let f2: Vec<u8> = whole.iter().flat_map(|v| half(*v as f32).to_le_bytes()).collect();
    for (descr, bytes, precision) in [("<i4", i4, "f64"), ("|u1", u1, "f64"), ("<f2", f2, "f32")] {
        let folder = with_npy(descr, "(6, 2)", &bytes);
        folder.gmm("fit x.npy -k 2 -o m.json").ok();
        let model = folder.json("m.json");
        assert_eq!(model["fit"]["precision"], precision, "{descr}");
        close(&numbers(&model["means"]), &numbers(&expected["means"]), 1e-5);
    }
}

/// The bits of an f16, for zero and for normal values that are exact in f16.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    if value == 0.0 {
        return 0;
    }
    let exponent = ((bits >> 23) & 0xff) as u16 - 127 + 15;
    (exponent << 10) | ((bits >> 13) & 0x3ff) as u16
}

#[test]
fn row_15_single_precision_in_gives_single_precision_out() {
    let folder = with_npy("<f4", "(6, 2)", &f4(&ROWS.map(|v| v as f32)));
    assert_eq!(folder.gmm("fit x.npy -k 2 --json").ok().json()["precision"], "f32");
    assert_eq!(folder.gmm("fit x.npy -k 2 --json --precision f64").ok().json()["precision"], "f64");
    folder.gmm("convert x.npy y.npy").ok();
    assert!(folder.read("y.npy").windows(3).any(|w| w == b"<f4"), "values stay single");
}

#[test]
fn row_16_order_of_bytes_and_axes_does_not_matter() {
    let model = |folder: &Folder| {
        folder.gmm("fit x.npy -k 2 -o m.json").ok();
        folder.read("m.json")
    };
    let expected = model(&with_npy("<f8", "(6, 2)", &f8(&ROWS)));
    let by_column: Vec<f64> = (0..2).flat_map(|j| (0..6).map(move |i| ROWS[2 * i + j])).collect();
    let folder = Folder::new();
    folder.write("x.npy", npy("<f8", true, "(6, 2)", &f8(&by_column)));
    assert!(model(&folder) == expected, "Fortran order");
    let big: Vec<u8> = ROWS.iter().flat_map(|v| v.to_be_bytes()).collect();
    let folder = with_npy(">f8", "(6, 2)", &big);
    let path = folder.path("x.npy");
    let mut read_only = path.metadata().unwrap().permissions();
    read_only.set_readonly(true);
    std::fs::set_permissions(&path, read_only).unwrap();
    assert!(model(&folder) == expected, "big-endian and read-only");
}

#[test]
fn row_17_another_number_of_columns_at_predict() {
    let folder = Folder::with("x.csv", "1,2,3\n4,5,6\n");
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    for command in ["predict m.json x.csv -o y.csv", "score m.json x.csv --json", "fit x.csv --init m.json -o y.json"] {
        folder.refuses(command, 3, &["3 columns", "has 2"]);
    }
}

#[test]
fn row_18_reordered_column_names() {
    let folder = Folder::with("x.csv", "waiting,eruptions\n79,3.6\n54,1.8\n");
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    for command in ["predict m.json x.csv -o y.csv", "score m.json x.csv", "fit x.csv --init m.json -o y.json"] {
        folder.refuses(command, 3, &["x.csv", "column 0 is 'waiting'", "'eruptions'"]);
    }
    folder.gmm("predict m.json x.csv --columns eruptions,waiting").ok();
}

#[test]
fn row_92_a_wider_table_is_taken_by_the_names_of_the_model() {
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    folder.gmm(&format!("fit {x} -k 2 -o m.json")).ok();
    // The same rows with a text column first, the model's columns swapped, and two numeric columns last.
    folder.bash(&format!("awk -F, 'NR == 1 {{ print \"who,\" $2 \",\" $1 \",more,again\"; next }} {{ print \"w\" NR \",\" $2 \",\" $1 \",7,8\" }}' {x} > text.csv")).ok();
    folder.bash("cut -d, -f2- text.csv > numbers.csv").ok();
    let narrow = folder.gmm(&format!("predict m.json {x}")).ok().stdout;
    let score = folder.gmm(&format!("score m.json {x} --json")).ok().json()["log_likelihood"].clone();
    for wide in ["text.csv", "numbers.csv"] {
        assert_eq!(folder.gmm(&format!("predict m.json {wide}")).ok().stdout, narrow, "{wide}");
        assert_eq!(folder.gmm(&format!("score m.json {wide} --json")).ok().json()["log_likelihood"], score, "{wide}");
        let weighted = folder.gmm(&format!("score m.json {wide} --weights more --json")).ok().json();
        let ratio = weighted["log_likelihood"].as_f64().unwrap() / score.as_f64().unwrap();
        assert!((ratio - 7.0).abs() < 1e-9, "{wide}: {ratio}");
    }
    folder.bash("$GMM convert numbers.csv numbers.parquet && cut -d, -f1,3 numbers.csv > less.csv").ok();
    assert_eq!(folder.gmm("predict m.json numbers.parquet").ok().stdout, narrow);
    // If one of the model's columns is missing, there is nothing to select; and columns that the user selects are not
    // reordered.
    folder.refuses("predict m.json less.csv", 3, &["less.csv"]);
    folder.refuses("predict m.json numbers.csv --columns waiting,eruptions", 3, &["column 0 is 'waiting'"]);
}

#[test]
fn row_19_a_model_without_parameters() {
    let folder = Folder::with("m.json", "{\"format\":\"gmm-model\",\"version\":1}");
    let x = data("old_faithful.csv");
    for command in [format!("predict m.json {x} -o y.csv"), format!("score m.json {x}"), "sample m.json -n 3".into()] {
        folder.refuses(&command, 3, &["m.json", "missing field"]);
    }
}

#[test]
fn row_20_predict_on_zero_rows() {
    let folder = with_npy("<f8", "(0, 2)", &[]);
    folder.write("x.csv", "eruptions,waiting\n");
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    folder.refuses("predict m.json x.npy -o y.csv", 3, &["x.npy", "(0, 2)"]);
    folder.refuses("predict m.json x.csv -o y.csv", 3, &["x.csv", "no data rows"]);
}
