//! Initialisation, restarts, stopping, and model selection.

use super::*;

#[test]
fn every_start_on_both_engines_gives_a_fit_that_explains_the_data() {
    for kind in CovarianceType::ALL {
        let (rows, truth) = separated(600, 3, 2, kind);
        let data = Dataset::new(rows).unwrap();
        let best = evaluate::score(&ReferenceEngine, &truth, &data, Precision::F64).unwrap().log_likelihood;
        let one = fit(&cpu(), &data, &FitOptions { covariance_type: kind, ..FitOptions::new(1) }).unwrap();
        let one = one.summary.log_likelihood - 1e-6 * best.abs();
        for init in inits() {
            let n_init = if init.is_deterministic(600, 3, None) { 1 } else { 8 };
            let options =
                FitOptions { covariance_type: kind, init, n_init, max_iter: 300, tol: 1e-6, ..FitOptions::new(3) };
            let engines: [&dyn Engine; 2] = [&cpu(), &ReferenceEngine];
            let fits = engines.map(|engine| fit(engine, &data, &options).unwrap());
            for found in &fits {
                // Random responsibilities start near a saddle point, with all components alike, and EM may stop there.
                let least = if options.init == Init::Random { one } else { best - 600.0 * 0.5 };
                assert!(found.summary.log_likelihood > least, "{kind} {:?}", options.init);
                assert!(found.summary.trace.windows(2).all(|w| w[1] >= w[0] - 1e-6), "{:?}", found.summary.trace);
            }
            let difference = fits[0].summary.log_likelihood - fits[1].summary.log_likelihood;
            assert!(difference.abs() < 1e-3 * best.abs(), "{kind} {:?}: {difference}", options.init);
        }
    }
}

#[test]
fn kmeans_start_finds_the_truth_of_separated_components() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F32, Precision::F64] {
            let (rows, truth) = separated(4000, 4, 5, kind);
            let options = FitOptions {
                covariance_type: kind,
                precision: Some(precision),
                n_init: 4,
                tol: 1e-6,
                ..FitOptions::new(4)
            };
            let found = fit(&cpu(), &Dataset::new(rows).unwrap(), &options).unwrap();
            assert!(found.summary.converged);
            for mean in truth.means().outer_iter() {
                let distance = |other: ndarray::ArrayView1<'_, f64>| (&other - &mean).mapv(|v| v * v).sum().sqrt();
                let nearest = found.mixture.means().outer_iter().map(distance).fold(f64::INFINITY, f64::min);
                let size = truth.means().iter().fold(0.0f64, |m, v| m.max(v.abs()));
                assert!(nearest < 0.1 * size, "{kind} {precision}: {nearest}");
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_fit_and_another_seed_another_start() {
    let data = Dataset::new(common::rows(500, 3, 0.0, 1.0, 1)).unwrap();
    let run = |seed, init: &Init| {
        let options = FitOptions { seed, init: init.clone(), max_iter: 3, ..FitOptions::new(4) };
        fit(&cpu(), &data, &options).unwrap().mixture
    };
    for init in inits() {
        assert_eq!(run(1, &init), run(1, &init));
        // Of several starts the tree, which draws nothing, may win with every seed.
        if init != Init::Best(None) {
            assert_eq!(run(1, &init) == run(2, &init), init.is_deterministic(500, 4, None), "{init:?}");
        }
    }
}

#[test]
fn restarts_keep_the_best_and_not_the_last() {
    let (rows, _) = separated(300, 5, 2, CovarianceType::Spherical);
    let data = Dataset::new(rows).unwrap();
    let options = FitOptions {
        init: Init::RandomRows,
        n_init: 12,
        covariance_type: CovarianceType::Spherical,
        tol: 1e-6,
        ..FitOptions::new(5)
    };
    let mut last = std::collections::BTreeMap::new();
    let found = fit_observed(&cpu(), &data, &options, &mut |i| {
        last.insert(i.restart, i.mean_log_likelihood);
        ControlFlow::Continue(())
    })
    .unwrap();
    let values: Vec<f64> = last.into_values().collect();
    assert_eq!(values.len(), 12);
    let (least, most) = values.iter().fold((f64::MAX, f64::MIN), |(a, b), &v| (a.min(v), b.max(v)));
    assert!(most > least + 1e-3, "the restarts differ: {values:?}");
    assert!(found.summary.mean_log_likelihood >= most - 1e-5);
}

#[test]
fn tolerance_zero_runs_to_the_bound_and_iterations_are_counted_once_each() {
    let data = Dataset::new(common::rows(200, 2, 0.0, 1.0, 1)).unwrap();
    for max_iter in [0, 1, 2, 57] {
        let options = FitOptions { tol: 0.0, max_iter, ..FitOptions::new(2) };
        let found = fit(&cpu(), &data, &options).unwrap();
        assert_eq!(found.summary.iterations, max_iter);
        assert_eq!(found.summary.trace.len(), max_iter);
        assert!(!found.summary.converged);
        assert!(found.warnings.contains(&Warning::NotConverged { iterations: max_iter }));
    }
}

#[test]
fn warm_start_goes_on_where_a_fit_stopped() {
    let data = Dataset::new(common::rows(300, 3, 0.0, 1.0, 1)).unwrap();
    let whole = fit(&cpu(), &data, &FitOptions { tol: 0.0, max_iter: 10, ..FitOptions::new(3) }).unwrap();
    let half = fit(&cpu(), &data, &FitOptions { tol: 0.0, max_iter: 4, ..FitOptions::new(3) }).unwrap();
    let given = Init::Given(Box::new(half.mixture));
    let rest = fit(&cpu(), &data, &FitOptions { tol: 0.0, max_iter: 6, init: given, ..FitOptions::new(3) }).unwrap();
    assert_eq!(rest.mixture, whole.mixture);
    assert_eq!(rest.summary.trace, whole.summary.trace[4..]);
}

#[test]
fn the_observer_can_stop_a_fit() {
    let data = Dataset::new(common::rows(100, 2, 0.0, 1.0, 1)).unwrap();
    let options = FitOptions { tol: 0.0, ..FitOptions::new(2) };
    let stop_at_three = &mut |i: &gmm_host::Iteration<'_>| match i.iteration {
        3 => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    let error = fit_observed(&cpu(), &data, &options, stop_at_three).unwrap_err();
    assert!(matches!(error, Error::Interrupted { iterations: 3 }), "{error}");
}

#[test]
fn selection_finds_the_number_of_components_and_reports_candidates_that_fail() {
    let (rows, _) = separated(900, 3, 2, CovarianceType::Spherical);
    let data = Dataset::new(rows).unwrap();
    let options = FitOptions { n_init: 4, ..FitOptions::new(1) };
    let mut seen = 0;
    let candidates = gmm_host::select(
        &cpu(),
        &data,
        &options,
        &[1, 2, 3, 4, 5, 901],
        &[CovarianceType::Full, CovarianceType::Spherical],
        &mut |_| {
            seen += 1;
            ControlFlow::Continue(())
        },
        &mut |_| ControlFlow::Continue(()),
    )
    .unwrap();
    assert_eq!((seen, candidates.len()), (12, 12));
    let best = &candidates[gmm_host::best(&candidates, gmm_model::Criterion::Bic).unwrap()];
    assert_eq!((best.k, best.kind), (3, CovarianceType::Spherical.into()));
    assert!(matches!(candidates[5].outcome, Err(Error::TooFewRows { k: 901, n: 900 })));
}

#[test]
fn devices_are_named_and_an_explicit_cuda_never_falls_back() {
    assert_eq!("cuda:3".parse::<Device>().unwrap(), Device::Cuda(3));
    assert!("gpu".parse::<Device>().is_err());
    let listed = |text: &str| match text.parse::<Device>() {
        Ok(Device::CudaGroup(ordinals)) => Some(ordinals.list()),
        _ => None,
    };
    assert_eq!((listed("cuda:2,0"), listed("cuda:all")), (Some(vec![0, 2]), Some(vec![])));
    for wrong in ["cuda:x", "cuda:", "cuda:0,", "cuda:1,1", "cuda:0,64", "cuda:0,x"] {
        assert!(wrong.parse::<Device>().is_err(), "{wrong}");
    }
    let opened = Device::Cpu.open(3).unwrap();
    assert!(opened.engine.description().starts_with("3 threads"), "{}", opened.engine.description());
    assert_eq!(Device::Reference.open(0).unwrap().engine.name(), "reference");
}

/// Rows around three corners, sorted by corner, as in concatenated files.
fn in_blocks(n: usize) -> Dataset {
    let noise = common::rows(n, 2, 0.0, 1.0, 12);
    let corner = |i: usize| [0.0, 12.0, 24.0][i * 3 / n];
    Dataset::new(Array2::from_shape_fn((n, 2), |(i, j)| noise[[i, j]] + corner(i) * (j + 1) as f64)).unwrap()
}

#[test]
fn k_means_on_a_sample_finds_what_it_finds_on_all_rows() {
    // More than twice the size of a sample, so that k-means uses one.
    let data = in_blocks(70_000);
    for init in [Init::KMeans, Init::KMeansPlusPlus] {
        let options = FitOptions { init, max_iter: 0, ..FitOptions::new(3) };
        let start = |init_rows| {
            let found = fit(&cpu(), &data, &FitOptions { init_rows, ..options.clone() }).unwrap();
            let mut means: Vec<f64> = found.mixture.means().column(0).to_vec();
            means.sort_by(f64::total_cmp);
            (means, found.mixture.weights().to_vec())
        };
        let all = start(Some(usize::MAX));
        // Means and weights are computed from all rows, whichever rows k-means ran on.
        for init_rows in [None, Some(500)] {
            let sample = start(init_rows);
            for (a, b) in sample.0.iter().zip(&all.0) {
                assert!((a - b).abs() < 1e-6, "{:?}: {:?} {:?}", options.init, sample.0, all.0);
            }
            assert!(sample.1.iter().all(|w| (w - 1.0 / 3.0).abs() < 1e-4), "{:?}", sample.1);
        }
    }
}

#[test]
fn a_sample_with_too_few_different_rows_is_not_taken() {
    // Nearly all rows are equal; the sample has hardly any of the others.
    let n = 70_000;
    let rows = Array2::from_shape_fn((n, 1), |(i, _)| if i % 7000 == 0 { 1.0 + (i / 7000) as f64 } else { 0.0 });
    let found = fit(&cpu(), &Dataset::new(rows).unwrap(), &FitOptions { max_iter: 0, ..FitOptions::new(8) }).unwrap();
    assert!(found.mixture.weights().iter().all(|w| *w > 0.0), "{:?}", found.mixture.weights());
}

#[test]
fn a_sample_smaller_than_the_mixture_is_refused() {
    let refused = fit(&cpu(), &in_blocks(300), &FitOptions { init_rows: Some(2), ..FitOptions::new(3) }).unwrap_err();
    assert_eq!(refused.to_string(), "init_rows is 2: it must be at least n_components");
}
