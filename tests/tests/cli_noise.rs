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

#[test]
fn what_does_not_know_noise_says_so() {
    let (folder, _) = fitted();
    let rows = data("chevron.csv");
    for command in ["merge m.json -k 1 -o o.json", "split m.json --component 0 -o o.json", "distance m.json"] {
        folder.refuses(command, 3, &["m.json has uniform noise"]);
    }
    folder.refuses(&format!("bootstrap m.json {rows}"), 3, &["m.json has uniform noise"]);
    folder.refuses(&format!("pass m.json {rows} -o s.stats"), 3, &["m.json has uniform noise"]);
    folder.refuses(&chevron("--online -o o.json"), 2, &["noise is set"]);
    for wrong in ["--noise=0", "--noise=1", "--noise=x", "--noise --noise-volume 0", "--noise --noise-volume nan"] {
        folder.refuses(&format!("fit {rows} -k 2 {wrong} -o o.json"), 2, &["--noise"]);
    }
    folder.write("flat.csv", "a,b\n1,2\n2,2\n3,2\n4,2\n");
    folder.refuses("fit flat.csv -k 2 --noise -o o.json", 2, &["column 1 is constant"]);
}
