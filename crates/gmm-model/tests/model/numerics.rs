//! Factors, thresholds, and the M-step in ill-conditioned cases.

use gmm_model::{
    Cholesky, CovarianceType, Covariances, Mixture, ModelError, Statistics, m_step, packed_len, reference,
};
use ndarray::{Array1, Array2, array};

use crate::{all_close, close, em_step, flat, mixture, rows};

/// A symmetric positive definite matrix of any size.
fn definite(d: usize) -> Array2<f64> {
    mixture(1, d, CovarianceType::Full, d as u64).covariances().matrix(0, d)
}

#[test]
fn factors_of_every_size_give_the_matrix_back() {
    for d in 1..=70 {
        let a = definite(d);
        let factor = Cholesky::new(a.view()).expect("positive definite");
        assert_eq!((factor.dim(), factor.packed().len()), (d, packed_len(d)));
        let lower = Array2::from_shape_fn((d, d), |(i, j)| if j <= i { factor.at(i, j) } else { 0.0 });
        all_close(&lower.dot(&lower.t()), &a, 1e-13);
        let b: Vec<f64> = (0..d).map(|i| (i as f64).sin()).collect();
        let mut y = vec![0.0; d];
        factor.multiply_lower(&b, &mut y);
        all_close(&y, &lower.dot(&Array1::from_vec(b.clone())), 1e-13);
        factor.solve_lower(&mut y);
        all_close(&y, &b, 1e-11);
        let mut back = lower.t().dot(&Array1::from_vec(b.clone())).to_vec();
        factor.solve_lower_transposed(&mut back);
        all_close(&back, &b, 1e-11);
    }
}

#[test]
fn the_logarithm_of_the_determinant_neither_overflows_nor_underflows() {
    for (scale, d) in [(1e-200, 50), (1e200, 50)] {
        let factor = Cholesky::new(Array2::from_diag_elem(d, scale).view()).expect("positive definite");
        close(factor.ln_det(), d as f64 * f64::ln(scale), 1e-14);
    }
}

#[test]
fn whether_a_matrix_is_definite_does_not_depend_on_the_columns_scales() {
    for (a, column) in [(1.0 - 1e-12, None), (1.0 - 1e-16, Some(1))] {
        for scale in [1e-100, 1e-8, 1.0, 1e8, 1e100] {
            let matrix = array![[1.0, a * scale], [a * scale, scale * scale]];
            let found = Cholesky::new(matrix.view()).err().map(|e| e.column);
            assert_eq!(found, column, "{a} {scale}");
        }
    }
}

#[test]
fn symmetry_is_judged_at_every_scale() {
    let with = |scale: f64, skew: f64| {
        let a = array![[scale, 0.5 * scale], [(0.5 + skew) * scale, scale]];
        Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(a))
    };
    for scale in [1e-250, 1e-200, 1.0, 1e200, 1e250] {
        assert!(with(scale, 1e-12).is_ok(), "{scale:e}");
        assert!(matches!(with(scale, 1e-6), Err(ModelError::NotSymmetric { .. })), "{scale:e}");
    }
}

#[test]
fn weights_from_text_are_normalised_once_and_then_kept() {
    let with = |weights: Array1<f64>| {
        Mixture::new(weights, array![[0.0], [1.0], [2.0]], Covariances::Tied(array![[1.0]])).expect("near 1")
    };
    let m = with(array![0.3333333, 0.3333333, 0.3333333]);
    all_close(m.weights(), &[1.0 / 3.0; 3], 1e-15);
    close(m.weights().sum(), 1.0, 1e-15);
    assert_eq!(with(m.weights().to_owned()), m);
    let within_rounding = array![0.1, 0.2, 0.7000000000000001];
    assert_eq!(with(within_rounding.clone()).weights(), within_rounding);
}

#[test]
fn arrays_in_column_order_become_row_major() {
    let turned = |a: Array2<f64>| a.reversed_axes();
    let covariances = Covariances::Diag(turned(array![[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]));
    let m = Mixture::new(array![0.2, 0.3, 0.5], turned(array![[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]), covariances);
    let m = m.expect("valid");
    let Covariances::Diag(a) = m.covariances() else { panic!("diag") };
    let gmm_model::Factors::Diag(sd) = m.factors() else { panic!("diag") };
    assert!(m.means().is_standard_layout() && a.is_standard_layout() && sd.is_standard_layout());
    assert_eq!((m.means()[[0, 1]], a[[0, 1]]), (3.0, 4.0));
}

/// Two components; the second is far away and has a variance below any `reg_covar` used here.
fn with_a_narrow_empty_component(kind: CovarianceType) -> Mixture {
    let covariances = match kind {
        CovarianceType::Full => Covariances::Full(array![[[1.0]], [[1e-30]]]),
        CovarianceType::Diag => Covariances::Diag(array![[1.0], [1e-30]]),
        _ => Covariances::Spherical(array![1.0, 1e-30]),
    };
    Mixture::new(array![0.5, 0.5], array![[0.0], [1e6]], covariances).expect("valid")
}

#[test]
fn an_empty_component_narrower_than_reg_covar_keeps_its_variance() {
    let x = array![[0.0], [1.0], [2.0]];
    for kind in [CovarianceType::Full, CovarianceType::Diag, CovarianceType::Spherical] {
        let step = em_step(&with_a_narrow_empty_component(kind), x.view(), None, 1e-3);
        assert_eq!((step.empty, flat(step.mixture.covariances())[1]), (vec![1], 1e-30), "{kind}");
    }
}

#[test]
fn an_empty_component_keeps_its_mean_whatever_the_centres() {
    let m = with_a_narrow_empty_component(CovarianceType::Diag);
    let mut statistics = Statistics::zero(CovarianceType::Diag, array![[0.5], [0.5]]);
    for x in [0.0, 1.0] {
        reference::accumulate(&mut statistics, array![x].view(), 1.0, array![1.0, 0.0].view());
    }
    assert_eq!(m_step(&statistics, 1e-6, Some(&m)).expect("valid").mixture.means(), array![[0.5], [1e6]]);
    // Without a previous mixture, its mean is its centre and its covariance that of the others.
    let alone = m_step(&statistics, 1e-6, None).expect("valid");
    assert_eq!((alone.empty, alone.mixture.means()), (vec![1], array![[0.5], [0.5]].view()));
    assert_eq!(alone.mixture.covariances(), &Covariances::Diag(array![[0.25 + 1e-6], [0.25 + 1e-6]]));
}

#[test]
fn an_empty_component_gets_the_pooled_covariance_in_every_kind() {
    for kind in CovarianceType::ALL {
        let m = mixture(2, 3, kind, 0);
        let x = rows(&m, 40, 1);
        let mut three = Statistics::zero(
            kind,
            ndarray::concatenate![ndarray::Axis(0), m.means(), m.means().slice(ndarray::s![..1, ..])],
        );
        for x in x.outer_iter() {
            let r = reference::posterior(&m, x).1;
            reference::accumulate(&mut three, x, 1.0, array![r[0], r[1], 0.0].view());
        }
        let found = m_step(&three, 1e-3, None).expect("valid").mixture;
        let live = em_step(&m, x.view(), None, 1e-3).mixture;
        let matrix = |c| live.covariances().matrix(c, 3);
        let pooled = matrix(0) * live.weights()[0] + matrix(1) * live.weights()[1];
        all_close(&found.covariances().matrix(2, 3), &pooled, 1e-13);
    }
}

#[test]
fn a_previous_mixture_of_another_shape_is_an_error() {
    let statistics = reference::statistics(&mixture(2, 2, CovarianceType::Full, 0), array![[0.0, 1.0]].view(), None);
    for other in [mixture(3, 2, CovarianceType::Full, 0), mixture(2, 3, CovarianceType::Full, 0)] {
        assert!(matches!(m_step(&statistics, 1e-6, Some(&other)), Err(ModelError::Shape { .. })));
    }
}

#[test]
fn statistics_of_no_rows_are_an_error() {
    for kind in CovarianceType::ALL {
        let found = m_step(&Statistics::zero(kind, Array2::zeros((2, 2))), 1e-6, None);
        assert!(matches!(found, Err(ModelError::Range { what: "total weight", .. })));
    }
}

#[test]
fn statistics_that_are_not_finite_are_an_error_in_every_part() {
    for kind in CovarianceType::ALL {
        let good = reference::statistics(&mixture(2, 2, kind, 0), array![[0.0, 1.0], [1.0, 3.0]].view(), None);
        for value in [f64::NAN, f64::INFINITY] {
            let (mut weight, mut first, mut second) = (good.clone(), good.clone(), good.clone());
            weight.weight[1] = value;
            first.first[[1, 0]] = value;
            *second.second.last_mut().expect("not empty") = value;
            for bad in [weight, first, second] {
                assert!(!bad.is_finite());
                assert!(m_step(&bad, 1e-6, None).is_err(), "{kind} {value}");
            }
        }
    }
}

#[test]
fn constant_columns_seen_from_far_away_leave_reg_covar_and_no_noise() {
    // About a centre of 0, the second moments of 1e8 are too large to represent a change by reg_covar.
    for kind in CovarianceType::ALL {
        let mut statistics = Statistics::zero(kind, array![[0.0, 0.0, 0.0]]);
        for i in 0..1000 {
            let x = array![1e8 + 0.1, -1e8 / 3.0, if kind == CovarianceType::Spherical { 1e8 } else { f64::from(i) }];
            reference::accumulate(&mut statistics, x.view(), 1.0, array![1.0].view());
        }
        let a = m_step(&statistics, 1e-6, None).expect("regularised").mixture.covariances().matrix(0, 3);
        assert_eq!((a[[0, 0]], a[[1, 1]], a[[0, 1]], a[[2, 0]]), (1e-6, 1e-6, 0.0, 0.0), "{kind}");
    }
}

#[test]
fn adding_statistics_of_other_shape_or_centres_is_an_error_that_changes_nothing() {
    let zero = |kind, k, d, at: f64| Statistics::zero(kind, Array2::from_elem((k, d), at));
    let mut sum = zero(CovarianceType::Full, 2, 2, 0.0);
    let before = sum.clone();
    for other in [zero(CovarianceType::Tied, 2, 2, 0.0), zero(CovarianceType::Full, 3, 2, 0.0)] {
        assert!(matches!(sum.add(&other), Err(gmm_model::StatisticsError::Shape { .. })));
    }
    let moved = sum.add(&zero(CovarianceType::Full, 2, 2, 1.0));
    assert_eq!(moved, Err(gmm_model::StatisticsError::Centres { component: 0 }));
    assert_eq!(sum, before);
}
