//! Fits as a caller sees them: starts, restarts, stopping, weights, degenerate data, precision.

mod common;

use std::ops::ControlFlow;

use gmm_host::{
    CpuEngine, Device, Engine, Error, FitOptions, Init, ReferenceEngine, Warning, evaluate, fit, fit_observed,
};
use gmm_model::{
    CovarianceType, Covariances, Dataset, Mixture, ModelError, Precision, SyntheticOptions, sample, synthetic,
};
use ndarray::{Array2, array, s};

fn cpu() -> CpuEngine {
    CpuEngine::new(2).unwrap()
}

/// Rows of a mixture whose components stand well apart, and the mixture.
fn separated(n: usize, k: usize, d: usize, kind: CovarianceType) -> (Array2<f64>, Mixture) {
    let truth = synthetic(k, d, kind, 5, &SyntheticOptions { separation: 6.0, ..SyntheticOptions::default() }).unwrap();
    let (rows, _) = sample(&truth, n, 11).unwrap();
    (rows, truth)
}

fn inits() -> [Init; 5] {
    Init::WORDS.map(|word| word.parse().unwrap())
}

#[test]
fn every_start_on_both_engines_gives_a_fit_that_explains_the_data() {
    for kind in CovarianceType::ALL {
        let (rows, truth) = separated(600, 3, 2, kind);
        let data = Dataset::new(rows).unwrap();
        let best = evaluate::score(&ReferenceEngine, &truth, &data, Precision::F64).unwrap().log_likelihood;
        let one = fit(&cpu(), &data, &FitOptions { covariance_type: kind, ..FitOptions::new(1) }).unwrap();
        let one = one.summary.log_likelihood - 1e-6 * best.abs();
        for init in inits() {
            let n_init = if init.is_deterministic() { 1 } else { 8 };
            let options =
                FitOptions { covariance_type: kind, init, n_init, max_iter: 300, tol: 1e-6, ..FitOptions::new(3) };
            let engines: [&dyn Engine; 2] = [&cpu(), &ReferenceEngine];
            let fits = engines.map(|engine| fit(engine, &data, &options).unwrap());
            for found in &fits {
                // Random responsibilities start at a near-saddle, all components alike, and may stop beside it.
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
        assert_eq!(run(1, &init) == run(2, &init), init.is_deterministic(), "{init:?}");
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
fn a_row_of_weight_two_is_the_row_twice_and_of_weight_zero_not_there() {
    let rows = common::rows(120, 2, 0.0, 1.0, 4);
    let weights: Vec<f64> = (0..120).map(|i| (i % 3) as f64).collect();
    let repeated: Vec<usize> = (0..120).flat_map(|i| std::iter::repeat_n(i, i % 3)).collect();
    for kind in CovarianceType::ALL {
        let start = common::mixture(kind, 3, 2, 0.0, 1.0, 9);
        let options = FitOptions {
            covariance_type: kind,
            init: Init::Given(Box::new(start)),
            tol: 0.0,
            max_iter: 15,
            ..FitOptions::new(3)
        };
        let weighted = Dataset::new(rows.clone()).unwrap().with_weights(weights.clone()).unwrap();
        let twice = Dataset::new(rows.select(ndarray::Axis(0), &repeated)).unwrap();
        let (a, b) = (fit(&cpu(), &weighted, &options).unwrap(), fit(&cpu(), &twice, &options).unwrap());
        for (x, y) in [
            (a.summary.log_likelihood, b.summary.log_likelihood),
            (a.summary.bic, b.summary.bic),
            (a.summary.icl, b.summary.icl),
        ] {
            assert!((x - y).abs() < 1e-9 * y.abs(), "{kind}: {x} {y}");
        }
        let difference = (&a.mixture.means() - &b.mixture.means()).mapv(f64::abs).sum();
        assert!(difference < 1e-9, "{kind}: {difference}");
    }
}

#[test]
fn criteria_follow_from_the_likelihood_and_the_entropy() {
    let data = Dataset::new(common::rows(150, 2, 0.0, 1.0, 4)).unwrap();
    let found = fit(&cpu(), &data, &FitOptions::new(3)).unwrap();
    let want = gmm_model::criteria(&found.mixture, data.rows().to_f64().view(), None);
    for (a, b) in [(found.summary.aic, want.aic), (found.summary.bic, want.bic), (found.summary.icl, want.icl)] {
        assert!((a - b).abs() < 1e-9 * b.abs());
    }
}

#[test]
fn moving_and_scaling_the_data_moves_and_scales_the_fit() {
    let rows = common::rows(200, 3, 0.0, 1.0, 8);
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
        let options =
            FitOptions { covariance_type: kind, reg_covar: 0.0, tol: 0.0, max_iter: 20, ..FitOptions::new(2) };
        // A power of two and a whole number, so that the moved rows are exact.
        let grid = rows.mapv(|v| (v * 1024.0).round() / 1024.0);
        let plain_grid = fit(&cpu(), &Dataset::new(grid.clone()).unwrap(), &options).unwrap();
        let moved = fit(&cpu(), &Dataset::new(grid.mapv(|v| v * 4.0 + 1e6)).unwrap(), &options).unwrap();
        let ll = plain_grid.summary.mean_log_likelihood - 3.0 * 4f64.ln();
        assert!((moved.summary.mean_log_likelihood - ll).abs() < 1e-9, "{kind}");
        let means = plain_grid.mixture.means().mapv(|v| v * 4.0 + 1e6);
        assert!((&moved.mixture.means() - &means).iter().all(|v| v.abs() < 1e-8), "{kind}");
    }
}

#[test]
fn single_precision_agrees_with_double_to_its_own_digits() {
    let (rows, _) = separated(3000, 3, 4, CovarianceType::Full);
    let rows = rows.mapv(|v| f64::from(v as f32));
    for kind in CovarianceType::ALL {
        let start = fit(
            &cpu(),
            &Dataset::new(rows.clone()).unwrap(),
            &FitOptions { covariance_type: kind, max_iter: 1, ..FitOptions::new(3) },
        )
        .unwrap()
        .mixture;
        let run = |precision, offset: f64| {
            let moved = Mixture::new(
                start.weights().to_owned(),
                start.means().mapv(|v| v + offset),
                start.covariances().clone(),
            )
            .unwrap();
            let options = FitOptions {
                covariance_type: kind,
                init: Init::Given(Box::new(moved)),
                tol: 0.0,
                max_iter: 10,
                precision: Some(precision),
                ..FitOptions::new(3)
            };
            let data = rows.mapv(|v| f64::from((v + offset) as f32));
            fit(&cpu(), &Dataset::new(data).unwrap(), &options).unwrap()
        };
        for offset in [0.0, 1e4] {
            let (single, double) = (run(Precision::F32, offset), run(Precision::F64, offset));
            let difference = single.summary.mean_log_likelihood - double.summary.mean_log_likelihood;
            assert!(difference.abs() < 2e-5, "{kind} at {offset}: {difference}");
        }
    }
}

#[test]
fn evaluation_of_a_row_does_not_depend_on_the_rows_beside_it() {
    let mixture = common::mixture(CovarianceType::Full, 3, 4, 10.0, 1.0, 2);
    let rows = common::rows(300, 4, 10.0, 1.0, 2);
    let whole = Dataset::new(rows.clone()).unwrap();
    let (all, _) = evaluate::log_densities(&cpu(), &mixture, &whole, Precision::F64).unwrap();
    for i in [0, 1, 99, 299] {
        let one = Dataset::new(rows.slice(s![i..=i, ..]).to_owned()).unwrap();
        let (alone, _) = evaluate::log_densities(&cpu(), &mixture, &one, Precision::F64).unwrap();
        assert_eq!(alone[0].to_bits(), all[i].to_bits());
    }
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
    assert_eq!((best.k, best.kind), (3, CovarianceType::Spherical));
    assert!(matches!(candidates[5].outcome, Err(Error::TooFewRows { k: 901, n: 900 })));
}

#[test]
fn devices_are_named_and_an_explicit_cuda_never_falls_back() {
    assert_eq!("cuda:3".parse::<Device>().unwrap(), Device::Cuda(3));
    assert!("gpu".parse::<Device>().is_err());
    assert!("cuda:x".parse::<Device>().is_err());
    let opened = Device::Cpu.open(3).unwrap();
    assert!(opened.engine.description().starts_with("3 threads"), "{}", opened.engine.description());
    assert_eq!(Device::Reference.open(0).unwrap().engine.name(), "reference");
}

// The table of bad input, as far as fitting decides it.

fn refused(rows: Array2<f64>, options: &FitOptions) -> Error {
    fit(&cpu(), &Dataset::new(rows).unwrap(), options).unwrap_err()
}

#[test]
fn row_05_fewer_than_two_rows() {
    let error = refused(array![[1.0, 2.0]], &FitOptions::new(1));
    assert!(error.to_string().contains("at least 2"), "{error}");
}

#[test]
fn row_06_more_components_than_rows() {
    assert!(matches!(refused(common::rows(5, 2, 0.0, 1.0, 1), &FitOptions::new(6)), Error::TooFewRows { k: 6, n: 5 }));
}

#[test]
fn row_07_as_many_components_as_rows() {
    for init in inits() {
        let data = Dataset::new(common::rows(6, 2, 0.0, 1.0, 1)).unwrap();
        let found = fit(&cpu(), &data, &FitOptions { init, ..FitOptions::new(6) }).unwrap();
        assert!(found.summary.log_likelihood.is_finite());
    }
}

#[test]
fn row_08_no_components() {
    assert!(matches!(FitOptions::new(0).validate(), Err(Error::Option { option: "n_components", .. })));
}

#[test]
fn row_17_another_number_of_columns_at_evaluation() {
    let mixture = common::mixture(CovarianceType::Diag, 2, 3, 0.0, 1.0, 1);
    let data = Dataset::new(common::rows(5, 2, 0.0, 1.0, 1)).unwrap();
    let error = evaluate::score(&cpu(), &mixture, &data, Precision::F64).unwrap_err();
    assert!(matches!(error, Error::Features { found: 2, expected: 3 }));
}

#[test]
fn row_18_columns_in_another_order() {
    let names = |v: [&str; 2]| v.map(str::to_owned);
    let error = evaluate::check_names(Some(&names(["b", "a"])), Some(&names(["a", "b"]))).unwrap_err();
    assert!(error.to_string().contains("'b'") && error.to_string().contains("'a'"), "{error}");
    assert!(evaluate::check_names(None, Some(&names(["a", "b"]))).is_ok());
}

#[test]
fn row_21_identical_points_and_one_component_give_the_regularisation() {
    let data = Dataset::new(Array2::from_elem((10, 3), 7.3)).unwrap();
    for kind in CovarianceType::ALL {
        let found = fit(&cpu(), &data, &FitOptions { covariance_type: kind, ..FitOptions::new(1) }).unwrap();
        let matrix = found.mixture.covariances().matrix(0, 3);
        assert_eq!(matrix, Array2::from_diag_elem(3, 1e-6), "{kind}");
        assert!(matches!(&found.warnings[0], Warning::RegularisationDominates { columns, .. } if columns.len() == 3));
    }
}

#[test]
fn row_22_identical_points_and_three_components_warn_and_stay_finite() {
    let data = Dataset::new(Array2::from_elem((10, 2), -1e5)).unwrap();
    for kind in CovarianceType::ALL {
        for init in inits() {
            let found = fit(&cpu(), &data, &FitOptions { covariance_type: kind, init, ..FitOptions::new(3) }).unwrap();
            assert!(found.summary.log_likelihood.is_finite());
            assert!(found.mixture.means().iter().all(|v| (v + 1e5).abs() < 1e-9));
            assert!(!found.warnings.is_empty());
        }
    }
}

#[test]
fn row_23_and_24_flat_data_without_regularisation_name_component_and_column() {
    let mut flat = common::rows(40, 3, 0.0, 1.0, 1);
    flat.column_mut(1).fill(5.5);
    for kind in CovarianceType::ALL {
        let options = FitOptions { covariance_type: kind, reg_covar: 0.0, ..FitOptions::new(1) };
        let error = refused(Array2::from_elem((10, 3), 7.3), &options);
        let Error::Singular { source: ModelError::NotPositiveDefinite { component: 0, .. }, .. } = error else {
            panic!("{kind}: {error}");
        };
        if kind != CovarianceType::Spherical {
            let error = refused(flat.clone(), &options);
            let Error::Singular { source: ModelError::NotPositiveDefinite { column: 1, .. }, .. } = error else {
                panic!("{kind}: {error}");
            };
        }
        let regular = FitOptions { covariance_type: kind, ..FitOptions::new(2) };
        assert!(fit(&cpu(), &Dataset::new(flat.clone()).unwrap(), &regular).is_ok());
    }
}

#[test]
fn row_25_and_26_collinear_columns_and_more_columns_than_rows() {
    let mut collinear = common::rows(50, 3, 0.0, 1.0, 1);
    let sum = &collinear.column(0) * 2.0 + collinear.column(1);
    collinear.column_mut(2).assign(&sum);
    let wide = common::rows(5, 9, 0.0, 1.0, 1);
    for rows in [collinear, wide] {
        for kind in [CovarianceType::Full, CovarianceType::Tied] {
            let options = FitOptions { covariance_type: kind, ..FitOptions::new(1) };
            assert!(fit(&cpu(), &Dataset::new(rows.clone()).unwrap(), &options).is_ok());
            let error = refused(rows.clone(), &FitOptions { reg_covar: 0.0, ..options });
            assert!(matches!(error, Error::Singular { .. }), "{kind}: {error}");
        }
    }
}

#[test]
fn row_27_and_28_one_column_and_one_component() {
    let rows = common::rows(50, 1, 3.0, 1.0, 1);
    let data = Dataset::new(rows.clone()).unwrap();
    for kind in CovarianceType::ALL {
        let found =
            fit(&cpu(), &data, &FitOptions { covariance_type: kind, reg_covar: 0.0, ..FitOptions::new(1) }).unwrap();
        let mean = rows.mean().unwrap();
        assert!((found.mixture.means()[[0, 0]] - mean).abs() < 1e-12);
        assert!((found.mixture.covariances().matrix(0, 1)[[0, 0]] - rows.var(0.0)).abs() < 1e-12);
        assert!(fit(&cpu(), &data, &FitOptions { covariance_type: kind, ..FitOptions::new(3) }).is_ok());
    }
}

#[test]
fn row_29_offset_of_a_hundred_million_costs_nothing() {
    let rows = common::rows(400, 2, 0.0, 1.0, 3).mapv(|v| (v * 1048576.0).round() / 1048576.0);
    for kind in CovarianceType::ALL {
        let options =
            FitOptions { covariance_type: kind, reg_covar: 0.0, tol: 0.0, max_iter: 30, ..FitOptions::new(3) };
        let plain = fit(&cpu(), &Dataset::new(rows.clone()).unwrap(), &options).unwrap();
        let far = fit(&cpu(), &Dataset::new(rows.mapv(|v| v + 1e8)).unwrap(), &options).unwrap();
        let difference = plain.summary.mean_log_likelihood - far.summary.mean_log_likelihood;
        assert!(difference.abs() < 1e-6, "{kind}: {difference}");
    }
}

#[test]
fn row_31_two_far_points_in_single_precision_keep_their_clusters_apart() {
    let mut rows = Array2::<f32>::zeros((20, 1));
    for i in 0..10 {
        rows[[i, 0]] = 9999.0;
    }
    let options = FitOptions { covariance_type: CovarianceType::Spherical, reg_covar: 0.1, ..FitOptions::new(2) };
    let found = fit(&cpu(), &Dataset::new(rows).unwrap(), &options).unwrap();
    let Covariances::Spherical(variances) = found.mixture.covariances() else { panic!() };
    assert!(variances.iter().all(|v| (v - 0.1).abs() < 1e-6), "{variances}");
}

#[test]
fn row_32_values_whose_squares_overflow() {
    let rows = common::rows(20, 2, 0.0, 1.0, 1);
    for (scale, precision) in [(1e200, Precision::F64), (1e30, Precision::F32)] {
        let options = FitOptions { precision: Some(precision), ..FitOptions::new(2) };
        let error = refused(rows.mapv(|v| v * scale), &options);
        assert!(matches!(error, Error::Scale { .. }) && error.to_string().contains("rescale"), "{error}");
    }
}

#[test]
fn row_33_values_so_small_that_regularisation_decides() {
    let data = Dataset::new(common::rows(20, 2, 0.0, 1e-200, 1)).unwrap();
    let found = fit(&cpu(), &data, &FitOptions::new(2)).unwrap();
    assert!(matches!(&found.warnings[0], Warning::RegularisationDominates { columns, .. } if *columns == [0, 1]));
}

#[test]
fn row_34_and_37_a_component_that_empties_or_starts_without_weight() {
    let rows = common::rows(50, 2, 0.0, 1.0, 1);
    for kind in CovarianceType::ALL {
        let base = common::mixture(kind, 3, 2, 0.0, 1.0, 1);
        let mut means = base.means().to_owned();
        means.row_mut(1).fill(1e6);
        for weights in [array![0.3, 0.3, 0.4], array![0.5, 0.0, 0.5]] {
            let start = Mixture::new(weights, means.clone(), base.covariances().clone()).unwrap();
            let options =
                FitOptions { covariance_type: kind, init: Init::Given(Box::new(start)), ..FitOptions::new(3) };
            let found = fit(&cpu(), &Dataset::new(rows.clone()).unwrap(), &options).unwrap();
            assert_eq!(found.mixture.weights()[1], 0.0);
            assert_eq!(found.mixture.means().row(1), means.row(1));
            assert!(found.warnings.contains(&Warning::EmptyComponents { components: vec![1] }), "{:?}", found.warnings);
            assert!(found.summary.trace.windows(2).all(|w| w[1] >= w[0] - 1e-9));
        }
    }
}

#[test]
fn row_38_columns_of_very_different_scale() {
    let mut rows = common::rows(300, 3, 0.0, 1.0, 1);
    for (j, scale) in [1e-8, 1.0, 1e8].into_iter().enumerate() {
        rows.column_mut(j).mapv_inplace(|v| v * scale);
    }
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
        let options = FitOptions { covariance_type: kind, reg_covar: 0.0, ..FitOptions::new(2) };
        let found = fit(&cpu(), &Dataset::new(rows.clone()).unwrap(), &options).unwrap();
        assert!(found.summary.log_likelihood.is_finite(), "{kind}");
    }
}

#[test]
fn row_41_a_falling_likelihood_is_reported() {
    // A regularisation as large as the data's own variance pulls the fit away from the likelihood's maximum.
    let rows = common::rows(100, 2, 0.0, 1.0, 1);
    let start = fit(
        &cpu(),
        &Dataset::new(rows.clone()).unwrap(),
        &FitOptions { reg_covar: 0.0, tol: 1e-9, max_iter: 1000, ..FitOptions::new(2) },
    )
    .unwrap();
    let options = FitOptions {
        reg_covar: 4.0,
        init: Init::Given(Box::new(start.mixture)),
        max_iter: 5,
        tol: 0.0,
        ..FitOptions::new(2)
    };
    let found = fit(&cpu(), &Dataset::new(rows).unwrap(), &options).unwrap();
    assert!(
        found.warnings.iter().any(|w| matches!(w, Warning::LikelihoodFell { iteration: 2, .. })),
        "{:?}",
        found.warnings
    );
}

#[test]
fn row_42_a_mixture_that_memory_cannot_hold() {
    let data = Dataset::new(common::rows(4000, 2000, 0.0, 1.0, 1).mapv(|v| v as f32)).unwrap();
    let error = fit(&cpu(), &data, &FitOptions::new(4000)).unwrap_err();
    let Error::Memory { wanted, free, .. } = error else { panic!("{error}") };
    assert!(wanted > free);
}

#[test]
fn row_43_tolerance_and_regularisation_out_of_range() {
    for bad in [-1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(
            FitOptions { tol: bad, ..FitOptions::new(1) }.validate(),
            Err(Error::Option { option: "tol", .. })
        ));
        let error = FitOptions { reg_covar: bad, ..FitOptions::new(1) }.validate();
        assert!(matches!(error, Err(Error::Option { option: "reg_covar", .. })));
    }
}

#[test]
fn row_44_an_unknown_word_lists_the_choices() {
    let error = "kmean".parse::<Init>().unwrap_err().to_string();
    assert!(Init::WORDS.iter().all(|word| error.contains(word)), "{error}");
}

#[test]
fn row_49_weights_that_leave_fewer_rows_than_components() {
    let data =
        Dataset::new(common::rows(5, 2, 0.0, 1.0, 1)).unwrap().with_weights(vec![1.0, 0.0, 0.0, 1.0, 0.0]).unwrap();
    assert!(matches!(fit(&cpu(), &data, &FitOptions::new(3)), Err(Error::TooFewRows { k: 3, n: 2 })));
}
