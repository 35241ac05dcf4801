//! The naive reference for measurement errors against other definitions, and checked errors.

use gmm_model::deconvolution::reference::{self as naive, Measurement};
use gmm_model::deconvolution::{MeasurementErrors, TrueRows};
use gmm_model::{Dataset, Statistics, missing};
use ndarray::array;

use super::*;

/// `c eps` times the size of the moments, where the solutions can magnify errors by the condition of the covariances.
const TOLERANCE: f64 = 1e-11;

fn statistics_close(a: &Statistics, b: &Statistics) {
    all_close(&a.weight, &b.weight, TOLERANCE);
    all_close(&a.first, &b.first, TOLERANCE);
    all_close(&a.second, &b.second, TOLERANCE);
    close(a.log_likelihood, b.log_likelihood, TOLERANCE);
    close(a.total_weight, b.total_weight, TOLERANCE);
    assert_eq!(a.n_rows, b.n_rows);
}

fn with(rows: Array2<f64>, deviations: Array2<f64>) -> Dataset {
    let errors = MeasurementErrors::from_deviations(deviations).unwrap();
    Dataset::with_holes(rows).unwrap().with_measurement_errors(errors).unwrap()
}

#[test]
fn a_row_of_one_column_is_that_of_the_sum_of_two_normal_variables() {
    // By hand: variance 4, error 3² = 9, so T = 13; z = 6.5 gives b − μ = 4 z / 13 = 2 and B = 4 · 9 / 13.
    let m = Mixture::new(array![1.0], array![[1.0]], Covariances::Full(Array3::from_elem((1, 1, 1), 4.0))).unwrap();
    let data = with(array![[7.5]], array![[3.0]]);
    let (log_density, b, rest) = naive::component(&m, 0, &Measurement::of(&data, 0));
    close(log_density, -0.5 * ((2.0 * std::f64::consts::PI * 13.0).ln() + 6.5 * 6.5 / 13.0), 1e-14);
    close(b[0], 3.0, 1e-14);
    close(rest[[0, 0]], 36.0 / 13.0, 1e-14);
    let statistics = naive::statistics(&m, &data);
    close(statistics.second[0], 4.0 + 36.0 / 13.0, 1e-14);
}

#[test]
fn exact_rows_have_the_statistics_of_plain_ones_and_those_with_holes_of_missing_values() {
    for kind in CovarianceType::ALL {
        let m = mixture(2, 3, kind, 1);
        let x = rows(&m, 25, 2);
        let zero = || Array2::zeros((25, 3));
        let found = naive::statistics(&m, &with(x.clone(), zero()));
        statistics_close(&found, &reference::statistics(&m, x.view(), None));
        let holes = Array2::from_shape_fn((25, 3), |(i, j)| if (i + 2 * j) % 4 == 0 { f64::NAN } else { x[[i, j]] });
        let want = missing::reference::statistics(&m, holes.view(), None);
        statistics_close(&naive::statistics(&m, &with(holes, zero())), &want);
    }
}

#[test]
fn a_turn_of_the_rows_and_its_reverse_as_projection_change_nothing() {
    // Rows in other coordinates: w = R v with a shear R, and errors R S Rᵀ.
    let m = mixture(2, 2, CovarianceType::Full, 3);
    let x = rows(&m, 20, 4);
    let shear = array![[1.0, 0.7], [0.0, 2.0]];
    let s = Array3::from_shape_fn((20, 2, 2), |(r, i, j)| if i == j { 0.1 * (1 + r % 3) as f64 } else { 0.05 });
    let turned = Array3::from_shape_fn((20, 2, 2), |(r, i, j)| {
        shear.dot(&s.index_axis(ndarray::Axis(0), r)).dot(&shear.t())[[i, j]]
    });
    let projections = Array3::from_shape_fn((20, 2, 2), |(_, i, j)| shear[[i, j]]);
    let plain = Dataset::new(x.clone()).unwrap();
    let plain = plain.with_measurement_errors(MeasurementErrors::from_covariances(&s).unwrap()).unwrap();
    let errors = MeasurementErrors::from_covariances(&turned).unwrap();
    let views = Dataset::of_views(x.dot(&shear.t()), projections, errors).unwrap();
    // The points are the rows themselves, since the views determine them.
    all_close(&views.rows().to_f64(), &x, 1e-6);
    let (mut got, want) = (naive::statistics(&m, &views), naive::statistics(&m, &plain));
    // The density of w is that of v over the determinant, 2.
    got.log_likelihood += 20.0 * 2f64.ln();
    statistics_close(&got, &want);
}

#[test]
fn true_rows_are_those_of_the_reference() {
    for kind in CovarianceType::ALL {
        let m = mixture(3, 3, kind, 5);
        let data = with(rows(&m, 12, 8), Array2::from_shape_fn((12, 3), |(i, j)| ((i + j) % 4) as f64));
        let conditioned = TrueRows::new(&m);
        for row in 0..12 {
            let x = Measurement::of(&data, row);
            let (_, r) = naive::posterior(&m, &x);
            let (mean, covariance) = conditioned.of(&data, row, r.view()).unwrap();
            let (want_mean, want_covariance) = naive::true_row(&m, &x);
            all_close(&mean, &want_mean, TOLERANCE);
            all_close(&covariance, &want_covariance, TOLERANCE);
        }
    }
}

#[test]
fn errors_go_with_their_rows() {
    let data = with(array![[1.0], [2.0], [3.0], [4.0]], array![[0.1], [0.2], [0.3], [0.4]]);
    let variances = |data: &Dataset| data.measurement_errors().unwrap().covariances().values().column(0).to_vec();
    all_close(&variances(&data.part(1..3)), &[0.2f64 * 0.2, 0.3 * 0.3], 1e-15);
    all_close(&variances(&data.select_rows(&[3, 0, 0])), &[0.4f64 * 0.4, 0.1 * 0.1, 0.1 * 0.1], 1e-15);
    let weighted = data.clone().with_weights(vec![0.0, 1.0, 0.0, 2.0]).unwrap();
    all_close(&variances(&weighted.without_absent_rows().unwrap()), &[0.2f64 * 0.2, 0.4 * 0.4], 1e-15);
    assert!(data.without_measurement_errors().measurement_errors().is_none());
    let errors = data.measurement_errors().unwrap();
    assert_eq!((errors.dim(), errors.matrix(1)), ((4, 1), array![[0.2 * 0.2]]));
}

#[test]
fn singular_error_covariances_of_any_rank_are_accepted() {
    for m in 1..=7 {
        for rank in 0..=m {
            let a = Array2::from_shape_fn((m, rank), |(i, j)| ((3 * i + 5 * j * j) % 7) as f64 - 3.0);
            let s = a.dot(&a.t());
            let all = Array3::from_shape_fn((2, m, m), |(_, i, j)| s[[i, j]]);
            let errors = MeasurementErrors::from_covariances(&all).unwrap();
            assert_eq!((errors.dim(), errors.matrix(1)), ((2, m), s.clone()), "{m} {rank}");
            let single = all.mapv(|v| f64::from((v / 3.0) as f32));
            assert!(MeasurementErrors::from_covariances(&single).is_ok(), "{m} {rank}");
        }
    }
}
