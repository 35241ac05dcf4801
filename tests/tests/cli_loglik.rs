//! `gmm loglik`: the log-likelihood of one data set under many models.

use gmm_tests::{Folder, close, data, f8, npy, npz, numbers};
use serde_json::Value;

/// An array of an npz: name, shape, values.
type Part<'a> = (&'a str, &'a [usize], &'a [f64]);

fn faithful() -> String {
    data("old_faithful.csv")
}

/// A folder with two models of Old Faithful, `two.json` and `one.safetensors`.
fn fitted() -> Folder {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 -o two.json", faithful())).ok();
    folder.gmm(&format!("fit {} -k 1 --covariance diag -o one.safetensors", faithful())).ok();
    folder
}

fn score(folder: &Folder, model: &str, options: &str) -> f64 {
    let run = folder.gmm(&format!("score {model} {} --json {options}", faithful())).ok();
    run.json()["log_likelihood"].as_f64().unwrap()
}

fn values(run: &Value) -> Vec<f64> {
    run["models"].as_array().unwrap().iter().map(|m| m["log_likelihood"].as_f64().unwrap()).collect()
}

/// A batch with the model twice; the `means` of the second set are moved by `by`.
fn batch(folder: &Folder, model: &str, by: f64) -> Vec<u8> {
    let model = folder.json(model);
    let twice = |field: &str, by: f64| {
        let one = numbers(&model[field]);
        [one.clone(), one.iter().map(|v| v + by).collect()].concat()
    };
    npz(&[
        ("weights", &[2, 2], &twice("weights", 0.0)),
        ("means", &[2, 2, 2], &twice("means", by)),
        ("covariances", &[2, 2, 2, 2], &twice("covariances", 0.0)),
    ])
}

#[test]
fn each_model_has_a_line_and_the_likelihood_that_score_gives() {
    let folder = fitted();
    let run = folder.gmm(&format!("loglik {} two.json one.safetensors --json", faithful())).ok().json();
    let want = [score(&folder, "two.json", ""), score(&folder, "one.safetensors", "")];
    close(&values(&run), &want, 1e-12);
    close(&[run["models"][1]["mean_log_likelihood"].as_f64().unwrap()], &[want[1] / 272.0], 1e-12);
    assert_eq!((&run["n_rows"], &run["models"][0]["model"]), (&272.into(), &"two.json".into()));
    let run = folder.gmm(&format!("loglik {} two.json --device cpu --json", faithful())).ok().json();
    assert_eq!((&run["engine"], &run["precision"]), (&"cpu".into(), &"f64".into()));

    let text = folder.gmm(&format!("loglik {} two.json one.safetensors", faithful())).ok().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["log-likelihood", "per", "row", "rows", "model"]);
    assert_eq!(lines[1], ["-1130.264", "-4.155383", "272", "two.json"]);
    assert_eq!((lines.len(), lines[2][3]), (3, "one.safetensors"));
}

#[test]
fn a_batch_is_evaluated_after_the_models() {
    let folder = fitted();
    folder.write("sets.npz", batch(&folder, "two.json", 1.0));
    let run = folder.gmm(&format!("loglik {} one.safetensors --batch sets.npz --json", faithful())).ok().json();
    let found = values(&run);
    close(&found[..2], &[score(&folder, "one.safetensors", ""), score(&folder, "two.json", "")], 1e-12);
    assert!(found[2] < found[1] - 1.0, "{found:?}");
    assert_eq!(run["models"][2]["model"], "sets.npz[1]");
    let alone = folder.gmm(&format!("loglik {} --batch sets.npz --json", faithful())).ok().json();
    assert_eq!(values(&alone), found[1..]);

    // A table contains the same values, in order, with all digits.
    folder.gmm(&format!("loglik {} --batch sets.npz -o y.csv", faithful())).ok();
    let text = folder.text("y.csv");
    assert_eq!(text.lines().next(), Some("log_likelihood,mean_log_likelihood"));
    let table: Vec<f64> = text.lines().skip(1).map(|line| line.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(table, found[1..]);
    let piped = folder.gmm(&format!("loglik {} --batch sets.npz -o -", faithful())).ok().stdout;
    assert_eq!(piped, text);
    folder.gmm(&format!("loglik {} --batch sets.npz -o y.npy", faithful())).ok();
    let back = folder.gmm("convert y.npy -").ok().stdout;
    assert_eq!(back.lines().filter(|line| line.starts_with('-')).count(), 2, "{back}");
}

#[test]
fn log_densities_of_rows_sum_to_each_value() {
    let folder = fitted();
    let each = folder.gmm(&format!("loglik {} two.json --per-row", faithful())).ok().stdout;
    assert_eq!(each.lines().next(), Some("log_density"));
    let sum: f64 = each.lines().skip(1).map(|v| v.parse::<f64>().unwrap()).sum();
    close(&[sum], &[score(&folder, "two.json", "")], 1e-12);

    let command = format!("loglik {} two.json one.safetensors --per-row -o y.csv --json", faithful());
    let run = folder.gmm(&command).ok().json();
    let text = folder.text("y.csv");
    assert_eq!(text.lines().next(), Some("log_density_0,log_density_1"));
    let mut sums = [0.0; 2];
    for line in text.lines().skip(1) {
        line.split(',').zip(&mut sums).for_each(|(v, sum)| *sum += v.parse::<f64>().unwrap());
    }
    close(&sums, &values(&run), 1e-12);
}

#[test]
fn columns_weights_devices_and_precisions_are_taken_as_by_score() {
    let folder = fitted();
    folder.write("x.csv", "waiting,w,eruptions\n79,2,3.6\n54,0,1.8\n74,1,3.333\n");
    folder.write("twice.csv", "eruptions,waiting\n3.6,79\n3.6,79\n3.333,74\n");
    let value = |command: &str| values(&folder.gmm(command).ok().json())[0];
    let want = value("loglik twice.csv two.json --json");
    for options in ["", "--device reference", "--device cpu --threads 1", "--precision f64"] {
        let command = format!("loglik x.csv two.json --columns eruptions,waiting --weights w --json {options}");
        close(&[value(&command)], &[want], 1e-12);
    }
    let single = value("loglik twice.csv two.json --json --precision f32");
    // Log densities of magnitude 5, with a few rounding errors each.
    close(&[single], &[want], 64.0 * f64::from(f32::EPSILON));
    folder.refuses("loglik x.csv two.json --columns waiting,eruptions", 3, &["two.json", "'waiting'", "'eruptions'"]);
    folder.refuses("loglik x.csv two.json", 3, &["3 columns", "has 2"]);
}

#[test]
fn the_shape_of_a_batch_says_its_kind_and_where_it_cannot_the_user_does() {
    let folder = Folder::new();
    let x = npy("<f8", false, "(3, 2)", &f8(&[0.0, 0.0, 1.0, 1.0, 2.0, 1.0]));
    folder.write("x.npy", x);
    let write = |name: &str, k: usize, shape: &[usize], covariances: &[f64]| {
        let weights = vec![1.0 / k as f64; k];
        let means = vec![0.5; 2 * k];
        let arrays: [Part<'_>; 3] =
            [("weights", &[1, k], &weights), ("means", &[1, k, 2], &means), ("covariances", shape, covariances)];
        folder.write(name, npz(&arrays));
    };
    let value = |options: &str| values(&folder.gmm(&format!("loglik x.npy --json --batch {options}")).ok().json())[0];
    // Unit covariances of every kind describe the same mixture.
    write("full.npz", 1, &[1, 1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    write("tied.npz", 1, &[1, 2, 2], &[1.0, 0.0, 0.0, 1.0]);
    write("diag.npz", 1, &[1, 1, 2], &[1.0, 1.0]);
    write("spherical.npz", 1, &[1, 1], &[1.0]);
    let want = value("full.npz");
    close(&["tied.npz", "diag.npz", "spherical.npz"].map(value), &[want; 3], 1e-12);
    // With two components in two columns, the shape (1, 2, 2) may be tied or diag.
    write("either.npz", 2, &[1, 2, 2], &[1.0, 0.5, 0.5, 1.0]);
    folder.refuses("loglik x.npy --batch either.npz", 3, &["either.npz", "'covariances'", "tied or diag"]);
    assert!(value("either.npz --covariance tied") != value("either.npz --covariance diag"));
    folder.refuses("loglik x.npy --batch full.npz --covariance diag", 3, &["[1, 1, 2, 2]", "diag [1, 1, 2]"]);
    folder.refuses("loglik x.npy --batch full.npz --covariance round", 2, &["round", "full, tied"]);
}

#[test]
fn a_batch_that_is_none_names_the_array_and_the_set() {
    let folder = fitted();
    let x = faithful();
    folder.write("good.npz", batch(&folder, "two.json", 0.5));
    let refused = |arrays: &[Part<'_>], parts: &[&str]| {
        folder.write("bad.npz", npz(arrays));
        folder.refuses(&format!("loglik {x} --batch bad.npz"), 3, &[&["bad.npz"][..], parts].concat());
    };
    let w: Part<'_> = ("weights", &[2, 1], &[1.0, 1.0]);
    let m: Part<'_> = ("means", &[2, 1, 2], &[2.0, 55.0, 4.0, 80.0]);
    let c: Part<'_> = ("covariances", &[2, 1], &[30.0, 30.0]);
    folder.write("bad.npz", npz(&[w, m, c]));
    folder.gmm(&format!("loglik {x} --batch bad.npz")).ok();
    refused(&[w, m], &["no array 'covariances' among weights, means; sets of parameters are"]);
    refused(&[("weights", &[2], &[1.0, 1.0]), m, c], &["'weights'", "[2]", "[2, 1]"]);
    refused(&[w, ("means", &[2, 2], &[0.0; 4]), c], &["'means'", "[2, 2]"]);
    refused(&[w, m, ("covariances", &[1, 1], &[1.0])], &["'covariances'", "[1, 1]", "spherical [2, 1]"]);
    refused(&[("weights", &[2, 1], &[1.0, 0.9]), m, c], &["set 1", "sum to 0.9"]);
    refused(&[w, m, ("covariances", &[2, 1], &[30.0, 0.0])], &["set 1", "component 0 is not positive definite"]);
    let none: [Part<'_>; 3] = [("weights", &[0, 1], &[]), ("means", &[0, 1, 2], &[]), ("covariances", &[0, 1], &[])];
    refused(&none, &["no set of parameters"]);
    // Both have six sets, but with different numbers of chains and draws.
    let draws: [Part<'_>; 3] = [
        ("weights", &[3, 2, 1], &[1.0; 6]),
        ("means", &[2, 3, 1, 2], &[2.0; 12]),
        ("covariances", &[2, 3, 1], &[30.0; 6]),
    ];
    refused(&draws, &["'weights'", "[3, 2, 1]", "[2, 3, ..]"]);
    folder.write("x.csv", "a,b,c\n1,2,3\n");
    folder.refuses("loglik x.csv --batch good.npz", 3, &["good.npz", "3 columns", "has 2"]);
}

#[test]
fn a_row_without_density_is_minus_infinity_and_null() {
    let folder = fitted();
    folder.write("x.csv", "eruptions,waiting\n3.6,79\n1e200,79\n");
    assert!(folder.gmm("loglik x.csv two.json").ok().stdout.contains("-inf"));
    let run = folder.gmm("loglik x.csv two.json --json").ok().json();
    assert_eq!(run["models"][0]["log_likelihood"], Value::Null);
}

#[test]
fn what_cannot_be_asked_for_is_a_usage_error() {
    let folder = fitted();
    let x = faithful();
    folder.refuses(&format!("loglik {x} two.json --per-row --json"), 2, &["--json", "-o"]);
    folder.refuses(&format!("loglik {x} two.json -o - --json"), 2, &["--json", "-o"]);
    folder.refuses("loglik - -", 2, &["standard input"]);
    folder.refuses(&format!("loglik {x} two.json -o y.json"), 2, &["y.json", "json"]);
    folder.write("sets.npz", batch(&folder, "two.json", 1.0));
    folder.gmm("convert two.json x.json").ok();
    std::fs::copy(&x, folder.path("x.csv")).unwrap();
    folder.refuses("loglik x.csv two.json -o ./x.csv", 2, &["overwritten"]);
    folder.refuses(&format!("loglik {x}"), 2, &["PARAMS", "--batch"]);
    assert_eq!(folder.gmm(&format!("loglik {x} two.json --covariance full")).code, Some(2));
}

#[test]
fn a_model_comes_through_standard_input() {
    let folder = fitted();
    let text = folder.text("two.json");
    let run = folder.piped(&format!("loglik {} - --json", faithful()), text).ok().json();
    close(&values(&run), &[score(&folder, "two.json", "")], 1e-12);
    assert_eq!(run["models"][0]["model"], "<stdin>");
}
