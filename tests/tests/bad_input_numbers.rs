//! Bad input, rows 21 to 42: degenerate numbers, run through the program and compared with the expected results.

use gmm_tests::{Folder, close, data, f4, f8, npy, numbers};
use serde_json::{Value, json};

const KINDS: [&str; 4] = ["full", "tied", "diag", "spherical"];

fn csv(header: &str, rows: &[Vec<f64>]) -> String {
    let lines = rows.iter().map(|row| row.iter().map(|v| format!("{v:?}")).collect::<Vec<_>>().join(","));
    format!("{header}\n{}\n", lines.collect::<Vec<_>>().join("\n"))
}

/// Old Faithful's rows, `(272, 2)`.
fn faithful() -> Vec<Vec<f64>> {
    let text = std::fs::read_to_string(data("old_faithful.csv")).unwrap();
    text.lines().skip(1).map(|line| line.split(',').map(|v| v.parse().unwrap()).collect()).collect()
}

fn folder(rows: &[Vec<f64>]) -> Folder {
    let names = ["a", "b", "c", "d", "e"];
    Folder::with("x.csv", &csv(&names[..rows[0].len()].join(","), rows))
}

/// Fits and returns the model, whose numbers must all be finite.
#[track_caller]
fn fitted(folder: &Folder, options: &str) -> Value {
    folder.gmm(&format!("fit x.csv {options} -o m.json")).ok();
    let model = folder.json("m.json");
    for field in ["weights", "means", "covariances"] {
        assert!(numbers(&model[field]).iter().all(|v| v.is_finite()), "{model}");
    }
    assert!(model["fit"]["log_likelihood"].as_f64().is_some_and(f64::is_finite), "{model}");
    model
}

fn means(model: &Value) -> Vec<f64> {
    numbers(&model["means"])
}

fn covariances(model: &Value) -> Vec<f64> {
    numbers(&model["covariances"])
}

#[test]
fn row_21_identical_points_give_the_regularisation() {
    let folder = folder(&vec![vec![3.0, 4.0]; 10]);
    for (kind, expected) in [
        ("full", vec![1e-6, 0.0, 0.0, 1e-6]),
        ("tied", vec![1e-6, 0.0, 0.0, 1e-6]),
        ("diag", vec![1e-6; 2]),
        ("spherical", vec![1e-6]),
    ] {
        let model = fitted(&folder, &format!("-k 1 --covariance {kind}"));
        assert_eq!((covariances(&model), means(&model)), (expected, vec![3.0, 4.0]), "{kind}");
    }
}

#[test]
fn row_22_identical_points_and_three_components_warn() {
    for kind in KINDS {
        let folder = folder(&vec![vec![3.0, 4.0]; 10]);
        let run = folder.gmm(&format!("fit x.csv -k 3 --covariance {kind}")).ok();
        assert!(
            run.stderr.contains("warning: ") && run.stderr.contains("of 3 components without rows"),
            "{}",
            run.stderr
        );
        let model = fitted(&folder, &format!("-k 3 --covariance {kind}"));
        close(&[numbers(&model["weights"]).iter().sum()], &[1.0], 1e-12);
    }
}

#[test]
fn row_23_identical_points_without_regularisation_name_the_component() {
    for kind in KINDS {
        let command = format!("fit x.csv -k 1 --covariance {kind} --reg-covar 0 -o m.json");
        folder(&vec![vec![3.0, 4.0]; 10]).refuses(&command, 4, &["component 0", "not positive definite", "reg_covar"]);
    }
}

#[test]
fn row_24_a_constant_column_fits_with_regularisation_and_is_named_without() {
    let rows: Vec<Vec<f64>> = (0..20).map(|i| vec![f64::from(i * i), 7.0]).collect();
    let folder = folder(&rows);
    for kind in ["full", "tied", "diag"] {
        let model = fitted(&folder, &format!("-k 1 --covariance {kind}"));
        assert_eq!(*covariances(&model).last().unwrap(), 1e-6, "{kind}");
        let command = format!("fit x.csv -k 1 --covariance {kind} --reg-covar 0 -o y.json");
        folder.refuses(&command, 4, &["column 'b'", "column 1", "component 0"]);
    }
}

#[test]
fn row_25_collinear_columns() {
    let rows: Vec<Vec<f64>> = (0..16).map(|i| vec![f64::from(i), f64::from(2 * i)]).collect();
    let folder = folder(&rows);
    for kind in ["full", "tied"] {
        fitted(&folder, &format!("-k 1 --covariance {kind}"));
        let command = format!("fit x.csv -k 1 --covariance {kind} --reg-covar 0 -o y.json");
        folder.refuses(&command, 4, &["column 'b'", "not positive definite", "collinear"]);
    }
}

#[test]
fn row_26_more_columns_than_rows() {
    let rows = [vec![1.0, 5.0, 2.0, 8.0, 3.0], vec![2.0, 1.0, 7.0, 3.0, 6.0], vec![9.0, 4.0, 1.0, 2.0, 5.0]];
    let folder = folder(&rows);
    fitted(&folder, "-k 1");
    folder.refuses("fit x.csv -k 1 --reg-covar 0 -o y.json", 4, &["component 0", "not positive definite"]);
}

#[test]
fn row_27_one_column() {
    let rows: Vec<Vec<f64>> = [0.0, 0.2, 0.1, 5.0, 5.2, 5.1].iter().map(|&v| vec![v]).collect();
    for kind in KINDS {
        let model = fitted(&folder(&rows), &format!("-k 2 --covariance {kind}"));
        let mut means = means(&model);
        means.sort_by(f64::total_cmp);
        close(&means, &[0.1, 5.1], 1e-9);
    }
}

#[test]
fn row_28_one_component_is_the_sample_mean_and_covariance() {
    let rows = faithful();
    let n = rows.len() as f64;
    let mean: Vec<f64> = (0..2).map(|j| rows.iter().map(|r| r[j]).sum::<f64>() / n).collect();
    let covariance = |i: usize, j: usize| rows.iter().map(|r| (r[i] - mean[i]) * (r[j] - mean[j])).sum::<f64>() / n;
    let model = fitted(&folder(&rows), "-k 1 --reg-covar 0");
    close(&means(&model), &mean, 1e-13);
    let expected = [covariance(0, 0), covariance(0, 1), covariance(1, 0), covariance(1, 1)];
    close(&covariances(&model), &expected, 1e-12);
    assert_eq!(numbers(&model["weights"]), [1.0]);
}

#[test]
fn row_29_an_offset_of_a_hundred_million_costs_nothing() {
    // Multiples of 1/64 near 1e8 are exact in f64, so both data sets are the same up to the shift.
    let near: Vec<Vec<f64>> =
        faithful().iter().map(|r| r.iter().map(|v| (v * 64.0).round() / 64.0).collect()).collect();
    let far: Vec<Vec<f64>> = near.iter().map(|r| r.iter().map(|v| v + 1e8).collect()).collect();
    for kind in KINDS {
        let options = format!("-k 2 --covariance {kind} --tol 1e-8");
        let (near, far) = (fitted(&folder(&near), &options), fitted(&folder(&far), &options));
        // Near 1e8 the spacing of f64 values is 1.5e-8, which limits the accuracy of a mean.
        close(&covariances(&far), &covariances(&near), 1e-7);
        close(&means(&far).iter().map(|v| v - 1e8).collect::<Vec<_>>(), &means(&near), 1e-7);
        close(&numbers(&far["fit"]["log_likelihood"]), &numbers(&near["fit"]["log_likelihood"]), 1e-9);
    }
}

#[test]
fn row_30_an_offset_of_ten_thousand_in_single_precision() {
    let values: Vec<f32> = faithful().concat().iter().map(|v| (*v + 1e4) as f32).collect();
    let folder = Folder::new();
    folder.write("x.npy", npy("<f4", false, "(272, 2)", &f4(&values)));
    for kind in KINDS {
        let fit = |precision: &str| {
            folder.gmm(&format!("fit x.npy -k 2 --covariance {kind} --precision {precision} -o m.json")).ok();
            folder.json("m.json")
        };
        let (single, double) = (fit("f32"), fit("f64"));
        assert_eq!(single["fit"]["precision"], "f32");
        close(&covariances(&single), &covariances(&double), 1e-4);
        close(&means(&single), &means(&double), 1e-7);
        close(&numbers(&single["fit"]["mean_log_likelihood"]), &numbers(&double["fit"]["mean_log_likelihood"]), 1e-5);
    }
}

#[test]
fn row_31_two_far_points_in_single_precision_have_the_variance_of_the_regularisation() {
    let folder = Folder::new();
    folder.write("x.npy", npy("<f4", false, "(4, 1)", &f4(&[9999.0, 0.0, 9999.0, 0.0])));
    folder.gmm("fit x.npy -k 2 --covariance spherical --reg-covar 0.1 -o m.json").ok();
    let model = folder.json("m.json");
    close(&covariances(&model), &[0.1, 0.1], 1e-6);
    assert_eq!(model["fit"]["precision"], "f32");
}

#[test]
fn row_32_a_scale_whose_squares_overflow() {
    let scaled = |scale: f64| faithful().iter().map(|r| r.iter().map(|v| v * scale).collect()).collect::<Vec<_>>();
    folder(&scaled(1e200)).refuses("fit x.csv -k 2 -o m.json", 3, &["column 'a'", "overflow f64", "rescale"]);
    let large = folder(&scaled(1e30));
    large.refuses("fit x.csv -k 2 --precision f32 -o m.json", 3, &["overflow f32", "rescale", "use f64"]);
    fitted(&large, "-k 2");
}

#[test]
fn row_33_a_scale_at_which_regularisation_decides() {
    let rows: Vec<_> = faithful().iter().map(|r| r.iter().map(|v| v * 1e-200).collect()).collect();
    let folder = folder(&rows);
    let run = folder.gmm("fit x.csv -k 2").ok();
    assert!(run.stderr.contains("--reg-covar 1e-6 is larger than the variance of 'a', 'b'"), "{}", run.stderr);
    fitted(&folder, "-k 2");
}

/// A start of three components; the second is far from every row.
fn start(weights: [f64; 3]) -> String {
    json!({
        "format": "gmm-model", "version": 1, "covariance_type": "diag", "n_components": 3, "n_features": 2,
        "feature_names": null, "weights": weights, "means": [[2.0, 54.0], [1e6, 1e6], [4.3, 80.0]],
        "covariances": [[0.1, 30.0], [1.0, 1.0], [0.1, 30.0]], "fit": null
    })
    .to_string()
}

#[test]
fn row_34_a_component_that_empties_keeps_its_place_and_has_no_weight() {
    let folder = folder(&faithful());
    folder.write("start.json", start([0.3, 0.4, 0.3]));
    let run = folder.gmm("fit x.csv --init start.json").ok();
    assert!(run.stderr.contains("components [1] are empty"), "{}", run.stderr);
    let model = fitted(&folder, "--init start.json");
    assert_eq!((numbers(&model["weights"])[1], numbers(&model["means"][1])), (0.0, vec![1e6, 1e6]));
}

#[test]
fn row_35_responsibilities_that_underflow_sum_to_one() {
    let folder = folder(&faithful());
    for kind in KINDS {
        folder.gmm(&format!("fit x.csv -k 3 --covariance {kind} -o m.json")).ok();
        folder.write("far.csv", "a,b\n1e6,-1e6\n-1e9,3\n1e100,1e100\n1e180,1e200\n3,70\n");
        let table = folder.gmm("predict m.json far.csv --proba").ok().stdout;
        for line in table.lines().skip(1) {
            let row: Vec<f64> = line.split(',').map(|v| v.parse().unwrap()).collect();
            close(&[row.iter().sum()], &[1.0], 1e-12);
        }
        assert_eq!(table.lines().count(), 6);
    }
}

#[test]
fn row_36_a_point_at_1e200_has_a_score_of_minus_infinity_and_a_label() {
    let folder = folder(&faithful());
    folder.write("far.csv", "a,b\n3.6,79\n1e200,1e200\n1.8,54\n-1e200,1e308\n");
    for kind in KINDS {
        folder.gmm(&format!("fit x.csv -k 2 --covariance {kind} -o m.json")).ok();
        let rows = folder.gmm("score m.json far.csv --per-row").ok().stdout;
        let rows: Vec<f64> = rows.lines().skip(1).map(|v| v.parse().unwrap()).collect();
        assert!(rows[0].is_finite() && rows[2].is_finite(), "{kind}: {rows:?}");
        assert_eq!((rows[1], rows[3]), (f64::NEG_INFINITY, f64::NEG_INFINITY), "{kind}");
        let labels = folder.gmm("predict m.json far.csv").ok().stdout;
        assert!(labels.lines().skip(1).all(|v| v == "0" || v == "1"), "{kind}: {labels}");
        assert_eq!(labels.lines().count(), 5);
        assert!(folder.gmm("score m.json far.csv").ok().stdout.contains("log-likelihood  -inf"), "{kind}");
        assert_eq!(folder.gmm("score m.json far.csv --json").ok().json()["log_likelihood"], Value::Null);
        // The other rows have the same values as without the far row.
        folder.write("near.csv", "a,b\n3.6,79\n1.8,54\n");
        let near = folder.gmm("score m.json near.csv --per-row").ok().stdout;
        let near: Vec<f64> = near.lines().skip(1).map(|v| v.parse().unwrap()).collect();
        assert_eq!(near, [rows[0], rows[2]], "{kind}");
    }
}

#[test]
fn row_37_zero_weight_at_the_start_stays_finite() {
    let folder = folder(&faithful());
    folder.write("start.json", start([0.5, 0.0, 0.5]));
    let model = fitted(&folder, "--init start.json");
    assert_eq!(numbers(&model["weights"])[1], 0.0);
    folder.gmm("score m.json x.csv").ok();
}

#[test]
fn row_38_columns_of_very_different_scale() {
    let scales = [1e-8, 1e8];
    let rows = faithful();
    let scaled: Vec<Vec<f64>> = rows.iter().map(|r| r.iter().zip(scales).map(|(v, s)| v * s).collect()).collect();
    for kind in ["full", "tied", "diag"] {
        // A start that does not depend on the scales, and a fixed number of iterations.
        let options = format!("-k 2 --covariance {kind} --reg-covar 0 --init stride --tol 0 --max-iter 30");
        let (plain, scaled) = (fitted(&folder(&rows), &options), fitted(&folder(&scaled), &options));
        let back: Vec<f64> = means(&scaled).iter().enumerate().map(|(i, v)| v / scales[i % 2]).collect();
        close(&back, &means(&plain), 1e-6);
        // The scaling has a Jacobian of 1, so the likelihood is the same.
        close(&numbers(&scaled["fit"]["mean_log_likelihood"]), &numbers(&plain["fit"]["mean_log_likelihood"]), 1e-8);
    }
}

#[test]
fn row_39_duplicated_rows_are_rows_of_weight_two() {
    let rows = faithful();
    let twice: Vec<Vec<f64>> = rows.iter().enumerate().flat_map(|(i, r)| vec![r.clone(); 1 + i % 3]).collect();
    let weighted: Vec<Vec<f64>> = rows.iter().enumerate().map(|(i, r)| vec![r[0], r[1], (1 + i % 3) as f64]).collect();
    let (twice, weighted) = (folder(&twice), folder(&weighted));
    let start = start([0.3, 0.4, 0.3]);
    for folder in [&twice, &weighted] {
        folder.write("start.json", &start);
    }
    let options = "--init start.json --tol 0 --max-iter 20";
    let (a, b) = (fitted(&twice, options), fitted(&weighted, &format!("{options} --weights c")));
    for field in ["weights", "means", "covariances"] {
        close(&numbers(&b[field]), &numbers(&a[field]), 1e-9);
    }
    for field in ["log_likelihood", "mean_log_likelihood", "bic", "aic", "icl"] {
        close(&numbers(&b["fit"][field]), &numbers(&a["fit"][field]), 1e-9);
    }
}

#[test]
fn row_40_no_iterations_and_one_are_not_converged() {
    let folder = folder(&faithful());
    for iterations in [0, 1] {
        let run = folder.gmm(&format!("fit x.csv -k 2 --max-iter {iterations} --json")).ok();
        let fit = run.json();
        assert_eq!((&fit["converged"], &fit["iterations"]), (&json!(false), &json!(iterations)));
        assert_eq!(fit["trace"].as_array().unwrap().len(), iterations);
        assert!(fit["log_likelihood"].is_f64(), "{fit}");
        assert!(run.stderr.contains(&format!("warning: not converged after {iterations}")), "{}", run.stderr);
    }
    folder.refuses("fit x.csv -k 2 --max-iter -1", 2, &["'-1'", "--max-iter"]);
}

#[test]
fn row_41_a_falling_likelihood_is_reported() {
    // A regularisation larger than the variances moves the fit away from the maximum at which it starts.
    let folder = folder(&faithful());
    folder.gmm("fit x.csv -k 2 --tol 1e-9 --max-iter 1000 --reg-covar 0 -o start.json").ok();
    let run = folder.gmm("fit x.csv --init start.json --reg-covar 4 --max-iter 5 --tol 0").ok();
    assert!(run.stderr.contains("warning: the mean log-likelihood fell by"), "{}", run.stderr);
}

#[test]
fn row_42_a_mixture_that_memory_cannot_hold() {
    // Two rows of 300,000 columns are a small file; two covariances of that size are 720 GB.
    let folder = Folder::new();
    folder.write("x.npy", npy("|i1", false, "(2, 300000)", &[[1; 300_000], [2; 300_000]].concat()));
    folder.refuses("fit x.npy -k 2 -o m.json", 5, &["bytes of memory", "are free"]);
    folder.refuses("generate -n 10 -k 2 -d 300000 -o y.csv", 5, &["bytes of memory", "are free"]);
    let wide = Folder::new();
    wide.write("x.npy", npy("<f8", false, "(2, 1)", &f8(&[1.0, 2.0])));
    wide.refuses("generate -n 10 -k 1e12 -d 30 -o y.csv", 5, &["bytes of memory", "are free"]);
}
