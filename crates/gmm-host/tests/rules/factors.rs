//! Mixtures of factor analysers.

use std::ops::ControlFlow;
use std::sync::Arc;

use gmm_host::{
    BayesOptions, CpuEngine, Error, FitOptions, FitRule, Init, Prior, WeightFamily, best, fit, maximise_with, select,
};
use gmm_model::{
    CovarianceModel, CovarianceType, Criterion, Dataset, Draws, FactorLoadings, MStepRule, Mixture, Precision,
    m_step_with, reference, sample,
};
use ndarray::{Array1, Array2, Array3, array};

use crate::{close, cpu, engines, mixtures_close, separated};

fn factors(h: usize, k: usize) -> FitOptions {
    FitOptions::new(k).with_covariance(CovarianceModel { kind: CovarianceType::Full, factors: Some(h) })
}

/// Two well-separated components of two factors in eight columns.
fn truth() -> Mixture {
    let mut draws = Draws::for_purpose("test", 3, 0);
    let loadings = FactorLoadings {
        loadings: Array3::from_shape_fn((2, 8, 2), |_| draws.normal()),
        uniquenesses: Array2::from_shape_fn((2, 8), |_| 0.2 + 0.3 * draws.uniform()),
    };
    let means = Array2::from_shape_fn((2, 8), |(c, j)| if j == 0 { 8.0 * c as f64 } else { draws.normal() });
    Mixture::of_loadings(array![0.4, 0.6], means, loadings).unwrap()
}

fn rows(n: usize, seed: u64) -> Array2<f64> {
    sample(&truth(), n, seed).unwrap().0
}

#[test]
fn a_fit_is_naive_em_with_the_m_step_of_factors() {
    let rows = rows(400, 1);
    let start = cpu(&rows, &FitOptions { max_iter: 1, ..factors(2, 2) }).mixture;
    let rule = MStepRule { factors: Some(2), ..MStepRule::default() };
    let (mut naive, mut trace) = (start.clone(), Vec::new());
    for _ in 0..10 {
        let statistics = reference::statistics(&naive, rows.view(), None);
        trace.push(statistics.log_likelihood / 400.0);
        naive = m_step_with(&rule, &statistics, 1e-6, Some(&naive)).unwrap().mixture;
    }
    for engine in engines() {
        for precision in [Precision::F32, Precision::F64] {
            let init = Init::Given(Box::new(start.clone()));
            let options = FitOptions { init, precision: Some(precision), max_iter: 10, tol: 0.0, ..factors(2, 2) };
            let found = fit(engine.as_ref(), &Dataset::new(rows.clone()).unwrap(), &options).unwrap();
            let tolerance = if precision == Precision::F64 { 1e-9 } else { 1e-4 };
            mixtures_close(&found.mixture, &naive, tolerance);
            found.summary.trace.iter().zip(&trace).for_each(|(a, b)| close(*a, *b, tolerance));
            assert_eq!(found.summary.rules, ["covariances of 2 factors"]);
            // 8 uniquenesses and 16 loadings less one rotation, 8 means, for each component; and a weight.
            let p = 2.0 * (8.0 + 15.0 + 8.0) + 1.0;
            close(found.summary.bic, p * 400f64.ln() - 2.0 * found.summary.log_likelihood, 1e-12);
            assert_eq!(found.mixture.n_parameters(), 63);
        }
    }
}

#[test]
fn the_likelihood_never_falls_and_ends_near_the_truth() {
    let rows = rows(2000, 2);
    let weights: Vec<f64> = (0..2000).map(|i| 1.0 + f64::from(i % 3)).collect();
    let labels: Vec<Option<usize>> =
        (0..2000).map(|i| (i % 50 == 0).then_some(usize::from(rows[[i, 0]] > 4.0))).collect();
    let plain = factors(2, 2).rule;
    let rules = [
        plain.clone(),
        FitRule { prior: Prior::Conjugate, ..plain.clone() },
        FitRule { shared: vec![vec![0, 1]], ..plain.clone() },
        FitRule { labels: Some(Arc::new(labels)), ..plain.clone() },
    ];
    let data = Dataset::new(rows.clone()).unwrap().with_weights(weights).unwrap();
    let mut reached = Vec::new();
    for rule in rules {
        for precision in [Precision::F32, Precision::F64] {
            let options = FitOptions {
                rule: rule.clone(),
                precision: Some(precision),
                tol: 1e-9,
                max_iter: 300,
                ..factors(2, 2)
            };
            let found = fit(&CpuEngine::new(2).unwrap(), &data, &options).unwrap();
            let allowed = if precision == Precision::F64 { 1e-12 } else { 1e-5 };
            for pair in found.summary.trace.windows(2) {
                assert!(pair[1] >= pair[0] - allowed, "{rule:?} {precision}: {pair:?}");
            }
            assert!(
                precision == Precision::F32 || found.summary.converged,
                "{rule:?}: {:?}",
                found.summary.trace.len()
            );
            reached.push(found);
        }
    }
    // The maximum is above the truth, by about half a degree of freedom for each parameter.
    let plain = &reached[1];
    let of_truth = reference::statistics(&truth(), rows.view(), Some(data.weights().unwrap())).mean_log_likelihood();
    let above = (plain.summary.mean_log_likelihood - of_truth) * 2000.0;
    assert!(above > 15.0 && above < 60.0, "{above}");
    let order = if plain.mixture.means()[[0, 0]] < 4.0 { [0, 1] } else { [1, 0] };
    let found = plain.mixture.permuted(&order).unwrap();
    let (found, wanted) = (found.loadings().unwrap().clone(), truth().loadings().unwrap().clone());
    for (a, b) in found.uniquenesses.iter().zip(&wanted.uniquenesses) {
        assert!((a - b).abs() < 0.15 * b, "{a} {b}");
    }
}

#[test]
fn bic_finds_the_number_of_factors() {
    let data = Dataset::new(rows(1500, 4)).unwrap();
    let kinds: Vec<CovarianceModel> =
        ["full", "diag", "factors:1", "factors:2", "factors:3", "factors:4"].map(|word| word.parse().unwrap()).into();
    let mut seen = 0;
    let candidates = select(
        &CpuEngine::new(2).unwrap(),
        &data,
        &FitOptions { max_iter: 200, ..FitOptions::new(1) },
        &[1, 2, 3],
        &kinds,
        &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        },
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
    assert_eq!(seen, 18);
    let best = &candidates[best(&candidates, Criterion::Bic).unwrap()];
    assert_eq!((best.k, best.kind.to_string().as_str()), (2, "factors:2"));
    let found = best.outcome.as_ref().unwrap();
    assert_eq!(found.mixture.covariance_model(), best.kind);
    // A candidate is the same fit as alone.
    let alone = fit(&CpuEngine::new(2).unwrap(), &data, &FitOptions { max_iter: 200, ..factors(2, 2) }).unwrap();
    assert_eq!(alone.mixture, found.mixture);
}

#[test]
fn a_start_without_factors_is_brought_to_some() {
    let rows = rows(300, 5);
    let start = cpu(&rows, &FitOptions { max_iter: 3, ..FitOptions::new(2) }).mixture;
    assert!(start.loadings().is_none());
    let from = |start: &Mixture, max_iter, h| FitOptions {
        init: Init::Given(Box::new(start.clone())),
        max_iter,
        tol: 0.0,
        ..factors(h, 2)
    };
    let none = cpu(&rows, &from(&start, 0, 2)).mixture;
    assert_eq!(none, start.reduced_to_factors(2, Array1::zeros(8).view()).unwrap());
    // Another number of factors begins from the covariances too.
    let other = cpu(&rows, &from(&none, 5, 1)).mixture;
    assert_eq!(other.covariance_model().factors, Some(1));
    // A fit that goes on from its own mixture goes on exactly.
    let (five, ten) = (cpu(&rows, &from(&start, 5, 2)), cpu(&rows, &from(&start, 10, 2)));
    assert_eq!(cpu(&rows, &from(&five.mixture, 5, 2)).mixture, ten.mixture);
}

#[test]
fn fewer_rows_than_columns_and_rows_with_holes_have_fits() {
    let mut draws = Draws::for_purpose("test", 9, 0);
    let mut few = Array2::from_shape_fn((20, 40), |_| draws.normal());
    let found = cpu(&few, &FitOptions { reg_covar: 1e-3, ..factors(2, 1) });
    assert!(found.summary.mean_log_likelihood.is_finite());
    assert!(found.mixture.loadings().unwrap().uniquenesses.iter().all(|v| *v >= 1e-3));

    let complete = rows(400, 6);
    few = complete.clone();
    few.indexed_iter_mut().filter(|((i, j), _)| (i + 3 * j) % 11 == 0).for_each(|(_, v)| *v = f64::NAN);
    let data = Dataset::with_holes(few).unwrap();
    let options = FitOptions { tol: 1e-8, max_iter: 200, ..factors(2, 2) };
    let found = fit(&CpuEngine::new(2).unwrap(), &data, &options).unwrap();
    assert!(found.summary.trace.windows(2).all(|pair| pair[1] >= pair[0] - 1e-12), "{:?}", found.summary.trace);
    let whole = cpu(&complete, &options).mixture;
    let near = |m: &Mixture| m.loadings().unwrap().uniquenesses.sum();
    assert!((near(&found.mixture) / near(&whole) - 1.0).abs() < 0.1);
}

#[test]
fn an_m_step_from_statistics_keeps_the_factors_of_the_mixture_before() {
    let rows = rows(300, 7);
    let before = cpu(&rows, &FitOptions { max_iter: 2, ..factors(2, 2) }).mixture;
    let statistics = reference::statistics(&before, rows.view(), None);
    let (step, _) = maximise_with(&FitRule::none(), &statistics, 1e-6, &before).unwrap();
    let rule = MStepRule { factors: Some(2), ..MStepRule::default() };
    assert_eq!(step, m_step_with(&rule, &statistics, 1e-6, Some(&before)).unwrap());
    assert_eq!(step.mixture.covariance_model().factors, Some(2));
}

#[test]
fn what_cannot_be_is_an_error() {
    let rows = separated(100, 2, 3);
    let data = Dataset::new(rows).unwrap();
    let refused = |options: &FitOptions| fit(&CpuEngine::new(1).unwrap(), &data, options).unwrap_err().to_string();
    assert!(refused(&factors(3, 2)).contains("number of factors is 3"), "{}", refused(&factors(3, 2)));
    assert!(refused(&factors(0, 2)).contains("number of factors"));
    let tied = FitOptions { covariance_type: CovarianceType::Tied, ..factors(1, 2) };
    assert!(refused(&tied).contains("full"));
    let bayes = FitRule { bayes: Some(BayesOptions::new(WeightFamily::Dirichlet)), ..factors(1, 2).rule };
    let bayes = FitOptions { rule: bayes, ..factors(1, 2) };
    assert!(matches!(fit(&CpuEngine::new(1).unwrap(), &data, &bayes), Err(Error::Option { .. })));
}
