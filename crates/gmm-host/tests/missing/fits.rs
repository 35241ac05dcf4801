//! Fits: maximum likelihood for one component, published estimates, monotone likelihoods, and what is refused.

use gmm_host::{CpuEngine, Error, Fit, FitOptions, FitRule, Init, Likelihood, Prior, Warning, evaluate, fit};
use gmm_model::{Covariances, DataError, SyntheticOptions, m_step, sample, synthetic};
use ndarray::{Array1, array};

use super::*;

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// EM for one Gaussian and incomplete rows, without any of the code under test: Little and Rubin 2019, section 11.2.1, by
/// the naive conditional moments of the reference. Returns mean and covariance.
fn one_gaussian(rows: &Array2<f64>, iterations: usize) -> (Array1<f64>, Array2<f64>) {
    let d = rows.ncols();
    let mut mean = Array1::from_shape_fn(d, |j| {
        let seen: Vec<f64> = rows.column(j).iter().copied().filter(|v| !v.is_nan()).collect();
        seen.iter().sum::<f64>() / seen.len() as f64
    });
    let mut covariance = Array2::eye(d);
    for _ in 0..iterations {
        let all = Covariances::Full(covariance.clone().insert_axis(ndarray::Axis(0)));
        let mixture = Mixture::new(array![1.0], mean.clone().insert_axis(ndarray::Axis(0)), all).unwrap();
        let completed: Vec<_> = rows.outer_iter().map(|x| reference::component(&mixture, 0, x)).collect();
        let n = rows.nrows() as f64;
        mean = completed.iter().fold(Array1::zeros(d), |sum: Array1<f64>, (_, x, _)| sum + x) / n;
        covariance = Array2::zeros((d, d));
        for (_, x, rest) in &completed {
            let z = x - &mean;
            covariance += rest;
            covariance += &Array2::from_shape_fn((d, d), |(i, j)| z[i] * z[j]);
        }
        covariance /= n;
    }
    (mean, covariance)
}

/// Options of a fit by maximum likelihood to the last digit.
fn exact(k: usize) -> FitOptions {
    FitOptions { reg_covar: 0.0, tol: 1e-13, max_iter: 5000, ..FitOptions::new(k) }
}

fn fitted(rows: &Array2<f64>, options: &FitOptions) -> Fit {
    fit(&cpu(), &Dataset::with_holes(rows.clone()).unwrap(), options).unwrap()
}

const NA: f64 = f64::NAN;

/// The data set apple of the R package mvnmle: size of the crop (hundreds of fruits) and percentage of wormy fruits of 18
/// trees; Little and Rubin 1987, Table 7.4, after Snedecor and Cochran 1967, Table 6.9.1.
fn apple() -> Array2<f64> {
    let size = [8, 6, 11, 22, 14, 17, 18, 24, 19, 23, 26, 40, 4, 4, 5, 6, 8, 10].map(f64::from);
    let wormy = [59, 58, 56, 53, 50, 45, 43, 42, 39, 38, 30, 27].map(f64::from);
    Array2::from_shape_fn((18, 2), |(i, j)| if j == 0 { size[i] } else { wormy.get(i).copied().unwrap_or(NA) })
}

/// The data set missvals of the R package mvnmle: 13 cements and their heat, of Draper and Smith 1968, with the holes of
/// Rubin 1976 (Little and Rubin 1987, Table 6.4).
fn missvals() -> Array2<f64> {
    array![
        [7.0, 26.0, 6.0, 60.0, 78.5],
        [1.0, 29.0, 15.0, 52.0, 74.3],
        [11.0, 56.0, 8.0, 20.0, 104.3],
        [11.0, 31.0, 8.0, 47.0, 87.6],
        [7.0, 52.0, 6.0, 33.0, 95.9],
        [11.0, 55.0, 9.0, 22.0, 109.2],
        [3.0, 71.0, 17.0, NA, 102.7],
        [1.0, 31.0, 22.0, NA, 72.5],
        [2.0, 54.0, 18.0, NA, 93.1],
        [NA, NA, 4.0, NA, 115.9],
        [NA, NA, 23.0, NA, 83.8],
        [NA, NA, 9.0, NA, 113.3],
        [NA, NA, 8.0, NA, 109.4]
    ]
}

/// Panics unless a fit of one component is the maximum-likelihood estimate that independent code finds.
fn check_one(rows: &Array2<f64>, what: &str) {
    let (mean, covariance) = one_gaussian(rows, 5_000);
    let found = fitted(rows, &exact(1)).mixture;
    let Covariances::Full(all) = found.covariances() else { panic!("full") };
    for i in 0..rows.ncols() {
        let (got, want, deviation) = (found.means()[[0, i]], mean[i], covariance[[i, i]].sqrt());
        assert!((got - want).abs() < 1e-5 * deviation, "{what}: mean {i} is {got}, want {want}");
        for j in 0..=i {
            let (got, want) = (all[[0, i, j]], covariance[[i, j]]);
            let size = deviation * covariance[[j, j]].sqrt();
            assert!((got - want).abs() < 1e-5 * size, "{what}: covariance ({i}, {j}) is {got}, want {want}");
        }
    }
}

#[test]
fn one_component_is_the_maximum_likelihood_estimate_of_incomplete_normal_data() {
    check_one(&apple(), "apple");
    check_one(&missvals(), "missvals");
    for (seed, share) in [(1, 0.1), (2, 0.4)] {
        let mixture = common::mixture(CovarianceType::Full, 1, 4, 0.0, 1.0, seed);
        let (mut rows, _) = sample(&mixture, 120, seed).unwrap();
        punch(&mut rows, share, seed);
        let seen: Vec<usize> = (0..120).filter(|&i| rows.row(i).iter().any(|v| !v.is_nan())).collect();
        check_one(&rows.select(ndarray::Axis(0), &seen), "random");
    }
}

#[test]
fn the_estimates_are_those_of_mvnmle() {
    // What R's mlest(apple) and mlest(missvals, iterlim = 400) of mvnmle 0.1-11.2 return, as recorded in the tests of the
    // Python package pymvnmle. R's nlm stops about 1e-6 from the maximum.
    let cases = [
        (apple(), vec![14.722_265_587, 49.333_248_447], vec![89.534_149_682, -90.696_532_297, 114.694_700_328]),
        (
            missvals(),
            vec![6.655_166_031, 49.965_258_012, 11.769_230_501, 27.047_090_473, 95.423_076_760],
            vec![
                21.825_568_787,
                20.864_341_286,
                238.012_410_531,
                -24.900_388_856,
                -15.817_377_384,
                37.869_824_468,
                -11.473_448_545,
                -252.072_289_604,
                -9.599_212_730,
                294.183_032_684,
                46.953_038_117,
                195.603_620_681,
                -47.556_216_057,
                -190.598_483_781,
                208.904_871_299,
            ],
        ),
    ];
    for (rows, means, lower) in cases {
        let found = fitted(&rows, &FitOptions { max_iter: 20_000, ..exact(1) }).mixture;
        let all = found.covariances().matrix(0, means.len());
        let mut lower = lower.iter();
        for i in 0..means.len() {
            assert!(
                (found.means()[[0, i]] - means[i]).abs() < 1e-5 * all[[i, i]].sqrt(),
                "mean {i}: {}",
                found.means()
            );
            for j in 0..=i {
                let (want, size) = (lower.next().unwrap(), (all[[i, i]] * all[[j, j]]).sqrt());
                assert!((all[[i, j]] - want).abs() < 1e-5 * size, "covariance {i} {j}: {} {want}", all[[i, j]]);
            }
        }
    }
}

#[test]
fn the_monotone_pattern_of_apple_has_the_closed_form_of_anderson() {
    // Anderson 1957: with one column complete, the estimates are those of the complete column, and of the regression of the
    // other on it over the complete rows.
    let rows = apple();
    let x: Vec<f64> = rows.column(0).to_vec();
    let y: Vec<f64> = rows.column(1).iter().copied().take(12).collect();
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let moment = |a: &[f64], b: &[f64]| {
        let (p, q) = (mean(a), mean(b));
        a.iter().zip(b).map(|(a, b)| (a - p) * (b - q)).sum::<f64>() / a.len() as f64
    };
    let slope = moment(&x[..12], &y) / moment(&x[..12], &x[..12]);
    let residual = moment(&y, &y) - slope * moment(&x[..12], &y);
    let (variance, mean_y) = (moment(&x, &x), mean(&y) + slope * (mean(&x) - mean(&x[..12])));
    let want = [variance, slope * variance, residual + slope * slope * variance];
    let found = fitted(&rows, &exact(1)).mixture;
    let all = found.covariances().matrix(0, 2);
    let got = [all[[0, 0]], all[[0, 1]], all[[1, 1]]];
    for (got, want) in got.iter().zip(want).chain([(&found.means()[[0, 1]], mean_y)]) {
        assert!((got - want).abs() < 1e-6 * want.abs(), "{got} {want}");
    }
}

#[test]
fn the_observed_log_likelihood_never_falls_for_any_kind_weights_and_share_of_holes() {
    for kind in CovarianceType::ALL {
        for (seed, (share, k)) in [(0.05, 2), (0.3, 3), (0.6, 2)].into_iter().enumerate() {
            let rows = holed(300, 5, share, seed as u64, Precision::F64);
            let weights: Vec<f64> = (0..300).map(|i| (i % 4) as f64).collect();
            let data = Dataset::with_holes(rows).unwrap().with_weights(weights).unwrap();
            let random = [Init::KMeans, Init::RandomRows, Init::Random, Init::KMeansPlusPlus];
            for init in random.into_iter().chain([Init::MixUp, Init::Stride, Init::Tree(None), Init::Best(None)]) {
                // A little of reg_covar is added to variances of about 1 in every iteration: it may cost no more than that.
                let options = FitOptions {
                    tol: 0.0,
                    max_iter: 40,
                    reg_covar: 1e-12,
                    covariance_type: kind,
                    init,
                    ..FitOptions::new(k)
                };
                let found = fit(&cpu(), &data, &options).unwrap();
                let trace = &found.summary.trace;
                for (i, pair) in trace.windows(2).enumerate() {
                    let rounding = 1e-10 * (1.0 + pair[0].abs());
                    assert!(pair[1] >= pair[0] - rounding, "{kind} {share} {:?}: {i}: {pair:?}", options.init);
                }
                assert!(trace.last() > trace.first(), "{kind} {share}: EM changed nothing");
            }
        }
    }
}

#[test]
fn a_table_without_holes_gives_the_bits_of_the_complete_fit() {
    let rows = common::rows(500, 3, 0.0, 1.0, 4);
    for kind in CovarianceType::ALL {
        let options = FitOptions { covariance_type: kind, ..FitOptions::new(3) };
        let complete = fit(&cpu(), &Dataset::new(rows.clone()).unwrap(), &options).unwrap();
        let asked = fit(&cpu(), &Dataset::with_holes(rows.clone()).unwrap(), &options).unwrap();
        assert_eq!((asked.mixture, asked.summary.trace), (complete.mixture, complete.summary.trace), "{kind}");
    }
}

#[test]
fn separated_components_are_found_with_a_third_of_the_values_missing() {
    for kind in CovarianceType::ALL {
        let truth =
            synthetic(4, 6, kind, 5, &SyntheticOptions { separation: 5.0, ..SyntheticOptions::default() }).unwrap();
        let (mut rows, _) = sample(&truth, 4000, 11).unwrap();
        punch(&mut rows, 0.3, 5);
        let data = Dataset::with_holes(rows).unwrap();
        let found = fit(&cpu(), &data, &FitOptions { covariance_type: kind, n_init: 3, ..FitOptions::new(4) }).unwrap();
        let at_truth = evaluate::score(&cpu(), &truth, &data, Precision::F64).unwrap().log_likelihood;
        assert!(found.summary.log_likelihood > at_truth, "{kind}: {} {at_truth}", found.summary.log_likelihood);
        // The saved model scores the same rows to the same bits.
        let again = evaluate::score(&cpu(), &found.mixture, &data, Precision::F64).unwrap();
        let observed = data.rows_observed().map_or(0, |seen| seen.iter().filter(|seen| !**seen).count());
        assert_eq!(again.log_likelihood, found.summary.log_likelihood, "{kind}, {observed} rows without a value");
    }
}

#[test]
fn a_priors_objective_never_falls() {
    let rows = holed(200, 3, 0.3, 8, Precision::F64);
    let rule = FitRule { prior: Prior::Conjugate, ..FitRule::none() };
    let options = FitOptions { tol: 0.0, max_iter: 30, reg_covar: 0.0, rule, ..FitOptions::new(3) };
    let trace = fitted(&rows, &options).summary.trace;
    assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - 1e-10), "{trace:?}");
}

#[test]
fn a_column_never_seen_is_named_and_a_row_without_values_is_left_out() {
    let mut rows = common::rows(60, 3, 0.0, 1.0, 2);
    rows.column_mut(1).fill(NA);
    let data = Dataset::with_holes(rows.clone()).unwrap();
    let error = fit(&cpu(), &data, &FitOptions::new(2)).unwrap_err();
    assert!(matches!(error, Error::Data(DataError::Unobserved { column: 1 })), "{error}");

    let mut rows = common::rows(60, 3, 0.0, 1.0, 2);
    rows[[3, 1]] = NA;
    let without = fitted(&rows, &FitOptions::new(2));
    assert!(without.warnings.iter().all(|w| !matches!(w, Warning::Unobserved { .. })));
    rows.push_row(ndarray::aview1(&[NA; 3])).unwrap();
    let with = fitted(&rows, &FitOptions::new(2));
    assert!(with.warnings.contains(&Warning::Unobserved { rows: 1 }), "{:?}", with.warnings);
    assert_eq!((with.summary.bic, with.summary.trace), (without.summary.bic, without.summary.trace));
    let data = Dataset::with_holes(rows).unwrap();
    let (densities, _) = evaluate::log_densities(&cpu(), &with.mixture, &data, Precision::F64).unwrap();
    let shares = evaluate::responsibilities(&cpu(), &with.mixture, &data, Precision::F64).unwrap();
    assert_eq!(densities[60], 0.0);
    assert_eq!(shares.row(60), with.mixture.weights());
}

#[test]
fn what_needs_complete_rows_says_so() {
    let data = Dataset::with_holes(holed(60, 3, 0.1, 2, Precision::F64)).unwrap();
    let noise = FitRule { noise: Some(gmm_host::NoiseOptions::default()), ..FitRule::none() };
    let labels = FitRule { labels: Some(std::sync::Arc::new(vec![None; 60])), ..FitRule::none() };
    for rule in [noise, labels] {
        let error = fit(&cpu(), &data, &FitOptions { rule, ..FitOptions::new(2) }).unwrap_err();
        assert!(matches!(error, Error::Missing { .. }), "{error}");
    }
}

#[test]
fn the_gradient_of_the_likelihood_is_that_of_the_marginal_densities() {
    let rows = holed(80, 3, 0.3, 4, Precision::F64);
    let data = Dataset::with_holes(rows).unwrap();
    let mut likelihood = Likelihood::new(&cpu(), &data, Precision::F64).unwrap();
    for kind in CovarianceType::ALL {
        let mixture = common::mixture(kind, 2, 3, 0.0, 1.0, 4);
        let (value, gradient) = likelihood.value_and_gradient(&mixture).unwrap();
        let moved = |c: usize, j: usize, by: f64| {
            let mut means = mixture.means().to_owned();
            means[[c, j]] += by;
            Mixture::new(mixture.weights().to_owned(), means, mixture.covariances().clone()).unwrap()
        };
        let h = 1e-5;
        for (c, j) in [(0, 0), (0, 2), (1, 1)] {
            let slope =
                (likelihood.value(&moved(c, j, h)).unwrap() - likelihood.value(&moved(c, j, -h)).unwrap()) / (2.0 * h);
            let got = gradient.means[[c, j]];
            // The error of the quotient is h² times the third derivative, and eps |value| / h.
            assert!((got - slope).abs() < 1e-5 * (1.0 + got.abs()), "{kind} {c} {j}: {got} {slope}");
        }
        assert!(value.is_finite());
    }
}

#[test]
fn a_step_of_em_is_that_of_the_reference_statistics() {
    let rows = holed(150, 4, 0.4, 6, Precision::F64);
    let start = common::mixture(CovarianceType::Full, 2, 4, 0.0, 1.0, 6);
    let seen: Vec<usize> = (0..150).filter(|&i| rows.row(i).iter().any(|v| !v.is_nan())).collect();
    let rows = rows.select(ndarray::Axis(0), &seen);
    let want = m_step(&reference::statistics(&start, rows.view(), None), 0.0, Some(&start)).unwrap().mixture;
    let options = FitOptions { max_iter: 1, reg_covar: 0.0, init: Init::Given(Box::new(start)), ..FitOptions::new(2) };
    let got = fitted(&rows, &options).mixture;
    for (a, b) in got.covariances().values().zip(want.covariances().values()) {
        assert!((a - b).abs() < 1e-10, "{a} {b}");
    }
}
