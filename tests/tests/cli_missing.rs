//! `--missing` and `gmm impute`: tables with holes.

use gmm_tests::{Folder, close, data, f8, npy, numbers};

/// A folder with `holes.csv`: iris, in which every tenth value or so is missing by a rule, and `whole.csv`.
fn holes() -> Folder {
    let folder = Folder::new();
    let whole = std::fs::read_to_string(data("iris.csv")).unwrap();
    let markers = ["", "NA", "NULL", "?", "nan"];
    let line = |(i, line): (usize, &str)| {
        let field = |(j, v): (usize, &str)| match (7 * i + 3 * j + i * i * j) % 11 {
            0 if i > 0 => markers[(i + j) % markers.len()].to_owned(),
            _ => v.to_owned(),
        };
        line.split(',').enumerate().map(field).collect::<Vec<_>>().join(",") + "\n"
    };
    folder.write("holes.csv", whole.lines().enumerate().map(line).collect::<String>());
    folder.write("whole.csv", whole);
    folder
}

/// The rows of a csv text; NaN where a field is no number.
fn table(text: &str) -> Vec<Vec<f64>> {
    text.lines().skip(1).map(|l| l.split(',').map(|v| v.parse().unwrap_or(f64::NAN)).collect()).collect()
}

#[test]
fn the_default_is_an_error_that_names_the_choice() {
    let folder = holes();
    let choice = ["missing value", "--missing em", "--missing drop"];
    for command in ["fit holes.csv -k 2", "select holes.csv -k 1..2", "fit holes.csv -k 2 --missing error"] {
        folder.gmm(command).failed(3, &[&["holes.csv: line 2"], choice.as_slice()].concat());
    }
    folder.gmm("fit whole.csv -k 2 -o m.json -q").ok();
    folder.gmm("score m.json holes.csv").failed(3, &choice);
    folder.gmm("predict m.json holes.csv").failed(3, &choice);
    // A command without the option does not name it.
    let run = folder.gmm("loglik holes.csv m.json");
    assert!(run.stderr.contains("missing value; drop or fill such rows first"), "{}", run.stderr);
    // NaN in a csv is a number that is not finite.
    folder.write("nan.csv", "a,b\n1,2\nnan,3\n2,2\n");
    folder.gmm("fit nan.csv -k 1").failed(3, &["nan.csv, column 'a'", "row 1, column 0 is NaN", "--missing em"]);
}

#[test]
fn a_fit_with_holes_is_near_that_of_the_whole_table_and_scores_its_rows() {
    let folder = holes();
    folder.gmm("fit whole.csv -k 2 -o whole.json -q").ok();
    let fit = folder.gmm("fit holes.csv -k 2 --missing em -o m.json --json").ok().json();
    assert!(fit["rules"][0].as_str().unwrap().ends_with("of 600 values missing at random"), "{fit}");
    let (whole, holes) = (folder.json("whole.json"), folder.json("m.json"));
    for (a, b) in numbers(&holes["means"]).iter().zip(numbers(&whole["means"])) {
        assert!((a - b).abs() < 0.1, "{a} {b}");
    }
    let score = folder.gmm("score m.json holes.csv --missing em --json").ok().json();
    assert_eq!(score["log_likelihood"], fit["log_likelihood"]);
    assert_eq!(score["n_rows"], 150);
    let per_row = folder.gmm("score m.json holes.csv --missing em --per-row").ok().stdout;
    let sum: f64 = table(&per_row).iter().map(|row| row[0]).sum();
    close(&[sum], &[fit["log_likelihood"].as_f64().unwrap()], 1e-12);
    // Two species differ so much that a hole does not change the label.
    let labels = |what: &str| folder.gmm(&format!("predict whole.json {what}")).ok().stdout;
    assert_eq!(labels("holes.csv --missing em"), labels("whole.csv"));
    let shares = table(&folder.gmm("predict m.json holes.csv --missing em --proba").ok().stdout);
    assert!(shares.len() == 150 && shares.iter().all(|r| (r.iter().sum::<f64>() - 1.0).abs() < 1e-12));
}

#[test]
fn dropped_rows_are_counted_and_a_table_without_holes_gives_the_same_model() {
    let folder = holes();
    let run = folder.gmm("fit holes.csv -k 2 --missing drop -o dropped.json -q").ok();
    assert_eq!(run.stderr, "");
    let kept: Vec<Vec<f64>> = table(&folder.text("holes.csv"));
    let complete = kept.iter().filter(|row| row.iter().all(|v| !v.is_nan())).count();
    let run = folder.gmm("fit holes.csv -k 2 --missing drop --json").ok();
    assert!(run.stderr.contains(&format!("{} of 150 rows have missing values", 150 - complete)), "{}", run.stderr);
    assert_eq!(run.json()["n_rows"], complete);
    let run = folder.gmm("predict dropped.json holes.csv --missing drop");
    run.failed(2, &["would leave rows out of the predictions"]);
    for (how, name) in [("em", "a.json"), ("drop", "b.json"), ("error", "c.json")] {
        folder.gmm(&format!("fit whole.csv -k 2 --missing {how} -o {name} -q")).ok();
    }
    assert_eq!(folder.read("a.json"), folder.read("c.json"));
    assert_eq!(folder.read("b.json"), folder.read("c.json"));
}

#[test]
fn weights_and_the_choice_of_columns_go_with_missing_values() {
    let folder = holes();
    let whole = folder.text("holes.csv");
    let weighted: String = whole
        .lines()
        .enumerate()
        .map(|(i, l)| format!("{l},{}\n", if i == 0 { "w".into() } else { (i % 3).to_string() }))
        .collect();
    folder.write("weighted.csv", weighted);
    // A row of weight 2 counts as two rows.
    let twice: String =
        whole.lines().enumerate().flat_map(|(i, l)| vec![format!("{l}\n"); if i == 0 { 1 } else { i % 3 }]).collect();
    folder.write("twice.csv", twice);
    for how in ["em", "drop"] {
        let of = |what: &str| {
            let text = format!("fit {what} -k 1 --reg-covar 0 --tol 0 --max-iter 50 --missing {how} --json");
            folder.gmm(&text).ok().json()["log_likelihood"].as_f64().unwrap()
        };
        close(&[of("weighted.csv --weights w")], &[of("twice.csv")], 1e-9);
    }
    let best =
        folder.gmm("select holes.csv -k 1..3 --columns petal_length,petal_width --missing em --json").ok().json();
    assert!(best["best"].is_object(), "{best}");
}

#[test]
fn a_column_never_observed_is_named_and_what_needs_complete_rows_says_so() {
    let folder = Folder::new();
    folder.write("x.csv", "a,b\n1,NA\n2,NA\n4,NA\n");
    folder.gmm("fit x.csv -k 1 --missing em").failed(3, &["'b'", "has no observed value: leave it out"]);
    let folder = holes();
    for option in ["--noise", "--online"] {
        folder
            .gmm(&format!("fit holes.csv -k 2 --missing em {option}"))
            .failed(3, &["cannot be used with missing values"]);
    }
    folder.write("inf.csv", "a,b\n1,NA\ninf,3\n4,1\n");
    folder.gmm("fit inf.csv -k 1 --missing em").failed(3, &["row 1, column 0 is inf"]);
    folder.write("none.csv", "a,b\n1,NA\nNA,3\n");
    folder.gmm("fit none.csv -k 1 --missing drop").failed(3, &["each of the 2 rows has a missing value"]);
}

#[test]
fn a_tree_and_the_best_of_several_starts_take_holes() {
    let folder = holes();
    let fitted = |rest: &str| {
        let found =
            folder.gmm(&format!("fit holes.csv -k 3 --tol 1e-8 --max-iter 5000 --missing em {rest} --json")).ok();
        found.json()["log_likelihood"].as_f64().unwrap()
    };
    let kmeans = fitted("--init kmeans");
    for init in ["tree", "best"] {
        let found = fitted(&format!("--init {init}"));
        assert!(found > kmeans - 1e-3, "{init}: {found} {kmeans}");
        let all = folder.gmm(&format!("select holes.csv -k 1..3 --missing em --init {init} --json")).ok().json();
        assert_eq!(all["best"]["n_components"], 2, "{init}: {all}");
    }
}

#[test]
fn every_format_gives_the_same_holes() {
    let folder = holes();
    folder.gmm("fit holes.csv -k 2 --missing em -o m.json -q").ok();
    let want = folder.gmm("score m.json holes.csv --missing em --json").ok().stdout;
    // Imputed rows have no holes, so the formats are written by hand: npy here, nulls of parquet and arrow in the tests of
    // the reader.
    let rows = table(&folder.text("holes.csv"));
    let values: Vec<f64> = rows.into_iter().flatten().collect();
    folder.write("holes.npy", npy("<f8", false, "(150, 4)", &f8(&values)));
    assert_eq!(folder.gmm("score m.json holes.npy --missing em --json").ok().stdout, want);
    // Lines with blanks in place of commas, and decimal commas.
    let tsv = folder.text("holes.csv").replace(',', ";").replace('.', ",");
    folder.write("holes.txt", tsv);
    assert_eq!(folder.gmm("score m.json holes.txt --separator ; --missing em --json").ok().stdout, want);
}

#[test]
fn imputed_values_are_conditional_means_modes_and_draws() {
    let folder = holes();
    folder.gmm("fit holes.csv -k 3 --missing em -o m.json -q").ok();
    let (holes, whole) = (table(&folder.text("holes.csv")), table(&folder.text("whole.csv")));
    let of = |what: &str| table(&folder.gmm(&format!("impute m.json holes.csv {what}")).ok().stdout);
    for how in ["", "--how mean", "--how mode", "--how draw", "--how draw --seed 5"] {
        let filled = of(how);
        let (mut errors, mut n) = (0.0, 0.0);
        for ((filled, holes), whole) in filled.iter().zip(&holes).zip(&whole) {
            for ((v, hole), truth) in filled.iter().zip(holes).zip(whole) {
                assert!(if hole.is_nan() { v.is_finite() } else { v == hole }, "{how}: {v} {hole}");
                if hole.is_nan() {
                    (errors, n) = (errors + (v - truth) * (v - truth), n + 1.0);
                }
            }
        }
        // The standard deviations of the columns are 0.4 to 1.8.
        let rms = f64::sqrt(errors / n);
        assert!(rms < if how.contains("draw") { 0.6 } else { 0.4 }, "{how}: {rms}");
    }
    assert_eq!(of("--how draw"), of("--how draw --seed 0"));
    assert_ne!(of("--how draw"), of("--how draw --seed 1"));
    for how in ["mean", "mode"] {
        let command = format!("impute m.json holes.csv --how {how} --draws 2 -o d-{{}}.csv");
        folder.gmm(&command).failed(2, &["--draws draws", &format!("--how {how}")]);
    }
    folder.gmm("impute m.json holes.csv --draws 3 --seed 4 -o d-{}.csv -q").ok();
    assert_eq!(table(&folder.text("d-0.csv")), of("--how draw --seed 4"));
    assert_ne!(folder.text("d-0.csv"), folder.text("d-2.csv"));
    folder.gmm("impute m.json holes.csv --draws 3").failed(2, &["several draws need -o"]);
    folder.gmm("impute m.json holes.csv --draws 3 -o x.csv").failed(2, &["has no {} for the number"]);
    folder.gmm("impute m.json holes.csv --pool-means --draws 1").failed(2, &["at least two draws"]);
    let text = folder.gmm("impute m.json holes.csv --draws 40 --pool-means").ok().stdout;
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!((lines.len(), lines[1][0]), (5, "sepal_length"));
    let n = whole.len() as f64;
    for (j, line) in lines[1..].iter().enumerate() {
        let [mean, error, missing] = [1, 2, 3].map(|i| line[i].parse::<f64>().unwrap());
        let truth = whole.iter().map(|row| row[j]).sum::<f64>() / n;
        let deviation = (whole.iter().map(|row| (row[j] - truth).powi(2)).sum::<f64>() / n).sqrt();
        assert!((mean - truth).abs() < 0.3 * deviation / n.sqrt() * 3.0, "{line:?} {truth}");
        assert!(error > 0.9 * deviation / n.sqrt() && error < 1.3 * deviation / n.sqrt(), "{line:?} {deviation}");
        let is_holed = holes.iter().any(|row| row[j].is_nan());
        assert!(if is_holed { missing > 0.0 && missing < 0.3 } else { missing == 0.0 }, "{line:?}");
    }
}

#[test]
fn a_picture_shows_the_complete_rows() {
    let folder = holes();
    folder.gmm("fit holes.csv -k 2 --missing em --plot fit.svg -o m.json -q").ok();
    assert!(folder.text("fit.svg").contains("</svg>"));
}
