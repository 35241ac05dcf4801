//! The density of each column of a row given its others, in the answers of `/score`.

use std::time::{Duration, Instant};

use gmm_data::ModelFile;
use gmm_model::{CovarianceType, Noise, NoiseRegion, NoiseRotation, SyntheticOptions, reference, synthetic};
use ndarray::aview1;
use serde_json::{Value, json};

use crate::client::{Running, serve, serve_with};

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(|v| v.as_f64().expect("a number")).collect()
}

/// The logarithm of a density in one column at a value: weights, means and variances.
fn log_density(one: &Value, at: f64) -> f64 {
    let [weights, means, variances] = ["weights", "means", "variances"].map(|key| numbers(&one[key]));
    let term = |c: usize| {
        let log = (std::f64::consts::TAU * variances[c]).ln() + (at - means[c]).powi(2) / variances[c];
        weights[c].ln() - 0.5 * log
    };
    reference::log_sum_exp(&(0..weights.len()).map(term).collect::<Vec<_>>())
}

fn ask(server: &Running, row: &[Option<f64>]) -> Value {
    server.post("/score", &json!({"row": row, "missing": "em", "conditionals": true}).to_string()).ok()["rows"][0]
        .clone()
}

#[test]
fn conditional_densities_are_joint_over_marginal() {
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag, CovarianceType::Spherical] {
        for d in [1, 2, 5] {
            let mixture = synthetic(3, d, kind, 2, &SyntheticOptions::default()).unwrap();
            let server = serve_with(&ModelFile::from(mixture.clone()), |_, _| {});
            let row: Vec<f64> = (0..d).map(|j| mixture.means()[[1, j]] + 0.3 * j as f64).collect();
            let answer = ask(&server, &row.iter().copied().map(Some).collect::<Vec<_>>());
            let all = answer["conditionals"].as_array().unwrap();
            assert_eq!(all.len(), d);
            let joint = reference::posterior(&mixture, aview1(&row)).0;
            for (j, one) in all.iter().enumerate() {
                let others: Vec<usize> = (0..d).filter(|i| *i != j).collect();
                let marginal = match &others[..] {
                    [] => 0.0,
                    others => {
                        let values: Vec<f64> = others.iter().map(|i| row[*i]).collect();
                        reference::posterior(&mixture.marginal(others).unwrap(), aview1(&values)).0
                    }
                };
                let (found, expected) = (log_density(one, row[j]), joint - marginal);
                // Differences of log densities of d columns, through a factorisation of d columns.
                let tolerance = 64.0 * f64::EPSILON * (d * d) as f64 * (1.0 + joint.abs() + marginal.abs());
                assert!((found - expected).abs() <= tolerance, "{kind} {d} {j}: {found} is not {expected}");
            }
        }
    }
}

/// The joint density over its integral along the column, which is taken by many small steps.
#[test]
fn noise_has_its_share_of_a_column() {
    let mixture = synthetic(2, 2, CovarianceType::Full, 2, &SyntheticOptions::default()).unwrap();
    let (lower, upper) = (vec![-9.0, -8.0], vec![11.0, 10.0]);
    let (sin, cos) = 0.4f64.sin_cos();
    let rotation = NoiseRotation { centre: vec![0.5, -0.25], axes: vec![vec![cos, sin], vec![-sin, cos]] };
    for rotation in [None, Some(rotation)] {
        let region = NoiseRegion { lower: lower.clone(), upper: upper.clone(), rotation: rotation.clone() };
        let noise = Noise::new(0.3, region).unwrap();
        let density = |x: [f64; 2]| {
            let at = match &rotation {
                None => x.to_vec(),
                Some(NoiseRotation { centre, axes }) => {
                    axes.iter().map(|axis| (0..2).map(|j| axis[j] * (x[j] - centre[j])).sum()).collect()
                }
            };
            let is_inside = at.iter().zip(lower.iter().zip(&upper)).all(|(v, (a, b))| (a..=b).contains(&v));
            let gaussian = reference::posterior(&mixture, aview1(&x)).0.exp();
            0.7 * gaussian + if is_inside { 0.3 / (20.0 * 18.0) } else { 0.0 }
        };
        let server = serve_with(&ModelFile { noise: Some(noise), ..mixture.clone().into() }, |_, _| {});
        for row in [[0.0, 0.0], [3.0, -5.0], [-7.0, 6.5]] {
            let answer = ask(&server, &row.map(Some));
            for j in 0..2 {
                let one = &answer["conditionals"][j];
                let along = |x: f64| density(std::array::from_fn(|i| if i == j { x } else { row[i] }));
                let steps = 400_000;
                let width = 80.0 / f64::from(steps);
                let integral: f64 =
                    (0..steps).map(|i| along(-40.0 + (f64::from(i) + 0.5) * width)).sum::<f64>() * width;
                let part = &one["noise"];
                let [weight, low, high] = ["weight", "lower", "upper"].map(|key| part[key].as_f64().unwrap());
                assert!((numbers(&one["weights"]).iter().sum::<f64>() + weight - 1.0).abs() < 1e-14);
                for at in [row[j], low + 0.01, high - 0.01, low - 0.01, high + 0.01] {
                    let uniform = if (low..=high).contains(&at) { weight / (high - low) } else { 0.0 };
                    let (found, expected) = (log_density(one, at).exp() + uniform, along(at) / integral);
                    // The ends of the region lie within a step.
                    let within = 2.0 * width / 18.0;
                    assert!((found - expected).abs() <= within * expected.max(1e-3), "{row:?} {j}: {found} {expected}");
                }
            }
        }
        // Outside the region there is no noise.
        assert!(ask(&server, &[Some(50.0), Some(50.0)])["conditionals"][0].get("noise").is_none());
    }
    let noise = Noise { weight: 0.3, log_volume: 2.0, region: None };
    let server = serve_with(&ModelFile { noise: Some(noise), ..mixture.into() }, |_, _| {});
    assert!(ask(&server, &[Some(0.0), Some(0.0)])["conditionals"][0].get("noise").is_none());
}

#[test]
fn slow_conditionals_are_answered_in_time() {
    let mixture = synthetic(64, 32, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap();
    let body = json!({"row": vec![0.0; 32], "conditionals": true}).to_string();
    let timed = |limit: Option<Duration>| {
        let file = ModelFile::from(mixture.clone());
        let server = serve_with(&file, |options, _| options.limits.time = limit.unwrap_or(options.limits.time));
        let started = Instant::now();
        (server.post("/score", &body), started.elapsed())
    };
    let (answer, whole) = timed(None);
    assert_eq!(numbers(&answer.ok()["rows"][0]["conditionals"][31]["weights"]).len(), 64);
    let (answer, elapsed) = timed(Some(whole / 8));
    answer.refused(408, &["not complete within"]);
    assert!(elapsed < whole / 2, "{elapsed:?} of {whole:?}");
}

#[test]
fn missing_values_are_not_given() {
    let server = serve();
    let answer = ask(&server, &[Some(0.5), None]);
    let mixture = crate::client::model().mixture;
    // Column a given nothing is the marginal.
    let first = &answer["conditionals"][0];
    assert_eq!(numbers(&first["weights"]), mixture.weights().to_vec());
    assert_eq!(numbers(&first["means"]), [0.0, 4.0]);
    assert_eq!(numbers(&first["variances"]), [2.0, 1.0]);
    // The mean of column b given a is the conditional mean of the same answer.
    let second = &answer["conditionals"][1];
    let mean: f64 = numbers(&second["weights"]).iter().zip(numbers(&second["means"])).map(|(w, m)| w * m).sum();
    let expected = answer["conditional_mean"][1].as_f64().unwrap();
    assert!((mean - expected).abs() <= 64.0 * f64::EPSILON, "{mean} is not {expected}");
}

#[test]
fn conditionals_that_cannot_be_computed_are_refused() {
    let server = serve();
    server.post("/score", r#"{"rows": [[1, 2]], "conditionals": true}"#).refused(400, &["one \"row\""]);
    server.post("/score", r#"{"row": [1, 2], "conditionals": 1}"#).refused(400, &["invalid type", "bool"]);
    // Rows at the end of the numbers have finite means, which `numbers` checks, or are refused.
    for row in [[1.7e308, 1.0], [1.7e308, -1.7e308], [-1e300, 1e300]] {
        let far = server.post("/score", &json!({"row": row, "conditionals": true}).to_string());
        match far.status {
            200 => {
                let all = far.json()["rows"][0]["conditionals"].clone();
                assert_eq!(all.as_array().unwrap().iter().map(|one| numbers(&one["means"]).len()).sum::<usize>(), 4);
            }
            _ => far.refused(400, &["a conditional density", "finite"]),
        }
    }
    let mixture = synthetic(1, 33, CovarianceType::Full, 0, &SyntheticOptions::default()).unwrap();
    let wide = serve_with(&mixture.into(), |_, _| {});
    let body = |conditionals: bool| json!({"row": vec![0.0; 33], "conditionals": conditionals}).to_string();
    wide.post("/score", &body(true)).refused(400, &["at most 32 columns", "33"]);
    assert!(wide.post("/score", &body(false)).ok()["rows"][0].get("conditionals").is_none());
}
