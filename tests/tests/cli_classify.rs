//! `gmm classify`: classifies rows by the models or draws of several classes.

use gmm_tests::{Folder, close, data};

/// A folder with the model files of two well-separated classes in one column, and rows of both.
fn folder() -> Folder {
    let folder = Folder::new();
    let model = |mean: f64| {
        format!(
            r#"{{"format":"gmm-model","version":1,"covariance_type":"diag","n_components":1,"n_features":1,
            "feature_names":null,"weights":[1.0],"means":[[{mean}]],"covariances":[[1.0]]}}"#
        )
    };
    folder.write("low.json", model(0.0));
    folder.write("high.json", model(4.0));
    folder.write("x.csv", "x\n-1\n0\n1.9\n2.1\n4\n1e9\n1e200\n");
    folder
}

fn lines(text: &str) -> Vec<Vec<f64>> {
    text.lines().skip(1).map(|line| line.split(',').map(|v| v.parse().unwrap()).collect()).collect()
}

#[test]
fn a_row_belongs_to_the_class_of_largest_density_times_prior() {
    let folder = folder();
    let run = folder.gmm("classify x.csv --model low=low.json --model high=high.json").ok();
    assert_eq!(run.stdout, "class\n0\n0\n0\n1\n1\n1\n0\n");
    // ln(p/(1 − p)) = 4 (x − 2): priors with odds of 9 to 1 move the border to 2.55.
    let priors = "--class-prior low=0.9 --class-prior high=0.1";
    let run = folder.gmm(&format!("classify x.csv --model low=low.json --model high=high.json {priors}")).ok();
    assert_eq!(run.stdout, "class\n0\n0\n0\n0\n1\n1\n0\n");
    let run = folder.gmm("classify x.csv --model low=low.json --model high=high.json --proba").ok();
    assert_eq!(run.stdout.lines().next(), Some("proba_low,proba_high,log_density_low,log_density_high"));
    let rows = lines(&run.stdout);
    let want = |x: f64| 1.0 / (1.0 + (4.0 * (x - 2.0)).exp());
    for (row, x) in rows.iter().zip([-1.0, 0.0, 1.9, 2.1, 4.0]) {
        close(&row[..2], &[want(x), 1.0 - want(x)], 1e-12);
        close(&row[2..3], &[-0.5 * x * x - 0.5 * std::f64::consts::TAU.ln()], 1e-12);
    }
    assert_eq!(rows[6], [0.5, 0.5, f64::NEG_INFINITY, f64::NEG_INFINITY], "no density: the priors are all there is");
    let command = "classify x.csv --model low=low.json --model high=high.json -o y.npy --json";
    let run = folder.gmm(command).ok().json();
    assert_eq!((&run["n_rows"], &run["classes"][1]["rows"]), (&7.into(), &3.into()));
    assert_eq!(run["classes"][0]["class"], "low");
    assert_eq!(run["precision"], "f64");
    assert!(run["engine"].is_string());
}

#[test]
fn a_density_under_draws_is_the_mean_of_theirs() {
    let folder = folder();
    let x = data("iris.csv");
    let columns = "--columns sepal_length,petal_length";
    for name in ["draws.npz", "draws.parquet"] {
        let options = "-k 2 --chains 2 --draws 60 --warmup 100 -q";
        folder.gmm(&format!("mcmc {x} {columns} {options} -o {name}")).ok();
    }
    folder.gmm(&format!("fit {x} {columns} -k 2 -o fit.json")).ok();
    let models = "--model draws=draws.npz --model same=draws.parquet --model fit=fit.json";
    let run = folder.gmm(&format!("classify {x} {columns} {models} --proba -o p.csv")).ok();
    assert_eq!(run.stdout, "");
    let rows = lines(&folder.text("p.csv"));
    // The densities agree with those of loglik for each row and draw.
    folder.gmm(&format!("loglik {x} {columns} --batch draws.npz --per-row -o each.csv -q")).ok();
    let each = lines(&folder.text("each.csv"));
    assert_eq!((rows.len(), each.len(), each[0].len()), (150, 150, 120));
    for (row, each) in rows.iter().zip(&each) {
        let top = each.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let mean = each.iter().map(|v| (v - top).exp()).sum::<f64>() / 120.0;
        close(&row[3..5], &[top + mean.ln(); 2], 1e-12);
        close(&[row[..3].iter().sum()], &[1.0], 1e-12);
        close(&[row[0] / row[1]], &[1.0], 1e-12);
    }
}

#[test]
fn columns_are_found_by_the_names_of_the_models() {
    let folder = Folder::new();
    for (name, at) in [("low", 0), ("high", 4)] {
        let rows: String = (0..6).map(|i| format!("{},{}\n", at + i % 3, at + i % 2)).collect();
        folder.write(&format!("{name}.csv"), format!("x,y\n{rows}"));
        folder.gmm(&format!("fit {name}.csv -k 1 -o {name}.json")).ok();
    }
    // Other columns, also of text, and in another order.
    folder.write("wide.csv", "id,y,x,z\na,0.5,1,9\nb,4.5,5,-9\n");
    let models = "--model low=low.json --model high=high.json";
    assert_eq!(folder.gmm(&format!("classify wide.csv {models}")).ok().stdout, "class\n0\n1\n");
    folder.gmm("fit low.csv -k 1 --columns y,x -o other.json").ok();
    let models = "--model low=low.json --model other=other.json";
    let why = ["low.json has the columns x, y, and other.json y, x", "all models must have the same"];
    folder.refuses(&format!("classify wide.csv {models}"), 3, &why);
    folder.write("less.csv", "id,y,z\n1,2,3\n");
    folder.refuses(
        "classify less.csv --model low=low.json --model high=high.json",
        3,
        &["low.json", "3 columns", "has 2"],
    );
}

#[test]
fn what_cannot_be_classified_is_refused() {
    let folder = folder();
    let both = "--model low=low.json --model high=high.json";
    for (options, code, parts) in [
        ("--model low=low.json", 2, &["at least twice"][..]),
        ("--model low=low.json --model low=high.json", 2, &["'low' twice"]),
        ("--model low --model high=high.json", 2, &["NAME=VALUE"]),
        ("--model low=low.json --model high=none.npz", 6, &["none.npz"]),
        ("--model low=low.json --model high=x.csv", 3, &["x.csv"]),
        ("--model low=- --model high=-", 2, &["standard input"]),
    ] {
        folder.refuses(&format!("classify x.csv {options}"), code, parts);
    }
    for (options, code, parts) in [
        ("--class-prior low=0.5", 2, &["missing", "'high'"][..]),
        ("--class-prior low=0.5 --class-prior none=1", 2, &["none", "no such class"]),
        ("--class-prior low=0.5 --class-prior low=1", 2, &["'low' twice"]),
        ("--class-prior low=-1 --class-prior high=1", 2, &["low=-1", "not negative"]),
        ("--class-prior low=0 --class-prior high=0", 2, &["sum of the weights is 0"]),
        ("--json", 2, &["--json", "-o"]),
        ("-o ./x.csv", 2, &["overwritten"]),
        ("-o y.txt", 2, &["txt"]),
    ] {
        folder.refuses(&format!("classify x.csv {both} {options}"), code, parts);
    }
    folder.write("two.csv", "x,y\n1,2\n");
    folder.refuses(&format!("classify two.csv {both}"), 3, &["low.json", "2 columns", "has 1"]);
}
