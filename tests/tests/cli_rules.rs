//! `gmm fit` beyond maximum likelihood: prior, floors, dropping, fixed and shared parts, labels.

use gmm_tests::{Folder, data};
use serde_json::Value;

fn fit(options: &str) -> String {
    format!("fit {} {options}", data("old_faithful.csv"))
}

fn model(folder: &Folder, options: &str) -> Value {
    folder.gmm(&fit(&format!("{options} -o m.json"))).ok();
    folder.json("m.json")
}

#[test]
fn a_fit_with_a_prior_says_so_in_its_record_and_summary() {
    let folder = Folder::new();
    let found = folder.gmm(&fit("-k 2 --prior -o m.json")).ok();
    assert!(found.stdout.contains("rule            conjugate prior (Fraley and Raftery 2007)"), "{}", found.stdout);
    let rules = folder.json("m.json")["fit"]["rules"].clone();
    assert_eq!(rules[0], "conjugate prior (Fraley and Raftery 2007): shrinkage 0.01, degrees of freedom 4");
    // The same by its name; none is the plain fit.
    let named = model(&folder, "-k 2 --prior=conjugate");
    let plain = model(&folder, "-k 2");
    assert_eq!(folder.json("m.json")["means"], plain["means"]);
    assert_eq!(model(&folder, "-k 2 --prior=none")["means"], plain["means"]);
    assert_ne!(named["means"], plain["means"]);
    assert!(plain["fit"].get("rules").is_none());
}

#[test]
fn a_floor_bounds_the_variances() {
    let folder = Folder::new();
    let found = model(&folder, "-k 3 --covariance diag --floor 0.5");
    let least = |m: &Value, j: usize| {
        m["covariances"].as_array().unwrap().iter().map(|v| v[j].as_f64().unwrap()).fold(f64::INFINITY, f64::min)
    };
    assert_eq!(least(&found, 0), 0.5);
    // Eruptions have a variance of 1.303, waiting times of 184.8.
    let relative = model(&folder, "-k 3 --covariance diag --floor-relative 0.25");
    assert!((least(&relative, 0) - 0.3245).abs() < 1e-3, "{}", least(&relative, 0));
    assert!((least(&relative, 1) - 46.03).abs() < 0.2, "{}", least(&relative, 1));
}

#[test]
fn a_fit_without_regularisation_of_equal_rows_needs_a_prior_or_a_floor() {
    let folder = Folder::new();
    folder.write("equal.csv", "a,b\n1,2\n1,2\n1,2\n1,2\n");
    folder.refuses("fit equal.csv -k 2 --reg-covar 0 -o m.json", 4, &["not positive definite"]);
    for rule in ["--prior", "--floor 1e-3", "--floor-relative 0.1", "--drop-starved", "--drop-starved=1"] {
        for kind in ["full", "tied", "diag", "spherical"] {
            folder.gmm(&format!("fit equal.csv -k 2 --covariance {kind} --reg-covar 0 {rule} -o m.json")).ok();
        }
    }
}

#[test]
fn starved_components_are_dropped_with_a_warning() {
    let folder = Folder::new();
    let found = folder.gmm(&fit("-k 12 --drop-starved=40 --max-iter 300 -o m.json")).ok();
    assert!(found.stderr.contains("components were dropped for lack of rows"), "{}", found.stderr);
    let left = folder.json("m.json")["weights"].as_array().unwrap().len();
    assert!(left < 12 && left > 0);
}

#[test]
fn fixed_means_keep_their_digits_and_the_rest_changes() {
    let folder = Folder::new();
    folder.gmm(&fit("-k 3 --max-iter 2 -o start.json")).ok();
    let start = folder.json("start.json");
    let found = model(&folder, "--init start.json --fix-means 0,2 --fix-weights all");
    assert_eq!(found["means"][0], start["means"][0]);
    assert_eq!(found["means"][2], start["means"][2]);
    assert_ne!(found["means"][1], start["means"][1]);
    assert_eq!(found["weights"], start["weights"]);
    let one = model(&folder, "--init start.json --update-only 1");
    assert_eq!(one["covariances"][0], start["covariances"][0]);
    assert_ne!(one["covariances"][1], start["covariances"][1]);
    // There is nothing to keep without a model.
    folder.refuses(&fit("-k 3 --fix-means 0 -o m.json"), 2, &["given start"]);
}

#[test]
fn components_share_a_covariance() {
    let folder = Folder::new();
    let found = model(&folder, "-k 3 --share-covariance 0,2");
    assert_eq!(found["covariances"][0], found["covariances"][2]);
    assert_ne!(found["covariances"][0], found["covariances"][1]);
    let all = model(&folder, "-k 3 --share-covariance all");
    assert_eq!(all["covariances"][0], all["covariances"][1]);
    folder.refuses(&fit("-k 3 --share-covariance 0,1;1,2 -o m.json"), 2, &["component 1 twice"]);
    folder.refuses(&fit("-k 3 --share-covariance 0,3 -o m.json"), 2, &["there are 3 components, from 0 to 2"]);
}

/// Old Faithful with a column of labels, and one of weights: short eruptions are component 1.
fn labelled(folder: &Folder) {
    let text = std::fs::read_to_string(data("old_faithful.csv")).unwrap();
    let mut lines = text.lines();
    let mut out = format!("{},class,w\n", lines.next().unwrap());
    for (i, line) in lines.enumerate() {
        let short = line.split(',').next().unwrap().parse::<f64>().unwrap() < 3.0;
        let class = if i % 10 > 0 { -1 } else { i32::from(short) };
        out += &format!("{line},{class},{}\n", 1 + i % 2);
    }
    folder.write("labelled.csv", &out);
}

#[test]
fn labelled_rows_decide_which_component_is_which() {
    let folder = Folder::new();
    labelled(&folder);
    let command = "fit labelled.csv --columns eruptions,waiting -k 2 --labels class";
    for more in ["", "--weights w", "--init kmeans++ --prior"] {
        folder.gmm(&format!("{command} {more} -o m.json")).ok();
        let found = folder.json("m.json");
        let mean = |c: usize| found["means"][c][0].as_f64().unwrap();
        assert!((mean(0) - 4.3).abs() < 0.2 && (mean(1) - 2.05).abs() < 0.2, "{more}: {}", found["means"]);
        assert_eq!(found["feature_names"], serde_json::json!(["eruptions", "waiting"]), "{more}");
        assert!(found["fit"]["rules"].to_string().contains("28 of 272 rows labelled"), "{}", found["fit"]["rules"]);
    }
    // Columns by exclusion.
    let excluded = "fit labelled.csv --columns !w -k 2 --labels class -o m.json";
    folder.gmm(excluded).ok();
    assert_eq!(folder.json("m.json")["feature_names"], serde_json::json!(["eruptions", "waiting"]));
    folder.write("bad.csv", "a,b,class\n1,2,0\n2,3,0.5\n3,4,-1\n");
    folder.refuses("fit bad.csv -k 2 --labels class -o m.json", 3, &["the label of row 1 is 0.5"]);
}

#[test]
fn a_checkpoint_keeps_the_rule() {
    let folder = Folder::new();
    let options = "-k 4 --prior --floor-relative 0.01 --tol 0";
    folder.gmm(&fit(&format!("{options} --max-iter 20 -o whole.json"))).ok();
    folder.gmm(&fit(&format!("{options} --max-iter 7 --checkpoint c.json -o part.json"))).ok();
    folder.gmm(&fit("--resume c.json --max-iter 20 -o resumed.json")).ok();
    let (whole, resumed) = (folder.json("whole.json"), folder.json("resumed.json"));
    for field in ["means", "covariances", "weights"] {
        assert_eq!(whole[field], resumed[field], "{field}");
    }
    assert_eq!(whole["fit"]["rules"], resumed["fit"]["rules"]);
    folder.refuses(&fit("--resume c.json --floor 1 -o m.json"), 2, &["another prior, floor"]);
    folder.refuses(&fit("--resume c.json --truncated 2 -o m.json"), 2, &["or truncated EM"]);
}

#[test]
fn a_selection_has_the_prior_in_every_candidate() {
    let folder = Folder::new();
    folder.write("twice.csv", format!("a,b\n{}", "0,0\n5,5\n".repeat(20)));
    let select = "select twice.csv -k 1..3 --reg-covar 0 --json";
    let plain = folder.gmm(&format!("{select} --prior=none"));
    let failed =
        |found: &Value| found["candidates"].as_array().unwrap().iter().filter(|c| !c["error"].is_null()).count();
    plain.failed(4, &["not positive definite"]);
    for rule in ["--prior", "--floor 1e-3", "--floor-relative 0.01"] {
        let found = folder.gmm(&format!("{select} {rule} -o m.json")).ok().json();
        assert_eq!(failed(&found), 0, "{rule}: {found}");
        assert!(folder.json("m.json")["fit"]["rules"].is_array(), "{rule}");
    }
    let noisy =
        format!("select {} -k 1..3 --noise --n-init 3 --tol 1e-6 --max-iter 1000 -o n.json", data("chevron.csv"));
    folder.gmm(&noisy).ok();
    assert_eq!(folder.json("n.json")["n_components"], 2);
    assert!(folder.json("n.json")["noise"].is_object());
}

#[test]
fn steps_under_a_prior_are_those_of_a_fit() {
    let folder = Folder::new();
    let rows = data("old_faithful.csv");
    folder.gmm(&format!("fit {rows} -k 3 --max-iter 2 -o start.json")).ok();
    let options = "--prior --floor-relative 0.05";
    folder.gmm(&format!("fit {rows} --init start.json {options} --tol 0 --max-iter 4 -o fit.json")).ok();
    folder.gmm("convert start.json m.json").ok();
    for _ in 0..4 {
        folder.gmm(&format!("pass m.json {rows} -o all.stats")).ok();
        folder.gmm(&format!("maximise all.stats --from m.json {options} -o m.json")).ok();
    }
    let (fit, steps) = (folder.json("fit.json"), folder.json("m.json"));
    for field in ["weights", "means", "covariances"] {
        gmm_tests::close(&gmm_tests::numbers(&steps[field]), &gmm_tests::numbers(&fit[field]), 1e-9);
    }
    let trace = gmm_tests::numbers(&steps["trace"]);
    gmm_tests::close(&trace[trace.len() - 4..], &gmm_tests::numbers(&fit["fit"]["trace"]), 1e-9);
}

#[test]
fn a_checkpoint_keeps_the_labels() {
    let folder = Folder::new();
    labelled(&folder);
    let rows = "labelled.csv --columns eruptions,waiting";
    let options = "-k 3 --labels class --tol 0";
    folder.gmm(&format!("fit {rows} {options} --max-iter 9 -o whole.json")).ok();
    folder.gmm(&format!("fit {rows} {options} --max-iter 4 --checkpoint c.json -o part.json")).ok();
    folder.gmm(&format!("fit {rows} --resume c.json --max-iter 9 -o resumed.json")).ok();
    assert_eq!(folder.json("whole.json")["means"], folder.json("resumed.json")["means"]);
    folder.refuses(&format!("fit {rows} --resume c.json --labels w"), 2, &["--labels class, not w"]);
    let text = folder.text("labelled.csv");
    folder.write("labelled.csv", text.replacen(",0,", ",-1,", 1));
    folder.refuses(&format!("fit {rows} --resume c.json"), 3, &["labels"]);
}

#[test]
fn a_fit_of_labelled_rows_only_is_that_of_each_group() {
    let folder = Folder::new();
    folder.write("all.csv", "a,class\n1,0\n3,0\n10,1\n14,1\n12,1\n");
    folder.gmm("fit all.csv -k 2 --labels class --reg-covar 0 -o m.json").ok();
    let found = folder.json("m.json");
    gmm_tests::close(&gmm_tests::numbers(&found["means"]), &[2.0, 12.0], 1e-14);
    gmm_tests::close(&gmm_tests::numbers(&found["covariances"]), &[1.0, 8.0 / 3.0], 1e-14);
    gmm_tests::close(&gmm_tests::numbers(&found["weights"]), &[0.4, 0.6], 1e-14);
}

#[test]
fn truncated_fits_say_that_their_likelihood_is_a_bound() {
    let folder = Folder::new();
    folder.gmm("generate -n 3000 -k 40 -d 6 --covariance diag --seed 3 -o rows.npy").ok();
    let fit = |options: &str| {
        let found = folder
            .gmm(&format!("fit rows.npy -k 40 --covariance diag --max-iter 20 --tol 0 {options} --json -o m.json"));
        found.ok().json()["mean_log_likelihood"].as_f64().unwrap()
    };
    let whole = fit("");
    let found = fit("--truncated 3");
    assert!(found < whole + 1e-9 && found > whole - 0.1, "{found} beside {whole}");
    let rules = folder.json("m.json")["fit"]["rules"].clone();
    assert_eq!(rules[0], "truncated: each row counts for 3 of 40 components; the log-likelihood is a lower bound");
    // All components listed: EM itself.
    assert!((fit("--truncated 40") - whole).abs() < 1e-9, "{whole}");
    folder.refuses(
        "fit rows.npy -k 40 --covariance tied --truncated 3 -o m.json",
        2,
        &["covariance_type", "full, diag, spherical or factors:H"],
    );
    // Covariances of factors.
    let fit = |options: &str| {
        let command =
            format!("fit rows.npy -k 40 --covariance factors:2 --max-iter 20 --tol 0 {options} --json -o f.json");
        folder.gmm(&command).ok().json()["mean_log_likelihood"].as_f64().unwrap()
    };
    assert!((fit("--truncated 40") - fit("")).abs() < 1e-9);
    let bound = fit("--truncated 3");
    let score = folder.gmm("score f.json rows.npy --json").ok().json()["mean_log_likelihood"].as_f64().unwrap();
    assert!(bound <= score + 1e-9 && bound > score - 0.1, "{bound} beside {score}");
    folder.refuses("fit rows.npy -k 40 --truncated x=0..1 -o m.json", 2, &["--recorded"]);
    folder.refuses("fit rows.npy -k 4 --covariance diag --truncated 2 --noise -o m.json", 2, &["uniform noise"]);
}
