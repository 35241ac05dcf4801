//! Labelled rows, against sums over single rows.

use gmm_model::{CovarianceType, LabelledRows, Statistics, reference};
use ndarray::{Array1, Array2, Axis, array};

use crate::{all_close, close, mixture, rows};

/// The one-component statistics of some rows about a point.
fn group(kind: CovarianceType, x: &Array2<f64>, which: &[usize], weights: &[f64], centre: Array2<f64>) -> Statistics {
    let mut out = Statistics::zero(LabelledRows::group_kind(kind), centre);
    for &i in which {
        reference::accumulate(&mut out, x.row(i), weights[i], array![1.0].view());
    }
    out
}

#[test]
fn labelled_rows_count_for_their_component_only() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 4, kind, 3);
        let x = rows(&m, 40, 4);
        let weights: Vec<f64> = (0..40).map(|i| 0.5 + (i % 3) as f64).collect();
        // Component 1 has no labelled rows.
        let of = |c: usize| -> Vec<usize> { (0..40).filter(|i| i % 5 == c && c != 1).collect() };
        let mut labelled = LabelledRows::new(kind, 3);
        let mut naive = Statistics::zero(kind, m.means().to_owned());
        for c in [0, 2] {
            let far = Array2::from_elem((1, 4), 3.0 * c as f64 - 1.0);
            labelled.insert(c, group(kind, &x, &of(c), &weights, far)).unwrap();
            for i in of(c) {
                let known = Array1::from_shape_fn(3, |other| f64::from(other == c));
                reference::accumulate(&mut naive, x.row(i), weights[i], known.view());
                naive.log_likelihood += weights[i] * reference::log_joint(&m, c, x.row(i));
            }
        }
        let found = labelled.expectation(&m).unwrap();
        assert_eq!((found.n_rows, &found.centres), (16, &naive.centres));
        close(found.total_weight, naive.total_weight, 1e-14);
        close(found.log_likelihood, naive.log_likelihood, 1e-12);
        all_close(&found.weight, &naive.weight, 1e-14);
        all_close(&found.first, &naive.first, 1e-12);
        all_close(&found.second, &naive.second, 1e-11);
        assert_eq!(labelled.groups().map(|(c, _)| c).collect::<Vec<_>>(), [0, 2]);
    }
}

#[test]
fn groups_of_another_kind_or_shape_are_errors() {
    let x = Array2::zeros((3, 2));
    let rows = group(CovarianceType::Diag, &x, &[0, 1], &[1.0; 3], Array2::zeros((1, 2)));
    let mut labelled = LabelledRows::new(CovarianceType::Full, 2);
    assert!(labelled.insert(0, rows.clone()).is_err());
    let mut labelled = LabelledRows::new(CovarianceType::Spherical, 2);
    assert!(labelled.insert(0, rows).is_ok());
    let other = mixture(3, 2, CovarianceType::Spherical, 1);
    assert!(labelled.expectation(&other).is_err());
    assert!(labelled.about(Array2::zeros((2, 5)).select(Axis(0), &[0, 1])).is_err());
}
