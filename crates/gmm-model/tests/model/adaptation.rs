//! Adaptation against the formulas of its sources, written out naively about the origin.

use gmm_model::adapt::{
    AdaptOptions, AdaptRule, Supervector, adapt, adapted_means, linear_score, linear_scores, supervector,
};
use gmm_model::{CovarianceType, Covariances, Mixture, Statistics, SyntheticOptions, reference, sample, synthetic};
use ndarray::{Array1, Array2, Array3, ArrayView2, Axis, array, s};

use crate::{all_close, close};

fn background(kind: CovarianceType) -> Mixture {
    synthetic(4, 3, kind, 7, &SyntheticOptions::default()).unwrap()
}

/// Rows of a speaker whose components have moved.
fn rows(seed: u64) -> Array2<f64> {
    let other = synthetic(4, 3, CovarianceType::Diag, 7, &SyntheticOptions::default()).unwrap();
    sample(&other, 50, seed).unwrap().0 + 0.7
}

/// `n`, `E(x)` and `E(x xᵀ)` of each component about the origin, from responsibilities.
fn moments(mixture: &Mixture, rows: ArrayView2<'_, f64>) -> Vec<(f64, Array1<f64>, Array2<f64>)> {
    let r = reference::responsibilities(mixture, rows);
    let of = |c: usize| {
        let n = r.column(c).sum();
        let mean = rows.t().dot(&r.column(c)) / n;
        let weighted = &rows * &r.column(c).insert_axis(Axis(1));
        (n, mean, rows.t().dot(&weighted) / n)
    };
    (0..mixture.n_components()).map(of).collect()
}

fn outer(a: &Array1<f64>) -> Array2<f64> {
    a.view().insert_axis(Axis(1)).dot(&a.view().insert_axis(Axis(0)))
}

fn all_parameters(relevance: f64, rule: AdaptRule) -> AdaptOptions {
    AdaptOptions { means: Some(relevance), variances: Some(relevance), weights: Some(relevance), rule }
}

/// Eqs. 11 to 14 of Reynolds, Quatieri and Dunn 2000, about the origin.
#[test]
fn adaptation_follows_reynolds_quatieri_and_dunn() {
    for kind in [CovarianceType::Diag, CovarianceType::Full] {
        let (ubm, x) = (background(kind), rows(1));
        let statistics = reference::statistics(&ubm, x.view(), None);
        let found = adapt(&ubm, &statistics, &all_parameters(16.0, AdaptRule::Reynolds)).unwrap();
        let all = moments(&ubm, x.view());
        let raw: Vec<f64> = all
            .iter()
            .zip(ubm.weights())
            .map(|((n, ..), w)| {
                let alpha = n / (n + 16.0);
                alpha * n / x.nrows() as f64 + (1.0 - alpha) * w
            })
            .collect();
        let sum: f64 = raw.iter().sum();
        for (c, (n, mean, second)) in all.iter().enumerate() {
            let alpha = n / (n + 16.0);
            let old = ubm.means().row(c).to_owned();
            let new = alpha * mean + (1.0 - alpha) * &old;
            let covariance =
                alpha * second + (1.0 - alpha) * (ubm.covariances().matrix(c, 3) + outer(&old)) - outer(&new);
            close(found.weights()[c], raw[c] / sum, 1e-12);
            all_close(found.means().row(c), &new, 1e-12);
            let got = found.covariances().matrix(c, 3);
            match kind {
                CovarianceType::Diag => all_close(got.diag(), covariance.diag(), 1e-11),
                _ => all_close(&got, &covariance, 1e-11),
            }
        }
    }
}

/// Means and weights that bob.learn.em publishes: `test_map_transformer` in its `tests/test_gmm.py` (version 3.3), with
/// its default relevance factor of 4.
#[test]
fn means_and_weights_are_those_of_bob() {
    let unit = Covariances::Diag(Array2::ones((2, 3)));
    let ubm = Mixture::new(array![0.5, 0.5], array![[2.0, 2.0, 2.0], [8.0, 8.0, 8.0]], unit).unwrap();
    let x = array![[1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [7.0, 8.0, 9.0], [7.0, 7.0, 8.0], [7.0, 9.0, 7.0]];
    let statistics = reference::statistics(&ubm, x.view(), None);
    let options = AdaptOptions { means: Some(4.0), weights: Some(4.0), ..AdaptOptions::default() };
    let found = adapt(&ubm, &statistics, &options).unwrap();
    // To the digits printed there.
    let means = array![[1.83333333, 1.83333333, 2.0], [7.57142857, 8.0, 8.0]];
    assert!(found.means().iter().zip(&means).all(|(a, b)| (a - b).abs() < 1e-7), "{}", found.means());
    let weights = array![0.46226415, 0.53773585];
    assert!(found.weights().iter().zip(&weights).all(|(a, b)| (a - b).abs() < 1e-7), "{}", found.weights());
}

/// Kaldi, `gmm/mle-diag-gmm.cc`, `MapDiagGmmUpdate`, with the default factors of `MapDiagGmmOptions` in
/// `gmm/mle-diag-gmm.h`.
#[test]
fn adaptation_follows_kaldi() {
    let (ubm, x) = (background(CovarianceType::Diag), rows(2));
    let statistics = reference::statistics(&ubm, x.view(), None);
    let (mean_tau, variance_tau, weight_tau) = (10.0, 50.0, 10.0);
    let options = AdaptOptions {
        means: Some(mean_tau),
        variances: Some(variance_tau),
        weights: Some(weight_tau),
        rule: AdaptRule::Kaldi,
    };
    let found = adapt(&ubm, &statistics, &options).unwrap();
    let total = x.nrows() as f64;
    for (c, (n, mean, second)) in moments(&ubm, x.view()).iter().enumerate() {
        close(found.weights()[c], (n + ubm.weights()[c] * weight_tau) / (total + weight_tau), 1e-12);
        let new = mean * *n / (n + mean_tau) + &ubm.means().row(c) * (mean_tau / (n + mean_tau));
        all_close(found.means().row(c), &new, 1e-12);
        let about_new = &second.diag() + &(&new * &new) - 2.0 * (mean * &new);
        let old = ubm.covariances().matrix(c, 3);
        let variances = about_new * (n / (variance_tau + n)) + &old.diag() * (variance_tau / (variance_tau + n));
        all_close(found.covariances().matrix(c, 3).diag(), &variances, 1e-11);
    }
}

#[test]
fn spherical_variances_are_the_mean_of_the_columns() {
    let (ubm, x) = (background(CovarianceType::Spherical), rows(3));
    let statistics = reference::statistics(&ubm, x.view(), None);
    let found = adapt(&ubm, &statistics, &all_parameters(4.0, AdaptRule::Reynolds)).unwrap();
    for (c, (n, mean, second)) in moments(&ubm, x.view()).iter().enumerate() {
        let alpha = n / (n + 4.0);
        let old = ubm.means().row(c).to_owned();
        let new = alpha * mean + (1.0 - alpha) * &old;
        let prior = ubm.covariances().matrix(c, 3) + outer(&old);
        let want = (alpha * second + (1.0 - alpha) * prior - outer(&new)).diag().sum() / 3.0;
        close(found.covariances().matrix(c, 3)[[0, 0]], want, 1e-11);
    }
}

#[test]
fn different_relevance_factors_do_not_depend_on_the_origin() {
    let options = AdaptOptions { means: None, variances: Some(3.0), weights: None, rule: AdaptRule::Reynolds };
    let (ubm, x) = (background(CovarianceType::Full), rows(4));
    let moved = Mixture::new(ubm.weights().to_owned(), &ubm.means() + 1000.0, ubm.covariances().clone()).unwrap();
    let adapted = |ubm: &Mixture, x: Array2<f64>| {
        adapt(ubm, &reference::statistics(ubm, x.view(), None), &options).unwrap().covariances().clone()
    };
    let (here, there) = (adapted(&ubm, x.clone()), adapted(&moved, x + 1000.0));
    all_close(here.values(), there.values(), 1e-9);
}

#[test]
fn relevance_0_is_an_m_step_and_no_rows_change_nothing() {
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let (ubm, x) = (background(kind), rows(5));
        let statistics = reference::statistics(&ubm, x.view(), None);
        let found = adapt(&ubm, &statistics, &all_parameters(0.0, AdaptRule::Reynolds)).unwrap();
        let step = gmm_model::m_step(&statistics, 0.0, Some(&ubm)).unwrap().mixture;
        all_close(found.means(), step.means(), 1e-12);
        all_close(found.weights(), step.weights(), 1e-12);
        all_close(found.covariances().values(), step.covariances().values(), 1e-10);
        let nothing = Statistics::of_no_rows(&ubm);
        assert_eq!(adapt(&ubm, &nothing, &all_parameters(16.0, AdaptRule::Reynolds)).unwrap(), ubm);
    }
}

#[test]
fn a_supervector_has_the_distances_of_campbell() {
    for kind in CovarianceType::ALL {
        let ubm = background(kind);
        let means: Vec<Array2<f64>> = (1..3)
            .map(|i| adapted_means(&ubm, &reference::statistics(&ubm, rows(i).view(), None), 8.0).unwrap())
            .collect();
        let [one, other] = [0, 1].map(|i| supervector(means[i].view(), &ubm, Supervector::Normalised).unwrap());
        let squared = (&one - &other).mapv(|v| v * v).sum();
        // Campbell, Sturim and Reynolds 2006, eq. 6: ½ Σ w (m_a − m_b)ᵀ Σ⁻¹ (m_a − m_b) bounds the divergence.
        let want: f64 = (0..4)
            .map(|c| {
                let z = &means[0].row(c) - &means[1].row(c);
                let mut y = z.to_vec();
                gmm_model::Cholesky::new(ubm.covariances().matrix(c, 3).view()).unwrap().solve_lower(&mut y);
                ubm.weights()[c] * y.iter().map(|v| v * v).sum::<f64>()
            })
            .sum();
        close(squared, want, 1e-11);
        let plain = supervector(means[0].view(), &ubm, Supervector::Mean).unwrap();
        assert_eq!(plain.as_slice().unwrap(), means[0].as_slice().unwrap());
    }
}

/// Scores that bob.learn.em publishes: `test_LinearScoring` in its `tests/test_linearscoring.py` (version 3.3), from
/// Idiap's implementation in MATLAB, without channel offsets.
#[test]
fn linear_scores_are_those_of_bob() {
    let variances = Covariances::Diag(array![[1.0, 10.0], [2.0, 5.0]]);
    let ubm = Mixture::new(array![0.5, 0.5], array![[3.0, 70.0], [4.0, 72.0]], variances).unwrap();
    let means = array![[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]];
    let sums = array![[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]], [[5.0, 6.0], [7.0, 3.0]]];
    let counts = array![[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]];
    let first = &sums - &counts.view().insert_axis(Axis(2)) * &ubm.means();
    let scores = linear_scores(means.view(), &ubm, first.view(), None).unwrap();
    all_close(&scores, &array![[2372.9, 5207.7, 5275.7], [2215.7, 4868.1, 4932.1]], 1e-12);
    let per_frame = linear_scores(means.view(), &ubm, first.view(), Some(&[3.0, 7.0, 7.0])).unwrap();
    let want = array![
        [790.9666666666667, 743.9571428571428, 753.6714285714285],
        [738.5666666666667, 695.4428571428572, 704.5857142857144]
    ];
    all_close(&per_frame, &want, 1e-12);
}

/// The formula of bob.learn.em's `linear_scoring`: `(m − M)/σ² · (Σ p x − n M)`, divided by the number of frames if
/// asked.
#[test]
fn linear_scores_follow_bob() {
    let ubm = background(CovarianceType::Diag);
    let of = |seed: u64| reference::statistics(&ubm, rows(seed).view(), None);
    let (speakers, tests) = ([of(1), of(2)], [of(3), of(4), of(5)]);
    let mut means = Array3::zeros((2, 4, 3));
    for (i, one) in speakers.iter().enumerate() {
        means.slice_mut(s![i, .., ..]).assign(&adapted_means(&ubm, one, 8.0).unwrap());
    }
    let mut first = Array3::zeros((3, 4, 3));
    for (i, one) in tests.iter().enumerate() {
        first.slice_mut(s![i, .., ..]).assign(&one.first);
    }
    let counts: Vec<f64> = tests.iter().map(|t| t.total_weight).collect();
    let scores = linear_scores(means.view(), &ubm, first.view(), Some(&counts)).unwrap();
    for (i, speaker) in means.outer_iter().enumerate() {
        for (t, seed) in (3..6).enumerate() {
            let x = rows(seed);
            let mut want = 0.0;
            for (c, (n, mean, _)) in moments(&ubm, x.view()).iter().enumerate() {
                let variances = ubm.covariances().matrix(c, 3).diag().to_owned();
                let (a, b) = ((&speaker.row(c) - &ubm.means().row(c)) / variances, (mean - &ubm.means().row(c)) * *n);
                want += a.dot(&b);
            }
            close(scores[[i, t]], want / x.nrows() as f64, 1e-10);
            close(linear_score(speaker, &ubm, &tests[t], false).unwrap(), want, 1e-10);
        }
    }
}

#[test]
fn bad_input_is_an_error_that_says_what() {
    let (ubm, x) = (background(CovarianceType::Tied), rows(1));
    let statistics = reference::statistics(&ubm, x.view(), None);
    let says = |options: AdaptOptions, what: &str| {
        let why = adapt(&ubm, &statistics, &options).unwrap_err().to_string();
        assert!(why.contains(what), "{why}");
    };
    says(AdaptOptions { means: Some(-1.0), ..AdaptOptions::default() }, "relevance is -1");
    says(AdaptOptions { means: Some(f64::NAN), ..AdaptOptions::default() }, "relevance is NaN");
    says(AdaptOptions { variances: Some(1.0), ..AdaptOptions::default() }, "tied");
    let other = synthetic(2, 3, CovarianceType::Tied, 1, &SyntheticOptions::default()).unwrap();
    let why = adapt(&other, &statistics, &AdaptOptions::default()).unwrap_err().to_string();
    assert!(why.contains("[4, 3]") && why.contains("[2, 3]"), "{why}");
    let why = supervector(ubm.means().slice(s![..2, ..]), &ubm, Supervector::Mean).unwrap_err().to_string();
    assert!(why.contains("[2, 3]"), "{why}");
}
