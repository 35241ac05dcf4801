//! Fits by variational Bayes.

use std::ops::ControlFlow;
use std::sync::Arc;

use gmm_host::{
    BayesOptions, CpuEngine, FitOptions, FitRule, FitState, Init, Prior, ReferenceEngine, WeightFamily, fit,
    fit_resumed, predictive_log_densities,
};
use gmm_model::bayes::WeightPosterior;
use gmm_model::{CovarianceType, Dataset, Precision, PriorScale, reference};
use ndarray::{Array2, array};

use super::{close, cpu, engines, mixtures_close, separated, with};

const FAMILIES: [WeightFamily; 2] = [WeightFamily::Dirichlet, WeightFamily::DirichletProcess];

fn bayes(family: WeightFamily) -> FitRule {
    FitRule { bayes: Some(BayesOptions::new(family)), ..FitRule::none() }
}

fn options(family: WeightFamily, k: usize, kind: CovarianceType) -> FitOptions {
    FitOptions { reg_covar: 0.0, tol: 1e-9, max_iter: 400, ..with(bayes(family), k, kind) }
}

#[test]
fn every_engine_and_precision_reaches_the_posterior_of_the_reference() {
    let x = separated(300, 3, 2);
    for kind in CovarianceType::ALL {
        for family in FAMILIES {
            let options = FitOptions { max_iter: 20, tol: 0.0, ..options(family, 5, kind) };
            let data = Dataset::new(x.clone()).unwrap();
            let wanted = fit(&ReferenceEngine, &data, &options).unwrap();
            for engine in engines() {
                let found = fit(engine.as_ref(), &data, &options).unwrap();
                mixtures_close(&found.mixture, &wanted.mixture, 1e-9);
                close(found.summary.lower_bound.unwrap(), wanted.summary.lower_bound.unwrap(), 1e-11);
            }
            let single = FitOptions { precision: Some(Precision::F32), ..options };
            let found = fit(&CpuEngine::new(2).unwrap(), &data, &single).unwrap();
            mixtures_close(&found.mixture, &wanted.mixture, 1e-3);
        }
    }
}

#[test]
fn the_bound_never_falls_and_is_that_of_the_final_posterior() {
    for kind in CovarianceType::ALL {
        for family in FAMILIES {
            for (k, n, d) in [(4, 200, 3), (8, 60, 1), (3, 40, 5)] {
                let found = cpu(&separated(n, 3, d), &FitOptions { n_init: 2, ..options(family, k, kind) });
                let trace = &found.summary.trace;
                let rounding = 1e-12 * trace[0].abs();
                assert!(trace.windows(2).all(|two| two[1] >= two[0] - rounding), "{kind} {family:?}: {trace:?}");
                assert!(found.summary.converged, "{kind} {family:?} {k} {n} {d}");
                // The last iteration's M-step raised it once more.
                let bound = found.summary.lower_bound.unwrap() / n as f64;
                assert!((trace[trace.len() - 1] - rounding..trace[trace.len() - 1] + 1e-6).contains(&bound), "{bound}");
            }
        }
    }
}

#[test]
fn components_that_the_data_do_not_need_stay_empty() {
    let x = separated(600, 3, 2);
    let small = BayesOptions { concentration: Some(1e-3), ..BayesOptions::new(WeightFamily::DirichletProcess) };
    let rule = FitRule { bayes: Some(small), ..FitRule::none() };
    let found = cpu(&x, &FitOptions { max_iter: 1000, n_init: 5, ..with(rule, 10, CovarianceType::Full) });
    let posterior = found.posterior.unwrap();
    assert_eq!(posterior.used(1.0).len(), 3, "{}", posterior.counts());
    assert_eq!(posterior.mixture(), &found.mixture);
    assert!(found.summary.rules[0].contains("Dirichlet process of concentration 0.001"), "{:?}", found.summary.rules);
}

#[test]
fn moves_never_lower_the_bound_and_find_the_components() {
    let (mut by_moves, mut by_restarts, mut moves, mut restarts) = (0, 0, 0, 0);
    for seed in 0..6 {
        let truth = gmm_model::synthetic(6, 2, CovarianceType::Full, 20 + seed, &wide()).unwrap();
        let x = gmm_model::sample(&truth, 600, seed).unwrap().0;
        let run = |with_moves, n_init| {
            let one = BayesOptions {
                concentration: Some(0.01),
                moves: with_moves,
                ..BayesOptions::new(WeightFamily::DirichletProcess)
            };
            let rule = FitRule { bayes: Some(one), ..FitRule::none() };
            let base = with(rule, 12, CovarianceType::Full);
            let mut iterations = 0;
            let options =
                FitOptions { n_init, seed, max_iter: 300, reg_covar: 0.0, init: Init::RandomRows, tol: 1e-5, ..base };
            let mut count = |_: &gmm_host::Iteration<'_>| {
                iterations += 1;
                ControlFlow::Continue(())
            };
            let data = Dataset::new(x.clone()).unwrap();
            let found = gmm_host::fit_observed(&CpuEngine::new(1).unwrap(), &data, &options, &mut count).unwrap();
            (found, iterations)
        };
        let found = |fit: &gmm_host::Fit| fit.posterior.as_ref().unwrap().used(1.0).len() == 6;
        let (plain, _) = run(false, 1);
        let (moved, of_moves) = run(true, 1);
        let (best, of_restarts) = run(false, 10);
        assert!(moved.summary.lower_bound >= plain.summary.lower_bound, "{seed}");
        assert!(moved.summary.trace.windows(2).all(|two| two[1] >= two[0] - 1e-12 * two[0].abs()), "{seed}");
        assert_eq!(moved.summary.iterations, moved.summary.trace.len());
        by_moves += usize::from(found(&moved));
        by_restarts += usize::from(found(&best));
        moves += of_moves;
        restarts += of_restarts;
    }
    assert!(by_moves >= by_restarts && by_moves >= 5, "{by_moves} {by_restarts}");
    assert!(moves < restarts, "{moves} {restarts}");
}

fn wide() -> gmm_model::SyntheticOptions {
    gmm_model::SyntheticOptions { separation: 4.0, ..gmm_model::SyntheticOptions::default() }
}

#[test]
fn the_prior_given_is_the_one_used() {
    let x = separated(50, 2, 2);
    let given = BayesOptions {
        concentration: Some(0.7),
        mean: Some(array![1.0, -2.0]),
        mean_precision: Some(0.5),
        degrees_of_freedom: Some(4.5),
        scale: Some(PriorScale::Matrix(array![[2.0, 0.5], [0.5, 1.0]])),
        ..BayesOptions::new(WeightFamily::Dirichlet)
    };
    let rule = FitRule { bayes: Some(given), ..FitRule::none() };
    let posterior = cpu(&x, &with(rule, 2, CovarianceType::Full)).posterior.unwrap();
    let prior = posterior.prior();
    assert_eq!((prior.mean_precision, prior.degrees_of_freedom, &prior.mean), (0.5, 4.5, &array![1.0, -2.0]));
    let WeightPosterior::Dirichlet(concentration) = posterior.weights() else { panic!("{posterior:?}") };
    close(concentration.sum(), 50.0 + 2.0 * 0.7, 1e-12);
    close(posterior.degrees_of_freedom().sum(), 50.0 + 2.0 * 4.5, 1e-12);
}

#[test]
fn row_weights_count_rows() {
    let x = separated(40, 2, 2);
    let twice = Array2::from_shape_fn((60, 2), |(i, j)| x[[if i < 20 { i } else { 20 + (i - 20) / 2 }, j]]);
    let weights = (0..40).map(|i| if i < 20 { 1.0 } else { 2.0 }).collect::<Vec<_>>();
    for kind in CovarianceType::ALL {
        let start = cpu(&x, &FitOptions { max_iter: 2, ..FitOptions::new(2) }).mixture;
        let m = gmm_model::Mixture::new(
            start.weights().to_owned(),
            start.means().to_owned(),
            match kind {
                CovarianceType::Full => start.covariances().clone(),
                CovarianceType::Tied => gmm_model::Covariances::Tied(Array2::eye(2)),
                CovarianceType::Diag => gmm_model::Covariances::Diag(Array2::ones((2, 2))),
                CovarianceType::Spherical => gmm_model::Covariances::Spherical(array![1.0, 1.0]),
            },
        );
        let init = Init::Given(Box::new(m.unwrap()));
        let options = FitOptions { init, max_iter: 5, tol: 0.0, ..options(WeightFamily::Dirichlet, 2, kind) };
        let weighted = Dataset::new(x.clone()).unwrap().with_weights(weights.clone()).unwrap();
        let by_weight = fit(&CpuEngine::new(1).unwrap(), &weighted, &options).unwrap();
        let by_rows = cpu(&twice, &options);
        mixtures_close(&by_weight.mixture, &by_rows.mixture, 1e-10);
        close(by_weight.summary.lower_bound.unwrap(), by_rows.summary.lower_bound.unwrap(), 1e-11);
    }
}

#[test]
fn a_fit_that_goes_on_has_the_bits_of_an_undisturbed_one() {
    let data = Dataset::new(separated(200, 3, 2)).unwrap();
    let engine = CpuEngine::new(1).unwrap();
    let all = FitOptions { max_iter: 12, tol: 0.0, ..options(WeightFamily::DirichletProcess, 4, CovarianceType::Full) };
    let whole = fit(&engine, &data, &all).unwrap();
    let half = fit(&engine, &data, &FitOptions { max_iter: 5, ..all.clone() }).unwrap();
    let rest = fit_resumed(&engine, &data, &all, half.state, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((rest.posterior, rest.summary), (whole.posterior, whole.summary));
    let mut state = FitState::default();
    let mut save = |seen: &gmm_host::Iteration<'_>| {
        if seen.iteration == 7 {
            seen.save(&mut state);
        }
        ControlFlow::Continue(())
    };
    gmm_host::fit_observed(&engine, &data, &FitOptions { concurrent: false, ..all }, &mut save).unwrap();
    assert!(state.running.unwrap().run.posterior.is_some());
}

#[test]
fn labelled_rows_keep_their_component() {
    let x = separated(90, 2, 2);
    let truth = cpu(&x, &FitOptions::new(2)).mixture;
    let label = |i| 1 - reference::argmax(reference::posterior(&truth, x.row(i)).1.view());
    let labels = (0..90).map(|i| (i % 3 == 0).then(|| label(i))).collect();
    let rule = FitRule { labels: Some(Arc::new(labels)), ..bayes(WeightFamily::Dirichlet) };
    let found = cpu(&x, &with(rule, 2, CovarianceType::Full)).mixture;
    // The labels are those of the plain fit, exchanged.
    mixtures_close(
        &found,
        &cpu(&x, &with(bayes(WeightFamily::Dirichlet), 2, CovarianceType::Full)).mixture.permuted(&[1, 0]).unwrap(),
        0.3,
    );
}

#[test]
fn constant_columns_and_few_rows_still_have_a_posterior() {
    let mut constant = separated(30, 2, 3);
    constant.column_mut(1).fill(7.0);
    for x in [constant, separated(4, 2, 6), Array2::zeros((5, 2))] {
        for kind in CovarianceType::ALL {
            for family in FAMILIES {
                let found = cpu(&x, &FitOptions { reg_covar: 0.0, ..with(bayes(family), 3, kind) });
                assert!(found.summary.lower_bound.unwrap().is_finite(), "{kind} {family:?} {:?}", x.dim());
            }
        }
    }
}

#[test]
fn other_rules_beside_it_are_refused() {
    let data = Dataset::new(separated(30, 2, 2)).unwrap();
    let refused = |rule: FitRule| {
        let options = with(rule, 2, CovarianceType::Full);
        fit(&CpuEngine::new(1).unwrap(), &data, &options).unwrap_err().to_string()
    };
    assert!(refused(FitRule { prior: Prior::Conjugate, ..bayes(FAMILIES[0]) }).contains("without prior"));
    let with = |change: &dyn Fn(&mut BayesOptions)| {
        let mut options = BayesOptions::new(FAMILIES[1]);
        change(&mut options);
        refused(FitRule { bayes: Some(options), ..FitRule::none() })
    };
    assert!(with(&|o| o.concentration = Some(0.0)).contains("concentration"));
    assert!(with(&|o| o.degrees_of_freedom = Some(1.0)).contains("degrees of freedom"));
    assert!(with(&|o| o.mean = Some(array![1.0])).contains("mean prior"));
    assert!(with(&|o| o.scale = Some(PriorScale::Variance(1.0))).contains("covariance prior"));
}

#[test]
fn predictive_densities_are_those_of_the_posterior_for_any_number_of_threads() {
    let x = separated(101, 2, 2);
    let posterior = cpu(&x, &with(bayes(FAMILIES[1]), 3, CovarianceType::Full)).posterior.unwrap();
    let wanted: Vec<f64> = x.outer_iter().map(|row| posterior.predictive().log_density(row)).collect();
    for threads in [1, 2, 7] {
        let data = Dataset::new(x.clone()).unwrap();
        assert_eq!(predictive_log_densities(&posterior, &data, threads).unwrap().to_vec(), wanted);
    }
    let other = Dataset::new(separated(5, 2, 3)).unwrap();
    assert!(predictive_log_densities(&posterior, &other, 1).is_err());
}
