//! Properties of a fit: row weights, criteria, transformations of the data, precision.

use super::*;

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
        // A power of two and an integer, so that the transformed rows are exact.
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
