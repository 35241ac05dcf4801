//! `gmm regress`: columns predicted from others.

use gmm_tests::{Folder, close, data, numbers};

/// A folder with a model of Old Faithful with one component, which is least squares, in `one.json`, and two in `m.json`.
fn fitted() -> Folder {
    let folder = Folder::new();
    let x = data("old_faithful.csv");
    folder.gmm(&format!("fit {x} -k 1 --reg-covar 0 -o one.json")).ok();
    folder.gmm(&format!("fit {x} -k 2 -o m.json")).ok();
    folder
}

/// The header and the rows of a csv text.
fn table(text: &str) -> (Vec<&str>, Vec<Vec<f64>>) {
    let mut lines = text.lines();
    let header = lines.next().expect("a header").split(',').collect();
    (header, lines.map(|line| line.split(',').map(|v| v.parse().expect("a number")).collect()).collect())
}

#[test]
fn one_component_is_the_least_squares_line() {
    // R 4: coef(lm(waiting ~ eruptions, faithful)) is 33.47440, 10.72964; the residual standard error, 5.914 on 270
    // degrees of freedom, has the divisor 270 where maximum likelihood has 272.
    let folder = fitted();
    folder.write("x.csv", "eruptions\n0\n1\n3.5\n");
    let text = folder.gmm("regress one.json x.csv --predict waiting").ok().stdout;
    let (header, rows) = table(&text);
    assert_eq!(header, ["mean_waiting", "sd_waiting"]);
    close(&[rows[0][0], rows[1][0] - rows[0][0]], &[33.47440, 10.72964], 5e-7);
    close(&[rows[2][0]], &[33.47440 + 3.5 * 10.72964], 5e-7);
    let sd = 5.914 * (270.0f64 / 272.0).sqrt();
    rows.iter().for_each(|row| close(&row[1..], &[sd], 1e-4));
}

#[test]
fn densities_are_joint_over_marginal_and_draws_come_from_them() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let text = folder.gmm(&format!("regress m.json {x} --predict waiting --density --draws 300")).ok().stdout;
    let (header, rows) = table(&text);
    assert_eq!(header[..4], ["mean_waiting", "sd_waiting", "log_density", "draw_0_waiting"]);
    assert_eq!((header.len(), header[302], rows.len()), (303, "draw_299_waiting", 272));
    let joint = folder.gmm(&format!("score m.json {x} --json")).ok().json();
    // The marginal mixture on eruptions, made by hand.
    let model = folder.json("m.json");
    let first = |name: &str| numbers(&model[name]);
    let (means, covariances) = (first("means"), first("covariances"));
    folder.write(
        "marginal.json",
        format!(
            r#"{{"format":"gmm-model","version":1,"covariance_type":"diag","n_components":2,"n_features":1,
            "feature_names":["eruptions"],"weights":{},"means":[[{}],[{}]],"covariances":[[{}],[{}]]}}"#,
            model["weights"], means[0], means[2], covariances[0], covariances[4]
        ),
    );
    let marginal = folder.gmm(&format!("score marginal.json {x} --json")).ok().json();
    let of = |value: &serde_json::Value| value["log_likelihood"].as_f64().unwrap();
    let sum: f64 = rows.iter().map(|row| row[2]).sum();
    close(&[sum], &[of(&joint) - of(&marginal)], 1e-12);
    for row in &rows {
        let (mean, deviation, draws) = (row[0], row[1], &row[3..]);
        let drawn = draws.iter().sum::<f64>() / 300.0;
        assert!((drawn - mean).abs() < 5.0 * deviation / 300f64.sqrt(), "{row:?}");
    }
}

#[test]
fn columns_are_found_by_name_and_without_names_by_position() {
    let folder = Folder::new();
    let x = data("iris.csv");
    folder.gmm(&format!("fit {x} -k 3 -o m.json")).ok();
    let command = "--given petal_width,sepal_length --predict petal_length,sepal_width";
    let all = folder.gmm(&format!("regress m.json {x} {command}")).ok().stdout;
    let header = "mean_petal_length,mean_sepal_width,sd_petal_length,sd_sepal_width";
    assert_eq!(all.lines().next(), Some(header));
    // Another order of the rows' columns, others beside them, and one that holds text.
    folder.bash(&format!("cut -d, -f1,4 {x} | awk -F, '{{print \"text\" NR \",\" $2 \",\" $1}}' > y.csv")).ok();
    folder.bash("sed -i 's/^text1,/name,/' y.csv").ok();
    assert_eq!(folder.gmm(&format!("regress m.json y.csv {command}")).ok().stdout, all);
    // Without names: all columns of the model, or the given ones in their order.
    folder.gmm(&format!("convert {x} all.npy")).ok();
    folder.gmm(&format!("convert {x} --columns petal_width,sepal_length given.npy")).ok();
    for name in ["all.npy", "given.npy"] {
        assert_eq!(folder.gmm(&format!("regress m.json {name} {command}")).ok().stdout, all, "{name}");
    }
    // Indices, and all other columns as the given ones.
    let by_index = folder.gmm(&format!("regress m.json {x} --predict 2,1 --given 3,0")).ok().stdout;
    assert_eq!(by_index, all);
    let rest = folder.gmm(&format!("regress m.json {x} --predict 2,1")).ok().stdout;
    let (_, rest) = table(&rest);
    table(&all).1.iter().zip(&rest).for_each(|(a, b)| close(b, a, 1e-12));
}

#[test]
fn formats_engines_and_threads_agree() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let command = format!("regress m.json {x} --predict eruptions --draws 2 --seed 9");
    let text = folder.gmm(&command).ok().stdout;
    for name in ["y.csv", "y.parquet", "y.npy"] {
        folder.gmm(&format!("{command} -o {name} --threads 1 -q")).ok();
        let back = folder.gmm(&format!("convert {name} -")).ok().stdout;
        let rows = |text: &str| text.lines().filter(|l| !l.contains("mean")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(rows(&back), rows(&text), "{name}");
    }
    let reference = folder.gmm(&format!("{command} --device reference")).ok().stdout;
    table(&reference).1.iter().zip(&table(&text).1).for_each(|(a, b)| close(b, a, 1e-10));
}

#[test]
fn bad_columns_are_errors_that_name_them() {
    let folder = fitted();
    let x = data("old_faithful.csv");
    let refuses = |arguments: &str, code: i32, parts: &[&str]| {
        folder.refuses(&format!("regress m.json {arguments} -o out.csv"), code, parts);
    };
    refuses(&format!("{x} --predict length"), 2, &["--predict", "no column 'length'", "eruptions, waiting"]);
    refuses(&format!("{x} --predict waiting --given waiting"), 2, &["'waiting'", "--given", "--predict"]);
    refuses(&format!("{x} --predict 0,1"), 2, &["all columns"]);
    refuses(&format!("{x} --predict waiting --draws 0"), 2, &["at least 1"]);
    refuses(&format!("{} --predict waiting", data("iris.csv")), 3, &["no column 'eruptions'", "sepal_length"]);
    folder.write("x.csv", "eruptions\n3\n");
    refuses("x.csv --predict waiting --density", 3, &["no column 'waiting'"]);
    folder.write("wide.csv", "1,2,3\n4,5,6\n");
    refuses("wide.csv --predict waiting", 3, &["3 columns", "the model has 2", "1 of them"]);
    folder.write("nan.csv", "eruptions\n3\nnan\n");
    refuses("nan.csv --predict waiting", 3, &["eruptions", "NaN"]);
    let run = folder.gmm("regress m.json x.csv");
    assert!(run.code == Some(2) && run.stderr.contains("--predict"), "{}", run.stderr);
    folder.refuses("regress m.json x.csv --predict waiting -o x.csv", 2, &["overwritten"]);
}

#[test]
fn a_column_that_the_others_determine_is_an_error_that_names_it() {
    let folder = Folder::new();
    let rows: String = (0..50).map(|i| format!("{},{},{}\n", i % 7, i % 11, i % 7 + i % 11)).collect();
    folder.write("x.csv", format!("a,b,sum\n{rows}"));
    folder.refuses("fit x.csv -k 1 --reg-covar 0 -o m.json", 4, &["'sum'"]);
    // A model whose column `sum` is that of the others but for a variance of 2⁻⁵¹, which rounding hides in this order.
    let (e, noise) = (2f64.powi(-20), 2f64.powi(-51));
    let model = format!(
        r#"{{"format":"gmm-model","version":1,"covariance_type":"tied","n_components":1,"n_features":3,
        "feature_names":["sum","a","b"],"weights":[1.0],"means":[[0,0,0]],
        "covariances":[[{},1,{e}],[1,1,0],[{e},0,{e}]]}}"#,
        1.0 + e + noise
    );
    folder.write("near.json", model);
    folder.refuses("regress near.json x.csv --predict sum --given b,a", 4, &["near.json", "'sum'"]);
}
