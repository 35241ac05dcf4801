//! Marginal and conditional mixtures, against the chain rule and results by hand.

use gmm_model::{CovarianceType, Covariances, Mixture, ModelError, reference};
use ndarray::{Array1, array};

use crate::{close, mixture, mixtures_close, rows};

fn log_density(m: &Mixture, x: &[f64]) -> f64 {
    reference::posterior(m, ndarray::aview1(x)).0
}

#[test]
fn the_joint_density_is_the_marginal_times_the_conditional() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 5, kind, 4);
        for given in [vec![0], vec![4, 1], vec![2, 0, 3], vec![3, 2, 1, 0]] {
            let others: Vec<usize> = (0..5).filter(|j| !given.contains(j)).collect();
            for x in rows(&m, 5, 1).outer_iter() {
                let pick = |columns: &[usize]| columns.iter().map(|&j| x[j]).collect::<Vec<_>>();
                let marginal = m.marginal(&given).expect("columns");
                let conditional = m.conditional(&given, &pick(&given)).expect("columns");
                assert_eq!((marginal.covariance_type(), conditional.covariance_type()), (kind, kind));
                let product = log_density(&marginal, &pick(&given)) + log_density(&conditional, &pick(&others));
                close(product, log_density(&m, x.to_slice().expect("a row")), 1e-12);
            }
        }
    }
}

#[test]
fn marginals_keep_the_order_asked_for() {
    let m = mixture(2, 4, CovarianceType::Full, 0);
    let some = m.marginal(&[3, 1]).expect("columns");
    for c in 0..2 {
        assert_eq!(some.means().row(c), array![m.means()[[c, 3]], m.means()[[c, 1]]]);
        let (a, b) = (m.covariances().matrix(c, 4), some.covariances().matrix(c, 2));
        assert_eq!(b, array![[a[[3, 3]], a[[3, 1]]], [a[[1, 3]], a[[1, 1]]]]);
    }
    mixtures_close(&m.marginal(&[0, 1, 2, 3]).expect("columns"), &m, 0.0);
}

#[test]
fn conditioning_agrees_with_the_textbook_in_two_dimensions() {
    let (rho, s1, s2) = (0.6, 2.0, 0.5);
    let cross = rho * s1 * s2;
    let covariance = array![[[s1 * s1, cross], [cross, s2 * s2]]];
    let m = Mixture::new(array![1.0], array![[1.0, -1.0]], Covariances::Full(covariance)).expect("valid");
    let given_first = m.conditional(&[0], &[3.0]).expect("column");
    close(given_first.means()[[0, 0]], -1.0 + rho * s2 / s1 * 2.0, 1e-15);
    close(given_first.covariances().matrix(0, 1)[[0, 0]], s2 * s2 * (1.0 - rho * rho), 1e-15);
}

#[test]
fn a_tied_conditional_has_component_means_and_one_covariance() {
    let m = mixture(3, 3, CovarianceType::Tied, 8);
    let conditional = m.conditional(&[1], &[0.3]).expect("column");
    let Covariances::Tied(a) = conditional.covariances() else { panic!("tied") };
    let full = m.covariances().matrix(0, 3);
    for (i, from) in [(0, 0), (1, 2)] {
        for c in 0..3 {
            let slope = full[[from, 1]] / full[[1, 1]];
            let expected = m.means()[[c, from]] + slope * (0.3 - m.means()[[c, 1]]);
            close(conditional.means()[[c, i]], expected, 1e-13);
        }
        close(a[[i, i]], full[[from, from]] - full[[from, 1]].powi(2) / full[[1, 1]], 1e-13);
    }
}

#[test]
fn weights_are_right_in_the_far_tail() {
    // At 1000 both densities underflow, but their ratio is exp(1000 * (1 − (−1))) in favour of the component on the
    // right.
    let m = Mixture::new(
        array![0.5, 0.5],
        array![[-1.0, 5.0], [1.0, 6.0]],
        Covariances::Diag(array![[1.0, 1.0], [1.0, 1.0]]),
    )
    .expect("valid");
    assert_eq!(m.conditional(&[0], &[1000.0]).expect("column").weights(), array![0.0, 1.0]);
    let tie = m.conditional(&[0], &[0.0]).expect("column");
    assert_eq!(tie.weights(), array![0.5, 0.5]);
}

#[test]
fn weights_stay_where_every_density_underflows() {
    let weights = array![0.25, 0.75];
    let m = Mixture::new(weights.clone(), array![[-1.0, 5.0], [1.0, 6.0]], Covariances::Spherical(array![1.0, 2.0]));
    let far = m.expect("valid").conditional(&[0], &[1e200]).expect("column");
    assert_eq!((far.weights(), far.means()), (weights.view(), array![[5.0], [6.0]].view()));
}

#[test]
fn nearly_singular_covariances_condition_to_positive_ones() {
    // The Schur complement, 1e-10, would lose most significant digits if computed as a difference of numbers near 1.
    let near = 1.0 - 0.5e-10;
    let m = Mixture::new(array![1.0], array![[0.0, 0.0]], Covariances::Tied(array![[1.0, near], [near, 1.0]]));
    let variance = m.expect("valid").conditional(&[0], &[2.0]).expect("column").covariances().matrix(0, 1)[[0, 0]];
    assert!((variance / 1e-10 - 1.0).abs() < 1e-5, "{variance:e}");
}

#[test]
fn row_50_a_column_that_is_not_there_or_twice_is_an_error() {
    let m = mixture(2, 3, CovarianceType::Full, 0);
    assert!(matches!(m.marginal(&[0, 3]), Err(ModelError::Column { index: 3, d: 3, .. })));
    assert!(matches!(m.marginal(&[1, 0, 1]), Err(ModelError::Column { index: 1, .. })));
    assert!(matches!(m.conditional(&[5], &[0.0]), Err(ModelError::Column { index: 5, .. })));
    assert!(matches!(m.conditional(&[2, 2], &[0.0, 0.0]), Err(ModelError::Column { index: 2, .. })));
    assert!(matches!(m.marginal(&[]), Err(ModelError::Range { .. })));
}

#[test]
fn conditioning_on_all_columns_or_on_wrong_values_is_an_error() {
    let m = mixture(2, 2, CovarianceType::Diag, 0);
    assert!(matches!(m.conditional(&[0, 1], &[0.0, 0.0]), Err(ModelError::Range { .. })));
    assert!(matches!(m.conditional(&[0], &[0.0, 1.0]), Err(ModelError::Shape { .. })));
    assert!(matches!(m.conditional(&[0], &[f64::NAN]), Err(ModelError::Range { .. })));
}

#[test]
fn one_component_can_be_taken_out() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 2, kind, 6);
        let one = m.component(1).expect("component");
        assert_eq!((one.weights(), one.means().row(0)), (Array1::ones(1).view(), m.means().row(1)));
        assert_eq!(one.covariances().matrix(0, 2), m.covariances().matrix(1, 2));
        assert!(matches!(m.component(3), Err(ModelError::Range { .. })));
    }
}

#[test]
fn permuting_back_is_the_same_to_the_bit() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 2, kind, 6);
        let there = m.permuted(&[2, 0, 1]).expect("permutation");
        assert_eq!(there.means().row(0), m.means().row(2));
        assert_eq!(there.permuted(&[1, 2, 0]).expect("permutation"), m);
        for wrong in [&[0, 1][..], &[0, 0, 1], &[0, 1, 3], &[0, 1, 2, 0]] {
            assert!(matches!(m.permuted(wrong), Err(ModelError::Range { .. })), "{wrong:?}");
        }
    }
}
