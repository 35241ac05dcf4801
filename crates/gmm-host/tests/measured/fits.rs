//! Fits: closed forms, monotone likelihoods, gradients, and what is refused.

use gmm_host::{Error, FitOptions, FitRule, Init, Likelihood, Prior, evaluate, fit, impute};
use gmm_model::{Covariances, DataError, SyntheticOptions, sample, synthetic};
use ndarray::{Axis, array};

use super::*;

fn exact(k: usize) -> FitOptions {
    FitOptions { reg_covar: 0.0, tol: 1e-14, max_iter: 20_000, ..FitOptions::new(k) }
}

#[test]
fn one_component_with_equal_errors_has_the_covariance_of_the_rows_less_that_of_the_errors() {
    let (n, d) = (400, 3);
    let rows = common::rows(n, d, 3.0, 1.0, 4);
    let mean = rows.mean_axis(Axis(0)).unwrap();
    let z = &rows - &mean;
    let covariance = z.t().dot(&z) / n as f64;
    let error: Array2<f64> = array![[0.5, 0.2, 0.0], [0.2, 0.3, -0.1], [0.0, -0.1, 0.7]];
    let all = Array3::from_shape_fn((n, d, d), |(_, i, j)| error[[i, j]]);
    let deviations = Array2::from_shape_fn((n, d), |(_, j)| error[[j, j]].sqrt());
    let diagonal = Array2::from_diag(&error.diag());
    let cases = [
        (MeasurementErrors::from_covariances(&all).unwrap(), &covariance - &error),
        (MeasurementErrors::from_deviations(deviations).unwrap(), &covariance - &diagonal),
    ];
    for (errors, want) in cases {
        let data = Dataset::new(rows.clone()).unwrap().with_measurement_errors(errors).unwrap();
        let found = fit(&cpu(), &data, &exact(1)).unwrap();
        let got = found.mixture.covariances().matrix(0, d);
        got.iter().zip(&want).for_each(|(a, b)| assert!((a - b).abs() < 1e-6, "{got} {want}"));
        found.mixture.means().row(0).iter().zip(&mean).for_each(|(a, b)| assert!((a - b).abs() < 1e-6));
        let line = found.summary.rules.iter().find(|line| line.contains("measurement errors"));
        assert!(line.is_some(), "{:?}", found.summary.rules);
    }
}

#[test]
fn errors_of_0_give_the_fit_of_exact_rows_to_rounding() {
    for kind in CovarianceType::ALL {
        let truth = synthetic(3, 4, kind, 5, &SyntheticOptions::default()).unwrap();
        let plain = Dataset::new(sample(&truth, 500, 11).unwrap().0).unwrap();
        let zero = MeasurementErrors::from_deviations(Array2::zeros((500, 4))).unwrap();
        let data = plain.clone().with_measurement_errors(zero).unwrap();
        let options = FitOptions { covariance_type: kind, ..FitOptions::new(3) };
        let (want, got) = (fit(&cpu(), &plain, &options).unwrap(), fit(&cpu(), &data, &options).unwrap());
        assert_eq!(got.summary.iterations, want.summary.iterations, "{kind}");
        // The errors of the passes, magnified by the iterations.
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "{kind}: {a} {b}");
        got.mixture.means().iter().zip(want.mixture.means()).for_each(|(a, b)| close(*a, *b));
        let (ours, theirs) = (got.mixture.covariances().values(), want.mixture.covariances().values());
        ours.zip(theirs).for_each(|(a, b)| close(*a, *b));
        close(got.summary.log_likelihood, want.summary.log_likelihood);
    }
}

#[test]
fn the_log_likelihood_never_falls_for_any_kind_of_covariance_and_errors() {
    for kind in CovarianceType::ALL {
        for seed in 0..3 {
            let data = noisy(200, 3, seed);
            let full = MeasurementErrors::from_covariances(&covariances(200, 3, seed)).unwrap();
            let correlated = data.without_measurement_errors().with_measurement_errors(full).unwrap();
            let weights: Vec<f64> = (0..200).map(|i| (i % 4) as f64).collect();
            for data in [data.clone().with_weights(weights).unwrap(), correlated, data] {
                for init in
                    [Init::KMeans, Init::RandomRows, Init::Random, Init::MixUp, Init::Stride, Init::KMeansPlusPlus]
                {
                    // A little of reg_covar is added to variances of about 1 in every iteration: it may cost no more.
                    let options = FitOptions { tol: 0.0, max_iter: 25, reg_covar: 1e-12, ..FitOptions::new(2) };
                    let options = FitOptions { covariance_type: kind, init, ..options };
                    let trace = fit(&cpu(), &data, &options).unwrap().summary.trace;
                    for pair in trace.windows(2) {
                        let rounding = 1e-10 * (1.0 + pair[0].abs());
                        assert!(pair[1] >= pair[0] - rounding, "{kind} {:?}: {pair:?}", options.init);
                    }
                    assert!(trace.last() > trace.first(), "{kind}: EM changed nothing");
                }
            }
        }
    }
}

#[test]
fn a_priors_objective_never_falls() {
    let rule = FitRule { prior: Prior::Conjugate, ..FitRule::none() };
    let options = FitOptions { tol: 0.0, max_iter: 30, reg_covar: 0.0, rule, ..FitOptions::new(3) };
    let trace = fit(&cpu(), &noisy(200, 3, 8), &options).unwrap().summary.trace;
    assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - 1e-10), "{trace:?}");
}

#[test]
fn components_blurred_by_errors_of_their_size_are_found_and_score_to_the_bits_of_the_fit() {
    for kind in CovarianceType::ALL {
        let truth =
            synthetic(3, 3, kind, 5, &SyntheticOptions { separation: 5.0, ..SyntheticOptions::default() }).unwrap();
        let (mut rows, _) = sample(&truth, 3000, 11).unwrap();
        let own = deviations(3000, 3, 7);
        let rng = &mut ChaCha8Rng::seed_from_u64(3);
        rows.zip_mut_with(&own, |v, s| *v += s * common::normal(rng));
        let data = Dataset::new(rows).unwrap();
        let data = data.with_measurement_errors(MeasurementErrors::from_deviations(own).unwrap()).unwrap();
        let found = fit(&cpu(), &data, &FitOptions { covariance_type: kind, n_init: 3, ..FitOptions::new(3) }).unwrap();
        let score = |mixture: &Mixture| evaluate::score(&cpu(), mixture, &data, Precision::F64).unwrap().log_likelihood;
        // The fit stops at a change of 1e-3 per row.
        let (at, at_truth) = (found.summary.log_likelihood, score(&truth));
        assert!(at > at_truth - 3.0, "{kind}: {at} {at_truth}");
        assert_eq!(score(&found.mixture), found.summary.log_likelihood, "{kind}");
    }
}

#[test]
fn the_gradient_of_the_likelihood_is_that_of_the_noisy_densities() {
    let data = noisy(80, 3, 4);
    let mut likelihood = Likelihood::new(&cpu(), &data, Precision::F64).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = mixture(kind, 2, 3, 4);
        let (_, gradient) = likelihood.value_and_gradient(&mixture).unwrap();
        // The error of a quotient is h² times the third derivative, and eps |value| / h.
        let h = 1e-5;
        let mut check = |got: f64, moved: &dyn Fn(f64) -> Mixture, what: &str| {
            let slope = (likelihood.value(&moved(h)).unwrap() - likelihood.value(&moved(-h)).unwrap()) / (2.0 * h);
            assert!((got - slope).abs() < 1e-5 * (1.0 + got.abs()), "{kind} {what}: {got} {slope}");
        };
        for (c, j) in [(0, 0), (0, 2), (1, 1)] {
            let moved = |by: f64| {
                let mut means = mixture.means().to_owned();
                means[[c, j]] += by;
                Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap()
            };
            check(gradient.means[[c, j]], &moved, "mean");
        }
        if let Covariances::Diag(all) = mixture.covariances() {
            // `scales` are derivatives by the logarithms of deviations.
            let moved = |by: f64| {
                let mut all = all.clone();
                all[[1, 2]] *= (2.0 * by).exp();
                Mixture::new(mixture.weights().to_owned(), mixture.means().to_owned(), Covariances::Diag(all)).unwrap()
            };
            check(gradient.scales[5], &moved, "variance");
        }
    }
}

fn refused(found: Result<impl std::fmt::Debug, Error>, words: &str) {
    let text = found.unwrap_err().to_string();
    assert!(text.contains(words), "{text}");
}

#[test]
fn what_needs_exact_rows_says_so() {
    let data = noisy(60, 3, 2);
    for init in [Init::Tree(None), Init::Best(None)] {
        refused(
            fit(&cpu(), &data, &FitOptions { init, ..FitOptions::new(2) }),
            "a start by a tree cannot be used with measurement errors",
        );
    }
    let noise = FitRule { noise: Some(gmm_host::NoiseOptions::default()), ..FitRule::none() };
    refused(fit(&cpu(), &data, &FitOptions { rule: noise, ..FitOptions::new(2) }), "uniform noise cannot be used with");
    let labels = FitRule { labels: Some(std::sync::Arc::new(vec![None; 60])), ..FitRule::none() };
    refused(
        fit(&cpu(), &data, &FitOptions { rule: labels, ..FitOptions::new(2) }),
        "known components of rows cannot be used with",
    );
    let bayes =
        FitRule { bayes: Some(gmm_host::BayesOptions::new(gmm_host::WeightFamily::Dirichlet)), ..FitRule::none() };
    refused(
        fit(&cpu(), &data, &FitOptions { rule: bayes, ..FitOptions::new(2) }),
        "variational Bayes cannot be used with",
    );
    let full = mixture(CovarianceType::Full, 2, 3, 1);
    refused(
        impute::impute(&cpu(), &full, &data, Precision::F64, impute::Imputation::Mean),
        "imputation cannot be used with",
    );
}

#[test]
fn invalid_errors_are_refused_with_their_place() {
    let data = Dataset::new(common::rows(4, 2, 0.0, 1.0, 1)).unwrap();
    for value in [-1.0, f64::INFINITY, f64::NEG_INFINITY, 1e200, f64::NAN] {
        let mut own = Array2::ones((4, 2));
        own[[2, 1]] = value;
        let found =
            MeasurementErrors::from_deviations(own).and_then(|errors| data.clone().with_measurement_errors(errors));
        let error = found.unwrap_err();
        assert!(matches!(error, DataError::Deviation { row: 2, column: 1, .. }), "{error}");
        assert!(error.to_string().contains("finite and not negative"), "{error}");
    }
    let negative = [[1.0, 2.0], [2.0, 1.0]];
    let matrices = [
        negative,
        [[1.0, 0.5], [0.4, 1.0]],
        [[-1.0, 0.0], [0.0, 1.0]],
        [[f64::NAN, 0.0], [0.0, 1.0]],
        [[0.0, 0.1], [0.1, 1.0]],
    ];
    for bad in matrices {
        let all = Array3::from_shape_fn((4, 2, 2), |(r, i, j)| if r == 3 { bad[i][j] } else { f64::from(i == j) });
        let error = MeasurementErrors::from_covariances(&all).unwrap_err();
        assert!(matches!(error, DataError::ErrorCovariance { row: 3, .. }), "{error}");
    }
    let error = data.clone().with_measurement_errors(errors(5, 2, 1)).unwrap_err();
    assert_eq!(error.to_string(), "measurement errors of shape [5, 2]: the rows need [4, 2]");
    assert!(MeasurementErrors::from_covariances(&Array3::zeros((4, 2, 3))).is_err());
}

#[test]
fn invalid_views_are_refused_with_their_place() {
    let good = || {
        (
            Array2::<f64>::ones((4, 1)),
            Array3::from_shape_fn((4, 1, 2), |(i, _, j)| f64::from(i % 2 == j)),
            errors(4, 1, 1),
        )
    };
    let (w, r, e) = good();
    assert!(Dataset::of_views(w, r, e).is_ok());
    let (w, mut r, e) = good();
    r[[1, 0, 1]] = f64::INFINITY;
    assert!(matches!(Dataset::of_views(w, r, e), Err(DataError::Projection { row: 1, .. })));
    let (mut w, r, e) = good();
    w[[3, 0]] = f64::NAN;
    assert!(matches!(Dataset::of_views(w, r, e), Err(DataError::NotFinite { row: 3, column: 0, .. })));
    let (w, mut r, e) = good();
    r.index_axis_mut(Axis(2), 1).fill(0.0);
    let error = Dataset::of_views(w, r, e).unwrap_err();
    assert!(matches!(error, DataError::Unseen { column: 1 }), "{error}");
    let (w, r, _) = good();
    assert!(matches!(Dataset::of_views(w, r, errors(4, 2, 1)), Err(DataError::ErrorShape { .. })));
    assert!(matches!(
        Dataset::of_views(Array2::ones((4, 2)), good().1, errors(4, 2, 1)),
        Err(DataError::ErrorShape { .. })
    ));
}
