//! The rows of the table of bad input that fitting handles.

use super::*;

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
    // Diag covariances of this size are 384 MB.
    let Error::CovarianceMemory { kind: CovarianceType::Full, d: 2000, wanted, free } = error else {
        panic!("{error}")
    };
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
