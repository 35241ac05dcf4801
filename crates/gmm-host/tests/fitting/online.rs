//! Online EM.

use gmm_host::{EpochOptions, Fit, OnlineFit, OnlineOptions, fit_online};

use super::*;

/// Rows of a mixture whose components overlap a little, and that mixture.
fn overlapping(n: usize, k: usize, d: usize, kind: CovarianceType) -> (Dataset, Mixture) {
    let truth = synthetic(k, d, kind, 3, &SyntheticOptions { separation: 3.0, ..SyntheticOptions::default() }).unwrap();
    (Dataset::new(sample(&truth, n, 4).unwrap().0).unwrap(), truth)
}

fn start(data: &Dataset, options: &FitOptions) -> Mixture {
    fit(&cpu(), data, &FitOptions { max_iter: 0, ..options.clone() }).unwrap().mixture
}

fn online(data: &Dataset, options: &FitOptions, epochs: &EpochOptions) -> Fit {
    fit_online(&cpu(), data, options, epochs, &mut |_, _, _| ControlFlow::Continue(())).unwrap()
}

#[test]
fn one_batch_with_step_1_is_one_iteration_of_em_to_the_bit() {
    for kind in CovarianceType::ALL {
        for precision in [Precision::F64, Precision::F32] {
            let data = Dataset::new(common::rows(500, 3, 40.0, 1.0, 1)).unwrap();
            let weighted = data.clone().with_weights((0..500).map(|i| f64::from(i % 3)).collect()).unwrap();
            for data in [&data, &weighted] {
                let options = FitOptions { covariance_type: kind, precision: Some(precision), ..FitOptions::new(3) };
                let start = start(data, &options);
                let mut online = OnlineFit::new(
                    start.clone(),
                    OnlineOptions { precision: Some(precision), ..OnlineOptions::default() },
                )
                .unwrap();
                let step = online.partial_fit(&cpu(), data).unwrap();
                let init = Init::Given(Box::new(start));
                let expected = fit(&cpu(), data, &FitOptions { init, max_iter: 1, ..options }).unwrap();
                assert_eq!(online.mixture(), &expected.mixture, "{kind} {precision}");
                assert_eq!((step.step, step.size, step.mean_log_likelihood), (1, 1.0, expected.summary.trace[0]));
            }
        }
    }
}

#[test]
fn steps_of_1_over_all_rows_are_em_to_the_bit() {
    let (data, _) = overlapping(700, 3, 2, CovarianceType::Full);
    let options = FitOptions { tol: 0.0, max_iter: 6, ..FitOptions::new(3) };
    let expected = fit(&cpu(), &data, &options).unwrap();
    let all = EpochOptions { batch_rows: Some(700), epochs: 6, kappa: 0.0, ..EpochOptions::default() };
    let found = online(&data, &options, &all);
    assert_eq!((&found.mixture, &found.summary.trace), (&expected.mixture, &expected.summary.trace));
}

#[test]
fn a_few_epochs_reach_the_likelihood_of_the_batch_fit_and_the_truth() {
    for kind in CovarianceType::ALL {
        let (data, truth) = overlapping(60_000, 4, 3, kind);
        let options = FitOptions { covariance_type: kind, tol: 1e-9, max_iter: 300, n_init: 3, ..FitOptions::new(4) };
        let batch = fit(&cpu(), &data, &options).unwrap();
        let epochs = EpochOptions { batch_rows: Some(1000), epochs: 5, ..EpochOptions::default() };
        let found = online(&data, &options, &epochs);
        let below = batch.summary.mean_log_likelihood - found.summary.mean_log_likelihood;
        // EM does not find a better maximum from a start as good, so the online fit cannot be above it by more than
        // `tol`.
        assert!((-1e-6..1e-3).contains(&below), "{kind}: {below}");
        let true_mean = evaluate::score(&cpu(), &truth, &data, Precision::F64).unwrap().log_likelihood / 60_000.0;
        assert!((found.summary.mean_log_likelihood - true_mean).abs() < 2e-3, "{kind}");
        for mean in truth.means().outer_iter() {
            let distance = |other: ndarray::ArrayView1<'_, f64>| (&other - &mean).mapv(|v| v * v).sum().sqrt();
            let nearest = found.mixture.means().outer_iter().map(distance).fold(f64::INFINITY, f64::min);
            let size = truth.means().iter().fold(0.0f64, |m, v| m.max(v.abs()));
            assert!(nearest < 0.05 * size, "{kind}: {nearest}");
        }
        assert_eq!(found.summary.trace.len(), found.summary.iterations);
    }
}

#[test]
fn sorted_rows_do_no_harm() {
    let (data, _) = overlapping(20_000, 4, 2, CovarianceType::Full);
    let rows = data.rows().to_f64();
    let mut order: Vec<usize> = (0..rows.nrows()).collect();
    order.sort_by(|&a, &b| rows[[a, 0]].total_cmp(&rows[[b, 0]]));
    let sorted = Dataset::new(rows.select(ndarray::Axis(0), &order)).unwrap();
    let options = FitOptions { tol: 1e-9, max_iter: 300, ..FitOptions::new(4) };
    let batch = fit(&cpu(), &sorted, &options).unwrap().summary.mean_log_likelihood;
    let found = online(&sorted, &options, &EpochOptions { batch_rows: Some(1000), ..EpochOptions::default() });
    assert!(batch - found.summary.mean_log_likelihood < 2e-3, "{batch} {}", found.summary.mean_log_likelihood);
}

#[test]
fn an_offset_of_the_rows_costs_nothing_over_many_steps() {
    let (data, _) = overlapping(8000, 3, 2, CovarianceType::Full);
    let far = Dataset::new(data.rows().to_f64() + 1e6).unwrap();
    let options = FitOptions { tol: 0.0, ..FitOptions::new(3) };
    let epochs = EpochOptions { batch_rows: Some(200), epochs: 5, ..EpochOptions::default() };
    let near = online(&data, &options, &epochs).summary.mean_log_likelihood;
    let moved = online(&far, &options, &epochs).summary.mean_log_likelihood;
    // The rows themselves are rounded: to 1e6 eps, 1e-10.
    assert!((near - moved).abs() < 1e-7, "{near} {moved}");
}

#[test]
fn a_resumed_fit_and_the_same_seed_give_the_same_bits() {
    let (data, _) = overlapping(3000, 3, 2, CovarianceType::Tied);
    let options = FitOptions { covariance_type: CovarianceType::Tied, ..FitOptions::new(3) };
    let epochs = EpochOptions { batch_rows: Some(500), epochs: 3, ..EpochOptions::default() };
    let (a, b) = (online(&data, &options, &epochs), online(&data, &options, &epochs));
    assert_eq!((&a.mixture, &a.summary), (&b.mixture, &b.summary));
    assert_ne!(a.mixture, online(&data, &FitOptions { seed: 1, ..options.clone() }, &epochs).mixture);

    let step_options = OnlineOptions::default();
    let mut whole = OnlineFit::new(start(&data, &options), step_options).unwrap();
    for _ in 0..4 {
        let parts = (whole.mixture().clone(), whole.statistics().cloned(), whole.steps());
        let mut part = OnlineFit::resume(parts.0, parts.1, parts.2, step_options).unwrap();
        part.partial_fit(&cpu(), &data).unwrap();
        whole.partial_fit(&cpu(), &data).unwrap();
        assert_eq!((part.mixture(), part.statistics()), (whole.mixture(), whole.statistics()));
    }
}

#[test]
fn weights_count_as_repeated_rows() {
    let (data, _) = overlapping(900, 3, 2, CovarianceType::Diag);
    let rows = data.rows().to_f64();
    let weight = |i: usize| i % 3;
    let weighted = data.clone().with_weights((0..900).map(|i| weight(i) as f64).collect()).unwrap();
    let repeated: Vec<usize> = (0..900).flat_map(|i| std::iter::repeat_n(i, weight(i))).collect();
    let repeated = Dataset::new(rows.select(ndarray::Axis(0), &repeated)).unwrap();
    let options = FitOptions { covariance_type: CovarianceType::Diag, ..FitOptions::new(3) };
    let start = start(&data, &options);
    let fitted = [&weighted, &repeated].map(|data| {
        let mut online = OnlineFit::new(start.clone(), OnlineOptions::default()).unwrap();
        for _ in 0..5 {
            online.partial_fit(&cpu(), data).unwrap();
        }
        online.mixture().means().to_owned()
    });
    assert!((&fitted[0] - &fitted[1]).iter().all(|v| v.abs() < 1e-9), "{fitted:?}");
}

#[test]
fn a_fitted_mixture_goes_on_from_where_it_is() {
    let (data, _) = overlapping(5000, 3, 2, CovarianceType::Full);
    let options = FitOptions { tol: 1e-10, max_iter: 500, ..FitOptions::new(3) };
    let fitted = fit(&cpu(), &data, &options).unwrap().mixture;
    let mut online = OnlineFit::from_fitted(fitted.clone(), OnlineOptions::default()).unwrap();
    let step = online.partial_fit(&cpu(), &data).unwrap();
    assert!(step.size < 1.0);
    // A fixed point of EM, mixed with itself.
    assert!((&online.mixture().means() - &fitted.means()).iter().all(|v| v.abs() < 1e-3));
}

#[test]
fn an_error_leaves_the_online_fit_as_it_was() {
    let (data, _) = overlapping(300, 2, 2, CovarianceType::Full);
    let options = OnlineOptions { reg_covar: 0.0, ..OnlineOptions::default() };
    let mut online = OnlineFit::new(start(&data, &FitOptions::new(2)), options).unwrap();
    let before = online.clone();
    let flat = Dataset::new(Array2::from_elem((50, 2), 0.5)).unwrap();
    assert!(matches!(online.partial_fit(&cpu(), &flat), Err(Error::Singular { iteration: 1, .. })));
    let wide = Dataset::new(Array2::<f64>::zeros((5, 3))).unwrap();
    assert!(matches!(online.partial_fit(&cpu(), &wide), Err(Error::Features { found: 3, expected: 2 })));
    assert_eq!(online, before);
    online.partial_fit(&cpu(), &data).unwrap();
    // One row is a batch, once something is known.
    online.partial_fit(&cpu(), &Dataset::new(array![[0.1, 0.2]]).unwrap()).unwrap();
}

#[test]
fn options_out_of_range_are_refused() {
    let m = start(&overlapping(300, 2, 2, CovarianceType::Full).0, &FitOptions::new(2));
    for (options, part) in [
        (OnlineOptions { kappa: 1.5, ..OnlineOptions::default() }, "step is 1.5"),
        (OnlineOptions { kappa: f64::NAN, ..OnlineOptions::default() }, "step is NaN"),
        (OnlineOptions { offset: -1.0, ..OnlineOptions::default() }, "offset is -1"),
        (OnlineOptions { reg_covar: -1.0, ..OnlineOptions::default() }, "reg_covar is -1"),
    ] {
        let error = OnlineFit::new(m.clone(), options).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    let error = OnlineFit::resume(m.clone(), None, 3, OnlineOptions::default()).unwrap_err().to_string();
    assert!(error.contains("statistics"), "{error}");
}
