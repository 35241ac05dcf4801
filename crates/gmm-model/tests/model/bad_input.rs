//! The rows of the table of bad input that the model library decides, by number.

use gmm_model::{CovarianceType, Covariances, DataError, Dataset, Mixture, ModelError, m_step, reference};
use ndarray::{Array1, Array2, Array3, Axis, array};

use crate::{close, em_step, flat, mixture, mixtures_close, rows};

/// `k` components of the kind with unit covariances at the given means.
fn unit(kind: CovarianceType, means: Array2<f64>) -> Mixture {
    let (k, d) = means.dim();
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(Array3::from_shape_fn((k, d, d), |(_, i, j)| f64::from(i == j))),
        CovarianceType::Tied => Covariances::Tied(Array2::eye(d)),
        CovarianceType::Diag => Covariances::Diag(Array2::ones((k, d))),
        CovarianceType::Spherical => Covariances::Spherical(Array1::ones(k)),
    };
    Mixture::new(Array1::from_elem(k, 1.0 / k as f64), means, covariances).expect("valid")
}

fn try_step(m: &Mixture, x: &Array2<f64>, reg_covar: f64) -> Result<Mixture, ModelError> {
    m_step(&reference::statistics(m, x.view(), None), reg_covar, Some(m)).map(|step| step.mixture)
}

#[track_caller]
fn not_positive_definite(found: Result<Mixture, ModelError>) -> (usize, usize) {
    match found {
        Err(ModelError::NotPositiveDefinite { component, column, .. }) => (component, column),
        other => panic!("{other:?}"),
    }
}

#[test]
fn rows_1_and_2_no_rows_or_no_columns_are_errors_with_the_shape() {
    assert_eq!(Dataset::new(Array2::<f64>::zeros((0, 3))), Err(DataError::Empty { n: 0, d: 3 }));
    assert_eq!(Dataset::new(Array2::<f32>::zeros((4, 0))), Err(DataError::Empty { n: 4, d: 0 }));
}

#[test]
fn rows_9_and_10_nan_and_infinity_are_errors_with_the_first_row_and_column() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        let mut x = Array2::zeros((5, 3));
        (x[[3, 1]], x[[4, 0]]) = (value, f64::NAN);
        for found in [Dataset::new(x.clone()), Dataset::new(x.mapv(|v| v as f32)), Dataset::new(fortran(&x))] {
            assert!(matches!(found, Err(DataError::NotFinite { row: 3, column: 1, .. })), "{found:?}");
        }
    }
}

fn fortran(x: &Array2<f64>) -> Array2<f64> {
    x.t().as_standard_layout().into_owned().reversed_axes()
}

#[test]
fn row_16_column_order_is_the_same_data() {
    let x = Array2::from_shape_fn((4, 3), |(i, j)| (i * 10 + j) as f64);
    assert_eq!(Dataset::new(fortran(&x)), Dataset::new(x));
}

#[test]
fn row_21_identical_points_give_reg_times_the_identity() {
    let x = Array2::from_elem((10, 2), 3.7);
    for kind in CovarianceType::ALL {
        let new = try_step(&unit(kind, array![[0.0, 0.0]]), &x, 1e-6).expect("regularised");
        assert_eq!(new.covariances().matrix(0, 2), Array2::from_diag_elem(2, 1e-6), "{kind}");
        assert!(new.means().iter().all(|&v| (v - 3.7).abs() < 1e-14));
    }
}

#[test]
fn row_22_identical_points_and_three_components_stay_finite() {
    let x = Array2::from_elem((10, 2), 3.7);
    for kind in CovarianceType::ALL {
        let mut m = unit(kind, array![[0.0, 0.0], [1.0, 3.0], [5.0, 5.0]]);
        for _ in 0..5 {
            m = try_step(&m, &x, 1e-6).expect("regularised");
        }
        assert!(reference::log_densities(&m, x.view()).iter().all(|v| v.is_finite()));
    }
}

#[test]
fn row_23_identical_points_without_reg_are_an_error_that_names_the_component() {
    let x = Array2::from_elem((10, 2), 3.7);
    for kind in CovarianceType::ALL {
        let found = try_step(&unit(kind, array![[0.0, 0.0]]), &x, 0.0);
        assert_eq!(not_positive_definite(found), (0, 0), "{kind}");
    }
    // One component of two sits on a single point.
    let x = array![[0.0], [1.0], [2.0], [1000.0], [1000.0]];
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        assert_eq!(not_positive_definite(try_step(&unit(kind, array![[1.0], [1000.0]]), &x, 0.0)).0, 1);
    }
}

#[test]
fn row_24_a_constant_column_fits_with_reg_and_is_an_error_that_names_it_without() {
    for constant in [0.0, 0.1, 12_345.678, 1e8] {
        let mut x = rows(&mixture(1, 3, CovarianceType::Full, 1), 101, 2);
        x.column_mut(1).fill(constant);
        let mut start = x.select(Axis(0), &[0, 1]);
        // Neither at the constant nor far from it: the moments must cancel.
        start.column_mut(1).mapv_inplace(|v| v + 0.37);
        for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
            let m = unit(kind, start.clone());
            let mut fit = try_step(&m, &x, 1e-6).expect("regularised");
            assert_eq!(fit.covariances().matrix(0, 3)[[1, 1]], 1e-6, "{kind} {constant}");
            fit = try_step(&fit, &x, 1e-6).expect("regularised");
            assert_eq!(fit.covariances().matrix(1, 3)[[1, 1]], 1e-6, "{kind} {constant}");
            assert_eq!(not_positive_definite(try_step(&m, &x, 0.0)).1, 1, "{kind} {constant}");
        }
    }
}

#[test]
fn row_25_collinear_columns_fit_with_reg_and_are_an_error_that_names_one_without() {
    for seed in 0..20 {
        let mut x = rows(&mixture(2, 3, CovarianceType::Full, seed), 200, seed);
        for mut row in x.outer_iter_mut() {
            row[2] = 0.3 * row[0] + 0.7 * row[1] + 100.0;
        }
        for kind in [CovarianceType::Full, CovarianceType::Tied] {
            let m = unit(kind, x.select(Axis(0), &[0, 50]));
            assert!(try_step(&m, &x, 1e-6).is_ok(), "{kind} {seed}");
            assert_eq!(not_positive_definite(try_step(&m, &x, 0.0)).1, 2, "{kind} {seed}");
        }
    }
}

#[test]
fn row_26_more_columns_than_rows_fit_with_reg_and_are_an_error_without() {
    let x = rows(&mixture(1, 12, CovarianceType::Full, 1), 5, 2);
    for kind in CovarianceType::ALL {
        let m = unit(kind, Array2::zeros((1, 12)));
        assert!(try_step(&m, &x, 1e-6).is_ok(), "{kind}");
        if matches!(kind, CovarianceType::Full | CovarianceType::Tied) {
            // Five rows about their mean span four dimensions, so the fifth column fails, or noise in it a later one.
            assert!(not_positive_definite(try_step(&m, &x, 0.0)).1 >= 4);
        }
    }
}

#[test]
fn row_27_one_dimension_is_the_same_model_in_every_kind_that_is_not_tied() {
    let x = rows(&mixture(2, 1, CovarianceType::Diag, 3), 50, 1);
    let kinds = [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical];
    let [a, b, c] =
        kinds.map(|kind| flat(try_step(&unit(kind, array![[-1.0], [1.0]]), &x, 0.0).expect("fits").covariances()));
    crate::all_close(&a, &b, 1e-15);
    crate::all_close(&a, &c, 1e-15);
}

#[test]
fn row_29_an_offset_of_1e8_costs_only_what_the_data_lost() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 3, kind, 4);
        let x = rows(&m, 300, 5);
        let far = x.mapv(|v| v + 1e8);
        // The same rows without the offset, rounded as the offset rounds them.
        let near = far.mapv(|v| v - 1e8);
        let shifted = Mixture::new(m.weights().to_owned(), m.means().mapv(|v| v + 1e8), m.covariances().clone());
        let (a, b) = (em_step(&shifted.expect("valid"), far.view(), None, 0.0), em_step(&m, near.view(), None, 0.0));
        crate::all_close(&a.mixture.weights(), &b.mixture.weights(), 1e-6);
        crate::all_close(&flat(a.mixture.covariances()), &flat(b.mixture.covariances()), 1e-6);
        assert!((&a.mixture.means() - &b.mixture.means() - 1e8).iter().all(|v| v.abs() < 1e-6));
    }
}

#[test]
fn row_31_two_points_far_apart_give_variances_of_reg() {
    for kind in CovarianceType::ALL {
        let m = unit(kind, array![[9999.0, 9999.0], [0.0, 0.0]]);
        let x = array![[9999.0, 9999.0], [0.0, 0.0], [9999.0, 9999.0], [0.0, 0.0]];
        let new = try_step(&m, &x, 0.1).expect("regularised");
        assert!((0..2).all(|c| new.covariances().matrix(c, 2) == Array2::from_diag_elem(2, 0.1)), "{kind}");
        // From starts that are not on the points the moments cancel.
        let off = try_step(&unit(kind, array![[9000.0, 9100.0], [-100.0, 50.0]]), &x, 0.1).expect("regularised");
        assert!((0..2).all(|c| (off.covariances().matrix(c, 2)[[0, 0]] - 0.1).abs() < 1e-8), "{kind}");
    }
}

#[test]
fn row_32_squares_that_overflow_are_an_error_and_not_a_fit() {
    let x = array![[1e200, 0.0], [-1e200, 1.0], [2e200, 3.0]];
    for kind in CovarianceType::ALL {
        let statistics = reference::statistics(&unit(kind, array![[0.0, 0.0]]), x.view(), None);
        assert!(!statistics.is_finite() && statistics.first_not_finite_component() == Some(0));
        assert!(matches!(m_step(&statistics, 1e-6, None), Err(ModelError::NotFinite { component: 0, .. })), "{kind}");
    }
}

#[test]
fn row_33_squares_that_underflow_leave_reg() {
    let x = array![[1e-200], [-1e-200], [2e-200]];
    for kind in CovarianceType::ALL {
        let m = unit(kind, array![[0.0]]);
        assert_eq!(flat(try_step(&m, &x, 1e-6).expect("regularised").covariances()), [1e-6]);
        not_positive_definite(try_step(&m, &x, 0.0));
    }
}

#[test]
fn row_34_a_component_that_empties_keeps_its_mean_and_covariance_to_the_bit() {
    let x = rows(&mixture(1, 2, CovarianceType::Full, 0), 50, 0);
    for kind in CovarianceType::ALL {
        let mut m = unit(kind, array![[0.0, 0.0], [1e6, 1e6]]);
        let mut last = f64::NEG_INFINITY;
        for _ in 0..5 {
            let before = m.clone();
            let step = em_step(&m, x.view(), None, 1e-6);
            assert_eq!(step.empty, [1], "{kind}");
            m = step.mixture;
            assert_eq!((m.weights()[1], m.means().row(1)), (0.0, before.means().row(1)));
            if kind != CovarianceType::Tied {
                assert_eq!(m.covariances().matrix(1, 2), before.covariances().matrix(1, 2));
            }
            let now = reference::log_densities(&m, x.view()).sum();
            assert!(now >= last && now.is_finite());
            last = now;
        }
    }
}

#[test]
fn row_35_responsibilities_that_underflow_still_sum_to_one() {
    let m = unit(CovarianceType::Full, array![[0.0], [1e-3], [3.0]]);
    for x in [30.0, 1e3, 1e5, 1e7, -1e7, 1e150] {
        let (log_density, r) = reference::posterior(&m, array![x].view());
        assert!(log_density.is_finite() && (r.sum() - 1.0).abs() <= 4.0 * f64::EPSILON, "{x}: {r}");
    }
}

#[test]
fn row_36_a_point_at_1e200_has_log_density_minus_infinity_and_the_heaviest_label() {
    for kind in CovarianceType::ALL {
        let m = unit(kind, array![[0.0, 0.0], [1.0, 1.0]]);
        let heavier = Mixture::new(array![0.3, 0.7], m.means().to_owned(), m.covariances().clone()).expect("valid");
        let (log_density, r) = reference::posterior(&heavier, array![1e200, -1e200].view());
        assert_eq!((log_density, reference::argmax(r.view())), (f64::NEG_INFINITY, 1));
        assert_eq!(r, array![0.3, 0.7]);
    }
}

#[test]
fn row_37_a_zero_weight_at_the_start_is_finite() {
    let x = rows(&mixture(1, 2, CovarianceType::Full, 0), 50, 0);
    for kind in CovarianceType::ALL {
        let start = unit(kind, array![[0.0, 0.0], [1.0, 1.0]]);
        let m = Mixture::new(array![1.0, 0.0], start.means().to_owned(), start.covariances().clone()).expect("valid");
        let step = em_step(&m, x.view(), None, 1e-6);
        assert_eq!((step.empty, step.mixture.weights()), (vec![1], array![1.0, 0.0].view()));
        assert!(reference::log_densities(&step.mixture, x.view()).iter().all(|v| v.is_finite()));
    }
}

#[test]
fn row_38_columns_of_all_scales_together_lose_nothing() {
    let x = rows(&mixture(1, 5, CovarianceType::Full, 3), 200, 1);
    let scale = array![1e-8, 1e-4, 1.0, 1e4, 1e8];
    for kind in [CovarianceType::Full, CovarianceType::Tied, CovarianceType::Diag] {
        let a = em_step(&mixture(1, 5, kind, 3), x.view(), None, 0.0).mixture;
        let b = try_step(&unit(kind, Array2::zeros((1, 5))), &(&x * &scale), 0.0).expect("fits");
        let (a, b) = (a.covariances().matrix(0, 5), b.covariances().matrix(0, 5));
        for ((i, j), v) in b.indexed_iter() {
            close(v / (scale[i] * scale[j]), a[[i, j]], 1e-12);
        }
    }
}

#[test]
fn row_43_a_reg_covar_that_is_negative_or_nan_is_an_error() {
    let m = unit(CovarianceType::Diag, array![[0.0]]);
    for reg_covar in [-1e-6, f64::NAN, f64::INFINITY] {
        let found = try_step(&m, &array![[0.0], [1.0]], reg_covar);
        assert!(matches!(found, Err(ModelError::Range { what: "reg_covar", .. })));
    }
}

#[test]
fn row_44_an_unknown_word_is_an_error_that_lists_the_choices() {
    let error = "fulll".parse::<CovarianceType>().expect_err("no such kind").to_string();
    assert_eq!(error, "unknown covariance type 'fulll': choose one of full, tied, diag, spherical");
    assert!("f16".parse::<gmm_model::Precision>().is_err());
}

#[test]
fn row_45_weights_that_are_no_distribution_are_an_error() {
    let with =
        |weights: Array1<f64>| Mixture::new(weights, array![[0.0], [1.0]], Covariances::Spherical(array![1.0, 1.0]));
    assert!(matches!(with(array![0.5, 0.6]), Err(ModelError::WeightSum { .. })));
    assert!(matches!(with(array![0.0, 0.0]), Err(ModelError::WeightSum { .. })));
    assert!(matches!(with(array![1.5, -0.5]), Err(ModelError::NegativeWeight { component: 1, .. })));
    assert!(matches!(with(array![f64::NAN, 1.0]), Err(ModelError::NotFinite { what: "weight", component: 0, .. })));
    assert!(matches!(with(array![1.0]), Err(ModelError::Shape { what: "weights", .. })));
}

#[test]
fn row_46_means_of_the_wrong_shape_or_nan_are_an_error() {
    let with = |means: Array2<f64>| Mixture::new(array![1.0], means, Covariances::Spherical(array![1.0]));
    assert!(matches!(with(Array2::zeros((0, 2))), Err(ModelError::Shape { what: "means", .. })));
    assert!(matches!(with(Array2::zeros((1, 0))), Err(ModelError::Shape { what: "means", .. })));
    assert!(matches!(with(Array2::zeros((2, 2))), Err(ModelError::Shape { .. })));
    assert!(matches!(with(array![[0.0, f64::NAN]]), Err(ModelError::NotFinite { what: "mean", component: 0, .. })));
}

#[test]
fn row_47_covariances_that_cannot_be_are_errors_that_name_component_and_pivot() {
    let with = |covariances| Mixture::new(array![0.5, 0.5], array![[0.0, 0.0], [1.0, 1.0]], covariances);
    let full = |second: Array2<f64>| {
        let mut all = Array3::from_shape_fn((2, 2, 2), |(_, i, j)| f64::from(i == j));
        all.index_axis_mut(Axis(0), 1).assign(&second);
        with(Covariances::Full(all))
    };
    let skew = full(array![[1.0, 0.5], [0.4, 1.0]]);
    assert_eq!(skew, Err(ModelError::NotSymmetric { component: 1, row: 1, column: 0 }));
    let indefinite = full(array![[1.0, 2.0], [2.0, 1.0]]);
    let kind = CovarianceType::Full;
    assert_eq!(indefinite, Err(ModelError::NotPositiveDefinite { component: 1, column: 1, pivot: -3.0, kind }));
    assert_eq!(not_positive_definite(full(array![[0.0, 0.0], [0.0, 1.0]])), (1, 0));
    assert!(matches!(full(array![[1.0, f64::NAN], [0.0, 1.0]]), Err(ModelError::NotFinite { component: 1, .. })));
    assert_eq!(not_positive_definite(with(Covariances::Tied(array![[1.0, 1.0], [1.0, 1.0]]))), (0, 1));
    assert_eq!(not_positive_definite(with(Covariances::Diag(array![[1.0, 1.0], [1.0, 0.0]]))), (1, 1));
    assert_eq!(not_positive_definite(with(Covariances::Spherical(array![1.0, -1.0]))), (1, 0));
    assert!(matches!(with(Covariances::Spherical(array![1.0])), Err(ModelError::Shape { what: "covariances", .. })));
}

#[test]
fn row_49_row_weights_that_cannot_be_are_errors() {
    let with = |weights: Vec<f64>| Dataset::new(Array2::<f64>::zeros((3, 1))).expect("rows").with_weights(weights);
    assert_eq!(with(vec![1.0; 2]), Err(DataError::WeightLength { found: 2, n: 3 }));
    assert_eq!(with(vec![1.0, -1.0, 1.0]), Err(DataError::Weight { row: 1, value: -1.0 }));
    assert!(matches!(with(vec![1.0, 1.0, f64::NAN]), Err(DataError::Weight { row: 2, .. })));
    assert_eq!(with(vec![0.0; 3]), Err(DataError::WeightSum { sum: 0.0 }));
    assert!(matches!(with(vec![f64::MAX; 3]), Err(DataError::WeightSum { .. })));
    let weighted = with(vec![0.0, 1.5, 2.0]).expect("valid");
    assert_eq!((weighted.total_weight(), weighted.weight(1)), (3.5, 1.5));
}

#[test]
fn a_component_that_is_empty_changes_nothing_for_the_others() {
    let x = rows(&mixture(2, 2, CovarianceType::Full, 0), 50, 0);
    for kind in CovarianceType::ALL {
        let two = unit(kind, array![[0.0, 0.0], [1.0, 1.0]]);
        let three = unit(kind, array![[0.0, 0.0], [1.0, 1.0], [1e6, 1e6]]);
        let (a, b) = (em_step(&two, x.view(), None, 1e-6).mixture, em_step(&three, x.view(), None, 1e-6).mixture);
        let live = |m: &Mixture| (0..2).map(|c| m.component(c).expect("there")).collect::<Vec<_>>();
        live(&a).iter().zip(live(&b)).for_each(|(a, b)| mixtures_close(a, &b, 1e-12));
    }
}
