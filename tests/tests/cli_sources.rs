//! Rows from several files, and rows larger than the memory that they may take.

use gmm_tests::{Folder, data};

/// The rows of Old Faithful in files of several formats, and whole.
fn folder() -> Folder {
    let folder = Folder::new();
    let text = std::fs::read_to_string(data("old_faithful.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (header, rows) = (lines[0], &lines[1..]);
    let part = |rows: &[&str]| format!("{header}\n{}\n", rows.join("\n"));
    folder.write("whole.csv", &text);
    folder.write("a.csv", part(&rows[..100]));
    folder.write("b.csv", part(&rows[100..101]));
    folder.write("c.csv", part(&rows[101..]));
    let columns: Vec<&str> = header.split(',').collect();
    for (from, to) in [("a.csv", "part-1.parquet"), ("b.csv", "part-2.arrow"), ("c.csv", "part-3.csv")] {
        // Each file has its columns in another order.
        let order = if from == "b.csv" { format!("{},{}", columns[1], columns[0]) } else { columns.join(",") };
        folder.gmm(&format!("convert {from} {to} --columns {order}")).ok();
    }
    folder
}

/// A model file without the record of the fit.
fn model(folder: &Folder, name: &str) -> serde_json::Value {
    let mut model = folder.json(name);
    model["fit"] = serde_json::Value::Null;
    model
}

#[test]
fn several_files_a_pattern_and_a_folder_are_one_table() {
    let folder = folder();
    let fit = "-k 2 --device cpu --threads 2 -o";
    folder.gmm(&format!("fit part-1.parquet part-2.arrow part-3.csv {fit} files.json")).ok();
    // In the quotes that keep the shell from resolving it.
    folder.bash(&format!("$GMM fit 'part-*' {fit} pattern.json")).ok();
    std::fs::create_dir(folder.path("parts")).unwrap();
    for name in ["part-1.parquet", "part-2.arrow", "part-3.csv"] {
        std::fs::rename(folder.path(name), folder.path("parts").join(name)).unwrap();
    }
    folder.gmm(&format!("fit parts {fit} folder.json")).ok();
    folder.gmm(&format!("fit parts {fit} spilled.json --memory 100")).ok();
    folder.gmm(&format!("fit a.csv b.csv c.csv {fit} csv.json")).ok();
    let files = model(&folder, "files.json");
    for name in ["pattern.json", "folder.json", "spilled.json", "csv.json"] {
        assert_eq!(model(&folder, name), files, "{name}");
    }
    // The sums are added in another order, since parts are summed one by one.
    folder.gmm(&format!("fit whole.csv {fit} whole.json")).ok();
    let close = |field: &str| {
        let all = |name: &str| -> Vec<f64> {
            serde_json::from_value::<Vec<Vec<f64>>>(folder.json(name)[field].clone()).unwrap().concat()
        };
        all("whole.json").iter().zip(all("files.json")).for_each(|(a, b)| assert!((a - b).abs() < 1e-9 * a.abs()));
    };
    close("means");
    folder.gmm("score whole.json whole.csv --per-row -o whole.npy").ok();
    folder.gmm("score whole.json parts --per-row -o parts.npy").ok();
    folder.gmm("predict whole.json whole.csv -o whole_labels.csv").ok();
    folder.gmm("predict whole.json a.csv b.csv c.csv -o labels.csv").ok();
    assert_eq!(folder.read("whole.npy"), folder.read("parts.npy"));
    assert_eq!(folder.read("whole_labels.csv"), folder.read("labels.csv"));
    let best = |input: &str| folder.gmm(&format!("select {input} -k 1..3 --json")).ok().json()["best"].clone();
    assert_eq!(best("parts"), best("whole.csv"));
    folder.gmm("loglik parts whole.json").ok();
    folder.gmm("plot fit whole.json a.csv b.csv -o plot.svg").ok();
}

#[test]
fn a_file_without_names_does_not_hide_the_order_of_the_others() {
    let folder = folder();
    // The columns of the first file by position, those of the other two by name.
    folder.bash("tail -n +2 a.csv > no_names.csv; awk -F, -v OFS=, '{print $2,$1}' c.csv > turned.csv").ok();
    let fit = "-k 2 --device cpu --threads 2 -o";
    folder.gmm(&format!("fit a.csv b.csv c.csv {fit} named.json")).ok();
    folder.gmm(&format!("fit no_names.csv b.csv turned.csv {fit} mixed.json")).ok();
    assert_eq!(model(&folder, "named.json"), model(&folder, "mixed.json"));
    // Numbers are those of the first file with names.
    folder.gmm(&format!("fit a.csv turned.csv --columns 1 {fit} second.json")).ok();
    folder.gmm(&format!("fit a.csv c.csv --columns waiting {fit} name.json")).ok();
    assert_eq!(model(&folder, "second.json"), model(&folder, "name.json"));
}

#[cfg(unix)]
#[test]
fn a_folder_hides_no_file_that_cannot_be_read() {
    let folder = folder();
    std::fs::create_dir(folder.path("parts")).unwrap();
    std::fs::rename(folder.path("a.csv"), folder.path("parts/a.csv")).unwrap();
    std::os::unix::fs::symlink("/nonexistent", folder.path("parts/b.csv")).unwrap();
    folder.gmm("fit parts -k 2 --device cpu").failed(6, &["b.csv"]);
    // A pipe has no extension, and is read by its content.
    folder.bash("cat c.csv | $GMM fit <(cat c.csv) -k 2 --device cpu -q -o pipe.json").ok();
}

#[test]
fn rows_beyond_memory_give_the_same_model_to_the_bit() {
    let folder = Folder::new();
    folder.gmm("generate -n 30011 -k 3 -d 5 -o x.csv").ok();
    folder.bash("gzip -k x.csv").ok();
    for name in ["x.npy", "x.parquet", "x.arrow"] {
        folder.gmm(&format!("convert x.csv {name}")).ok();
    }
    let fit = "-k 3 --device cpu --threads 2 --max-iter 5 --tol 0 -q -o";
    folder.gmm(&format!("fit x.csv {fit} memory.json")).ok();
    let expected = model(&folder, "memory.json");
    for input in ["x.csv", "x.csv.gz", "x.npy", "x.parquet", "x.arrow"] {
        folder.gmm(&format!("fit {input} {fit} m.json --memory 50K")).ok();
        let found = model(&folder, "m.json");
        for field in ["weights", "means", "covariances"] {
            assert_eq!(found[field], expected[field], "{input} {field}");
        }
    }
    let piped = std::fs::read(folder.path("x.csv")).unwrap();
    folder.piped(&format!("fit - {fit} m.json --memory 50K"), piped).ok();
    assert_eq!(model(&folder, "m.json"), expected);
    folder.gmm("predict m.json x.csv --proba -o a.npy").ok();
    folder.gmm("predict m.json x.csv --proba -o b.npy --memory 50K").ok();
    assert_eq!(folder.read("a.npy"), folder.read("b.npy"));
}

#[test]
fn verbose_says_where_the_rows_are_and_why() {
    let folder = Folder::new();
    folder.gmm("generate -n 30000 -k 2 -d 5 -o x.npy").ok();
    folder.gmm("convert x.npy x.csv").ok();
    let note = |arguments: &str| folder.gmm(&format!("fit {arguments} -k 2 -v -o m.json --max-iter 2")).ok().stderr;
    let check = |arguments: &str, parts: &[&str]| {
        let text = note(arguments);
        let line = text.lines().find(|line| line.starts_with("rows: 1200000 bytes (1.1 MiB), ")).expect(&text);
        parts.iter().for_each(|part| assert!(line.contains(part), "'{part}' is not in: {line}"));
    };
    check("x.npy", &["mapped from the file", "half of the free memory"]);
    check("x.csv", &["in memory", "half of the free memory"]);
    check("x.csv --memory 1M", &["in a temporary file in /", "--memory 1.0 MiB"]);
    check("x.csv --memory 1GiB", &["in memory", "--memory 1.0 GiB"]);
}

#[test]
fn a_bad_value_names_the_file_and_the_row_in_it() {
    let folder = folder();
    let with = |value: &str| folder.write("bad.csv", format!("eruptions,waiting\n1,2\n3,{value}\n"));
    for memory in ["", "--memory 100"] {
        with("nan");
        folder.refuses(
            &format!("fit a.csv bad.csv c.csv -k 2 -o m.json {memory}"),
            3,
            &["bad.csv, column 'waiting'", "row 1", "NaN"],
        );
        with("x");
        folder.refuses(&format!("fit a.csv bad.csv -k 2 -o m.json {memory}"), 3, &["bad.csv: line 3, column 1"]);
    }
    folder.write("weights.csv", "eruptions,waiting,w\n1,2,1\n3,4,-1\n");
    folder.write("weights0.csv", "w,eruptions,waiting\n1,2,1\n2,3,4\n");
    folder.refuses("fit weights0.csv weights.csv -k 1 --weights w -o m.json", 3, &["weights.csv, column 'w'", "row 1"]);
}

#[test]
fn weights_of_several_files_count() {
    let folder = Folder::new();
    folder.write("1.csv", "x,w,y\n1,1,2\n3,2,5\n");
    folder.write("2.csv", "w,y,x\n1,7,6\n1,1,9\n");
    folder.write("all.csv", "x,y\n1,2\n3,5\n3,5\n6,7\n9,1\n");
    for memory in ["", "--memory 8"] {
        folder.gmm(&format!("fit 1.csv 2.csv -k 1 --weights w -o w.json {memory}")).ok();
        folder.gmm("fit all.csv -k 1 -o all.json").ok();
        let means =
            |name: &str| -> Vec<Vec<f64>> { serde_json::from_value(folder.json(name)["means"].clone()).unwrap() };
        means("w.json")[0].iter().zip(&means("all.json")[0]).for_each(|(a, b)| assert!((a - b).abs() < 1e-12));
    }
}

#[test]
fn inputs_that_do_not_fit_together_or_are_not_there_are_refused() {
    let folder = folder();
    folder.write("other.csv", "eruptions,pause\n1,2\n");
    folder.write("wide.csv", "eruptions,waiting,more\n1,2,3\n");
    folder.refuses("fit a.csv other.csv -k 2 -o m.json", 3, &["other.csv", "no column 'waiting'", "a.csv"]);
    folder.refuses("fit a.csv wide.csv -k 2 -o m.json", 3, &["wide.csv", "column 'more'", "a.csv"]);
    folder.refuses("fit no-*.csv -k 2 -o m.json", 6, &["no-*.csv", "no file matches this pattern"]);
    folder.refuses("fit - - -k 2 -o m.json", 2, &["only one input can come from standard input"]);
    folder.refuses("fit a.csv c.csv -k 2 -o m.json --memory lots", 2, &["--memory", "8GiB"]);
    folder.refuses("predict whole.json a.csv --memory 0", 2, &["--memory", "at least one byte"]);
    // The output must not replace an input, wherever it came from.
    folder.gmm("fit whole.csv -k 2 -o m.json").ok();
    folder.refuses("predict m.json a.csv c.csv -o c.csv", 2, &["c.csv", "would be overwritten"]);
}

#[cfg(target_os = "linux")]
#[test]
fn memory_beside_spilled_rows_stays_within_the_limit() {
    // 128 MB of rows with a limit of 8 MiB. RLIMIT_DATA counts what is allocated, and not mapped files (bash counts
    // KiB).
    let folder = Folder::new();
    folder.gmm("generate -n 1e6 -k 2 -d 16 -o x.parquet").ok();
    folder.gmm("convert x.parquet x.csv").ok();
    let limit = "ulimit -d 110000; export RAYON_NUM_THREADS=1";
    for input in ["x.parquet", "x.csv"] {
        let fit = format!("fit {input} -k 2 --covariance diag --max-iter 2 --device cpu --threads 1 -o m.json");
        folder.bash(&format!("{limit}; exec $GMM {fit} --memory 8M")).ok();
    }
    folder.bash(&format!("{limit}; exec $GMM predict m.json x.csv --proba -o p.npy --memory 8M --device cpu")).ok();
    // The rows of positive weight are half of them, which do not fit either.
    folder.bash("awk 'NR == 1 { print $0 \",w\"; next } { print $0 \",\" NR % 2 }' x.csv > w.csv").ok();
    let fit = "fit w.csv --weights w -k 2 --covariance diag --max-iter 2 --device cpu --threads 1 -q -o";
    folder.bash(&format!("{limit}; exec $GMM {fit} m.json --memory 8M")).ok();
    folder.gmm(&format!("{fit} all.json")).ok();
    assert_eq!(model(&folder, "m.json"), model(&folder, "all.json"));
}
