//! Fits of censored, rounded and truncated rows.

use gmm_host::{Error, Fit, FitOptions, FitRule, Init, ReferenceEngine, fit, true_rows};
use gmm_model::censoring::IntervalMoments;
use gmm_model::{Covariances, DataError, Matrix};

use super::*;

fn normals(n: usize, d: usize, seed: u64) -> Array2<f64> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_fn((n, d), |_| common::normal(rng))
}

/// Values below `limit` are known only to be there.
fn below(rows: &Array2<f64>, limit: f64) -> Dataset {
    let lower = rows.mapv(|v| if v < limit { -INF } else { v });
    Dataset::with_censoring(lower, rows.mapv(|v| v.max(limit))).unwrap()
}

/// Values rounded to multiples of `step`.
fn rounded(rows: &Array2<f64>, step: f64) -> Dataset {
    let middle = rows.mapv(|v| (v / step).round() * step);
    Dataset::with_censoring(&middle - 0.5 * step, &middle + 0.5 * step).unwrap()
}

fn long(k: usize, kind: CovarianceType) -> FitOptions {
    FitOptions { covariance_type: kind, tol: 0.0, max_iter: 400, reg_covar: 0.0, ..FitOptions::new(k) }
}

fn mean_and_deviation(found: &Fit) -> (f64, f64) {
    (found.mixture.means()[[0, 0]], found.mixture.covariances().matrix(0, 1)[[0, 0]].sqrt())
}

/// The largest value of `f`, by golden sections in turn, from a start within `reach` of it.
fn maximum(f: impl Fn(f64, f64) -> f64, start: (f64, f64), reach: f64) -> (f64, f64) {
    let section = |f: &dyn Fn(f64) -> f64, at: f64| {
        let (mut a, mut b, g) = (at - reach, at + reach, 0.5 * (5f64.sqrt() - 1.0));
        for _ in 0..60 {
            let (x, y) = (b - g * (b - a), a + g * (b - a));
            if f(x) > f(y) { b = y } else { a = x }
        }
        0.5 * (a + b)
    };
    let (mut m, mut s) = start;
    for _ in 0..60 {
        m = section(&|m| f(m, s), m);
        s = section(&|s| f(m, s), s);
    }
    (m, s)
}

#[test]
fn one_censored_component_is_the_maximum_of_the_textbook_likelihood() {
    let rows = normals(300, 1, 1).mapv(|v| 2.0 + 1.5 * v);
    let data = below(&rows, 1.0);
    let (mean, deviation) = mean_and_deviation(&fit(&cpu(), &data, &long(1, CovarianceType::Full)).unwrap());
    // Tobin 1958: densities of what was seen, probabilities of what was not.
    let log_likelihood = |m: f64, s: f64| {
        let seen = |v: &f64| -0.5 * ((v - m) / s).powi(2) - s.ln() - 0.5 * (2.0 * std::f64::consts::PI).ln();
        let unseen = (0.5 * libm::erfc((m - 1.0) / s / std::f64::consts::SQRT_2)).ln();
        rows.iter().map(|v| if *v < 1.0 { unseen } else { seen(v) }).sum()
    };
    let want = maximum(log_likelihood, (2.0, 1.5), 0.5);
    assert!((mean - want.0).abs() < 1e-6 && (deviation - want.1).abs() < 1e-6, "{mean} {deviation} {want:?}");
    // What a fit of the limits as values would give.
    assert!((mean - rows.mapv(|v| v.max(1.0)).mean().unwrap()).abs() > 0.1);
}

#[test]
fn one_truncated_component_has_the_moments_of_the_rows_within_the_box() {
    let all = normals(800, 1, 2).mapv(|v| 2.0 + 1.5 * v);
    let seen: Vec<f64> = all.iter().copied().filter(|v| (1.0..4.0).contains(v)).collect();
    let rows = Array2::from_shape_vec((seen.len(), 1), seen).unwrap();
    let data = Dataset::new(rows.clone()).unwrap().with_truncation(vec![1.0], vec![4.0]).unwrap();
    let options = FitOptions { max_iter: 20_000, ..long(1, CovarianceType::Full) };
    let found = fit(&cpu(), &data, &options).unwrap();
    let (m, s) = mean_and_deviation(&found);
    // The score equations: the first two moments of the truncated normal are those of the rows.
    let of = IntervalMoments::new((1.0 - m) / s, (4.0 - m) / s);
    let (mean, square) = (rows.mean().unwrap(), rows.mapv(|v| (v - m).powi(2)).mean().unwrap());
    assert!((m + s * of.mean - mean).abs() < 1e-9, "{m} {s}");
    assert!((s * s * of.square - square).abs() < 1e-9, "{m} {s}");
    assert!((m - 2.0).abs() < 0.5 && (s - 1.5).abs() < 0.5, "{m} {s}");
    assert!(found.summary.rules.contains(&"rows truncated to 1 to 4 in column 0".to_owned()));
}

#[test]
fn limits_beyond_the_data_change_nothing() {
    let rows = Dataset::new(common::rows(300, 2, 0.0, 1.0, 3)).unwrap();
    let options = FitOptions { max_iter: 20, tol: 0.0, ..FitOptions::new(2) };
    for kind in CovarianceType::ALL {
        let options = FitOptions { covariance_type: kind, ..options.clone() };
        let want = fit(&cpu(), &rows, &options).unwrap();
        let far = rows.clone().with_truncation(vec![-1e4, -INF], vec![1e4, 1e5]).unwrap();
        let found = fit(&cpu(), &far, &options).unwrap();
        let difference = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let means = |fit: &Fit| fit.mixture.means().iter().copied().collect::<Vec<_>>();
        assert!(difference(&means(&found), &means(&want)) < 1e-10, "{kind}");
        assert!(difference(&found.summary.trace, &want.summary.trace) < 1e-10, "{kind}");
    }
    // Without limits it is the same data set, and so has the same bits.
    let Matrix::F64(values) = rows.rows() else { panic!("f64") };
    assert_eq!(Dataset::with_censoring(values.to_owned().into_owned(), values.to_owned().into_owned()).unwrap(), rows);
    assert_eq!(rows.clone().with_truncation(vec![-INF; 2], vec![INF; 2]).unwrap(), rows);
}

#[test]
fn rounded_values_do_not_widen_the_fit() {
    for step in [0.5, 1.0, 2.0] {
        let rows = normals(20_000, 1, 4);
        let (_, deviation) =
            mean_and_deviation(&fit(&cpu(), &rounded(&rows, step), &long(1, CovarianceType::Full)).unwrap());
        let values = rows.mapv(|v| (v / step).round() * step);
        let plain = values.mapv(|v| v * v).mean().unwrap() - values.mean().unwrap().powi(2);
        // Sheppard's correction: rounding adds step²/12 to the variance, up to a term of Poisson's summation formula.
        let corrected = plain - step * step / 12.0;
        let truth = rows.mapv(|v| v * v).mean().unwrap() - rows.mean().unwrap().powi(2);
        let rest = 4.0 * (-2.0 * (std::f64::consts::PI / step).powi(2)).exp();
        assert!((deviation.powi(2) - corrected).abs() < 0.01 + rest, "{step}: {} {corrected}", deviation.powi(2));
        assert!((deviation.powi(2) - truth).abs() < 0.03, "{step}: {} {truth}", deviation.powi(2));
        assert!(plain - deviation.powi(2) > 0.8 * step * step / 12.0, "{step}");
    }
}

/// Rows within a box of truncation, and a mixture that may be far from the box.
fn far_from_the_box(seed: u64) -> (Dataset, Mixture) {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let kind = CovarianceType::ALL[seed as usize % 4];
    let (k, d) = (1 + (seed as usize / 4) % 3, 1 + (seed as usize / 12) % 2);
    let mut row = || (0..d).map(|_| 3.0 * common::uniform(rng).powi(2)).collect::<Vec<_>>();
    let rows = Array2::from_shape_vec((80, d), (0..80).flat_map(|_| row()).collect()).unwrap();
    let data = Dataset::new(rows).unwrap().with_truncation(vec![0.0; d], vec![3.0; d]).unwrap();
    let away = [0.0, 2.0, 5.0, 15.0, 50.0][seed as usize % 5];
    let near = mixture(kind, k, d, seed);
    let means = near.means().mapv(|m| m + away);
    (data, Mixture::new(near.weights().to_owned(), means, near.covariances().clone()).unwrap())
}

#[test]
fn components_far_from_the_box_approach_it_and_the_likelihood_never_falls() {
    for seed in 0..240 {
        let (data, start) = far_from_the_box(seed);
        let options = FitOptions {
            init: Init::Given(Box::new(start.clone())),
            max_iter: 100,
            reg_covar: 1e-9,
            ..long(start.n_components(), start.covariance_type())
        };
        let found = fit(&cpu(), &data, &options).unwrap();
        for pair in found.summary.trace.windows(2) {
            assert!(pair[1] >= pair[0] - 1e-9 * (1.0 + pair[0].abs()), "{seed}: {pair:?} {start:?}");
        }
    }
    // 45 standard deviations away, where 1/P(T) overflows.
    let inside: Vec<f64> = normals(600, 1, 1).iter().map(|v| 0.7 * v).filter(|v| v.abs() < 1.0).collect();
    let rows = Dataset::new(Array2::from_shape_vec((inside.len(), 1), inside).unwrap()).unwrap();
    let data = rows.with_truncation(vec![-1.0], vec![1.0]).unwrap();
    let start = Covariances::Diag(ndarray::array![[1.0]]);
    let start = Mixture::new(ndarray::array![1.0], ndarray::array![[45.0]], start).unwrap();
    let options = FitOptions { init: Init::Given(Box::new(start)), max_iter: 4000, ..long(1, CovarianceType::Diag) };
    let found = fit(&cpu(), &data, &options).unwrap();
    // It comes as near as a component so wide that the rows are uniform, from where EM is slow.
    let trace = &found.summary.trace;
    assert!(trace[0] < -30.0 && found.summary.mean_log_likelihood > -2f64.ln() - 1e-3, "{:?}", found.summary);
}

#[test]
fn the_record_has_the_precision_of_the_passes() {
    let rows = rounded(&normals(50, 1, 1), 0.5);
    let options = FitOptions { precision: Some(gmm_model::Precision::F32), ..long(1, CovarianceType::Full) };
    let found = fit(&cpu(), &rows, &options).unwrap();
    assert_eq!((found.summary.precision.as_str(), found.storage.precision), ("f64", gmm_model::Precision::F64));
}

#[test]
fn the_likelihood_never_falls() {
    let rows = common::rows(250, 2, 0.0, 1.0, 6);
    let kept: Vec<usize> = (0..250).filter(|&i| rows[[i, 0]] > -1.0 && rows[[i, 1]] < 2.0).collect();
    let rows = rows.select(ndarray::Axis(0), &kept);
    let lower = rows.mapv(|v| if v < -0.3 { -INF } else { v });
    let upper = rows.mapv(|v| v.max(-0.3));
    let data =
        Dataset::with_censoring(lower, upper).unwrap().with_truncation(vec![-1.0, -INF], vec![INF, 2.0]).unwrap();
    for kind in CovarianceType::ALL {
        let options = FitOptions { max_iter: 60, reg_covar: 1e-9, ..long(2, kind) };
        let found = fit(&cpu(), &data, &options).unwrap();
        for pair in found.summary.trace.windows(2) {
            assert!(pair[1] >= pair[0] - 1e-9, "{kind}: {pair:?}");
        }
        let (first, last) = (found.summary.trace[0], found.summary.trace[59]);
        assert!(last > first + 1e-3, "{kind}: {first} {last}");
    }
}

#[test]
fn a_mixture_behind_limits_is_found() {
    // Two components, of which truncation cuts most of one off, and a detection limit hides a part of the other.
    let rng = &mut ChaCha8Rng::seed_from_u64(8);
    let mut rows = Vec::new();
    while rows.len() < 2 * 6000 {
        let (x, y) = (common::normal(rng), common::normal(rng));
        let own = if common::uniform(rng) < 0.6 { [x, 0.8 * x + 0.6 * y] } else { [4.0 + x, 3.0 - 0.5 * x + y] };
        if own[0] < 4.0 {
            rows.extend(own);
        }
    }
    let rows = Array2::from_shape_vec((6000, 2), rows).unwrap();
    let lower = Array2::from_shape_fn((6000, 2), |at| if at.1 == 1 && rows[at] < -0.5 { -INF } else { rows[at] });
    let upper = Array2::from_shape_fn((6000, 2), |at| if at.1 == 1 { rows[at].max(-0.5) } else { rows[at] });
    let data = Dataset::with_censoring(lower, upper).unwrap().with_truncation(vec![-INF; 2], vec![4.0, INF]).unwrap();
    let options = FitOptions { max_iter: 500, tol: 1e-7, ..FitOptions::new(2) };
    let found = fit(&cpu(), &data, &options).unwrap().mixture;
    let low = usize::from(found.means()[[0, 0]] > found.means()[[1, 0]]);
    let close = |found: f64, want: f64, within: f64| assert!((found - want).abs() < within, "{found} {want}");
    close(found.weights()[low], 0.6, 0.03);
    close(found.means()[[low, 0]], 0.0, 0.06);
    close(found.means()[[low, 1]], 0.0, 0.06);
    close(found.means()[[1 - low, 0]], 4.0, 0.2);
    close(found.means()[[1 - low, 1]], 3.0, 0.15);
    close(found.covariances().matrix(low, 2)[[1, 0]], 0.8, 0.08);
    close(found.covariances().matrix(1 - low, 2)[[0, 0]], 1.0, 0.2);
}

fn refused(found: Result<impl std::fmt::Debug, Error>, words: &str) {
    let text = found.unwrap_err().to_string();
    assert!(text.contains(words), "{text}");
}

#[test]
fn what_needs_exact_rows_says_so() {
    let data = censored(60, 3, 2, 2);
    let words = "cannot be used with censored, rounded or truncated rows";
    for init in [Init::Tree(None), Init::Best(None)] {
        refused(fit(&cpu(), &data, &FitOptions { init, ..FitOptions::new(2) }), words);
    }
    let rules = [
        FitRule { noise: Some(gmm_host::NoiseOptions::default()), ..FitRule::none() },
        FitRule { labels: Some(std::sync::Arc::new(vec![None; 60])), ..FitRule::none() },
        FitRule { bayes: Some(gmm_host::BayesOptions::new(gmm_host::WeightFamily::Dirichlet)), ..FitRule::none() },
    ];
    for rule in rules {
        refused(fit(&cpu(), &data, &FitOptions { rule, ..FitOptions::new(2) }), words);
    }
    refused(fit(&ReferenceEngine, &data, &FitOptions::new(2)), "no passes over rows within limits");
    let full = mixture(CovarianceType::Full, 2, 3, 1);
    refused(true_rows(&cpu(), &full, &data, Precision::F64), words);
    let rows = common::rows(30, 7, 0.0, 1.0, 1);
    let many = Dataset::with_censoring(&rows - 1.0, rows).unwrap();
    refused(fit(&cpu(), &many, &FitOptions::new(1)), "7 columns with limits in one row");
    let diagonal = FitOptions { covariance_type: CovarianceType::Diag, max_iter: 2, ..FitOptions::new(1) };
    fit(&cpu(), &many, &diagonal).unwrap();
}

#[test]
fn limits_without_a_number_between_them_are_refused() {
    let one =
        |low: f64, high: f64| Dataset::with_censoring(Array2::from_elem((1, 1), low), Array2::from_elem((1, 1), high));
    for (low, high) in [(1.0, 0.0), (INF, INF), (f64::NAN, 1.0), (0.0, f64::NAN), (-INF, -INF)] {
        assert!(matches!(one(low, high), Err(DataError::Interval { row: 0, column: 0, .. })), "{low} {high}");
    }
    let rows = Dataset::new(Array2::from_elem((2, 1), 5.0)).unwrap();
    assert!(matches!(rows.clone().with_truncation(vec![6.0], vec![INF]), Err(DataError::Outside { row: 0, .. })));
    assert!(matches!(rows.clone().with_truncation(vec![1.0], vec![1.0]), Err(DataError::Truncation { .. })));
    assert!(matches!(rows.with_truncation(vec![0.0; 2], vec![9.0; 2]), Err(DataError::Truncation { .. })));
}

#[test]
fn a_fit_of_truncated_rows_ends_near_its_maximum() {
    // Half of a normal distribution: EM gains little in each of many steps.
    for (limit, seed) in [(0.0, 1), (0.5, 2), (-0.5, 3)] {
        let kept: Vec<f64> = normals(8000, 1, seed).into_iter().filter(|v| *v >= limit).collect();
        let rows = Array2::from_shape_vec((kept.len(), 1), kept).unwrap();
        let data = Dataset::new(rows).unwrap().with_truncation(vec![limit], vec![INF]).unwrap();
        let with = |tol, max_iter| {
            let options = FitOptions { tol, max_iter, reg_covar: 0.0, ..FitOptions::new(1) };
            fit(&cpu(), &data, &options).unwrap().summary
        };
        let best = with(1e-13, 100_000).mean_log_likelihood;
        for tol in [1e-3, 1e-4, 1e-5] {
            let found = with(tol, 5000);
            assert!(found.converged);
            // The estimate of what is left is right within a factor of a few.
            assert!(best - found.mean_log_likelihood < 3.0 * tol, "{limit} {tol}: {best} {found:?}");
        }
    }
}
