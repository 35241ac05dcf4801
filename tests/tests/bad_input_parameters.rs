//! Bad input, rows 43 to 50: parameters.

use gmm_tests::{Folder, data};
use serde_json::{Value, json};

fn faithful() -> String {
    data("old_faithful.csv")
}

/// A valid model of two components in two columns.
fn model() -> Value {
    json!({
        "format": "gmm-model", "version": 1, "covariance_type": "full", "n_components": 2, "n_features": 2,
        "feature_names": null, "weights": [0.5, 0.5], "means": [[2.0, 55.0], [4.0, 80.0]],
        "covariances": [[[1.0, 0.0], [0.0, 30.0]], [[1.0, 0.0], [0.0, 30.0]]], "fit": null
    })
}

/// Asserts that a model with one field changed is refused by every command that reads a model, and is valid without the
/// change.
#[track_caller]
fn refused(field: &str, value: Value, parts: &[&str]) {
    let folder = Folder::with("good.json", &model().to_string());
    folder.gmm("show good.json").ok();
    let mut bad = model();
    bad[field] = value;
    folder.write("m.json", bad.to_string());
    let mut parts = parts.to_vec();
    parts.push("m.json");
    for command in ["fit X --init m.json -o y.json", "predict m.json X -o y.csv", "convert m.json y.safetensors"] {
        folder.refuses(&command.replace('X', &faithful()), 3, &parts);
    }
}

#[test]
fn row_43_tolerance_and_regularisation_out_of_range() {
    for (option, name) in [("--tol", "tol"), ("--reg-covar", "reg_covar")] {
        for value in ["-1", "nan", "inf", "-1e-9"] {
            let command = format!("fit {} -k 2 {option} {value} -o m.json", faithful());
            Folder::new().refuses(&command, 2, &[name, "finite and not negative"]);
        }
        let command = format!("fit {} -k 2 {option} small -o m.json", faithful());
        Folder::new().refuses(&command, 2, &["small", option]);
    }
}

#[test]
fn row_44_an_unknown_word_lists_the_choices() {
    let x = faithful();
    for (arguments, parts) in [
        ("--covariance round", ["round", "full, tied, diag, spherical"]),
        ("--init kmean", ["kmean", "kmeans, kmeans++, random-rows, random, stride, tree, best"]),
        ("--device gpu", ["gpu", "auto, cpu, reference, cuda"]),
        ("--precision f16", ["f16", "f32, f64"]),
    ] {
        Folder::new().refuses(&format!("fit {x} -k 2 {arguments} -o m.json"), 2, &parts);
    }
    Folder::new().refuses(&format!("select {x} -k 2 --criterion dic"), 2, &["dic", "bic, aic, icl"]);
    Folder::new().refuses(&format!("select {x} -k 2 --covariance full,round"), 2, &["round", "full, tied"]);
    Folder::new().refuses("completions ksh", 2, &["ksh", "bash", "zsh"]);
}

#[test]
fn row_45_given_weights_that_are_no_distribution() {
    refused("weights", json!([0.5, 0.6]), &["sum to 1.1"]);
    refused("weights", json!([1.5, -0.5]), &["weight of component 1 is negative"]);
    refused("weights", json!([1.0]), &["weights", "[1]", "[2]"]);
}

#[test]
fn row_46_given_means_of_the_wrong_shape_or_not_finite() {
    refused("means", json!([[2.0, 55.0]]), &["means", "[1, 2]", "[2, 2]"]);
    refused("means", json!([[2.0], [4.0, 80.0]]), &["means", "row 1 has 2 numbers"]);
    refused("means", json!([[2.0, null], [4.0, 80.0]]), &["means", "null"]);
}

#[test]
fn row_47_given_covariances_that_are_none() {
    let with = |matrix: Value| json!([[[1.0, 0.0], [0.0, 30.0]], matrix]);
    refused("covariances", with(json!([[1.0, 0.5], [0.2, 30.0]])), &["component 1 is not symmetric"]);
    let parts = ["component 1 is not positive definite", "pivot -3", "column 1"];
    refused("covariances", with(json!([[1.0, 2.0], [2.0, 1.0]])), &parts);
}

#[test]
fn row_48_a_sample_of_no_rows_names_the_parameter() {
    let folder = Folder::with("m.json", &model().to_string());
    for n in ["0", "-1", "2.5"] {
        folder.refuses(&format!("sample m.json -n {n} -o y.csv"), 2, &[&format!("'{n}'"), "-n <N>"]);
        folder.refuses(&format!("generate -n {n} -k 2 -d 2 -o y.csv"), 2, &[&format!("'{n}'"), "-n <N>"]);
    }
    folder.refuses("sample m.json -n 9e14 -o y.csv", 6, &["bytes", "free"]);
}

#[test]
fn row_49_row_weights_that_are_none() {
    for (weights, parts) in [
        (["1", "-2", "1"], ["'w'", "weight of row 1 is -2"]),
        (["1", "1", "nan"], ["w", "NaN"]),
        (["1", "inf", "1"], ["w", "inf"]),
        (["0", "0", "0"], ["'w'", "sum to 0"]),
    ] {
        let [a, b, c] = weights;
        let folder = Folder::with("x.csv", &format!("a,w\n1,{a}\n2,{b}\n3,{c}\n"));
        folder.refuses("fit x.csv -k 1 --weights w -o m.json", 3, &parts);
    }
    let folder = Folder::with("x.csv", "a,w\n1,1\n2,0\n3,0\n");
    folder.refuses("fit x.csv -k 1 --weights w -o m.json", 3, &["at least 2 of positive weight"]);
}

#[test]
fn row_50_a_column_that_is_not_there_or_twice() {
    let x = faithful();
    let there = "eruptions, waiting";
    Folder::new().refuses(&format!("fit {x} -k 2 --columns waiting,length -o m.json"), 3, &["'length'", there]);
    Folder::new().refuses(&format!("fit {x} -k 2 --columns waiting,waiting -o m.json"), 3, &["'waiting'", "twice"]);
    Folder::new().refuses(&format!("fit {x} -k 2 --columns 0,2 -o m.json"), 3, &["'2'", there]);
    Folder::new().refuses(&format!("fit {x} -k 2 --weights w -o m.json"), 3, &["'w'", there]);
    let folder = Folder::with("x.csv", "a,a,b\n1,2,3\n4,5,6\n");
    folder.refuses("fit x.csv -k 1 --columns a,b -o m.json", 3, &["several columns are called 'a'"]);
}

#[test]
fn row_44_a_seed_that_is_no_number_or_negative_says_its_range() {
    let folder = Folder::new();
    let fit = format!("fit {} -k 2 -o m.json", data("old_faithful.csv"));
    for command in [fit.as_str(), "generate -n 5 -k 2 -d 2 -o y.csv", "sample m.json -n 3 -o y.csv"] {
        for seed in ["-1", "2.5", "today"] {
            folder.refuses(&format!("{command} --seed {seed}"), 2, &["--seed", "whole number from 0"]);
        }
    }
}

#[test]
fn row_44_a_count_beyond_all_counting_says_so() {
    for n in ["1e30", "1e16"] {
        Folder::new().refuses(&format!("generate -n {n} -k 2 -d 2 -o y.npy"), 2, &["-n", "at most 9e15"]);
    }
}

#[test]
fn row_44_a_range_of_components_in_other_words_says_how_one_is_written() {
    for k in ["1-3", "one", "1..", "..3"] {
        let command = format!("select {} -k {k}", data("old_faithful.csv"));
        Folder::new().refuses(&command, 2, &["-k", "whole number", "1..10"]);
    }
}
