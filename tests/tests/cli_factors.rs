//! `gmm fit --covariance factors:H`: mixtures of factor analysers.

use gmm_tests::{Folder, data, numbers};
use serde_json::Value;

fn fit(options: &str) -> String {
    format!("fit {} {options}", data("iris.csv"))
}

fn model(folder: &Folder, options: &str) -> Value {
    folder.gmm(&fit(&format!("{options} -o m.json"))).ok();
    folder.json("m.json")
}

#[test]
fn a_model_has_the_factors_of_its_covariances() {
    let folder = Folder::new();
    let found = model(&folder, "-k 2 --covariance factors:2 --tol 1e-6");
    assert_eq!(found["covariance_type"], "full");
    assert_eq!(found["fit"]["rules"][0], "covariances of 2 factors");
    let [loadings, uniquenesses, covariances] =
        [&found["factors"]["loadings"], &found["factors"]["uniquenesses"], &found["covariances"]].map(numbers);
    assert_eq!((loadings.len(), uniquenesses.len(), covariances.len()), (2 * 4 * 2, 2 * 4, 2 * 4 * 4));
    for c in 0..2 {
        for i in 0..4 {
            for j in 0..4 {
                let product: f64 = (0..2).map(|e| loadings[c * 8 + i * 2 + e] * loadings[c * 8 + j * 2 + e]).sum();
                let unique = if i == j { uniquenesses[c * 4 + i] } else { 0.0 };
                let (covariance, scale) = (covariances[c * 16 + i * 4 + j], covariances[c * 16 + i * 5]);
                assert!((product + unique - covariance).abs() < 1e-12 * scale.max(1.0), "{c} {i} {j}");
            }
        }
    }
    let shown = folder.gmm("show m.json").ok().stdout;
    for part in ["covariances of 2 factors", "factor 1: petal_width", "uniqueness: sepal_length", "rule            cov"]
    {
        assert!(shown.contains(part), "{part} in {shown}");
    }
    // Scores, and both file formats.
    let score = folder.gmm(&format!("score m.json {} --json", data("iris.csv"))).ok().json();
    let reached = found["fit"]["mean_log_likelihood"].as_f64().unwrap();
    assert!((score["mean_log_likelihood"].as_f64().unwrap() - reached).abs() < 1e-9, "{score}");
    folder.gmm(&fit("-k 2 --covariance factors:2 --tol 1e-6 -o m.safetensors")).ok();
    assert_eq!(folder.gmm("show m.safetensors").ok().stdout, shown);
}

#[test]
fn a_fit_from_a_model_keeps_its_factors_or_takes_other_ones() {
    let folder = Folder::new();
    model(&folder, "-k 2 --covariance factors:2 --max-iter 3 --tol 0");
    let go_on = |options: &str| {
        folder.gmm(&fit(&format!("--init m.json --tol 0 {options} -o next.json"))).ok();
        folder.json("next.json")
    };
    let next = go_on("--max-iter 4");
    assert_eq!(next["means"], model(&Folder::new(), "-k 2 --covariance factors:2 --max-iter 7 --tol 0")["means"]);
    assert_eq!(next["fit"]["rules"][0], "covariances of 2 factors");
    assert_eq!(go_on("--max-iter 4 --covariance factors:1")["fit"]["rules"][0], "covariances of 1 factor");
    assert!(go_on("--max-iter 4 --covariance full").get("factors").is_none());
    folder.refuses(&fit("--init m.json --covariance diag -o x.json"), 2, &["--covariance diag", "factors:2"]);
}

#[test]
fn a_stopped_fit_resumes_to_the_same_bits() {
    let folder = Folder::new();
    let options = "-k 2 --covariance factors:1 --tol 0";
    let whole = model(&folder, &format!("{options} --max-iter 12"));
    folder.gmm(&fit(&format!("{options} --max-iter 5 --checkpoint c.json"))).ok();
    folder.gmm(&fit("--resume c.json --max-iter 12 -o m.json")).ok();
    let resumed = folder.json("m.json");
    for field in ["means", "covariances", "factors"] {
        assert_eq!(resumed[field], whole[field], "{field}");
    }
    folder.refuses(&fit("--resume c.json --covariance full --max-iter 20"), 2, &["factors:1"]);
}

#[test]
fn select_compares_numbers_of_factors() {
    let folder = Folder::new();
    let line = format!("select {} -k 1..2 --covariance full,factors:1,factors:2", data("iris.csv"));
    let found = folder.gmm(&format!("{line} --json --plot p.svg -o m.json")).ok().json();
    let words: Vec<&str> =
        found["candidates"].as_array().unwrap().iter().map(|c| c["covariance_type"].as_str().unwrap()).collect();
    assert_eq!(words, ["full", "full", "factors:1", "factors:1", "factors:2", "factors:2"]);
    assert!(folder.text("p.svg").contains("factors:2"));
    assert!(folder.gmm(&line).ok().stdout.contains("factors:1"));
    // For each group.
    let rows = std::fs::read_to_string(data("iris.csv")).unwrap();
    let grouped: Vec<String> = rows
        .lines()
        .enumerate()
        .map(|(i, line)| format!("{line},{}\n", if i == 0 { "side" } else { ["a", "b"][i % 2] }))
        .collect();
    folder.write("sides.csv", grouped.concat());
    let text = folder.gmm("select sides.csv -k 1 --covariance factors:1,diag --by side").ok().stdout;
    assert!(text.contains("factors:1"), "{text}");
}

#[test]
fn what_has_no_factors_is_refused() {
    let folder = Folder::new();
    for (options, code, part) in [
        ("-k 2 --covariance factors:4", 2, "number of factors"),
        ("-k 2 --covariance factors:0", 2, "factors:H"),
        ("-k 2 --covariance factors", 2, "factors:H"),
        ("-k 2 --covariance factors:x", 2, "factors:H"),
        ("-k 2 --covariance factors:1 --bayes dp", 2, "factors"),
    ] {
        folder.refuses(&fit(&format!("{options} -o x.json")), code, &[part]);
    }
}
