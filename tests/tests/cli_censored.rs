//! `--censored`, `--rounded`, `--recorded` and `--interval`: rows known only within limits.

use gmm_tests::{Folder, close, numbers};

const N: usize = 2000;

/// Two correlated normal columns, of deviation 1 around (0, 2): the sum of twelve uniform numbers of a linear congruential generator
/// (Knuth's MMIX) is normal up to what no test here sees.
fn rows() -> Vec<[f64; 2]> {
    let mut state = 7u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut normal = || (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
    (0..N)
        .map(|_| {
            let (a, b) = (normal(), normal());
            [a, 2.0 + 0.8 * a + 0.6 * b]
        })
        .collect()
}

/// A folder with `rows.csv`: the columns x and y after `change`, of the rows that it returns.
fn table(change: impl Fn([f64; 2]) -> Option<[f64; 2]>) -> Folder {
    let folder = Folder::new();
    let lines: String = rows().into_iter().filter_map(change).map(|[x, y]| format!("{x},{y}\n")).collect();
    folder.write("rows.csv", format!("x,y\n{lines}"));
    folder
}

const FIT: &str = "fit rows.csv -k 1 --tol 1e-8 --max-iter 2000 --json -o m.json";

/// Panics unless the model is that of the rows before the change, within five standard errors or so.
fn check(folder: &Folder, within: f64) {
    let model = folder.json("m.json");
    close(&numbers(&model["means"]), &[0.0, 2.0], within);
    close(&numbers(&model["covariances"]), &[1.0, 0.8, 0.8, 1.0], 1.5 * within);
}

#[test]
fn a_fit_finds_what_detection_limits_hide() {
    // Both columns have limits: in some rows both values are beyond them.
    let folder = table(|[x, y]| Some([x.max(-0.5), y.min(2.5)]));
    let summary = folder.gmm(&format!("{FIT} --censored x=-0.5.. --censored y=..2.5")).ok().json();
    check(&folder, 0.12);
    assert!(summary["rules"][0].as_str().unwrap().contains("values known within limits"), "{summary}");
    let score = folder.gmm("score m.json rows.csv --censored x=-0.5.. --censored y=..2.5 --json").ok().json();
    let (found, want) = (score["log_likelihood"].as_f64().unwrap(), summary["log_likelihood"].as_f64().unwrap());
    assert!((found - want).abs() < 1e-9 * want.abs(), "{found} {want}");
    // As values, the limits narrow the model.
    folder.gmm(FIT).ok();
    assert!(numbers(&folder.json("m.json")["covariances"])[0] < 0.75);
}

#[test]
fn a_fit_finds_what_rounding_and_truncation_hide() {
    let folder = table(|[x, y]| Some([x, (y / 2.0).round() * 2.0]));
    folder.gmm(&format!("{FIT} --rounded y=2")).ok();
    check(&folder, 0.12);
    let folder = table(|[x, y]| (x < 0.5).then_some([x, y]));
    let summary = folder.gmm(&format!("{FIT} --recorded x=..0.5")).ok().json();
    check(&folder, 0.25);
    assert_eq!(summary["rules"][0].as_str(), Some("rows truncated to -inf to 0.5 in column 'x'"));
}

#[test]
fn two_columns_are_the_ends_of_intervals_of_which_one_may_be_open() {
    let folder = Folder::new();
    // As --censored x=-0.5..: below the limit the lower end is open.
    let ends = |x: f64| if x <= -0.5 { ",-0.5".to_owned() } else { format!("{x},{x}") };
    let lines: String = rows().iter().map(|[x, y]| format!("{},{y}\n", ends(*x))).collect();
    folder.write("rows.csv", format!("x,x_max,y\n{lines}"));
    let summary = folder.gmm(&format!("{FIT} --interval x=x_max")).ok().json();
    check(&folder, 0.12);
    let by_interval = summary["log_likelihood"].as_f64().unwrap();
    let score = folder.gmm("score m.json rows.csv --interval x=x_max --json").ok().json();
    assert!((score["log_likelihood"].as_f64().unwrap() - by_interval).abs() < 1e-9 * by_interval.abs());
    let other = table(|[x, y]| Some([x.max(-0.5), y]));
    let censored = other.gmm(&format!("{FIT} --censored x=-0.5..")).ok().json();
    assert!((censored["log_likelihood"].as_f64().unwrap() - by_interval).abs() < 1e-6 * by_interval.abs());
    folder.write("m.csv", "x,x_max,y\n1,2,0\n,3,1\n4,,0\n,,1\n2,2,3\n");
    let fit = |text: &str| folder.gmm(&format!("fit m.csv -k 1 -o n.json {text}"));
    fit("--interval x=x_max")
        .failed(3, &["row 3 (counted from 0), column 'x'", "both ends of the interval are open: --missing em uses"]);
    fit("--interval x=x_max --missing em --reg-covar 1").ok();
    fit("--interval x=x_max --missing drop").failed(2, &["would leave out rows with an open end"]);
    fit("--interval x=0..1").failed(2, &["UPPER must be one column"]);
    // An infinite end is an open one.
    folder.write("m.csv", "x,x_max,y\n1,2,0\n-inf,3,1\n4,inf,0\n2,2,3\n");
    let infinite = fit("--interval x=x_max --reg-covar 1 --json").ok().json();
    folder.write("m.csv", "x,x_max,y\n1,2,0\n,3,1\n4,,0\n2,2,3\n");
    let empty = fit("--interval x=x_max --reg-covar 1 --json").ok().json();
    assert_eq!(infinite["log_likelihood"], empty["log_likelihood"]);
    fit("--columns x,x_max,y --interval x=x_max")
        .failed(2, &["--interval x=x_max: leave the column", "out of --columns"]);
    fit("--columns x --interval x=1").failed(2, &["with --columns the upper ends must be named"]);
    fit("--interval x=x_max --rounded x --missing em").failed(2, &["leave --censored and --rounded out"]);
    fit("--interval x=z").failed(3, &["'z'"]);
    fit("--interval x").failed(2, &["COLUMN=UPPER"]);
    fit("--interval x=y --columns x").failed(3, &["row"]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let folder = table(Some);
    let fit = |text: &str| folder.gmm(&format!("fit rows.csv -k 1 -o m.json {text}"));
    fit("--censored z=0..").failed(3, &["--censored: there is no column 'z': there are x, y"]);
    fit("--censored x=0.. --censored x=..1").failed(2, &["column 'x' is given twice"]);
    fit("--censored x=1..0").failed(2, &["lower end must be below"]);
    fit("--censored x").failed(2, &["COLUMN=LOW..HIGH"]);
    fit("--rounded x=0").failed(2, &["above 0"]);
    fit("--recorded x=0..1").failed(3, &["row", "is outside of the truncation from 0 to 1"]);
    fit("--censored x=0.. --noise").failed(2, &["cannot be used with censored, rounded or truncated rows"]);
    fit("--censored x=0.. --online").failed(2, &["--online cannot be used with censored"]);
    for option in ["--noise", "--bayes dp", "--online", "--init tree"] {
        fit(&format!("--recorded x=-100..100 {option}"))
            .failed(2, &["cannot be used with censored, rounded or truncated"]);
    }
    fit("--recorded x=-100..100 --noise-columns y").failed(2, &["both limits", "and measurement errors"]);
    folder
        .gmm("select rows.csv -k 1..2 --criterion blrt --recorded x=-100..100")
        .failed(2, &["--criterion blrt does not take measurement errors or limits"]);
    fit("--censored x=0.. --by y").failed(2, &["does not take measurement errors or limits"]);
    fit("--noise-columns y --columns x --censored x=0..").failed(2, &["both limits", "and measurement errors"]);
}

#[test]
fn rows_of_f32_reach_limits_and_names_of_columns_stay() {
    let folder = Folder::new();
    let values: Vec<f32> = (0..50).map(|i| if i < 20 { 0.1 } else { 0.1 + 0.05 * i as f32 }).collect();
    let head = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 1), }}", values.len());
    let head = format!("{head:<117}\n");
    let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    bytes.extend(head.bytes());
    values.iter().for_each(|v| bytes.extend(v.to_le_bytes()));
    folder.write("x.npy", bytes);
    let summary = folder.gmm("fit x.npy -k 1 -o m.json --json --censored 0=0.1..").ok().json();
    assert_eq!(summary["rules"][0].as_str(), Some("20 values known within limits"));
    folder.gmm("fit x.npy -k 1 -o t.json --recorded 0=0.1..").ok();
    let folder = table(Some);
    folder.gmm(&format!("{FIT} --rounded y")).ok();
    assert_eq!(folder.json("m.json")["feature_names"][1].as_str(), Some("y"));
    folder.write("swapped.csv", "y,x\n2,0\n3,1\n");
    folder.gmm("score m.json swapped.csv --censored x=0..").failed(3, &["column 0 is 'y'"]);
}

#[test]
fn a_column_of_which_no_value_is_known_is_refused_by_its_name() {
    let folder = table(Some);
    // No value of x is between the limits.
    folder.write("far.csv", "x,y\n1,1\n1,2\n9,3\n9,4\n1,6\n");
    let fit = |text: &str| folder.gmm(&format!("fit far.csv -k 1 -o m.json {text}"));
    fit("--censored x=2..8").failed(3, &["each value of column 'x' is censored", "leave the column out"]);
    fit("--censored x=0..").ok();
    fit("--censored x=1..").ok();
    fit("--censored x=..1").failed(3, &["'x'"]);
    folder.gmm("select far.csv -k 1 --censored x=2..8").failed(3, &["'x'"]);
    // A prior says where it is.
    fit("--censored x=2..8 --prior").ok();
}
