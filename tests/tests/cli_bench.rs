//! `gmm bench`: definitions, records, and errors.

use gmm_tests::Folder;

const TINY: &str = r#"
title = "Tiny fits"
what = "em"
iterations = 3
covariances = ["full", "diag"]
precisions = ["f64", "f32"]
engines = ["reference", "cpu", "cuda:7"]
peers = ["scikit-learn"]
seed = 1
longest = 5.0
budget = 60.0
[tolerance]
f64 = 1e-9
f32 = 2e-5
[repeats]
warm_up = 1
most = 2
seconds = 0.01
[quick]
work = 1e3
most = 1
[[sweep]]
name = "n"
n = [50, 2000]
k = 2
d = 3
"#;

#[test]
fn a_definition_leaves_a_record_in_which_every_answer_was_checked() {
    let folder = Folder::with("tiny.toml", TINY);
    let run = folder.gmm("bench tiny.toml --out out --json").ok();
    let found = run.json();
    let rows = found["rows"].as_array().unwrap();
    // The reference engine supports only f64.
    assert_eq!(rows.len(), 2 * 2 * 3);
    for row in rows {
        assert_eq!(row["what"], "em");
        assert!(["ok", "disturbed"].contains(&row["status"].as_str().unwrap()), "{row}");
        let field = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
        let allowed = if row["precision"] == "f64" { 1e-9 } else { 2e-5 };
        assert!(field("error") <= allowed && field("iterations") == 3.0, "{row}");
        assert!(field("ms_min") <= field("ms") && field("ms") <= field("ms_max") && field("ms") > 0.0, "{row}");
        assert!(field("first_ms") > 0.0 && field("load_ms") >= 0.0 && field("em_ms") > 0.0, "{row}");
    }
    // All engines reach the same likelihood on the timed rows.
    let ends = |engine: &str| {
        let of = rows.iter().filter(|row| row["engine"] == engine && row["precision"] == "f64");
        of.map(|row| row["log_likelihood"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    gmm_tests::close(&ends("cpu"), &ends("reference"), 1e-9);
    // An engine or peer that is not available gives a note.
    let notes = found["notes"].to_string();
    assert!(notes.contains("cuda:7 is not available") && notes.contains("scikit-learn"), "{notes}");
    // The files have the same contents.
    let machine = std::fs::read_dir(folder.path("out")).unwrap().next().unwrap().unwrap().path();
    let mut names: Vec<_> = std::fs::read_dir(machine).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    let text = std::fs::read_to_string(&names[0]).unwrap();
    assert!(names[0].display().to_string().ends_with("-tiny.csv"), "{names:?}");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let columns = lines[0].split(',').count();
    assert_eq!(lines.len(), 1 + rows.len());
    assert!(lines.iter().all(|line| line.split(',').count() == columns), "{text}");
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&names[1]).unwrap()).unwrap();
    assert_eq!(json, found);
}

#[test]
fn the_definitions_in_the_program_are_listed_and_run() {
    let folder = Folder::new();
    let list = folder.gmm("bench --list").ok().stdout;
    let names: Vec<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(names, ["em-sweeps", "likelihood-sweep", "variants", "products"]);
    for name in names {
        let run = folder.gmm(&format!("bench {name} --quick --engine cpu --threads 1")).ok();
        let rows: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("cpu ")).collect();
        assert!(!rows.is_empty() && rows.iter().all(|row| !row.contains("wrong")), "{}", run.stdout);
        assert!(run.stdout.contains("# processor: ") && run.stdout.contains("started in"), "{}", run.stdout);
    }
    assert!(folder.files().is_empty(), "nothing is kept that was not asked for");
}

#[test]
fn of_products_the_whole_way_and_that_with_a_resident_matrix_are_timed() {
    let text = TINY.replace("\"em\"", "\"product\"").replace("covariances = [\"full\", \"diag\"]", "");
    let text = text.replace("[50, 2000]", "[3, 70]").replace("k = 2\nd = 3", "k = \"n\"\nd = \"n\"");
    let found = Folder::with("product.toml", &text).gmm("bench product.toml --json").ok().json();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 3, "{found}");
    for row in rows {
        let field = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name} of {row}"));
        assert!(field("error") < 1e-6 && row["covariance"].is_null() && row["n"] == row["d"], "{row}");
        assert!(field("ms") > 0.0 && field("resident_ms") > 0.0 && field("load_ms") >= 0.0, "{row}");
    }
}

#[test]
fn what_the_budget_has_no_time_for_is_left_and_no_fault() {
    let folder = Folder::with("tiny.toml", TINY);
    let found = folder.gmm("bench tiny.toml --json --budget 1e-9").ok().json();
    let rows = found["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 2 * 3);
    for row in rows {
        assert!(row["status"] == "left" && row["note"].as_str().unwrap().contains("budget"), "{row}");
    }
}

#[test]
fn an_answer_outside_the_tolerance_is_not_timed_and_the_program_says_so() {
    // No f32 engine meets this tolerance.
    let strict = TINY.replace("f32 = 2e-5", "f32 = 1e-30").replace(", \"cuda:7\"", "");
    let folder = Folder::with("strict.toml", &strict);
    let run = folder.gmm("bench strict.toml --json");
    assert_eq!(run.code, Some(4), "{}", run.stderr);
    assert!(run.stderr.starts_with("error: 4 of 12 results are wrong"), "{}", run.stderr);
    let found = run.json();
    let wrong: Vec<_> = found["rows"].as_array().unwrap().iter().filter(|row| row["status"] == "wrong").collect();
    assert_eq!(wrong.len(), 4);
    assert!(wrong.iter().all(|row| row["ms"].is_null() && row["precision"] == "f32"), "{wrong:?}");
}

#[test]
fn what_cannot_be_run_is_refused_in_a_line() {
    let folder = Folder::with("bad.toml", &TINY.replace("iterations = 3", "iterations = 0"));
    folder.write("word.toml", TINY.replace("\"em\"", "\"dance\""));
    folder.write("tiny.toml", TINY);
    folder.refuses("bench bad.toml", 3, &["bad.toml", "at least 1"]);
    folder.refuses("bench word.toml", 3, &["word.toml", "dance"]);
    folder.refuses("bench nothing", 2, &["'nothing'", "em-sweeps, likelihood-sweep, variants, products"]);
    folder.refuses("bench nothing.toml", 6, &["nothing.toml"]);
    folder.refuses("bench tiny.toml --engine tpu", 2, &["tpu", "auto, cpu"]);
    folder.refuses("bench tiny.toml --engine cuda:7", 5, &["none of the engines is available"]);
    folder.refuses("bench tiny.toml --budget 0", 2, &["--budget", "greater than 0"]);
    folder.refuses("bench tiny.toml --python no/python --engine cuda:7", 5, &["cuda:7"]);
}
