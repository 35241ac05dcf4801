//! `gmm fit` and `gmm select` on real data.

use gmm_tests::{Folder, close, data, numbers};

/// The exact fields of a model file's `fit` object.
const FIT: [&str; 14] = [
    "aic",
    "bic",
    "converged",
    "engine",
    "icl",
    "iterations",
    "log_likelihood",
    "mean_log_likelihood",
    "n_rows",
    "precision",
    "reg_covar",
    "seed",
    "tol",
    "trace",
];

fn fit(options: &str) -> String {
    format!("fit {} {options}", data("old_faithful.csv"))
}

fn keys(value: &serde_json::Value) -> Vec<String> {
    let mut keys: Vec<_> = value.as_object().expect("an object").keys().cloned().collect();
    keys.sort();
    keys
}

/// Text without the parts that differ between machines.
fn steady(text: &str) -> String {
    let lines = text.lines().map(|line| match line.split_once(' ').map(|(label, _)| label) {
        Some(label @ ("engine" | "time")) => label.to_owned(),
        _ => line.to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn old_faithful_has_the_two_components_that_are_known() {
    let folder = Folder::new();
    folder.gmm(&fit("-k 2 --tol 1e-8 -o m.json")).ok();
    let model = folder.json("m.json");
    assert_eq!(keys(&model["fit"]), FIT);
    let expected = [
        "covariance_type",
        "covariances",
        "feature_names",
        "fit",
        "format",
        "means",
        "n_components",
        "n_features",
        "storage",
        "version",
        "weights",
    ];
    assert_eq!(keys(&model), expected);
    let mut means = numbers(&model["means"]);
    let mut weights = numbers(&model["weights"]);
    if means[0] > means[2] {
        means.rotate_left(2);
        weights.reverse();
    }
    close(&weights, &[0.3559, 0.6441], 1e-4);
    close(&means, &[2.0364, 54.4785, 4.2897, 79.9681], 1e-4);
    close(&numbers(&model["fit"]["log_likelihood"]), &[-1130.264], 1e-6);
    close(&numbers(&model["fit"]["bic"]), &[11.0 * 272f64.ln() + 2.0 * 1130.264], 1e-6);
    assert_eq!(model["feature_names"], serde_json::json!(["eruptions", "waiting"]));
}

#[test]
fn without_an_output_the_model_is_printed() {
    let run = Folder::new().gmm(&fit("-k 2 --threads 1")).ok();
    assert_eq!(run.stderr, "");
    insta::assert_snapshot!(steady(&run.stdout));
}

#[test]
fn a_wide_mixture_is_printed_shortly_and_whole_where_asked() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 9 --covariance diag -o m.json --threads 1", data("wine.csv"))).ok();
    let all = folder.gmm("show m.json --all").ok().stdout;
    assert!(all.lines().all(|line| line.chars().count() <= 110), "{all}");
    assert_eq!(all.matches("proline").count(), all.matches("weight").count());
    folder.gmm(&format!("fit {} -k 20 --covariance spherical -o m.json", data("iris.csv"))).ok();
    let short = folder.gmm("show m.json").ok().stdout;
    assert!(short.contains("8 more components"), "{short}");
}

#[test]
fn json_is_one_object_with_the_fit_and_its_time() {
    let run = Folder::new().gmm(&fit("-k 2 --json")).ok();
    let mut expected = FIT.to_vec();
    expected.insert(3, "elapsed_s");
    assert_eq!(keys(&run.json()), expected);
    assert!(run.json()["elapsed_s"].as_f64().unwrap() > 0.0);
    assert_eq!(run.stderr, "");
}

#[test]
fn all_kinds_engines_and_starts_fit() {
    let folder = Folder::new();
    for kind in ["full", "tied", "diag", "spherical"] {
        for init in ["kmeans", "kmeans++", "random-rows", "random", "stride", "tree", "best"] {
            let loglik = |engine: &str| {
                let options = format!("-k 2 --covariance {kind} --init {init} --device {engine} --seed 3 --json");
                numbers(&folder.gmm(&fit(&options)).ok().json()["log_likelihood"])
            };
            close(&loglik("cpu"), &loglik("reference"), 1e-9);
        }
    }
}

#[test]
fn the_same_call_gives_the_same_bytes_on_any_number_of_threads_repeatedly() {
    for threads in [1, 2] {
        let model = || {
            let folder = Folder::new();
            let options = "-k 5 --n-init 3 --seed 9 --covariance full";
            folder.gmm(&format!("fit {} {options} --threads {threads} -o m.json", data("wine.csv"))).ok();
            folder.gmm("sample m.json -n 100 --seed 2 -o s.csv").ok();
            (folder.read("m.json"), folder.read("s.csv"))
        };
        let first = model();
        assert!(first == model() && first == model(), "{threads} threads");
    }
    let folder = Folder::new();
    let seed =
        |seed: u32| folder.gmm(&fit(&format!("-k 4 --init random --max-iter 3 --seed {seed} --json"))).ok().json();
    assert_ne!(seed(1)["trace"], seed(2)["trace"]);
}

#[test]
fn a_saved_model_scores_its_data_to_the_last_bit() {
    let folder = Folder::new();
    for file in ["m.json", "m.safetensors"] {
        for (kind, precision) in [("full", "f64"), ("tied", "f32"), ("diag", "f64"), ("spherical", "f32")] {
            let wine = data("wine.csv");
            let options = format!("-k 3 --covariance {kind} --precision {precision} -o {file} --json");
            let fit = folder.gmm(&format!("fit {wine} {options}")).ok().json();
            let score = folder.gmm(&format!("score {file} {wine} --precision {precision} --json")).ok().json();
            assert_eq!(keys(&score), ["log_likelihood", "mean_log_likelihood", "n_rows"]);
            for field in ["log_likelihood", "mean_log_likelihood", "n_rows"] {
                assert_eq!(score[field].to_string(), fit[field].to_string(), "{kind} {precision} {field}");
            }
        }
    }
}

#[test]
fn the_fast_precision_gives_nothing_away_where_nothing_is_faster() {
    let folder = Folder::new();
    let fit = |precision: &str| folder.gmm(&fit(&format!("-k 2 --device cpu --precision {precision} --json"))).ok();
    let (fast, single) = (fit("fast"), fit("f32"));
    assert!(fast.stderr.contains("--precision fast had no effect"), "{}", fast.stderr);
    for field in ["precision", "log_likelihood", "trace"] {
        assert_eq!(fast.json()[field].to_string(), single.json()[field].to_string(), "{field}");
    }
    let select = |precision: &str| {
        let line = format!("select {} -k 1,2 --device cpu --precision {precision}", data("iris.csv"));
        folder.gmm(&line).ok().stderr
    };
    assert!(
        select("fast").contains("the best one: --precision fast had no effect")
            && !select("f32").contains("the best one")
    );
}

#[test]
fn a_fit_goes_on_from_a_model() {
    let folder = Folder::new();
    folder.gmm(&fit("-k 2 --max-iter 3 --tol 0 -o half.json")).ok();
    folder.gmm(&fit("--init half.json --max-iter 4 --tol 0 -o m.json")).ok();
    folder.gmm(&fit("-k 2 --max-iter 7 --tol 0 -o whole.json")).ok();
    for field in ["weights", "means", "covariances"] {
        assert_eq!(folder.json("m.json")[field], folder.json("whole.json")[field], "{field}");
    }
    folder.refuses(&fit("--init half.json -k 3"), 2, &["-k 3", "half.json has 2"]);
    folder.refuses(&fit("--init half.json --covariance diag"), 2, &["--covariance diag", "half.json has full"]);
    folder.refuses(&fit("--init nothing.json"), 6, &["nothing.json"]);
    folder.refuses(&fit(""), 2, &["-k"]);
}

#[test]
fn columns_are_chosen_and_named_in_the_model() {
    let folder = Folder::new();
    folder.gmm(&format!("fit {} -k 2 --columns hue,0 -o m.json", data("wine.csv"))).ok();
    assert_eq!(folder.json("m.json")["feature_names"], serde_json::json!(["hue", "alcohol"]));
    // The weights column is removed from the features, at any position and under any name.
    let table = "a,w,b\n1,1,2\n3,1,1\n5,2,2\n9,0,9\n";
    for (options, names) in [
        ("--weights w", ["a", "b"]),
        ("--weights 1", ["a", "b"]),
        ("--columns b,a --weights w", ["b", "a"]),
        ("--columns b,w,a --weights w", ["b", "a"]),
        ("--columns 2,0 --weights 1", ["b", "a"]),
    ] {
        folder.write("x.csv", table);
        folder.gmm(&format!("fit x.csv -k 1 {options} -o m.json")).ok();
        let model = folder.json("m.json");
        assert_eq!(model["feature_names"], serde_json::json!(names), "{options}");
        let (a, b) = (3.5, 1.75);
        let expected = if names[0] == "a" { [a, b] } else { [b, a] };
        close(&numbers(&model["means"]), &expected, 1e-12);
    }
    folder.gmm("fit x.csv -k 1 --weights w -o m.json --json").ok();
    let total = folder.gmm("score m.json x.csv --weights w --json").ok().json();
    assert_eq!(total["log_likelihood"], folder.json("m.json")["fit"]["log_likelihood"]);
}

#[test]
fn required_convergence_has_its_own_exit_code_and_writes_nothing() {
    let folder = Folder::new();
    folder.refuses(
        &fit("-k 2 --max-iter 1 --require-convergence -o m.json"),
        7,
        &["not converged after 1", "--max-iter"],
    );
    folder.gmm(&fit("-k 2 --require-convergence -o m.json")).ok();
    folder.gmm(&fit("-k 2 --max-iter 1 -o m.json")).ok();
}

#[test]
fn a_device_that_is_not_there_is_never_replaced() {
    Folder::new().refuses(&fit("-k 2 --device cuda:97 -o m.json"), 5, &["cuda:97"]);
    let run = Folder::new().gmm(&fit("-k 2 --device auto -v")).ok();
    assert!(run.stderr.contains("auto: "), "{}", run.stderr);
    // The summary states the choice briefly, without the details of the search for a driver.
    let engine = run.stdout.lines().find(|line| line.starts_with("engine")).expect("the engine's line");
    assert!(engine.contains("auto: ") && engine.len() < 120, "{engine}");
}

#[test]
fn autotune_says_where_there_is_nothing_to_choose_and_changes_no_bit() {
    let folder = Folder::new();
    for engine in ["cpu", "reference"] {
        for command in [fit("-k 2 --json"), format!("select {} -k 1..2 --json", data("old_faithful.csv"))] {
            let command = format!("{command} --device {engine}");
            let plain = folder.gmm(&command).ok().stdout;
            let tuned = folder.gmm(&format!("{command} --autotune")).ok();
            let said = &tuned.stderr;
            assert!(said.contains(&format!("engine {engine} has a single implementation")), "{command}: {said}");
            assert_eq!(said.matches("single implementation").count(), 1, "{command}: {said}");
            let steady = |text: &str| text.lines().filter(|l| !l.contains("elapsed_s")).collect::<String>();
            assert_eq!(steady(&tuned.stdout), steady(&plain), "{command}");
        }
    }
}

#[test]
fn selection_keeps_the_lowest_criterion() {
    let folder = Folder::new();
    let run = folder.gmm(&format!("select {} -k 1..4 --n-init 2 -o best.json", data("old_faithful.csv"))).ok();
    let best: Vec<_> = run.stdout.lines().filter(|line| line.starts_with('*')).collect();
    assert_eq!((best.len(), run.stdout.lines().count()), (1, 5), "{}", run.stdout);
    assert!(best[0].contains("full") && best[0].split_whitespace().nth(1) == Some("2"), "{}", run.stdout);
    assert_eq!(folder.json("best.json")["n_components"], 2);
    let command = format!("select {} -k 2,3,5 --covariance diag,spherical --json", data("wine.csv"));
    let json = folder.gmm(&command).ok().json();
    assert_eq!(keys(&json), ["best", "candidates", "criterion"]);
    assert_eq!(json["candidates"].as_array().unwrap().len(), 6);
    let candidates = json["candidates"].as_array().unwrap();
    let bic = |c: &serde_json::Value| c["bic"].as_f64().unwrap();
    let lowest = candidates.iter().min_by(|a, b| bic(a).total_cmp(&bic(b))).unwrap();
    for field in ["n_components", "covariance_type"] {
        assert_eq!(json["best"][field], lowest[field]);
    }
}

#[test]
fn a_candidate_that_fails_does_not_hide_the_others() {
    let folder = Folder::with("x.csv", "a\n1\n2\n4\n9\n");
    let run = folder.gmm("select x.csv -k 1..6").ok();
    assert!(run.stdout.contains("5 components for 4 rows"), "{}", run.stdout);
    folder.refuses("select x.csv -k 5,6 -o m.json", 3, &["5 components for 4 rows"]);
}
