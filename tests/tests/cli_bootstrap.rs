//! `gmm bootstrap`, and the choices of `gmm select` that resample: standard errors, ICL by labels, and tests.

use gmm_tests::{Folder, data};

fn model(folder: &Folder, options: &str) {
    let options = format!("{options} --tol 1e-8 --max-iter 1000 --device cpu -o m.json");
    folder.gmm(&format!("fit {} {options}", data("old_faithful.csv"))).ok();
}

#[test]
fn standard_errors_have_the_shapes_of_the_parameters() {
    let folder = Folder::new();
    for (kind, shape) in [("full", vec![2, 2, 2]), ("tied", vec![2, 2]), ("diag", vec![2, 2]), ("spherical", vec![2])] {
        model(&folder, &format!("-k 2 --covariance {kind}"));
        let found = folder
            .gmm(&format!("bootstrap m.json {} --replicates 20 --device cpu --json", data("old_faithful.csv")))
            .ok()
            .json();
        for (name, shape) in [("weights", vec![2]), ("means", vec![2, 2]), ("covariances", shape)] {
            let one = &found[name];
            let numbers =
                |key: &str| -> Vec<f64> { one[key].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect() };
            assert_eq!(one["shape"], serde_json::json!(shape), "{kind} {name}");
            let (value, lower, upper) = (numbers("value"), numbers("lower"), numbers("upper"));
            assert_eq!(value.len(), shape.iter().product::<usize>());
            for i in 0..value.len() {
                assert!(numbers("standard_error")[i] > 0.0 && lower[i] < upper[i], "{kind} {name}: {one}");
            }
        }
    }
}

#[test]
fn the_table_has_a_line_for_every_parameter() {
    let folder = Folder::new();
    model(&folder, "-k 2");
    let run = folder
        .gmm(&format!(
            "bootstrap m.json {} --replicates 30 --resampling weighted --device cpu",
            data("old_faithful.csv")
        ))
        .ok();
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], "weighted bootstrap, 30 replicates, 95% percentile intervals");
    // A heading, and for each component a weight, two means, two variances and a covariance.
    assert_eq!(lines.len(), 3 + 12, "{}", run.stdout);
    assert!(lines.iter().any(|line| line.contains("covariance eruptions, waiting")), "{}", run.stdout);
}

#[test]
fn the_same_seed_gives_the_same_standard_errors() {
    let folder = Folder::new();
    model(&folder, "-k 2");
    let run = |seed: u64| {
        let input = data("old_faithful.csv");
        folder.gmm(&format!("bootstrap m.json {input} --replicates 10 --seed {seed} --device cpu --json")).ok().stdout
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn invalid_options_of_resampling_are_usage_errors() {
    let folder = Folder::new();
    model(&folder, "-k 2");
    let input = data("old_faithful.csv");
    for (command, why) in [
        (format!("bootstrap m.json {input} --replicates 1"), "at least 2"),
        (format!("bootstrap m.json {input} --level 1.5"), "between 0 and 1"),
        (format!("bootstrap m.json {input} --resampling jackknife"), "nonparametric, weighted"),
        (format!("select {input} -k 1..3 --criterion blrt --covariance full,diag"), "one kind"),
        (format!("select {input} -k 3,1 --criterion blrt"), "ascending"),
        (format!("select {input} -k 1..3 --criterion icl-labels --plot x.svg"), "--plot draws"),
    ] {
        folder.gmm(&command).failed(2, &[why]);
    }
}

#[test]
fn tests_stop_at_the_first_that_is_not_significant() {
    let run = Folder::new()
        .gmm(&format!(
            "select {} -k 1..4 --init tree --criterion blrt --replicates 19 --tol 1e-6 --max-iter 500 --device cpu --json",
            data("old_faithful.csv")
        ))
        .ok();
    let found = run.json();
    let tests = found["tests"].as_array().unwrap();
    assert!(tests[0]["p_value"].as_f64().unwrap() <= 0.05, "{tests:?}");
    let (last, before) = tests.split_last().unwrap();
    assert!(before.iter().all(|test| test["p_value"].as_f64().unwrap() <= 0.05));
    let chosen = found["best"]["n_components"].as_u64().unwrap();
    let is_significant = last["p_value"].as_f64().unwrap() <= 0.05;
    assert_eq!(chosen, last[if is_significant { "alternative" } else { "null" }].as_u64().unwrap());
    assert_eq!(last["replicates"].as_array().unwrap().len(), 19);
}

#[test]
fn tests_that_could_never_reject_are_refused() {
    let folder = Folder::new();
    let of =
        |options: &str| folder.gmm(&format!("select {} -k 1..2 --criterion blrt {options}", data("old_faithful.csv")));
    of("--replicates 9").failed(2, &["replicates is 9", "at least 19 for a level of 0.05"]);
    of("--level 0.001").failed(2, &["replicates is 99", "at least 999 for a level of 0.001"]);
    of("--replicates 9 --level 0.1 --device cpu").ok();
}

#[test]
fn a_selection_says_what_each_start_reached() {
    let run = Folder::new()
        .gmm(&format!("select {} -k 2 --init best --criterion icl-labels --device cpu --json", data("iris.csv")))
        .ok();
    let found = run.json();
    let candidate = &found["candidates"][0];
    let starts = candidate["starts"].as_array().unwrap();
    assert_eq!(starts.len(), 11);
    assert_eq!((starts[0]["start"].as_str(), starts[10]["start"].as_str()), (Some("tree"), Some("best")));
    assert!(candidate["icl_labels"].as_f64().unwrap() >= candidate["bic"].as_f64().unwrap());
    assert!(candidate["icl_labels"].as_f64().unwrap() <= candidate["icl"].as_f64().unwrap());
}

#[test]
fn replicates_are_fits_under_the_rule_of_the_model() {
    let folder = Folder::new();
    let input = data("old_faithful.csv");
    let spread = |options: &str| {
        let line = format!("bootstrap m.json {input} --replicates 10 --device cpu {options}");
        folder.gmm(&line)
    };
    folder.gmm(&format!("fit {input} -k 2 --covariance diag --floor 2 -o m.json")).ok();
    spread("").failed(2, &["covariance floor 2", "plain EM"]);
    spread("--floor 3").failed(2, &["covariance floor 2", "covariance floor 3"]);
    let found = spread("--floor 2 --json").ok().json();
    assert_eq!(gmm_tests::numbers(&found["covariances"]["lower"])[0], 2.0, "{found}");
    folder.gmm(&format!("fit {input} -k 2 --recorded eruptions=0..9 -o m.json")).ok();
    spread("").failed(2, &["rows truncated"]);
    // Factors are those of the model.
    folder.gmm(&format!("fit {} -k 1 --covariance factors:1 -o m.json", data("iris.csv"))).ok();
    folder.gmm(&format!("bootstrap m.json {} --replicates 10 --device cpu", data("iris.csv"))).ok();
}
