//! `gmm adapt`, `gmm score --background` and `gmm fit --init mix-up`.

use gmm_tests::Folder;
use serde_json::Value;

/// A background model `ubm.json` in two columns, and rows `a.csv` and `b.csv` of two speakers.
fn speakers() -> Folder {
    let folder = Folder::new();
    let model = r#"{"format": "gmm-model", "version": 1, "covariance_type": "diag", "n_components": 2, "n_features": 2,
        "weights": [0.5, 0.5], "means": [[0.0, 0.0], [10.0, 10.0]], "covariances": [[1.0, 4.0], [1.0, 4.0]], "fit": null}"#;
    std::fs::write(folder.path("ubm.json"), model).expect("a file");
    std::fs::write(folder.path("a.csv"), "2,2\n".repeat(16)).expect("a file");
    std::fs::write(folder.path("b.csv"), "10,6\n".repeat(48)).expect("a file");
    folder
}

fn means(folder: &Folder, name: &str) -> Vec<f64> {
    gmm_data::read_model(folder.path(name)).expect("a model").mixture.means().iter().copied().collect()
}

#[track_caller]
fn close(a: &[f64], b: &[f64]) {
    assert!(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9), "{a:?} {b:?}");
}

#[test]
fn sixteen_rows_move_a_component_half_way() {
    let folder = speakers();
    folder.gmm("adapt ubm.json a.csv -o a.json").ok();
    close(&means(&folder, "a.json"), &[1.0, 1.0, 10.0, 10.0]);
    folder.gmm("adapt ubm.json b.csv -o b.json --relevance 48 --adapt means,variances,weights --rule kaldi").ok();
    close(&means(&folder, "b.json"), &[0.0, 0.0, 10.0, 8.0]);
    let found = gmm_data::read_model(folder.path("b.json")).expect("a model").mixture;
    close(found.weights().as_slice().unwrap(), &[0.25, 0.75]);
}

#[test]
fn every_file_is_a_speaker() {
    let folder = speakers();
    folder.gmm("adapt ubm.json a.csv b.csv -o models --supervectors means.csv").ok();
    close(&means(&folder, "models/a.json"), &[1.0, 1.0, 10.0, 10.0]);
    close(&means(&folder, "models/b.json"), &[0.0, 0.0, 10.0, 7.0]);
    let table = std::fs::read_to_string(folder.path("means.csv")).expect("a table");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines[0], lines.len()), ("m0_0,m0_1,m1_0,m1_1", 3));
    folder.gmm("adapt ubm.json a.csv b.csv --supervectors s.csv --normalised").ok();
    let table = std::fs::read_to_string(folder.path("s.csv")).expect("a table");
    let of_b: Vec<f64> = table.lines().nth(2).unwrap().split(',').map(|v| v.parse().unwrap()).collect();
    // √½ (7 − 10) / 2 in the last place.
    close(&of_b, &[0.0, 0.0, 0.0, -1.5 * 0.5f64.sqrt()]);
}

#[test]
fn every_value_of_a_column_is_a_speaker() {
    let folder = speakers();
    let rows = "x,y,who\n".to_owned() + &"2,2,7\n10,6,-1\n".repeat(16);
    std::fs::write(folder.path("all.csv"), rows).expect("a file");
    folder.gmm("adapt ubm.json all.csv --by who -o models --supervectors means.csv").ok();
    close(&means(&folder, "models/7.json"), &[1.0, 1.0, 10.0, 10.0]);
    close(&means(&folder, "models/-1.json"), &[0.0, 0.0, 10.0, 8.0]);
    let table = std::fs::read_to_string(folder.path("means.csv")).expect("a table");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!((lines[0], lines.len()), ("who,m0_0,m0_1,m1_0,m1_1", 3));
    let numbers = |line: &str| line.split(',').map(|v| v.parse().unwrap()).collect::<Vec<f64>>();
    // Sums of 16 rows in another order.
    close(&numbers(lines[1]), &[-1.0, 0.0, 0.0, 10.0, 8.0]);
    close(&numbers(lines[2]), &[7.0, 1.0, 1.0, 10.0, 10.0]);
    let text = folder.gmm("score models/7.json all.csv --by who --background ubm.json --top 1").ok().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][1], lines[1][1]), ("-1", "7"), "{text}");
    close(&[lines[1][0].parse().unwrap()], &[1.875]);
}

#[test]
fn rows_are_shared_among_the_largest_components() {
    let folder = speakers();
    let rows = "5,5\n".repeat(16);
    std::fs::write(folder.path("between.csv"), rows).expect("a file");
    folder.gmm("adapt ubm.json between.csv -o all.json").ok();
    folder.gmm("adapt ubm.json between.csv -o one.json --top 1").ok();
    // Both components are as near: the first takes all 16 rows, or half of them each.
    close(&means(&folder, "one.json"), &[2.5, 2.5, 10.0, 10.0]);
    let third = 5.0 / 3.0;
    close(&means(&folder, "all.json"), &[third, third, 10.0 - third, 10.0 - third]);
}

#[test]
fn a_ratio_is_positive_for_the_speaker_and_negative_for_another() {
    let folder = speakers();
    folder.gmm("adapt ubm.json a.csv -o a.json").ok();
    let run = |line: &str| -> Value { serde_json::from_str(&folder.gmm(line).ok().stdout).expect("JSON") };
    let found = run("score a.json a.csv --background ubm.json --top 1 --json");
    // ln N(2 | 1, 1) − ln N(2 | 0, 1) = 3/2, and 3/8 in the column of variance 4.
    close(&[found["log_likelihood_ratios"][0]["ratio"].as_f64().unwrap()], &[1.875]);
    std::fs::write(folder.path("c.csv"), "-1,0\n".repeat(3)).expect("a file");
    let text = folder.gmm("score a.json a.csv c.csv --background ubm.json").ok().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("a.csv") && lines[1].starts_with('-'), "{text}");
}

#[test]
fn malformed_commands_say_what_to_do() {
    let folder = speakers();
    let says = |line: &str, what: &str| {
        let run = folder.gmm(line);
        assert_eq!(run.code, Some(2), "{}", run.stderr);
        assert!(run.stderr.contains(what), "{}", run.stderr);
    };
    says("adapt ubm.json a.csv", "--output");
    says("adapt ubm.json a.csv -o a.json --relevance -1", "relevance is -1");
    says("adapt ubm.json a.csv b.csv -o both.json", "must be a folder");
    says("adapt ubm.json a.csv -o a.json --adapt covariances", "covariances");
    says("score ubm.json a.csv --top 3", "--background");
    says("score ubm.json a.csv --by 0", "--background");
    says("adapt ubm.json a.csv --by 0 -o a.json", "must be a folder");
    says("adapt ubm.json a.csv -o a.json --top 0", "--top");
    std::fs::create_dir(folder.path("other")).expect("a folder");
    std::fs::copy(folder.path("a.csv"), folder.path("other/a.csv")).expect("a copy");
    says("adapt ubm.json a.csv other/a.csv -o models", "would be one file");
    assert!(!folder.path("models").exists());
}

#[test]
fn a_background_model_is_trained_by_mixing_up() {
    let folder = speakers();
    folder.gmm("sample ubm.json -n 500 -o x.csv").ok();
    folder.gmm("fit x.csv -k 2 --covariance diag --init mix-up -o m.json").ok();
    let mut found = means(&folder, "m.json");
    found.iter_mut().for_each(|v| *v = v.round());
    assert_eq!(found, [0.0, 0.0, 10.0, 10.0]);
}
