//! Gradients: against naive sums to nine digits, against finite differences, and at the maximum, where they vanish.

use gmm_host::{FitOptions, Likelihood, ReferenceEngine, fit};
use gmm_model::{CovarianceType, Covariances, Mixture, Precision, packed_index, packed_len};

use super::{case, close, common, cpu, every_case, naive, on_cpu, slope};

#[test]
fn a_gradient_is_the_naive_sum_to_nine_digits() {
    every_case(|what, data, mixture| {
        let (value, got) = on_cpu(&data).value_and_gradient(&mixture).unwrap();
        let want = naive::gradient(&mixture, &data);
        close([&value], [&naive::value(&mixture, &data)], 1e-9, what);
        close(&got.log_weights, &want.log_weights, 1e-9, &format!("{what} log-weights"));
        close(&got.means, &want.means, 1e-9, &format!("{what} means"));
        close(&got.scales, &want.scales, 1e-9, &format!("{what} scales"));
        assert!(got.log_weights.sum().abs() <= 1e-12 * data.total_weight(), "{what}: {}", got.log_weights);
    });
}

#[test]
fn a_gradient_in_single_precision_has_its_digits() {
    for kind in CovarianceType::ALL {
        let (n, d) = (3000, 6);
        let (data, mixture) = case(kind, n, d, 4, 0.0, true);
        let (_, got) = Likelihood::new(&cpu(), &data, Precision::F32).unwrap().value_and_gradient(&mixture).unwrap();
        let (_, want) = on_cpu(&data).value_and_gradient(&mixture).unwrap();
        // Terms of the size of a squared distance, each with a few rounding errors per column.
        let tolerance = 64.0 * f64::from(f32::EPSILON) * (d as f64 + 4.0);
        close(&got.log_weights, &want.log_weights, tolerance, &format!("{kind} log-weights"));
        close(&got.means, &want.means, tolerance, &format!("{kind} means"));
        close(&got.scales, &want.scales, tolerance, &format!("{kind} scales"));
    }
}

#[test]
fn gradients_of_several_mixtures_are_those_of_each_alone_to_the_bit() {
    for kind in CovarianceType::ALL {
        // Too few rows for a second thread; rows for one thread but mixtures for several; rows for all threads.
        for (n, d) in [(40, 2), (4000, 2), (20_000, 3)] {
            let (data, first) = case(kind, n, d, 3, 5.0, true);
            let mut likelihood = on_cpu(&data);
            let near = |seed: u64| common::mixture(kind, 3, d, 5.0, 1.0, seed);
            // Includes a mixture with another number of components, and one under which a row has density 0.
            let far = first.means().mapv(|v| v + 1e200);
            let narrow = Mixture::new(first.weights().to_owned(), far, first.covariances().clone());
            let other = common::mixture(kind, 2, d, 5.0, 1.0, 9);
            let mixtures = [first, near(1), near(2), other, near(3), narrow.unwrap(), near(4)];
            let found = likelihood.values_and_gradients(&mixtures).unwrap();
            assert_eq!(found.len(), mixtures.len());
            for (i, (mixture, found)) in mixtures.iter().zip(&found).enumerate() {
                let alone = likelihood.value_and_gradient(mixture).ok();
                assert_eq!((found.is_none(), found), (i == 5, &alone), "{kind} {n}: {i}");
            }
            let again = likelihood.values_and_gradients(&mixtures[..3]).unwrap();
            assert_eq!(again, found[..3], "{kind} {n}");
        }
    }
    let (data, mixture) = case(CovarianceType::Full, 30, 2, 2, 0.0, false);
    let wide = common::mixture(CovarianceType::Full, 2, 3, 0.0, 1.0, 1);
    assert!(on_cpu(&data).values_and_gradients(&[mixture, wide]).is_err(), "another number of columns");
    assert!(on_cpu(&data).values_and_gradients(&[]).unwrap().is_empty());
}

/// The covariances of the mixture with entry `at` of its factors (or log standard deviations) changed by `by`.
fn moved(mixture: &Mixture, at: usize, by: f64) -> Covariances {
    let (k, d) = mixture.means().dim();
    let factor = |c: usize, at: Option<usize>| {
        let mut l = mixture.factors().dense(c, d);
        for i in 0..d {
            for j in 0..=i {
                l[[i, j]] += if at == Some(packed_index(i, j)) { by } else { 0.0 };
            }
        }
        l.dot(&l.t())
    };
    let mut out = mixture.covariances().clone();
    match &mut out {
        Covariances::Full(a) => {
            let c = at / packed_len(d);
            a.index_axis_mut(ndarray::Axis(0), c).assign(&factor(c, Some(at % packed_len(d))));
        }
        Covariances::Tied(a) => a.assign(&factor(0, Some(at))),
        Covariances::Diag(a) => a[[at / d, at % d]] *= (2.0 * by).exp(),
        Covariances::Spherical(a) => a[at] *= (2.0 * by).exp(),
    }
    assert!(k > 0);
    out
}

#[test]
fn a_gradient_is_what_finite_differences_give_in_every_direction() {
    every_case(|what, data, mixture| {
        let (k, d) = mixture.means().dim();
        let mut slow = Likelihood::new(&ReferenceEngine, &data, Precision::F64).unwrap();
        let (_, got) = on_cpu(&data).value_and_gradient(&mixture).unwrap();
        let parts = || (mixture.weights().to_owned(), mixture.means().to_owned(), mixture.covariances().clone());
        let mut value = |m: Result<Mixture, gmm_model::ModelError>| slow.value(&m.unwrap()).unwrap();
        let log_weights: Vec<f64> = (0..k)
            .map(|c| {
                slope(|t| {
                    let (mut w, means, covariances) = parts();
                    w[c] *= t.exp();
                    value(Mixture::new(&w / w.sum(), means, covariances))
                })
            })
            .collect();
        close(&got.log_weights, &log_weights, 1e-6, &format!("{what} log-weights"));
        let means: Vec<f64> = (0..k * d)
            .map(|at| {
                slope(|t| {
                    let (w, mut means, covariances) = parts();
                    means[[at / d, at % d]] += t;
                    value(Mixture::new(w, means, covariances))
                })
            })
            .collect();
        close(&got.means, &means, 1e-6, &format!("{what} means"));
        let scales: Vec<f64> = (0..got.scales.len())
            .map(|at| slope(|t| value(Mixture::new(parts().0, parts().1, moved(&mixture, at, t)))))
            .collect();
        close(&got.scales, &scales, 1e-6, &format!("{what} scales"));
    });
}

#[test]
fn at_the_maximum_the_gradient_vanishes() {
    for kind in CovarianceType::ALL {
        let data = gmm_model::Dataset::new(common::rows(400, 2, 0.0, 1.0, 9)).unwrap();
        let options =
            FitOptions { covariance_type: kind, tol: 0.0, max_iter: 3000, reg_covar: 0.0, ..FitOptions::new(2) };
        let fitted = fit(&cpu(), &data, &options).unwrap();
        let (_, gradient) = on_cpu(&data).value_and_gradient(&fitted.mixture).unwrap();
        // Each entry is a sum of 400 terms of size about 1.
        let largest = gradient.log_weights.iter().chain(&gradient.means).chain(&gradient.scales);
        let largest = largest.fold(0.0f64, |m, v| m.max(v.abs()));
        assert!(largest < 1e-4, "{kind}: {gradient:?}");
    }
}
