//! `gmm fit --bayes`, and what other commands do with its models.

use std::fs;

use gmm_tests::{Folder, data, numbers};
use serde_json::{Value, json};

fn fit(options: &str) -> String {
    format!("fit {} {options}", data("old_faithful.csv"))
}

#[test]
fn a_dirichlet_process_uses_as_many_components_as_the_data_need() {
    let folder = Folder::new();
    let found = folder.gmm(&fit("-k 8 --bayes dp --concentration 0.01 --moves --max-iter 1000 -o m.json")).ok();
    assert!(found.stdout.contains("2 of 8 components have rows"), "{}", found.stdout);
    assert!(found.stdout.contains("of the log evidence"), "{}", found.stdout);
    assert!(found.stdout.contains("variational Bayes: Dirichlet process of concentration 0.01"), "{}", found.stdout);
    let model = folder.json("m.json");
    assert_eq!(model["posterior"]["weight_prior"], "dp");
    assert!(model["fit"]["lower_bound"].as_f64().unwrap() < 0.0);
    let shown = folder.gmm("show m.json").ok().stdout;
    assert!(shown.contains("2 of 8 components have rows"), "{shown}");
}

#[test]
fn every_option_of_the_prior_reaches_the_model() {
    let folder = Folder::new();
    let options = "--concentration 2 --mean-prior 3,70 --mean-precision 0.5 --dof 4.5";
    folder.gmm(&fit(&format!("-k 2 --bayes dirichlet {options} --scale 2,300 -o m.json"))).ok();
    let posterior = folder.json("m.json")["posterior"].clone();
    assert_eq!(posterior["weight_concentration_prior"], 2.0);
    assert_eq!(numbers(&posterior["mean_prior"]), [3.0, 70.0]);
    assert_eq!(posterior["mean_precision_prior"], 0.5);
    assert_eq!(posterior["degrees_of_freedom_prior"], 4.5);
    assert_eq!(numbers(&posterior["covariance_prior"][1]), [0.0, 300.0]);
    let total: f64 = numbers(&posterior["weight_concentration"]).iter().sum();
    assert!((total - 276.0).abs() < 1e-9, "{total}");
    folder.gmm(&fit("-k 2 --bayes dirichlet --covariance spherical --scale 9 -o m.json")).ok();
    assert_eq!(folder.json("m.json")["posterior"]["covariance_prior"], 9.0);
}

#[test]
fn a_file_gives_the_prior_and_options_take_precedence() {
    let folder = Folder::new();
    folder.write(
        "full.toml",
        "[weights]\nprior = 'dirichlet'\nconcentration = 2\n[means]\nprior = 'normal'\nmean = [3, 70]\n\
         [covariances]\nprior = 'inverse-wishart'\ndegrees_of_freedom = 4.5\nscale = [2, 300]\n",
    );
    let posterior = |options: &str| {
        folder.gmm(&fit(&format!("-k 2 -q {options} -o m.json"))).ok();
        folder.json("m.json")["posterior"].clone()
    };
    let flags = "--bayes dirichlet --concentration 2 --mean-prior 3,70 --dof 4.5 --scale 2,300";
    assert_eq!(posterior("--bayes dirichlet --prior=full.toml"), posterior(flags));
    assert_eq!(
        posterior("--bayes dirichlet --prior=full.toml --dof 7"),
        posterior(&format!("{flags} --dof 7").replace("--dof 4.5 ", ""))
    );
    // Variances are inverse-gamma(ν/2, C/2); that of spherical inverse-gamma(dν/2, dC/2).
    folder.write(
        "gamma.toml",
        "[means]\nprior = 'normal'\nmean = 5\n[covariances]\nprior = 'inverse-gamma'\nshape = 3\nscale = 4\n",
    );
    let diag = posterior("--bayes dp --covariance diag --prior=gamma.toml");
    assert_eq!((numbers(&diag["mean_prior"]), numbers(&diag["covariance_prior"])), (vec![5.0, 5.0], vec![8.0, 8.0]));
    assert_eq!(diag["degrees_of_freedom_prior"], 6.0);
    let spherical = posterior("--bayes dp --covariance spherical --prior=gamma.toml");
    assert_eq!((&spherical["degrees_of_freedom_prior"], &spherical["covariance_prior"]), (&json!(3.0), &json!(4.0)));
    // A fit that goes on has the numbers, not the file.
    let options = "-k 2 --bayes dirichlet --prior=full.toml --tol 0 --threads 1 -q";
    folder.gmm(&fit(&format!("{options} --max-iter 9 -o whole.json"))).ok();
    folder.gmm(&fit(&format!("{options} --max-iter 4 --checkpoint c.json -o part.json"))).ok();
    folder.refuses(&fit("--resume c.json --prior=full.toml"), 2, &["full.toml", "leave it out"]);
    fs::remove_file(folder.path("full.toml")).unwrap();
    folder.gmm(&fit("--resume c.json --max-iter 9 -q -o rest.json")).ok();
    assert_eq!(folder.json("rest.json"), folder.json("whole.json"));
    let select = format!("select {} -k 1..2 --bayes dp --criterion bound --covariance", data("old_faithful.csv"));
    folder.gmm(&format!("{select} diag --prior=gamma.toml -q -o m.json")).ok();
    assert_eq!(folder.json("m.json")["posterior"]["degrees_of_freedom_prior"], 6.0);
    folder.refuses(&format!("{select} diag,full --prior=gamma.toml"), 2, &["one covariance type"]);
}

#[test]
fn tables_that_mean_nothing_to_a_conjugate_prior_are_refused() {
    let folder = Folder::new();
    for (text, options, code, parts) in [
        ("[means]\nprior = 'normal'\nsd = 1", "--bayes dp", 3, ["p.toml", "means: sd", "--mean-precision"]),
        ("[means]\nprior = 'flat'", "--bayes dp", 3, ["p.toml", "means", "not conjugate"]),
        ("[covariances]\nprior = 'lkj'", "--bayes dp", 3, ["p.toml", "covariances", "inverse-wishart for full"]),
        (
            "[covariances]\nprior = 'inverse-gamma'",
            "--bayes dp",
            3,
            ["p.toml", "covariances", "inverse-gamma for diag"],
        ),
        ("[weights]\nprior = 'dirichlet'", "--bayes dp", 2, ["p.toml", "weights", "--bayes dirichlet"]),
        ("[means]\nprior = 'normal'\nmean = [1, 2, 3]", "--bayes dp", 3, ["p.toml", "3 numbers", "expected 2"]),
        ("[means]\nprior = 'normal'\nmu = 1", "--bayes dp", 3, ["p.toml", "line 3", "`mu`"]),
        ("[means]\nprior = 'normal'", "", 2, ["p.toml", "variational Bayes", "--bayes dp"]),
    ] {
        folder.write("p.toml", text);
        folder.refuses(&fit(&format!("-k 2 {options} --prior=p.toml -o m.json")), code, &parts);
    }
    folder.refuses(&fit("-k 2 --bayes dp --prior=none.toml"), 6, &["none.toml"]);
    folder.refuses(&fit("-k 2 --bayes dp --prior p.toml"), 2, &["no table", "--prior=p.toml"]);
    folder.refuses(&fit("-k 2 --prior=zip"), 2, &["conjugate", "NAME.toml"]);
    folder.refuses("maximise s.stats --from m.json --prior=p.toml -o n.json", 2, &["p.toml", "variational Bayes"]);
}

#[test]
fn scores_are_predictive_densities_and_labels_those_of_the_fit() {
    let folder = Folder::new();
    folder.gmm(&fit("-k 2 --bayes dirichlet -o m.json")).ok();
    folder.write("far.csv", "eruptions,waiting\n30,500\n2,54\n");
    folder.gmm("score m.json far.csv --per-row -o bayes.csv").ok();
    // The same mixture without its posterior: tails of a normal distribution.
    let mut plain = folder.json("m.json");
    plain.as_object_mut().unwrap().remove("posterior");
    folder.write("plain.json", plain.to_string());
    folder.gmm("score plain.json far.csv --per-row -o plain.csv").ok();
    let read = |name: &str| -> Vec<f64> { folder.text(name).lines().skip(1).map(|v| v.parse().unwrap()).collect() };
    let (bayes, plain) = (read("bayes.csv"), read("plain.csv"));
    assert!(bayes[0] > plain[0] + 100.0, "{bayes:?} {plain:?}");
    assert!((bayes[1] - plain[1]).abs() < 0.1, "{bayes:?} {plain:?}");
    let total = folder.gmm("score m.json far.csv --json").ok().stdout;
    let total: Value = serde_json::from_str(&total).unwrap();
    assert!((total["log_likelihood"].as_f64().unwrap() - bayes[0] - bayes[1]).abs() < 1e-9, "{total}");
    folder.gmm("predict m.json far.csv -o labels.csv").ok();
    assert_eq!(folder.text("labels.csv").lines().count(), 3);
}

#[test]
fn an_interrupted_fit_goes_on_with_its_posterior() {
    let folder = Folder::new();
    let options = "-k 4 --bayes dp --tol 0 --threads 1";
    folder.gmm(&fit(&format!("{options} --max-iter 12 -q -o whole.json"))).ok();
    folder.gmm(&fit(&format!("{options} --max-iter 5 --checkpoint c.json -q -o part.json"))).ok();
    folder.gmm(&fit("--resume c.json --max-iter 12 -q -o rest.json")).ok();
    assert_eq!(folder.json("rest.json"), folder.json("whole.json"));
}

#[test]
fn options_that_do_not_fit_are_refused() {
    let folder = Folder::new();
    let refuses = |options: &str, words: &[&str]| {
        folder.refuses(&fit(&format!("-k 2 {options} -o m.json")), 2, words);
    };
    refuses("--bayes zip", &["dp", "dirichlet"]);
    refuses("--bayes dp --concentration -1", &["concentration", "positive"]);
    refuses("--bayes dp --prior", &["bayes", "without prior"]);
    refuses("--bayes dp --covariance spherical --scale 1,2", &["--scale", "one number"]);
    refuses("--bayes dp --dof 1", &["degrees of freedom"]);
    folder.refuses(&fit("-k 2 --bayes dp --mean-prior 1 -o m.json"), 3, &["mean prior"]);
    for options in ["--concentration 1", "--bayes dp --online", "--bayes dp --split-merge", "--moves"] {
        let found = folder.gmm(&fit(&format!("-k 2 {options}")));
        assert!(found.code == Some(2) && found.stderr.contains("--bayes"), "{options}: {}", found.stderr);
    }
}

#[test]
fn the_highest_bound_chooses_among_fits() {
    let folder = Folder::new();
    let select = |options: &str| format!("select {} {options}", data("old_faithful.csv"));
    let options = "-k 1..4 --covariance full,diag --bayes dirichlet --criterion bound --n-init 3 --max-iter 500";
    let found = folder.gmm(&select(&format!("{options} --json -o m.json"))).ok();
    let found: Value = serde_json::from_str(&found.stdout).unwrap();
    let bound = |candidate: &Value| candidate["lower_bound"].as_f64().unwrap();
    let candidates = found["candidates"].as_array().unwrap();
    let highest = candidates.iter().map(bound).fold(f64::NEG_INFINITY, f64::max);
    let is_best = |one: &&Value| ["n_components", "covariance_type"].iter().all(|key| one[key] == found["best"][key]);
    assert_eq!(candidates.iter().find(is_best).map(bound), Some(highest));
    let model = folder.json("m.json");
    assert_eq!(model["fit"]["lower_bound"].as_f64(), Some(highest));
    assert_eq!(model["posterior"]["weight_prior"], "dirichlet");
    let text = folder.gmm(&select(options)).ok().stdout;
    assert!(text.lines().filter(|line| line.starts_with("lower bound")).count() == 8, "{text}");
    folder.refuses(&select("-k 1..2 --criterion bound -o x.json"), 2, &["--criterion bound needs --bayes"]);
}
