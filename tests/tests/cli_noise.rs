//! `gmm fit --noise`, and the commands that read its models.

use gmm_tests::{Folder, data};
use serde_json::Value;

fn chevron(options: &str) -> String {
    format!("fit {} -k 2 --noise {options}", data("chevron.csv"))
}

fn fitted() -> (Folder, Value) {
    let folder = Folder::new();
    folder.gmm(&chevron("--tol 1e-9 --max-iter 2000 --reg-covar 0 -o m.json")).ok();
    let model = folder.json("m.json");
    (folder, model)
}

#[test]
fn the_model_has_the_noise_that_mclust_finds() {
    let (folder, model) = fitted();
    // mclust 6.0.0: see crates/gmm-host/tests/rules/noise.rs.
    assert!((model["noise"]["weight"].as_f64().unwrap() - 0.753906).abs() < 1e-4, "{}", model["noise"]);
    assert!((model["fit"]["log_likelihood"].as_f64().unwrap() + 10_525.2112939).abs() < 1e-3);
    assert!(model["fit"]["rules"][0].as_str().unwrap().starts_with("uniform noise: log volume 9.68"));
    let shown = folder.gmm("show m.json").ok().stdout;
    assert!(shown.contains("noise: weight 0.7539, uniform over a box along the columns, log volume 9.68"), "{shown}");
    folder.gmm("convert m.json m.safetensors").ok();
    folder.gmm("convert m.safetensors again.json").ok();
    assert_eq!(folder.json("again.json"), model);
}

#[test]
fn the_label_of_noise_is_minus_one_and_its_probability_a_column() {
    let (folder, model) = fitted();
    let rows = data("chevron.csv");
    let labels = folder.gmm(&format!("predict m.json {rows}")).ok().stdout;
    let labels: Vec<i32> = labels.lines().skip(1).map(|line| line.parse().unwrap()).collect();
    // The first 350 rows are the chevron; mclust 6.0.0 labels 295 of them and 11 of the 754 others.
    let clear = |of: &[i32]| of.iter().filter(|label| **label >= 0).count();
    assert_eq!((clear(&labels[..350]), clear(&labels[350..])), (295, 11));
    let all = folder.gmm(&format!("predict m.json {rows} --proba")).ok().stdout;
    let mut lines = all.lines();
    assert_eq!(lines.next(), Some("proba_0,proba_1,proba_noise"));
    for (line, label) in lines.zip(&labels) {
        let r: Vec<f64> = line.split(',').map(|v| v.parse().unwrap()).collect();
        assert!((r.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        assert_eq!(r[2] > r[0].max(r[1]), *label == -1, "{line}");
    }
    folder.gmm(&format!("predict m.json {rows} -o labels.npy")).ok();
    let scored = folder.gmm(&format!("score m.json {rows} --json")).ok().json();
    let (a, b) = (scored["log_likelihood"].as_f64().unwrap(), model["fit"]["log_likelihood"].as_f64().unwrap());
    assert!((a - b).abs() < 1e-9 * b.abs());
    // A row far from all others has the density of the noise.
    folder.write("far.csv", "x,y\n1e6,1e6\n");
    assert_eq!(folder.gmm("predict m.json far.csv").ok().stdout, "label\n-1\n");
    let density = folder.gmm("score m.json far.csv --per-row").ok().stdout;
    let expected = model["noise"]["weight"].as_f64().unwrap().ln() - model["noise"]["log_volume"].as_f64().unwrap();
    assert!((density.lines().nth(1).unwrap().parse::<f64>().unwrap() - expected).abs() < 1e-12);
}

#[test]
fn drawn_rows_outliers_and_pictures_know_the_noise() {
    let (folder, _) = fitted();
    let rows = data("chevron.csv");
    folder.gmm("sample m.json -n 4000 -o drawn.csv").ok();
    let labels = folder.gmm("predict m.json drawn.csv").ok().stdout;
    let share = labels.lines().filter(|line| *line == "-1").count() as f64 / 4000.0;
    assert!((share - 0.72).abs() < 0.06, "{share}");
    folder.gmm(&format!("outliers m.json {rows} --level 0.9 -o o.csv --save kept.json")).ok();
    assert!(folder.json("kept.json")["noise"].is_object());
    folder.gmm(&format!("plot fit m.json {rows} -o p.svg")).ok();
    let picture = std::fs::read_to_string(folder.path("p.svg")).unwrap();
    assert!(picture.contains("and noise") && picture.contains("#9a9a9a"));
}

#[test]
fn a_fit_continues_from_a_model_with_noise() {
    let folder = Folder::new();
    folder.gmm(&chevron("--tol 0 --max-iter 3 -o part.json")).ok();
    folder.gmm(&chevron("--tol 0 --max-iter 8 -o whole.json")).ok();
    let rows = data("chevron.csv");
    folder.gmm(&format!("fit {rows} --init part.json --tol 0 --max-iter 5 -o rest.json")).ok();
    let (rest, whole) = (folder.json("rest.json"), folder.json("whole.json"));
    for field in ["weights", "means", "covariances", "noise"] {
        assert_eq!(rest[field], whole[field], "{field}");
    }
    // By a checkpoint too, also of a fit that began with a model.
    folder.gmm(&format!("fit {rows} --init part.json --tol 0 --max-iter 2 --checkpoint c.json -o two.json")).ok();
    folder.gmm(&format!("fit {rows} --resume c.json --max-iter 5 -o resumed.json")).ok();
    assert_eq!(folder.json("resumed.json")["noise"], whole["noise"]);
    folder.gmm(&chevron("--tol 0 --max-iter 3 --checkpoint d.json -o a.json")).ok();
    folder.gmm(&format!("fit {rows} --resume d.json --max-iter 8 -o b.json")).ok();
    assert_eq!(folder.json("b.json")["means"], whole["means"]);
}

#[test]
fn a_given_volume_is_used_and_cannot_be_drawn_from() {
    let folder = Folder::new();
    let rows = data("chevron.csv");
    let options = "-k 2 --noise-volume 16021.8071078 --noise=0.7 --tol 1e-9 --max-iter 2000";
    folder.gmm(&format!("fit {rows} {options} -o m.json")).ok();
    let model = folder.json("m.json");
    assert!((model["noise"]["weight"].as_f64().unwrap() - 0.753906).abs() < 1e-3, "{}", model["noise"]);
    folder.refuses("sample m.json -n 3 -o r.csv", 2, &["noise of a given volume cannot be drawn"]);
}

/// The numbers of a table of csv, row by row.
fn numbers(csv: &str) -> Vec<Vec<f64>> {
    csv.lines().skip(1).map(|line| line.split(',').map(|v| v.parse().unwrap()).collect()).collect()
}

/// The rows and their responsibilities, of which the last is that of the noise.
fn rows_and_responsibilities(folder: &Folder, model: &str) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
    let rows = data("chevron.csv");
    let all = folder.gmm(&format!("predict {model} {rows} --proba")).ok().stdout;
    (numbers(&std::fs::read_to_string(rows).unwrap()), numbers(&all))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9 * b.abs().max(1.0)
}

#[test]
fn a_pass_and_an_m_step_are_an_iteration_of_the_fit() {
    let folder = Folder::new();
    let rows = data("chevron.csv");
    folder.gmm(&chevron("--tol 0 --max-iter 3 --threads 1 -o three.json")).ok();
    folder.gmm(&chevron("--tol 0 --max-iter 4 --threads 1 -o four.json")).ok();
    folder.gmm(&format!("pass three.json {rows} --threads 1 -o s.stats")).ok();
    folder.gmm("maximise s.stats --from three.json -o m.json").ok();
    let (found, four) = (folder.json("m.json"), folder.json("four.json"));
    for field in ["weights", "means", "covariances"] {
        assert_eq!(found[field], four[field], "{field}");
    }
    assert_eq!(found["noise"]["region"], four["noise"]["region"]);
    assert!(near(found["noise"]["weight"].as_f64().unwrap(), four["noise"]["weight"].as_f64().unwrap()));
}

#[test]
fn splits_and_merges_keep_the_noise() {
    let (folder, model) = fitted();
    folder.gmm("split m.json --component 0 -o three.json").ok();
    folder.gmm("merge three.json -k 2 -o two.json").ok();
    let (three, two) = (folder.json("three.json"), folder.json("two.json"));
    assert_eq!(three["weights"].as_array().unwrap().len(), 3);
    assert_eq!((&three["noise"], &two["noise"]), (&model["noise"], &model["noise"]));
    folder.gmm("distance three.json").ok();
    folder.gmm("distance three.json m.json").ok();
}

#[test]
fn entropies_of_combinations_are_those_of_the_rows_that_are_not_noise() {
    let (folder, _) = fitted();
    folder.gmm("split m.json --component 0 -o three.json").ok();
    let (_, all) = rows_and_responsibilities(&folder, "three.json");
    let rows = data("chevron.csv");
    let found = folder.gmm(&format!("merge three.json --data {rows} --criterion entropy --json")).ok().json();
    // Naively: a row counts as much as it is not noise, and is in each cluster with the rest of its probability.
    let entropy = |clusters: &[&[usize]]| -> f64 {
        all.iter()
            .map(|r| {
                let rest = r[..3].iter().sum::<f64>();
                let of = |cluster: &&[usize]| cluster.iter().map(|&c| r[c]).sum::<f64>() / rest;
                let terms = clusters.iter().map(of).filter(|p| *p > 0.0);
                -rest * terms.map(|p| p * p.ln()).sum::<f64>()
            })
            .sum()
    };
    let expected = [entropy(&[&[0], &[1], &[2]]), entropy(&[&[0, 2], &[1]])];
    let left: Vec<f64> = (0..2).map(|i| found["trace"][i]["entropy"].as_f64().unwrap()).collect();
    assert!(left.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-6), "{left:?}, expected {expected:?}");
    folder.gmm(&format!("merge three.json --data {rows} -o two.json")).ok();
    assert_eq!(folder.json("two.json")["weights"].as_array().unwrap().len(), 2);
}

#[test]
fn adapted_means_share_the_rows_with_the_noise() {
    let (folder, model) = fitted();
    let (rows, all) = rows_and_responsibilities(&folder, "m.json");
    folder.gmm(&format!("adapt m.json {} --relevance 16 -o a.json", data("chevron.csv"))).ok();
    let adapted = folder.json("a.json");
    assert_eq!(adapted["noise"], model["noise"]);
    for c in 0..2 {
        let count: f64 = all.iter().map(|r| r[c]).sum();
        let share = count / (count + 16.0);
        for j in 0..2 {
            let mean = all.iter().zip(&rows).map(|(r, x)| r[c] * x[j]).sum::<f64>() / count;
            let expected = share * mean + (1.0 - share) * model["means"][c][j].as_f64().unwrap();
            assert!(near(adapted["means"][c][j].as_f64().unwrap(), expected));
        }
    }
}

#[test]
fn ratios_log_likelihoods_and_classes_count_the_noise() {
    let (folder, _) = fitted();
    let rows = data("chevron.csv");
    folder.gmm(&format!("adapt m.json {rows} --relevance 100 -o a.json")).ok();
    let densities = |model: &str| -> Vec<f64> {
        let all = folder.gmm(&format!("score {model} {rows} --per-row")).ok().stdout;
        numbers(&all).into_iter().map(|row| row[0]).collect()
    };
    let (of_model, of_adapted) = (densities("m.json"), densities("a.json"));
    let n = of_model.len() as f64;
    let ratio = folder.gmm(&format!("score a.json {rows} --background m.json --json")).ok().json();
    let expected = of_adapted.iter().zip(&of_model).map(|(a, b)| a - b).sum::<f64>() / n;
    assert!(near(ratio["log_likelihood_ratios"][0]["ratio"].as_f64().unwrap(), expected), "{ratio}");
    let found = folder.gmm(&format!("loglik {rows} m.json a.json --json")).ok().json();
    let total = found["models"][0]["log_likelihood"].as_f64().unwrap_or_else(|| panic!("{found}"));
    assert!(near(total, of_model.iter().sum()), "{found}");
    let each = numbers(&folder.gmm(&format!("loglik {rows} m.json a.json --per-row")).ok().stdout);
    assert!(each.iter().zip(&of_adapted).all(|(row, b)| near(row[1], *b)));
    let proba = folder.gmm(&format!("classify {rows} --model m=m.json --model a=a.json --proba")).ok().stdout;
    assert!(numbers(&proba).iter().zip(&of_model).all(|(row, b)| near(row[2], *b)));
}

#[test]
fn predicted_and_imputed_values_are_those_of_a_row_that_is_not_noise() {
    let (folder, model) = fitted();
    let mut gaussian = model.clone();
    gaussian.as_object_mut().unwrap().remove("noise");
    folder.write("g.json", gaussian.to_string());
    folder.write("holes.csv", "x,y\n40,\n,35\n60,20\n");
    folder.write("whole.csv", "x,y\n40,30\n55,35\n60,20\n");
    for command in ["regress MODEL whole.csv --given y --predict x --density", "impute MODEL holes.csv"] {
        let of = |model: &str| folder.gmm(&command.replace("MODEL", model)).ok().stdout;
        assert_eq!(of("m.json"), of("g.json"), "{command}");
    }
}

#[test]
fn the_bootstrap_fits_the_noise_anew() {
    let (folder, model) = fitted();
    let rows = data("chevron.csv");
    let found = folder.gmm(&format!("bootstrap m.json {rows} --replicates 40 --reg-covar 0 --json")).ok().json();
    let noise = &found["noise_weight"];
    let (weight, error) = (noise["value"][0].as_f64().unwrap(), noise["standard_error"][0].as_f64().unwrap());
    assert_eq!(weight, model["noise"]["weight"].as_f64().unwrap());
    // Of a share of rows whose labels were known, the standard error is that of a binomial; not knowing them adds to it.
    let binomial = (weight * (1.0 - weight) / 1104.0).sqrt();
    assert!(error > 0.7 * binomial && error < 3.0 * binomial, "{error}, {binomial}");
    let (lower, upper) = (noise["lower"][0].as_f64().unwrap(), noise["upper"][0].as_f64().unwrap());
    assert!(lower < weight && weight < upper);
    let shown = folder.gmm(&format!("bootstrap m.json {rows} --replicates 3 --reg-covar 0")).ok().stdout;
    assert!(shown.contains("weight of the noise"), "{shown}");
}

#[test]
fn wrong_noise_is_refused() {
    let folder = Folder::new();
    let rows = data("chevron.csv");
    folder.refuses(&chevron("--online -o o.json"), 2, &["noise is set"]);
    for wrong in ["--noise=0", "--noise=1", "--noise=x", "--noise --noise-volume 0", "--noise --noise-volume nan"] {
        folder.refuses(&format!("fit {rows} -k 2 {wrong} -o o.json"), 2, &["--noise"]);
    }
    folder.write("flat.csv", "a,b\n1,2\n2,2\n3,2\n4,2\n");
    folder.refuses("fit flat.csv -k 2 --noise -o o.json", 2, &["column 1 is constant"]);
}
