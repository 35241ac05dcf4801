//! Degenerate numbers: rows 21 to 38 of the table of bad input, by number.

use gmm_model::{CovarianceType, DataError, Dataset, Mixture, ModelError, m_step, reference};
use ndarray::{Array2, Axis, array};

use crate::{close, em_step, flat, mixture, mixtures_close, not_positive_definite, rows, try_step, unit};

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
    // One of two components is at a single point.
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
        // Near the constant but not at it, so that the moments must cancel.
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
    // As many rows as columns is the hardest case: only the last pivot should be zero, and its rounding error can be
    // large.
    for (d, n, seed) in [(3, 2), (3, 3), (12, 2), (12, 6), (12, 11), (12, 12)]
        .into_iter()
        .flat_map(|(d, n)| (0..60).map(move |seed| (d, n, seed)))
    {
        let x = rows(&mixture(1, d, CovarianceType::Full, seed), n, seed);
        for kind in CovarianceType::ALL {
            let m = unit(kind, Array2::zeros((1, d)));
            assert!(try_step(&m, &x, 1e-6).is_ok(), "{kind}");
            if matches!(kind, CovarianceType::Full | CovarianceType::Tied) {
                // n rows about their mean span n − 1 dimensions: the next column fails, or, by rounding errors in it, a
                // later one.
                assert!(not_positive_definite(try_step(&m, &x, 0.0)).1 >= n - 1);
            }
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
        // The same rows without the offset, but with the rounding that it caused.
        let near = far.mapv(|v| v - 1e8);
        let shifted = Mixture::new(m.weights().to_owned(), m.means().mapv(|v| v + 1e8), m.covariances().clone());
        let (a, b) = (em_step(&shifted.expect("valid"), far.view(), None, 0.0), em_step(&m, near.view(), None, 0.0));
        crate::all_close(a.mixture.weights(), b.mixture.weights(), 1e-6);
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
        // If the starting means are not at the points, the moments cancel.
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

#[test]
fn of_many_numbers_that_are_none_the_first_is_named_whoever_finds_it() {
    let mut rows = Array2::<f32>::zeros((1_100_003, 3));
    assert!(Dataset::new(rows.clone()).is_ok());
    // The last row first, then ever earlier ones, so that each thread's part has one.
    for at in [1_100_002, 800_000, 550_000, 549_999, 300_000, 2, 0] {
        rows[[at, at % 3]] = [f32::NAN, f32::INFINITY][at % 2];
        let found = Dataset::new(rows.clone());
        let named = matches!(&found, Err(DataError::NotFinite { row, column, .. }) if (*row, *column) == (at, at % 3));
        assert!(named, "{at}: {found:?}");
    }
}
