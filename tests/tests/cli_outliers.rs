//! `gmm outliers`: rows of low density, and the threshold kept in the model file.

use gmm_tests::{Folder, close, data};
use serde_json::Value;

fn fitted() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o m.json", data("old_faithful.csv"))).ok();
    folder
}

/// The columns `outlier` and `log_density` of a csv text.
fn flagged(text: &str) -> Vec<(f64, f64)> {
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("outlier,log_density"));
    let row = |line: &str| line.split_once(',').map(|(a, b)| (a.parse().unwrap(), b.parse().unwrap()));
    lines.map(|line| row(line).expect("two columns")).collect()
}

#[test]
fn the_share_of_the_rows_is_flagged_and_the_threshold_kept() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let command = format!("outliers m.json {x} --contamination 0.05 -o y.csv --save kept.safetensors --json");
    let told = folder.gmm(&command).ok().json();
    let rows = flagged(&folder.text("y.csv"));
    assert_eq!(rows.iter().filter(|(flag, _)| *flag == 1.0).count(), 13, "5 % of 272 rows are 13.6");
    assert_eq!((&told["n_rows"], &told["n_outliers"]), (&272.into(), &13.into()));
    let threshold = told["threshold"]["log_density"].as_f64().unwrap();
    assert!(rows.iter().all(|(flag, density)| (*flag == 1.0) == (*density < threshold)));
    // The densities are those of score.
    let score = folder.gmm(&format!("score m.json {x} --per-row")).ok().stdout;
    let score: Vec<f64> = score.lines().skip(1).map(|v| v.parse().unwrap()).collect();
    assert_eq!(rows.iter().map(|(_, density)| *density).collect::<Vec<_>>(), score);
    // The stored threshold flags the same rows, whatever the rows beside them; convert keeps it.
    folder.gmm("convert kept.safetensors kept.json").ok();
    assert_eq!(folder.json("kept.json")["outliers"], told["threshold"]);
    for model in ["kept.safetensors", "kept.json"] {
        let again = folder.gmm(&format!("outliers {model} {x}")).ok().stdout;
        assert_eq!(flagged(&again), rows, "{model}");
    }
    folder.bash(&format!("(head -1 {x}; echo 3,200) > far.csv")).ok();
    assert_eq!(flagged(&folder.gmm("outliers kept.json far.csv").ok().stdout)[0].0, 1.0);
    // Other commands read the file as before.
    let labels = folder.gmm(&format!("predict kept.json {x}")).ok().stdout;
    assert_eq!(labels, folder.gmm(&format!("predict m.json {x}")).ok().stdout);
}

#[test]
fn the_model_file_itself_can_take_the_threshold() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let before: Value = folder.json("m.json");
    folder.gmm(&format!("outliers m.json {x} --contamination 0.01 --save m.json -o y.csv")).ok();
    let mut after = folder.json("m.json");
    let threshold = after.as_object_mut().unwrap().remove("outliers").expect("the threshold");
    assert_eq!(threshold["contamination"], 0.01);
    assert_eq!(after, before);
}

#[test]
fn a_region_of_the_model_has_its_probability() {
    let folder = fitted();
    folder.gmm("sample m.json -n 20000 --seed 5 -o x.npy").ok();
    let told = folder.gmm("outliers m.json x.npy --level 0.95 -o y.npy --json").ok().json();
    let share = told["n_outliers"].as_f64().unwrap() / 20000.0;
    // Five standard errors of a share of 20,000 rows.
    close(&[share], &[0.05], 5.0 * (0.05f64 * 0.95 / 20000.0).sqrt());
    assert_eq!(told["threshold"]["level"], 0.95);
}

#[test]
fn weights_count_rows_several_times() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    // Weight 1 for short eruptions and 3 for long ones, against repeated rows.
    folder.bash(&format!("awk -F, 'NR==1{{print $0 \",w\"}} NR>1{{print $0 \",\" ($1<3?1:3)}}' {x} > w.csv")).ok();
    folder.bash(&format!("awk -F, 'NR==1 || $1<3{{print}} NR>1 && $1>=3{{print;print;print}}' {x} > r.csv")).ok();
    let threshold = |arguments: &str| {
        let told = folder.gmm(&format!("outliers m.json {arguments} --contamination 0.03 -o y.csv --json")).ok().json();
        told["threshold"].clone()
    };
    assert_eq!(threshold("w.csv --weights w"), threshold("r.csv"));
}

#[test]
fn a_missing_threshold_and_bad_options_are_errors() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let refuses = |options: &str, code: i32, parts: &[&str]| {
        folder.refuses(&format!("outliers m.json {x} {options}"), code, parts);
    };
    refuses("-o y.csv", 2, &["m.json", "no threshold", "--contamination"]);
    refuses("--contamination 0.6 -o y.csv", 2, &["--contamination", "0.6", "at most 0.5"]);
    refuses("--contamination -1 -o y.csv", 2, &["--contamination", "-1"]);
    refuses("--contamination nan -o y.csv", 2, &["--contamination", "NaN"]);
    refuses("--level 1 -o y.csv", 2, &["--level", "below 1"]);
    refuses("--save k.json -o y.csv", 2, &["--save", "--contamination"]);
    refuses("--contamination 0.1 --save k.csv -o y.csv", 2, &["json or safetensors"]);
    refuses("--contamination 0.1 --save k.json -o k.json", 2, &["k.json"]);
    refuses("--contamination 0.1 --json", 2, &["--json", "-o"]);
    refuses("--level 0.9 --weights waiting -o y.csv", 2, &["--weights", "--contamination"]);
    folder.write(
        "bad.json",
        folder.text("m.json").replace("\"weights\"", "\"outliers\": {\"log_density\": \"low\"},\n\"weights\""),
    );
    folder.refuses(&format!("outliers bad.json {x}"), 3, &["bad.json", "outliers"]);
    folder.write("far.csv", "eruptions,waiting\n1e200,1\n1,1e200\n3,60\n");
    folder.refuses("outliers m.json far.csv --contamination 0.5 -o y.csv", 2, &["contamination", "density is 0"]);
}
